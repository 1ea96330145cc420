//! Why something about images did not work.

use std::io;
use std::path::{Path, PathBuf};

use crate::process::QemuImgError;

/// A failed operation on a repository, an image or an overlay.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A system call failed.
    #[error("{action} {}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The directory is no image repository.
    #[error("{} is no image repository: {why}", path.display())]
    NotARepository {
        /// The directory.
        path: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// No such revision.
    #[error("no image {name}@{revision} in {}", path.display())]
    NoImage {
        /// The repository.
        path: PathBuf,
        /// Name of the image.
        name: String,
        /// Its revision.
        revision: u32,
    },
    /// A meta file does not say what it must.
    #[error("meta file {}: {why}", path.display())]
    Meta {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A layer is not what its image needs.
    #[error("layer {}: {why}", path.display())]
    Layer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A disk file cannot be taken.
    #[error("disk {}: {why}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A name that no image may have.
    #[error(transparent)]
    Name(#[from] muster_types::image::ImageNameError),
    /// Others took each revision that was tried.
    #[error("claim a revision of {name} in {}: {attempts} in a row were taken by others", path.display())]
    Claim {
        /// The repository.
        path: PathBuf,
        /// Name of the image.
        name: String,
        /// How many were tried.
        attempts: u32,
    },
    /// qemu-img failed.
    #[error("{doing} {}", path.display())]
    QemuImg {
        /// What for.
        doing: &'static str,
        /// The file it was for.
        path: PathBuf,
        /// How it failed.
        source: QemuImgError,
    },
    /// The caller asked to stop.
    #[error("interrupted; nothing was left behind")]
    Interrupted,
}

/// Names the action and the path of a failed system call.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    move |source| ImageError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
