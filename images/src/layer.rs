//! Layers: read-only qcow2 files named by their SHA-256 digest.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{ImageError, io as failed};
use crate::repository::Repository;
use crate::temp::TempFile;

const CHUNK: usize = 1024 * 1024;

/// Reads `from` to its end, writes it to `to` where given, and returns its digest. `progress` is told
/// the bytes done and says whether to go on.
pub(crate) fn digest(
    from: (&mut File, &Path),
    mut to: Option<(&mut File, &Path)>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<String, ImageError> {
    let (source, source_path) = from;
    let mut hash = Sha256::new();
    let mut chunk = vec![0_u8; CHUNK];
    let mut done = 0;
    loop {
        if progress(done).is_break() {
            return Err(ImageError::Interrupted);
        }
        let n = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(failed("read", source_path)(e)),
        };
        hash.update(&chunk[..n]);
        if let Some((target, path)) = &mut to {
            let written = target.write_all(&chunk[..n]);
            written.map_err(failed("write", path))?;
        }
        done += n as u64;
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// Gives a finished file the name of its digest; a layer that exists already is kept as it is.
pub(crate) fn publish(
    repository: &Repository,
    mut temp: TempFile,
    digest: &str,
) -> Result<(), ImageError> {
    let target = repository.layer_path(digest);
    if let Some(dir) = target.parent() {
        match fs::create_dir(dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed("create directory", dir)(e)),
        }
    }
    let path = temp.path().to_owned();
    let file = temp.file();
    file.set_permissions(Permissions::from_mode(0o444))
        .map_err(failed("change mode of", &path))?;
    let size = file.metadata().map_err(failed("stat", &path))?.len();
    if !temp.publish(&target)? {
        let there = fs::metadata(&target).map_err(failed("stat", &target))?;
        if there.len() != size {
            return Err(ImageError::Layer {
                path: target,
                why: format!(
                    "it exists with {} bytes where its content has {size}: it is damaged",
                    there.len()
                ),
            });
        }
    }
    Ok(())
}

/// Checks by its header that a layer is a qcow2 that was not cut short, and returns the size of its
/// disk in bytes. The content is not looked at.
///
/// Header: QEMU's `docs/interop/qcow2.txt`; all fields are big-endian.
pub(crate) fn virtual_size(path: &Path) -> Result<u64, ImageError> {
    let damaged = |why: String| ImageError::Layer {
        path: path.to_owned(),
        why,
    };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(damaged("it is missing".to_owned()));
        }
        Err(e) => return Err(failed("open layer", path)(e)),
    };
    let length = file.metadata().map_err(failed("stat", path))?.len();
    let mut header = [0_u8; 72];
    match file.read_exact(&mut header) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(damaged(format!("{length} bytes are no qcow2")));
        }
        Err(e) => return Err(failed("read layer", path)(e)),
    }
    let u32_at = |at: usize| {
        header[at..at + 4]
            .iter()
            .fold(0, |n, &b| n << 8 | u64::from(b))
    };
    let u64_at = |at: usize| {
        header[at..at + 8]
            .iter()
            .fold(0, |n, &b| n << 8 | u64::from(b))
    };
    if &header[..4] != b"QFI\xfb" {
        return Err(damaged("it is no qcow2".to_owned()));
    }
    let (l1_entries, l1_offset) = (u32_at(36), u64_at(40));
    let end = l1_offset
        .saturating_add(l1_entries * 8)
        .max(u64_at(48).saturating_add(1));
    if end > length {
        return Err(damaged(format!(
            "cut short: it has {length} bytes, its header needs at least {end}"
        )));
    }
    Ok(u64_at(24))
}
