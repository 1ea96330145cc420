//! What a VM boots from: the layer an image ends in, and the throw-away overlay on top of it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use muster_types::image::ImageRef;

use crate::error::{ImageError, io as failed};
use crate::format::DiskFormat;
use crate::layer;
use crate::meta::{KIND_VM, Meta};
use crate::qemu_img;
use crate::repository::Repository;

/// A disk that overlays are put on; never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootLayer {
    /// The file, absolute.
    pub path: PathBuf,
    /// Its format.
    pub format: DiskFormat,
    /// Size of the disk in bytes.
    pub virtual_size_bytes: u64,
}

/// Finds the disk of an image. Of an image in a repository all layers are checked to exist and not to
/// be cut short, not what is in them; a disk file of its own is examined by qemu-img.
///
/// # Errors
/// The image or one of its layers is missing, unreadable for the calling user, or damaged.
pub fn boot_layer(image: &ImageRef) -> Result<BootLayer, ImageError> {
    match image {
        ImageRef::Repository {
            path,
            name,
            revision,
            ..
        } => from_repository(Path::new(path), name, *revision),
        ImageRef::File { path } => from_file(Path::new(path)),
    }
}

fn from_repository(root: &Path, name: &str, revision: u32) -> Result<BootLayer, ImageError> {
    let root = std::path::absolute(root).map_err(failed("resolve path", root))?;
    let repository = Repository::open(&root)?;
    let meta_path = repository.meta_path(name, revision);
    let meta = Meta::read(&meta_path, name, revision)?.ok_or_else(|| ImageError::NoImage {
        path: root,
        name: name.to_owned(),
        revision,
    })?;
    if meta.kind != KIND_VM {
        return Err(ImageError::Meta {
            path: meta_path,
            why: format!(
                "it is of kind '{}', VMs boot from images of kind '{KIND_VM}'",
                muster_types::ids::shown(&meta.kind)
            ),
        });
    }
    let mut top = None;
    for digest in &meta.data_blobs {
        let path = repository.layer_path(digest);
        let virtual_size_bytes = layer::virtual_size(&path)?;
        top = Some(BootLayer {
            path,
            format: DiskFormat::Qcow2,
            virtual_size_bytes,
        });
    }
    top.ok_or_else(|| ImageError::Meta {
        path: meta_path,
        why: "it names no layer".to_owned(),
    })
}

fn from_file(path: &Path) -> Result<BootLayer, ImageError> {
    let path = std::path::absolute(path).map_err(failed("resolve path", path))?;
    let disk = |why: String| ImageError::Disk {
        path: path.clone(),
        why,
    };
    // Opened first: what the kernel says is clearer than what qemu-img makes of it.
    let kind = std::fs::metadata(&path).map_err(failed("open image", &path))?;
    if kind.is_dir() {
        return Err(disk("it is a directory".to_owned()));
    }
    let info = qemu_img::info(&path, None)?;
    if let Some(why) = info.unusable() {
        return Err(disk(why.to_owned()));
    }
    let format = info.format.parse().map_err(|e| disk(format!("{e}")))?;
    Ok(BootLayer {
        path,
        format,
        virtual_size_bytes: info.virtual_size,
    })
}

/// Makes a qcow2 overlay on a layer at `dest`, which must not exist; mode 0600. No data is copied.
///
/// # Errors
/// `dest` exists or cannot be made, or qemu-img cannot use the layer; then `dest` is removed again.
pub fn create_overlay(layer: &BootLayer, dest: &Path) -> Result<(), ImageError> {
    let dest = std::path::absolute(dest).map_err(failed("resolve path", dest))?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&dest)
        .map_err(failed("create overlay", &dest))?;
    let made = qemu_img::create_overlay(&dest, &layer.path, layer.format);
    if made.is_err() {
        drop(std::fs::remove_file(&dest));
    }
    made
}
