//! Formats of disk files.

use std::fmt;
use std::str::FromStr;

use muster_types::ids::shown;

/// A format of a disk file that images can be made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFormat {
    /// QEMU's own; what repositories hold.
    Qcow2,
    /// A plain copy of a disk.
    Raw,
    /// QEMU's former enhanced format.
    Qed,
    /// VirtualBox's.
    Vdi,
    /// Virtual PC's and Hyper-V's first (`.vhd`).
    Vpc,
    /// VMware's.
    Vmdk,
}

impl DiskFormat {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Qcow2,
        Self::Raw,
        Self::Qed,
        Self::Vdi,
        Self::Vpc,
        Self::Vmdk,
    ];

    /// The name that qemu-img has for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
            Self::Qed => "qed",
            Self::Vdi => "vdi",
            Self::Vpc => "vpc",
            Self::Vmdk => "vmdk",
        }
    }
}

impl fmt::Display for DiskFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("disk format '{0}' is not supported; supported are qcow2, raw, qed, vdi, vpc, vmdk")]
pub struct FormatError(String);

impl FromStr for DiskFormat {
    type Err = FormatError;
    fn from_str(s: &str) -> Result<Self, FormatError> {
        Self::ALL
            .into_iter()
            .find(|f| f.name() == s)
            .ok_or_else(|| FormatError(shown(s)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for format in DiskFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "vhdx".parse::<DiskFormat>().unwrap_err().to_string();
        assert!(error.contains("'vhdx'") && error.contains("qcow2, raw"));
    }
}
