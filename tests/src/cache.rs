//! The directory, outside the source tree, that keeps what is slow to make: guest images, Slurm headers, base images.
//!
//! An entry is named by the hash of its recipe. It is made under a temporary name and renamed when complete, so an
//! interrupted build is never taken for a good one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The cache directory.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens `$MUSTER_CACHE`, by default /var/cache/muster-lab, and makes it where it does not exist.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn open() -> Result<Self> {
        let root = std::env::var_os("MUSTER_CACHE")
            .map_or_else(|| PathBuf::from("/var/cache/muster-lab"), PathBuf::from);
        Self::at(root)
    }

    /// Opens the cache at `root`, and makes it where it does not exist.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn at(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(&root)
            .with_context(|| format!("make the cache directory {}", root.display()))?;
        Ok(Self { root })
    }

    /// The path of `name` in the cache, whether it exists or not.
    #[must_use]
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// The entry `name` (a file or a directory), made by `make` at the path it is given unless it is there.
    ///
    /// # Errors
    /// Those of `make`, and when the result cannot be put in its place.
    pub fn entry(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.root.join(name);
        if path.exists() {
            return Ok(path);
        }
        let directory = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        // Removed with all its contents on every way out.
        let work = tempfile::Builder::new()
            .prefix(".making-")
            .tempdir_in(&self.root)
            .with_context(|| format!("make a temporary directory in {}", self.root.display()))?;
        let made = work.path().join("entry");
        make(&made)?;
        match fs::rename(&made, &path) {
            // Another process made the same directory meanwhile.
            Err(_) if path.exists() => Ok(path),
            Err(error) => {
                Err(error).with_context(|| format!("move {} to {}", made.display(), path.display()))
            }
            Ok(()) => Ok(path),
        }
    }
}

/// A short name for the contents of a recipe: 64-bit FNV-1a in hexadecimal. Stable across builds and releases; no defence against an attacker.
#[must_use]
pub fn fingerprint<B: AsRef<[u8]>>(parts: impl IntoIterator<Item = B>) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for part in parts {
        let part = part.as_ref();
        (part.len() as u64)
            .to_le_bytes()
            .into_iter()
            .for_each(&mut add);
        part.iter().copied().for_each(&mut add);
    }
    format!("{hash:016x}")
}

/// The fingerprint of all files below `directories`: their names and contents.
///
/// # Errors
/// A file cannot be read.
pub fn fingerprint_of_trees<P: AsRef<Path>>(trees: impl IntoIterator<Item = P>) -> Result<String> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for tree in trees {
        let tree = tree.as_ref();
        let mut files = Vec::new();
        list(tree, &mut files)?;
        files.sort();
        for file in files {
            let name = file.strip_prefix(tree).unwrap_or(&file);
            parts.push(name.as_os_str().as_encoded_bytes().to_vec());
            parts.push(fs::read(&file).with_context(|| format!("read {}", file.display()))?);
        }
    }
    Ok(fingerprint(parts))
}

fn list(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("list {}", path.display()))? {
        list(&entry?.path(), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn an_entry_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache")).unwrap();
        let path = cache
            .entry("a/b", |path| Ok(fs::write(path, "x")?))
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
        assert_eq!(cache.entry("a/b", |_| bail!("made again")).unwrap(), path);
    }

    #[test]
    fn a_failed_entry_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned()).unwrap();
        cache
            .entry("x", |path| {
                fs::write(path, "half")?;
                bail!("broken")
            })
            .unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn fingerprints_tell_where_parts_end() {
        assert_ne!(fingerprint(["ab", "c"]), fingerprint(["a", "bc"]));
        assert_eq!(fingerprint(["ab"]), fingerprint([b"ab".to_vec()]));
    }

    #[test]
    fn a_tree_is_known_by_names_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        let first = fingerprint_of_trees([dir.path()]).unwrap();
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert_ne!(first, fingerprint_of_trees([dir.path()]).unwrap());
    }
}
