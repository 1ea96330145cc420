//! A repository's directories and its `.config`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{ImageError, io as failed};
use crate::meta;
use crate::temp::TempFile;

/// The version of the layout that is read and written.
const VERSION: u64 = 2;

/// `.config`; other keys are left to those who understand them.
#[derive(Debug, Serialize, Deserialize)]
struct Config {
    version: u64,
}

/// An image repository whose layout is known to be one that this program reads.
#[derive(Debug, Clone)]
pub struct Repository {
    root: PathBuf,
}

impl Repository {
    /// Opens an existing repository.
    ///
    /// # Errors
    /// The directory or its `.config` is missing, unreadable, or of another version.
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        let config = root.join(".config");
        let not = |why: String| ImageError::NotARepository {
            path: root.to_owned(),
            why,
        };
        let text = match fs::read(&config) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // Told apart, since the cures differ.
                fs::metadata(root).map_err(failed("open image repository", root))?;
                return Err(not("it has no .config".to_owned()));
            }
            Err(e) => return Err(failed("read", &config)(e)),
        };
        let parsed: Config = serde_json::from_slice(&text)
            .or_else(|e| yaml_config(&text).ok_or(e))
            .map_err(|e| not(format!(".config does not parse: {e}")))?;
        if parsed.version != VERSION {
            return Err(not(format!(
                "its layout has version {}, this release reads version {VERSION}",
                parsed.version
            )));
        }
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// Opens a repository, and makes it first where the directory is missing or empty.
    ///
    /// # Errors
    /// As [`Repository::open`]; it cannot be made; or the directory holds something else.
    pub fn open_or_create(root: &Path) -> Result<Self, ImageError> {
        let root = std::path::absolute(root).map_err(failed("resolve path", root))?;
        if fs::symlink_metadata(root.join(".config")).is_err() {
            create(&root)?;
        }
        Self::open(&root)
    }

    /// Its directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where revision `revision` of image `name` is described.
    pub(crate) fn meta_path(&self, name: &str, revision: u32) -> PathBuf {
        self.meta_dir().join(meta::file_name(name, revision))
    }

    pub(crate) fn meta_dir(&self) -> PathBuf {
        self.root.join("meta")
    }

    pub(crate) fn temp_dir(&self) -> PathBuf {
        self.root.join(".tmp")
    }

    /// Where the layer of a digest lies. The digest has been checked ([`meta::is_digest`]).
    pub(crate) fn layer_path(&self, digest: &str) -> PathBuf {
        let prefix = digest.get(..2).unwrap_or_default();
        self.root.join("data").join(prefix).join(digest)
    }
}

/// The one form in which a YAML writer puts the file: `{version: 2}` or `version: 2`.
fn yaml_config(text: &[u8]) -> Option<Config> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let text = text.strip_prefix('{').unwrap_or(text);
    let text = text.strip_suffix('}').unwrap_or(text);
    let version = text.trim().strip_prefix("version:")?.trim().parse().ok()?;
    Some(Config { version })
}

/// Makes the directories and, last, `.config`; two that do so at once both succeed.
fn create(root: &Path) -> Result<(), ImageError> {
    fs::create_dir_all(root).map_err(failed("create image repository", root))?;
    let entries = fs::read_dir(root).map_err(failed("list", root))?;
    for entry in entries {
        let name = entry.map_err(failed("list", root))?.file_name();
        if !["meta", "data", ".tmp", ".config"]
            .iter()
            .any(|n| name == *n)
        {
            return Err(ImageError::NotARepository {
                path: root.to_owned(),
                why: format!(
                    "it holds '{}' and no .config; give an empty or a new directory",
                    name.to_string_lossy()
                ),
            });
        }
    }
    for name in ["meta", "data", ".tmp"] {
        let dir = root.join(name);
        match fs::create_dir(&dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed("create directory", &dir)(e)),
        }
    }
    let mut temp = TempFile::create(&root.join(".tmp"))?;
    let config = root.join(".config");
    writeln!(temp.file(), "{{\"version\": {VERSION}}}").map_err(failed("write", &config))?;
    temp.publish(&config)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_becomes_a_repository_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a/b");
        assert!(matches!(
            Repository::open(&root),
            Err(ImageError::Io { .. })
        ));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| Repository::open_or_create(&root).unwrap());
            }
        });
        Repository::open(&root).unwrap();
        let config = fs::read_to_string(root.join(".config")).unwrap();
        assert_eq!(config, "{\"version\": 2}\n");
        assert_eq!(fs::read_dir(root.join(".tmp")).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let error = Repository::open_or_create(dir.path()).unwrap_err();
        assert!(error.to_string().contains("thesis.tex"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_versions_and_yaml_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join(".config");
        for text in ["{version: 2}\n", "version: 2\n", "{\"version\":2,\"x\":1}"] {
            fs::write(&config, text).unwrap();
            Repository::open(dir.path()).unwrap();
        }
        for (text, part) in [
            ("{version: 1}\n", "has version 1"),
            ("", "does not parse"),
            ("{\"vers", "does not parse"),
        ] {
            fs::write(&config, text).unwrap();
            let error = Repository::open(dir.path()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
