//! The directory, outside the source tree, that keeps what is slow to make: guest images, Slurm headers, base images.
//!
//! An entry is named by the hash of its recipe. It is made under a temporary name and renamed when complete, so an
//! interrupted build is never taken for a good one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::progress::Progress;
use crate::wait::{Look, wait_for};

/// The cache directory.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// The right to bring the lab up and down, given back when dropped.
#[derive(Debug)]
pub struct Claim {
    _lock: Flock<File>,
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

    /// Waits until no other task works with the lab, for up to an hour; the lab is this one's while the returned value lives.
    ///
    /// # Errors
    /// The other task does not end.
    pub fn claim_lab(&self, progress: &Progress) -> Result<Claim> {
        let path = self.root.join("lab.lock");
        let mut file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        let mut told = false;
        wait_for(
            "another task to be done with the lab",
            Duration::from_secs(3600),
            || {
                let open = file.try_clone()?;
                match Flock::lock(open, FlockArg::LockExclusiveNonblock) {
                    Ok(lock) => return Ok(Look::Ready(Claim { _lock: lock })),
                    Err((returned, Errno::EWOULDBLOCK)) => file = returned,
                    Err((_, error)) => {
                        return Err(error).with_context(|| format!("lock {}", path.display()));
                    }
                }
                if !told {
                    progress.say("another task works with the lab; waiting until it is done");
                    told = true;
                }
                Ok(Look::NotYet("it works".into()))
            },
        )
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
    fn the_lab_is_claimed_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned()).unwrap();
        let first = cache.claim_lab(&Progress::new()).unwrap();
        let other = cache.clone();
        let second = std::thread::spawn(move || other.claim_lab(&Progress::new()).map(drop));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
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
