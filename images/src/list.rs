//! What a repository holds.

use std::fs;
use std::io;

use muster_types::image::parse_meta_file_name;

use crate::error::{ImageError, io as failed};
use crate::meta::Meta;
use crate::repository::Repository;

/// The revisions of a repository, and what could not be read.
#[derive(Debug, Default)]
pub struct Listing {
    /// By name, then revision.
    pub revisions: Vec<Revision>,
    /// One line each; they name the file.
    pub warnings: Vec<String>,
}

/// One revision of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// Its meta file.
    pub meta: Meta,
    /// Size of its newest layer on the disk, in bytes; none where the layer is missing.
    pub layer_bytes: Option<u64>,
}

impl Repository {
    /// Lists all revisions. A meta file that cannot be read becomes a warning.
    ///
    /// # Errors
    /// The meta directory cannot be read.
    pub fn list(&self) -> Result<Listing, ImageError> {
        let dir = self.meta_dir();
        let mut listing = Listing::default();
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(listing),
            Err(e) => return Err(failed("list", &dir)(e)),
        };
        for entry in entries {
            let entry = entry.map_err(failed("list", &dir))?;
            let file = entry.file_name();
            let Some((name, revision)) = file.to_str().and_then(parse_meta_file_name) else {
                listing
                    .warnings
                    .push(format!("{}: not a meta file", entry.path().display()));
                continue;
            };
            match Meta::read(&entry.path(), name, revision) {
                Ok(Some(meta)) => {
                    let newest = meta.data_blobs.last().map(|d| self.layer_path(d));
                    let size = newest.and_then(|p| fs::metadata(p).ok()).map(|m| m.len());
                    if size.is_none() {
                        let gone = format!("{name}@{revision}: its newest layer is missing");
                        listing.warnings.push(gone);
                    }
                    listing.revisions.push(Revision {
                        meta,
                        layer_bytes: size,
                    });
                }
                // Deleted while it was listed.
                Ok(None) => {}
                Err(e) => listing.warnings.push(warning(&e)),
            }
        }
        listing
            .revisions
            .sort_by(|a, b| key(&a.meta).cmp(&key(&b.meta)));
        listing.warnings.sort();
        Ok(listing)
    }

    /// The highest revision of an image that any meta file claims, readable or not.
    pub(crate) fn highest_revision(&self, name: &str) -> Result<Option<u32>, ImageError> {
        let dir = self.meta_dir();
        let mut highest = None;
        for entry in fs::read_dir(&dir).map_err(failed("list", &dir))? {
            let file = entry.map_err(failed("list", &dir))?.file_name();
            if let Some((found, revision)) = file.to_str().and_then(parse_meta_file_name)
                && found == name
            {
                highest = highest.max(Some(revision));
            }
        }
        Ok(highest)
    }
}

fn key(meta: &Meta) -> (&str, u32) {
    (&meta.name, meta.revision)
}

fn warning(error: &ImageError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
