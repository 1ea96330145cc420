//! A template with inheritance, defaults and paths resolved: what a VM is made from.
//!
//! The names on the wire are the keys of `templates.yaml`. A value that equals its default is left
//! out, since a request has to fit [`crate::request::MAX_REQUEST_BYTES`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::Mib;
use crate::image::ImageRef;

mod check;
mod parts;

pub use check::{
    MAX_SERIAL, MAX_TAG, MAX_TEXT, check_host_name, check_model, check_path, check_serial,
    check_tag,
};
pub use parts::{
    Accel, DataDisk, DiskCache, DiskModel, Display, Drive, Firmware, Gpus, HugePages, Kernel, Mmp,
    Mount, MountType, Ready, UserData, Users,
};

/// The most vCPUs a VM may have (QEMU's q35 machine takes 288 without an interrupt remapper, 1024
/// since QEMU 8; Muster keeps to what all supported releases take).
pub const MAX_VCPUS: u32 = 288;

/// The largest user-data that travels in the request; a larger file travels by path and digest.
pub const MAX_INLINE_USER_DATA: usize = 32 * 1024;

/// The most mounts, drives, data disks or aliases of one template.
pub const MAX_DEVICES: usize = 32;

/// What stands for a VM's rank in [`TemplateSpec::hostname`] and [`TemplateSpec::dns_aliases`].
pub const RANK: &str = "%{vm_rank}";

/// A template with inheritance and defaults resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct TemplateSpec {
    /// What the VM boots from; none: its first persistent drive, or its kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageRef>,
    /// How guest code runs.
    #[serde(skip_serializing_if = "is_default")]
    pub accel: Accel,
    /// vCPUs of a VM, 1 to [`MAX_VCPUS`]; none: the job's CPUs divided by its VMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Guest RAM; none: a share of the job's memory on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Mib>,
    /// The resource set; none where the site defines none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_set: Option<String>,
    /// cloud-init's user-data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<UserData>,
    /// cloud-init's instance-id; none: a random UUID for each VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// Host directories in the guest, by tag.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mount_points: BTreeMap<String, Mount>,
    /// Disk files of the user that keep what the guest writes, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub persistent_drives: Vec<Drive>,
    /// Model of the disks.
    #[serde(skip_serializing_if = "is_default")]
    pub disk_model: DiskModel,
    /// How the overlay is cached.
    #[serde(skip_serializing_if = "is_unsafe")]
    pub disk_cache: DiskCache,
    /// QEMU's model of the network cards, such as `virtio-net` or `e1000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_model: Option<String>,
    /// QEMU's machine type; none: `q35`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// QEMU's CPU model; none: `host` with KVM, `max` with TCG.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// QEMU's program, absolute or a name that is looked for in `PATH`; none: `qemu-system-x86_64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_bin: Option<String>,
    /// Appended to QEMU's command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub custom_args: Vec<String>,
    /// Direct kernel boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// Graphical console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_display: Option<Display>,
    /// Cores of each VM's share that QEMU's own threads keep to themselves.
    #[serde(skip_serializing_if = "is_default")]
    pub emulator_cores: u32,
    /// Whether each vCPU keeps to one CPU.
    #[serde(skip_serializing_if = "is_true")]
    pub bind_vcpus: bool,
    /// Whether a VM has its node to itself.
    #[serde(skip_serializing_if = "is_default")]
    pub full_node: bool,
    /// Page size of guest RAM; none: ordinary pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<HugePages>,
    /// Firmware.
    #[serde(skip_serializing_if = "is_default")]
    pub firmware: Firmware,
    /// Whether the guest has a virtual TPM.
    #[serde(skip_serializing_if = "is_default")]
    pub tpm: bool,
    /// PCI devices of the job's GRES, per VM.
    #[serde(skip_serializing_if = "is_default")]
    pub gpus: Gpus,
    /// Size of the boot disk; none: the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size: Option<Mib>,
    /// Further throw-away disks, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_disks: Vec<DataDisk>,
    /// Accounts to make in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Users>,
    /// When a VM counts as ready.
    #[serde(skip_serializing_if = "is_default")]
    pub ready: Ready,
    /// How long that may take, in seconds, 1 to 86400; none: 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_timeout: Option<u32>,
    /// Host name of the guest; none: `vm<rank>`. `%{vm_rank}` in it stands for the rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Further names of the guest; `%{vm_rank}` stands for the rank here too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_aliases: Vec<String>,
}

impl Default for TemplateSpec {
    fn default() -> Self {
        Self {
            image: None,
            accel: Accel::default(),
            cpus: None,
            memory: None,
            resource_set: None,
            user_data: None,
            instance_id: None,
            mount_points: BTreeMap::new(),
            persistent_drives: Vec::new(),
            disk_model: DiskModel::default(),
            disk_cache: DiskCache::Unsafe,
            nic_model: None,
            machine_type: None,
            cpu_model: None,
            qemu_bin: None,
            custom_args: Vec::new(),
            kernel: None,
            remote_display: None,
            emulator_cores: 0,
            bind_vcpus: true,
            full_node: false,
            hugepages: None,
            firmware: Firmware::default(),
            tpm: false,
            gpus: Gpus::default(),
            disk_size: None,
            data_disks: Vec::new(),
            users: None,
            ready: Ready::default(),
            ready_timeout: None,
            hostname: None,
            dns_aliases: Vec::new(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_unsafe(value: &DiskCache) -> bool {
    *value == DiskCache::Unsafe
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_true(value: &bool) -> bool {
    *value
}

impl TemplateSpec {
    /// The keys that are set and that this release does not act on.
    #[must_use]
    pub fn not_yet(&self) -> Vec<&'static str> {
        let keys = [
            ("mount-points", !self.mount_points.is_empty()),
            ("persistent-drives", !self.persistent_drives.is_empty()),
            ("disk-model", self.disk_model != DiskModel::Virtio),
            ("disk-cache", self.disk_cache != DiskCache::Unsafe),
            ("nic-model", self.nic_model.is_some()),
            ("machine-type", self.machine_type.is_some()),
            ("cpu-model", self.cpu_model.is_some()),
            ("qemu-bin", self.qemu_bin.is_some()),
            ("custom-args", !self.custom_args.is_empty()),
            ("kernel", self.kernel.is_some()),
            ("remote-display", self.remote_display.is_some()),
            ("emulator-cores", self.emulator_cores != 0),
            ("full-node", self.full_node),
            ("hugepages", self.hugepages.is_some()),
            ("firmware", self.firmware != Firmware::Bios),
            ("tpm", self.tpm),
            ("gpus", self.gpus != Gpus::default()),
            ("disk-size", self.disk_size.is_some()),
            ("data-disks", !self.data_disks.is_empty()),
            ("users", self.users.is_some()),
            ("ready", self.ready != Ready::Running),
            ("user-data", self.user_data.is_some()),
            ("instance-id", self.instance_id.is_some()),
            ("hostname", self.hostname.is_some()),
            ("dns-aliases", !self.dns_aliases.is_empty()),
        ];
        keys.into_iter()
            .filter(|(_, set)| *set)
            .map(|(key, _)| key)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_left_out() {
        let spec = TemplateSpec::default();
        assert_eq!(serde_json::to_string(&spec).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<TemplateSpec>("{}").unwrap(), spec);
    }
}
