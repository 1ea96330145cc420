//! What a template of `templates.yaml` sets: each key as written, inherited key by key.

mod agree;
mod devices;
mod field;
mod keys;
mod read;
mod render;

use std::collections::BTreeMap;

use muster_types::ids::Mib;
use muster_types::template::{
    Accel, DataDisk, DiskCache, DiskModel, Display, Drive, Firmware, Gpus, HugePages, Mount, Ready,
};
use serde_json::Value;

pub(crate) use agree::disagreements;
pub(crate) use field::check_no_url;
pub use keys::{FILE, KEYS};
pub(crate) use read::{Rest, read};
use render::Shown;

/// The user-data of a template as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserDataSource {
    /// A file.
    Path(String),
    /// The text itself.
    Inline(String),
}

/// The accounts of a template as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsersSource {
    /// None, where the parent has some.
    None,
    /// The job's owner.
    Me,
    /// A roster file.
    Roster(String),
}

/// Declares [`Settings`] and what is the same for each of its keys.
macro_rules! settings {
    ($($(#[$meta:meta])* $field:ident: $type:ty = $key:literal,)+) => {
        /// The keys that a template sets, or sets and inherits. Paths are as written.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Settings {
            $($(#[$meta])* pub $field: Option<$type>,)+
        }

        impl Settings {
            /// Takes over from a parent what is not set; `inherited` is called with each such key.
            pub(crate) fn inherit(&mut self, parent: &Self, mut inherited: impl FnMut(&'static str)) {
                $(if self.$field.is_none() && parent.$field.is_some() {
                    self.$field.clone_from(&parent.$field);
                    inherited($key);
                })+
            }

            /// The keys that are set, each with its value as JSON, in the order of the manual.
            #[must_use]
            pub fn set(&self) -> Vec<(&'static str, Value)> {
                let mut all = Vec::new();
                $(if let Some(value) = &self.$field {
                    all.push(($key, value.shown()));
                })+
                all
            }
        }
    };
}

settings! {
    /// The boot disk: an image's name, or a path.
    image: String = "image",
    /// A resource set.
    resource_set: String = "resource-set",
    /// vCPUs of a VM.
    cpus: u32 = "cpus",
    /// Guest RAM.
    memory: Mib = "memory",
    /// How guest code runs.
    accel: Accel = "accel",
    /// Page size of guest RAM; the inner none is `off`.
    hugepages: Option<HugePages> = "hugepages",
    /// cloud-init's user-data.
    user_data: UserDataSource = "user-data",
    /// cloud-init's instance-id.
    instance_id: String = "instance-id",
    /// Accounts in the guest.
    users: UsersSource = "users",
    /// Host directories, by tag.
    mount_points: BTreeMap<String, Mount> = "mount-points",
    /// Disk files that keep what the guest writes.
    persistent_drives: Vec<Drive> = "persistent-drives",
    /// Further throw-away disks.
    data_disks: Vec<DataDisk> = "data-disks",
    /// Size of the boot disk.
    disk_size: Mib = "disk-size",
    /// Model of the disks.
    disk_model: DiskModel = "disk-model",
    /// Cache mode of the boot disk.
    disk_cache: DiskCache = "disk-cache",
    /// Model of the network cards.
    nic_model: String = "nic-model",
    /// QEMU's machine type.
    machine_type: String = "machine-type",
    /// QEMU's CPU model.
    cpu_model: String = "cpu-model",
    /// QEMU's program.
    qemu_bin: String = "qemu-bin",
    /// Appended to QEMU's command line.
    custom_args: Vec<String> = "custom-args",
    /// A kernel to boot directly.
    kernel: String = "kernel",
    /// Its initial RAM disk.
    initrd: String = "initrd",
    /// Its command line.
    kernel_args: String = "kernel-args",
    /// Firmware.
    firmware: Firmware = "firmware",
    /// Whether there is a virtual TPM.
    tpm: bool = "tpm",
    /// Graphical console; the inner none is `none`.
    remote_display: Option<Display> = "remote-display",
    /// PCI devices of the job's GRES.
    gpus: Gpus = "gpus",
    /// Cores for QEMU's own threads.
    emulator_cores: u32 = "emulator-cores",
    /// Whether each vCPU keeps to one CPU.
    bind_vcpus: bool = "bind-vcpus",
    /// Whether a VM has its node to itself.
    full_node: bool = "full-node",
    /// When a VM counts as ready.
    ready: Ready = "ready",
    /// How long that may take, in seconds.
    ready_timeout: u32 = "ready-timeout",
    /// Host name of the guest.
    hostname: String = "hostname",
    /// Further names of the guest.
    dns_aliases: Vec<String> = "dns-aliases",
}

impl Settings {
    /// The template as `templates.yaml` would hold it.
    #[must_use]
    pub fn to_yaml(&self, name: &str, description: &str) -> String {
        render::yaml(self, name, description)
    }
}
