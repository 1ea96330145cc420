//! A VM's directory and its disk: a throw-away overlay on the image.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use muster_images::ImageError;
use muster_types::image::ImageRef;

/// Why a VM has no disk.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// Its directory cannot be made.
    #[error("make directory {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The image cannot be used, or the overlay not be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The work was broken off.
    #[error("make overlay {path}: the work was broken off")]
    BrokenOff {
        /// The overlay.
        path: PathBuf,
    },
}

/// Makes a VM's directory, mode 0700; it may exist.
///
/// # Errors
/// The file system does not allow it.
pub fn directory(path: &Path) -> Result<(), OverlayError> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
    match made {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(OverlayError::Directory {
                path: path.to_path_buf(),
                source,
            })
        }
        _ => Ok(()),
    }
}

/// Makes the overlay at `dest`; the work is done on another thread.
///
/// # Errors
/// See [`OverlayError`].
pub async fn create(image: &ImageRef, dest: &Path) -> Result<(), OverlayError> {
    let (image, path) = (image.clone(), dest.to_path_buf());
    let work = tokio::task::spawn_blocking(move || {
        let layer = muster_images::boot_layer(&image)?;
        muster_images::create_overlay(&layer, &path)
    });
    match work.await {
        Ok(done) => Ok(done?),
        Err(_) => Err(OverlayError::BrokenOff {
            path: dest.to_path_buf(),
        }),
    }
}
