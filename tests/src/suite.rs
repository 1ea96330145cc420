//! The Debian releases, and with them the Slurm releases, on which Muster is tested.

use std::fmt::{self, Display};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A Debian suite with the Slurm that it carries.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Debian 12: Slurm 22.05, QEMU 7.2, Open vSwitch 3.1.
    Bookworm,
    /// Debian 13: Slurm 24.11, QEMU 10.0, Open vSwitch 3.5.
    Trixie,
    /// Debian unstable: Slurm 26.05 or newer.
    Sid,
}

impl Suite {
    /// All suites, oldest first.
    pub const ALL: [Suite; 3] = [Suite::Bookworm, Suite::Trixie, Suite::Sid];

    /// The suite's name in a Debian archive.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Suite::Bookworm => "bookworm",
            Suite::Trixie => "trixie",
            Suite::Sid => "sid",
        }
    }
}

impl Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
