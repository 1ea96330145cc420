//! Muster: image repositories, layers, overlays.
//!
//! A repository is a directory, possibly on a network file system, that both Muster and pcocc read:
//!
//! ```text
//! <repo>/.config                    {"version": 2}
//! <repo>/meta/<name>@<rev>          JSON: what the revision is made of
//! <repo>/data/<h[0:2]>/<sha256>     a qcow2 layer, mode 0444
//! <repo>/.tmp/                      work in progress
//! ```
//!
//! Everything that writes makes a temporary file in `.tmp`, syncs it and links it into place; a
//! revision is claimed by linking its meta file, which only one can do. No file is ever rewritten.
//! All functions block, run as the calling user, and hold no lock.

mod error;
mod format;
mod import;
mod layer;
mod list;
mod meta;
mod overlay;
mod process;
mod qemu_img;
mod repository;
mod temp;

pub use error::ImageError;
pub use format::{DiskFormat, FormatError};
pub use import::{Import, Imported, Progress, Stage, import};
pub use list::{Listing, Revision};
pub use meta::Meta;
pub use overlay::{BootLayer, boot_layer, create_overlay};
pub use process::QemuImgError;
pub use repository::Repository;
