//! Directories that vmd makes for a job's user and removes after it.
//!
//! Their parents belong to root and are not writable by users, so that a path from the journal cannot
//! lead elsewhere; what is inside belongs to the user and is removed without following links.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A directory that cannot be made or removed.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}", path.display())]
pub struct DirectoryError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl DirectoryError {
    fn new(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self {
            what,
            path: path.to_owned(),
            source,
        }
    }
}

/// Makes a directory of root with the given mode, and its parents; one that is there keeps its
/// content and gets the mode.
///
/// # Errors
/// The directory cannot be made, or is not root's own (the euid's).
pub fn ensure_own(path: &Path, mode: u32) -> Result<(), DirectoryError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|e| DirectoryError::new("create directory", path, e))?;
    let meta = std::fs::symlink_metadata(path)
        .map_err(|e| DirectoryError::new("look at directory", path, e))?;
    if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() {
        let e = io::Error::other("not a directory of the daemon's own user");
        return Err(DirectoryError::new("use directory", path, e));
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(|e| DirectoryError::new("set the mode of directory", path, e))
}

/// Makes a directory of a user, mode 0700. One that is there already is kept: a restarted vmd
/// prepares again.
///
/// # Errors
/// It cannot be made, or something else of that name is there.
pub fn make_for_user(path: &Path, uid: u32, gid: u32) -> Result<(), DirectoryError> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let meta = std::fs::symlink_metadata(path)
                .map_err(|e| DirectoryError::new("look at directory", path, e))?;
            if !meta.is_dir() {
                return Err(DirectoryError::new("create directory", path, e));
            }
        }
        Err(e) => return Err(DirectoryError::new("create directory", path, e)),
    }
    std::os::unix::fs::lchown(path, Some(uid), Some(gid))
        .map_err(|e| DirectoryError::new("give to the user directory", path, e))
}

/// How long the removal of a job's directories may take.
const REMOVAL: Duration = Duration::from_secs(600);

/// Removes directories and all in them; one that is not there is well. Done by rm(1), which neither
/// follows links nor grows with the depth of a tree that a user made.
///
/// # Errors
/// Something in them cannot be removed.
pub async fn remove(paths: &[PathBuf]) -> Result<(), DirectoryError> {
    let Some(first) = paths.first() else {
        return Ok(());
    };
    let fail = |source| DirectoryError::new("remove directory", first, source);
    let child = tokio::process::Command::new("rm")
        .args(["-rf", "--one-file-system", "--"])
        .args(paths)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(REMOVAL, child).await {
        Ok(output) => output.map_err(fail)?,
        Err(_) => return Err(fail(io::ErrorKind::TimedOut.into())),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(fail(io::Error::other(super::slurm::last_lines(&said))))
}

/// Names of the entries of a directory; none where it does not exist.
///
/// # Errors
/// It cannot be read.
pub fn entries(path: &Path) -> Result<Vec<String>, DirectoryError> {
    let fail = |e| DirectoryError::new("read directory", path, e);
    let read = match std::fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(fail)?,
    };
    let mut names = Vec::new();
    for entry in read {
        if let Ok(name) = entry.map_err(fail)?.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn made_twice_and_removed_twice() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("7.0");
        let (uid, gid) = (
            nix::unistd::getuid().as_raw(),
            nix::unistd::getgid().as_raw(),
        );
        make_for_user(&dir, uid, gid).unwrap();
        make_for_user(&dir, uid, gid).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        assert_eq!(entries(root.path()).unwrap(), ["7.0"]);
        let both = [dir.clone(), root.path().join("other")];
        remove(&both).await.unwrap();
        remove(&both).await.unwrap();
        assert!(entries(&dir).unwrap().is_empty());
    }

    #[tokio::test]
    async fn links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let kept = root.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "x").unwrap();
        let dir = root.path().join("7.0");
        std::os::unix::fs::symlink(&kept, &dir).unwrap();
        let (uid, gid) = (
            nix::unistd::getuid().as_raw(),
            nix::unistd::getgid().as_raw(),
        );
        let e = make_for_user(&dir, uid, gid).unwrap_err();
        assert!(e.to_string().starts_with("create directory"), "{e}");
        std::fs::remove_file(&dir).unwrap();
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink(&kept, dir.join("link")).unwrap();
        remove(&[dir]).await.unwrap();
        assert!(kept.join("file").exists());
    }

    #[tokio::test]
    async fn a_deep_tree_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("deep");
        std::fs::create_dir(&deep).unwrap();
        // A path this long cannot be named at once: each level is made below the one before.
        let script = "for i in $(seq 3000); do mkdir d && cd -P d || exit 1; done";
        let made = std::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(&deep)
            .status()
            .unwrap();
        assert!(made.success());
        remove(std::slice::from_ref(&deep)).await.unwrap();
        assert!(!deep.exists());
    }
}
