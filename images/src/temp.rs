//! A file in the making: it is gone when its guard is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use crate::error::{ImageError, io as failed};

/// How many names are tried before a directory counts as broken.
const ATTEMPTS: u32 = 100;

/// A temporary file, removed on drop.
#[derive(Debug)]
pub(crate) struct TempFile {
    path: PathBuf,
    file: File,
}

impl TempFile {
    /// Makes an empty file of a new name in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<Self, ImageError> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        for _ in 0..ATTEMPTS {
            let nanos = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |d| d.subsec_nanos());
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("{}-{nanos:09}-{count}", std::process::id()));
            let created = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&path);
            match created {
                Ok(file) => return Ok(Self { path, file }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed("create temporary file", &path)(e)),
            }
        }
        let taken = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(failed("create temporary file in", dir)(taken))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its final name unless that is taken; `false` when it is. Data and name are on
    /// the disk afterwards.
    ///
    /// link(2) is used, not rename(2): it never replaces, on NFS too. A lost reply makes an NFS client
    /// repeat the request and report a name as taken that it made itself, so the link count decides.
    pub(crate) fn publish(self, target: &Path) -> Result<bool, ImageError> {
        use std::os::unix::fs::MetadataExt;
        self.file.sync_all().map_err(failed("sync", &self.path))?;
        match std::fs::hard_link(&self.path, target) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let mine = self.file.metadata().map_err(failed("stat", &self.path))?;
                let there = std::fs::metadata(target).map_err(failed("stat", target))?;
                if (mine.dev(), mine.ino()) != (there.dev(), there.ino()) {
                    return Ok(false);
                }
            }
            Err(e) => return Err(failed("create", target)(e)),
        }
        if let Some(dir) = target.parent() {
            let sync = File::open(dir).and_then(|d| d.sync_all());
            sync.map_err(failed("sync directory", dir))?;
        }
        Ok(true)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and nobody depends on it: `gc` removes old ones.
        drop(std::fs::remove_file(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_is_published_once_and_its_temporary_name_goes() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        for (text, first) in [("one", true), ("two", false)] {
            let mut temp = TempFile::create(dir.path()).unwrap();
            temp.file().write_all(text.as_bytes()).unwrap();
            assert_eq!(temp.publish(&target).unwrap(), first);
        }
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "one");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_dropped_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        drop(TempFile::create(dir.path()).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
