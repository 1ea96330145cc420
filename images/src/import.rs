//! Import of a disk file as a new revision of an image.
//!
//! Data flow: disk file -> `.tmp/x`, copied (a qcow2 that stands alone) or converted -> digest ->
//! `data/<digest>` -> meta file in `.tmp` -> `meta/<name>@<revision>`. Whatever ends it before the
//! last step leaves at most a layer that no image names.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use muster_types::image::check_name;

use crate::error::{ImageError, io as failed};
use crate::format::DiskFormat;
use crate::layer;
use crate::meta::{KIND_VM, Meta};
use crate::qemu_img;
use crate::repository::Repository;
use crate::temp::TempFile;

/// How many revisions are tried before others are taken to be faster for ever.
const CLAIM_ATTEMPTS: u32 = 1000;

/// What to import.
#[derive(Debug, Clone)]
pub struct Import {
    /// The disk file.
    pub source: PathBuf,
    /// Its format; by default what its content looks like.
    pub format: Option<DiskFormat>,
    /// Name of the image.
    pub name: String,
}

/// What an import made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The new revision.
    pub revision: u32,
    /// Its layer's digest.
    pub digest: String,
    /// Its layer's size in bytes.
    pub layer_bytes: u64,
    /// Size of its disk in bytes.
    pub virtual_size_bytes: u64,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is done at present.
    pub stage: Stage,
    /// So many bytes of it are done.
    pub done_bytes: u64,
    /// So many there are.
    pub total_bytes: u64,
}

/// What an import does, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The file is copied, and its digest computed with it.
    Copy,
    /// The file is converted to qcow2.
    Convert,
    /// The digest of the converted file is computed.
    Digest,
}

/// Imports a disk file. `progress` is called at least ten times a second and says whether to go on.
///
/// # Errors
/// The file cannot be read or used, the repository cannot be written, or `progress` broke off. No
/// temporary file stays.
pub fn import(
    repository: &Repository,
    what: &Import,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Imported, ImageError> {
    check_name(&what.name)?;
    let source = std::path::absolute(&what.source).map_err(failed("resolve path", &what.source))?;
    let disk = |why: String| ImageError::Disk {
        path: source.clone(),
        why,
    };
    let kind = fs::metadata(&source).map_err(failed("open disk", &source))?;
    if !kind.is_file() && !kind.file_type().is_block_device() {
        return Err(disk("it is neither a file nor a block device".to_owned()));
    }
    let info = qemu_img::info(&source, what.format)?;
    if info.virtual_size == 0 {
        return Err(disk("it is empty".to_owned()));
    }
    let format: DiskFormat = info.format.parse().map_err(|e| disk(format!("{e}")))?;
    if let Some(why) = info.unusable() {
        return Err(disk(why.to_owned()));
    }
    if format == DiskFormat::Qcow2
        && kind.is_file()
        && let Some(why) = qemu_img::fault(&source)?
    {
        return Err(disk(why));
    }
    let mut temp = TempFile::create(&repository.temp_dir())?;
    let digest = if info.is_standalone_qcow2() && kind.is_file() {
        copy(&source, &mut temp, progress)?
    } else {
        convert(&source, format, info.virtual_size, &mut temp, progress)?
    };
    let virtual_size_bytes = layer::virtual_size(temp.path())?;
    let path = temp.path().to_owned();
    let layer_bytes = temp.file().metadata().map_err(failed("stat", &path))?.len();
    layer::publish(repository, temp, &digest)?;
    let revision = claim(repository, &what.name, vec![digest.clone()])?;
    Ok(Imported {
        revision,
        digest,
        layer_bytes,
        virtual_size_bytes,
    })
}

fn copy(
    source: &Path,
    temp: &mut TempFile,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<String, ImageError> {
    let mut file = File::open(source).map_err(failed("open disk", source))?;
    let before = file.metadata().map_err(failed("stat", source))?;
    let target_path = temp.path().to_owned();
    let target = (temp.file(), target_path.as_path());
    let digest = layer::digest((&mut file, source), Some(target), &mut |done_bytes| {
        progress(Progress {
            stage: Stage::Copy,
            done_bytes,
            total_bytes: before.len(),
        })
    })?;
    let after = file.metadata().map_err(failed("stat", source))?;
    let stamp = |m: &fs::Metadata| (m.len(), m.mtime(), m.mtime_nsec());
    if stamp(&before) != stamp(&after) {
        return Err(ImageError::Disk {
            path: source.to_owned(),
            why: "it was changed while it was copied".to_owned(),
        });
    }
    Ok(digest)
}

fn convert(
    source: &Path,
    format: DiskFormat,
    virtual_size: u64,
    temp: &mut TempFile,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<String, ImageError> {
    let path = temp.path().to_owned();
    qemu_img::convert(source, format, &path, &mut |share| {
        progress(Progress {
            stage: Stage::Convert,
            done_bytes: portion(virtual_size, share),
            total_bytes: virtual_size,
        })
    })?;
    let file = temp.file();
    file.rewind().map_err(failed("rewind", &path))?;
    let total_bytes = file.metadata().map_err(failed("stat", &path))?.len();
    layer::digest((file, &path), None, &mut |done_bytes| {
        progress(Progress {
            stage: Stage::Digest,
            done_bytes,
            total_bytes,
        })
    })
}

/// `share` (0 to 1) of `total`, to a thousandth.
fn portion(total: u64, share: f64) -> u64 {
    let thousandths = (0..1000_u64)
        .rev()
        .find(|&t| share * 1000.0 >= f64::from(u32::try_from(t).unwrap_or(0)))
        .unwrap_or(0);
    if share >= 1.0 {
        total
    } else {
        total / 1000 * thousandths
    }
}

/// Claims the next revision: whoever links its meta file first has it.
fn claim(repository: &Repository, name: &str, layers: Vec<String>) -> Result<u32, ImageError> {
    let seconds = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64());
    let mut meta = Meta {
        name: name.to_owned(),
        revision: 0,
        kind: KIND_VM.to_owned(),
        owner: owner(),
        timestamp: (seconds * 1000.0).round() / 1000.0,
        data_blobs: layers,
        custom_meta: serde_json::json!({}),
    };
    for _ in 0..CLAIM_ATTEMPTS {
        let highest = repository.highest_revision(name)?;
        meta.revision = highest.map_or(0, |r| r.saturating_add(1));
        let target = repository.meta_path(name, meta.revision);
        let mut temp = TempFile::create(&repository.temp_dir())?;
        let json = serde_json::to_string(&meta).map_err(|e| ImageError::Meta {
            path: target.clone(),
            why: e.to_string(),
        })?;
        writeln!(temp.file(), "{json}").map_err(failed("write", &target))?;
        if temp.publish(&target)? {
            return Ok(meta.revision);
        }
    }
    Err(ImageError::Claim {
        path: repository.root().to_owned(),
        name: name.to_owned(),
        attempts: CLAIM_ATTEMPTS,
    })
}

/// The caller's login name, or its number where it has none.
fn owner() -> String {
    let uid = nix::unistd::getuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}
