//! What the keys of a template hold.

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::ids::Mib;
use crate::words::words;

words! {
    /// How guest code runs.
    #[derive(Default)]
    Accel {
        /// KVM where a vCPU can be made, else TCG with a warning that the user sees.
        #[default]
        Auto = "auto",
        /// KVM, or the VM does not start.
        Kvm = "kvm",
        /// Emulation.
        Tcg = "tcg",
    }
}

words! {
    /// Model of a disk.
    #[derive(Default)]
    DiskModel {
        /// virtio-blk.
        #[default]
        Virtio = "virtio",
        /// A disk of a virtio SCSI controller.
        VirtioScsi = "virtio-scsi",
        /// A disk of the chipset's controller: SATA on q35, IDE on pc.
        Ide = "ide",
    }
}

words! {
    /// QEMU's cache modes (qemu(1), `-drive cache=`).
    #[derive(Default)]
    DiskCache {
        /// Through the host's cache; the guest's flushes are kept.
        #[default]
        Writeback = "writeback",
        /// Around the host's cache.
        None = "none",
        /// Through the host's cache; the guest's flushes are ignored.
        Unsafe = "unsafe",
        /// Each write is synced.
        Writethrough = "writethrough",
        /// Around the host's cache, each write synced.
        Directsync = "directsync",
    }
}

words! {
    /// How a host directory is given to the guest.
    #[derive(Default)]
    MountType {
        /// 9p over virtio, served by QEMU itself.
        #[default]
        Virtio9p = "virtio-9p",
        /// virtio-fs, served by virtiofsd.
        VirtioFs = "virtio-fs",
    }
}

words! {
    /// Multi-mount protection of a persistent drive.
    #[derive(Default)]
    Mmp {
        /// Attached to one VM.
        #[default]
        Yes = "yes",
        /// Attached to VMs of one cluster.
        Cluster = "cluster",
        /// Not protected.
        No = "no",
    }
}

words! {
    /// Page size of guest RAM.
    HugePages {
        /// 2 MiB.
        Mib2 = "2M",
        /// 1 GiB.
        Gib1 = "1G",
    }
}

words! {
    /// Firmware of a VM.
    #[derive(Default)]
    Firmware {
        /// SeaBIOS.
        #[default]
        Bios = "bios",
        /// OVMF.
        Uefi = "uefi",
        /// OVMF with secure boot.
        UefiSecure = "uefi-secure",
    }
}

words! {
    /// Protocol of the graphical console.
    Display {
        /// SPICE.
        Spice = "spice",
        /// VNC.
        Vnc = "vnc",
    }
}

/// cloud-init's user-data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum UserData {
    /// Its text, at most [`super::MAX_INLINE_USER_DATA`].
    Inline(String),
    /// A file that was too large, absolute. Opened as the user only.
    File {
        /// The file.
        path: String,
        /// Its SHA-256 at submission, 64 hexadecimal digits.
        sha256: String,
    },
}

/// A host directory in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Mount {
    /// The directory, absolute. Opened as the user only.
    pub path: String,
    /// Whether the guest may only read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub readonly: bool,
    /// How it is given.
    #[serde(default, rename = "type", skip_serializing_if = "is_default")]
    pub kind: MountType,
}

/// A disk file of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Drive {
    /// The file or device, absolute. Opened as the user only.
    pub path: String,
    /// Multi-mount protection.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mmp: Mmp,
    /// How it is cached.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache: DiskCache,
}

/// Direct kernel boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Kernel {
    /// The kernel, absolute. Opened as the user only.
    pub path: String,
    /// The initial RAM disk, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initrd: Option<String>,
    /// The kernel's command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub args: String,
}

/// A further throw-away disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DataDisk {
    /// Its size.
    pub size: Mib,
    /// Its serial number in the guest, 1 to [`super::MAX_SERIAL`] of `[A-Za-z0-9_.-]`.
    pub serial: String,
    /// Its model.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bus: DiskModel,
    /// A disk file that it is an overlay of, absolute; none: it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// How many PCI devices of the job's GRES a VM gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gpus {
    /// So many, 0 to [`super::MAX_DEVICES`].
    Count(u32),
    /// All that the job has on the VM's node.
    All,
}

impl Default for Gpus {
    fn default() -> Self {
        Self::Count(0)
    }
}

/// Accounts to make in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Users {
    /// The job's owner.
    Me,
    /// Those of a roster file, absolute.
    Roster(String),
}

/// When a VM counts as ready.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ready {
    /// Its guest's CPU runs.
    #[default]
    Running,
    /// Its guest agent answers.
    Agent,
    /// Its ssh server answers.
    Ssh,
    /// cloud-init has ended.
    CloudInit,
    /// A command in the guest exits with 0.
    Command(Vec<String>),
}
