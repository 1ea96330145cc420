//! Meta files: what a revision of an image is made of.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{ImageError, io as failed};

/// The largest meta file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// The most layers an image may have.
const MAX_LAYERS: usize = 256;

/// `kind` of an image that VMs boot from.
pub(crate) const KIND_VM: &str = "vm";

/// A meta file. Keys that are not understood are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Name of the image.
    pub name: String,
    /// Its revision, from 0.
    pub revision: u32,
    /// `vm`; other programs have other kinds, which VMs cannot boot from.
    pub kind: String,
    /// Login name of who made it.
    pub owner: String,
    /// When it was made, in seconds since the Unix epoch.
    pub timestamp: f64,
    /// SHA-256 digests of the layers, oldest first; a VM boots from the last.
    pub data_blobs: Vec<String>,
    /// What other programs keep here.
    #[serde(default)]
    pub custom_meta: serde_json::Value,
}

/// Name of the meta file of a revision.
pub(crate) fn file_name(name: &str, revision: u32) -> String {
    format!("{name}@{revision}")
}

/// Whether a text is a SHA-256 digest as repositories write it, and with that safe in a path.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl Meta {
    /// Reads and checks a meta file; `None` when there is none.
    pub(crate) fn read(path: &Path, name: &str, revision: u32) -> Result<Option<Self>, ImageError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("open meta file", path)(e)),
        };
        let mut text = Vec::new();
        let mut limited = file.take(MAX_BYTES + 1);
        let read = limited.read_to_end(&mut text);
        read.map_err(failed("read meta file", path))?;
        match Self::parse(&text, name, revision) {
            Ok(meta) => Ok(Some(meta)),
            Err(why) => Err(ImageError::Meta {
                path: path.to_owned(),
                why,
            }),
        }
    }

    fn parse(text: &[u8], name: &str, revision: u32) -> Result<Self, String> {
        if u64::try_from(text.len()).is_ok_and(|n| n > MAX_BYTES) {
            return Err(format!("larger than {MAX_BYTES} bytes"));
        }
        if text.is_empty() {
            return Err("empty".to_owned());
        }
        let meta: Self =
            serde_json::from_slice(text).map_err(|e| format!("does not parse: {e}"))?;
        if (meta.name.as_str(), meta.revision) != (name, revision) {
            return Err(format!(
                "describes {}, not what its name says",
                muster_types::ids::shown(&file_name(&meta.name, meta.revision))
            ));
        }
        if meta.data_blobs.is_empty() || meta.data_blobs.len() > MAX_LAYERS {
            return Err(format!(
                "names {} layers, from 1 to {MAX_LAYERS} are possible",
                meta.data_blobs.len()
            ));
        }
        match meta.data_blobs.iter().find(|d| !is_digest(d)) {
            Some(bad) => Err(format!(
                "layer '{}' is no SHA-256 digest",
                muster_types::ids::shown(bad)
            )),
            None => Ok(meta),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(blobs: &str) -> String {
        format!(
            r#"{{"name":"a","revision":3,"kind":"vm","owner":"o","timestamp":1.5,"data_blobs":{blobs},"later":1}}"#
        )
    }

    #[test]
    fn a_file_of_another_program_is_read() {
        let digest = "0123456789abcdef".repeat(4);
        let meta = Meta::parse(text(&format!("[\"{digest}\"]")).as_bytes(), "a", 3).unwrap();
        assert_eq!(meta.data_blobs, [digest]);
        assert!(meta.custom_meta.is_null());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let refused = |text: &str, part: &str| {
            let error = Meta::parse(text.as_bytes(), "a", 3).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        refused("", "empty");
        refused("{\"name\":\"a\"", "does not parse");
        refused(&text("[]"), "0 layers");
        refused(&text("[\"../../etc/passwd\"]"), "'../../etc/passwd'");
        refused(&text("[\"x\"]").replace("\"a\"", "\"b\""), "b@3");
        refused(&" ".repeat(1024 * 1024 + 1), "larger");
    }
}
