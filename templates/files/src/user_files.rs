//! The files that templates name, looked at as the user.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;

use muster_templates::source::MAX_FILE_BYTES;
use muster_templates::submit::{Files, UserFile};
use sha2::{Digest, Sha256};

/// The largest file of user-data in bytes; cloud-init's own sources take less.
const MAX_USER_DATA: u64 = 64 << 20;

/// The file system of this host.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserFiles;

/// Opens a file or block device; opening anything else could wait for ever.
fn open(path: &str) -> Result<(File, std::fs::Metadata), String> {
    let text = |e: io::Error| reason(&e);
    let kind = std::fs::metadata(path).map_err(text)?.file_type();
    if kind.is_dir() {
        return Err("it is a directory".into());
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err("it is neither a file nor a block device".into());
    }
    let file = File::open(path).map_err(text)?;
    let metadata = file.metadata().map_err(text)?;
    Ok((file, metadata))
}

/// An error of the system without its number.
fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => e.to_string(),
    }
}

impl Files for UserFiles {
    fn readable(&self, path: &str) -> Result<(), String> {
        open(path).map(drop)
    }

    fn directory(&self, path: &str) -> Result<(), String> {
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                std::fs::read_dir(path).map(drop).map_err(|e| reason(&e))
            }
            Ok(_) => Err("it is no directory".into()),
            Err(e) => Err(reason(&e)),
        }
    }

    fn read(&self, path: &str) -> Result<UserFile, String> {
        let (file, metadata) = open(path)?;
        if metadata.len() > MAX_USER_DATA {
            return Err(format!("it is larger than {} MiB", MAX_USER_DATA >> 20));
        }
        let mut bytes = Vec::new();
        file.take(MAX_USER_DATA)
            .read_to_end(&mut bytes)
            .map_err(|e| reason(&e))?;
        let digest = Sha256::digest(&bytes);
        let sha256 = digest.iter().map(|b| format!("{b:02x}")).collect();
        let small = bytes.len() <= MAX_FILE_BYTES;
        Ok(UserFile {
            text: small.then(|| String::from_utf8(bytes).ok()).flatten(),
            sha256,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_what_cannot_be_read() {
        assert_eq!(UserFiles.readable("/proc/self/stat"), Ok(()));
        let say = |path: &str| UserFiles.readable(path).unwrap_err();
        assert_eq!(say("/nonexistent"), "no such file or directory");
        assert_eq!(say("/"), "it is a directory");
        assert_eq!(say("/dev/zero"), "it is neither a file nor a block device");
        assert_eq!(UserFiles.directory("/"), Ok(()));
        let e = UserFiles.directory("/proc/self/stat").unwrap_err();
        assert_eq!(e, "it is no directory");
    }

    #[test]
    fn user_data_has_its_text_and_digest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("u").display().to_string();
        std::fs::write(&path, "abc").unwrap();
        let file = UserFiles.read(&path).unwrap();
        assert_eq!(file.text.as_deref(), Some("abc"));
        // FIPS 180-2, B.1.
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(file.sha256, digest);
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(UserFiles.read(&path).unwrap().text, None);
    }
}
