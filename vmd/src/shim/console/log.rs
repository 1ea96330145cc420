//! A console's log file: limited in size, its older half in `<path>.1`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes after which a new file is begun.
pub const FILE_BYTES: u64 = 1024 * 1024;

/// A log that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{call} {path}")]
pub struct LogError {
    call: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The log of one console.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    length: u64,
    limit: u64,
    /// Position in the console's stream behind the last byte written.
    position: u64,
}

impl Log {
    /// A new log at `path`, mode 0600; what was there is gone.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path, limit: u64) -> Result<Self, LogError> {
        Ok(Self {
            path: path.to_path_buf(),
            file: create(path)?,
            length: 0,
            limit,
            position: 0,
        })
    }

    /// Appends bytes that end at `position` of the console's stream.
    ///
    /// # Errors
    /// The disk is full, most likely.
    pub fn append(&mut self, bytes: &[u8], position: u64) -> Result<(), LogError> {
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if self.length > 0 && self.length.saturating_add(count) > self.limit {
            let old = older(&self.path);
            std::fs::rename(&self.path, &old).map_err(failed("rename", &self.path))?;
            self.file = create(&self.path)?;
            self.length = 0;
        }
        self.file
            .write_all(bytes)
            .map_err(failed("write", &self.path))?;
        self.length += count;
        self.position = position;
        Ok(())
    }

    /// What it holds, and the position behind that in the console's stream.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn contents(&self) -> Result<(Vec<u8>, u64), LogError> {
        let old = older(&self.path);
        let mut bytes = match std::fs::read(&old) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(failed("read", &old))?,
        };
        bytes.extend(std::fs::read(&self.path).map_err(failed("read", &self.path))?);
        Ok((bytes, self.position))
    }
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

fn create(path: &Path) -> Result<File, LogError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).map_err(failed("create", path))
}

fn failed<'a>(call: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> LogError + use<'a> {
    move |source| LogError {
        call,
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_rotated_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console.log");
        let mut log = Log::create(&path, 8).unwrap();
        let mut position = 0;
        for piece in ["aaaa", "bbbb", "cccc", "dddd", "eeee"] {
            position += 4;
            log.append(piece.as_bytes(), position).unwrap();
        }
        assert_eq!(log.contents().unwrap(), (b"ccccddddeeee".to_vec(), 20));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_full_disk_is_named() {
        let mut log = Log::create(Path::new("/dev/full"), 8).unwrap();
        let e = log.append(b"x", 1).unwrap_err();
        assert_eq!(e.to_string(), "write /dev/full");
    }
}
