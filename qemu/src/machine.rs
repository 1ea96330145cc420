//! A virtual machine, ready to be started.

use muster_types::ids::Mib;
use serde::{Deserialize, Serialize};

/// Number of a descriptor that QEMU inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fd(pub i32);

/// A virtual machine with everything decided.
///
/// It is a q35 machine without default devices, its guest stopped until `cont`. Descriptors are
/// connected stream sockets: nobody has to connect to QEMU, whose listeners queue one peer only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Machine {
    /// Name for the administrator's eyes (in the process's arguments and thread names).
    pub name: String,
    /// How guest code runs.
    pub accel: Accel,
    /// vCPUs, at least 1: one socket of as many cores.
    pub vcpus: u32,
    /// Guest RAM.
    pub memory: Mib,
    /// The qcow2 overlay that the machine boots from, an absolute path. It is thrown away with the
    /// machine, so that the guest's flushes need not reach the disk.
    pub boot_overlay: String,
    /// The monitor (QMP).
    pub qmp: Fd,
    /// The first serial port, the guest's console.
    pub console: Fd,
    /// The guest agent's port; without one the machine has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Fd>,
    /// Empty PCIe ports, into which devices can be plugged while the guest runs; at most 16.
    #[serde(default)]
    pub spare_ports: u8,
}

/// How guest code runs, decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accel {
    /// By the CPU; the guest sees the host's CPU.
    Kvm,
    /// By emulation, of a CPU with every feature that QEMU can emulate.
    Tcg {
        /// The most memory that translated code may take; QEMU would take up to 1 GiB, which nothing
        /// in a job's memory limit provides for.
        translation: Mib,
    },
}

impl Accel {
    /// `kvm` or `tcg`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg { .. } => "tcg",
        }
    }
}
