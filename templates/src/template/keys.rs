//! The keys of `templates.yaml`: pcocc's first, then Muster's own.

use muster_types::request::MAX_VCPUS;

use crate::key::{File, Key, Shape};

use Shape::{Bool, Either, List, Named, Number, Size, Text, Words};

/// `templates.yaml`.
pub const FILE: File = File {
    name: "templates",
    about: "The templates that virtual machines are made from, by name",
    shape: Named(&Shape::Keys(KEYS)),
};

const CACHES: &[&str] = &["writeback", "none", "unsafe", "writethrough", "directsync"];
const MODELS: &[&str] = &["virtio", "virtio-scsi", "ide"];

const fn key(name: &'static str, shape: Shape, default: &'static str, about: &'static str) -> Key {
    Key {
        name,
        shape,
        default,
        about,
    }
}

/// The keys of a mount.
pub(super) const MOUNT: &[Key] = &[
    key("path", Text, "", "the host directory"),
    key("readonly", Bool, "false", "whether the guest may only read"),
    key(
        "type",
        Words(&["virtio-9p", "virtio-fs"]),
        "virtio-9p",
        "how the directory is given to the guest",
    ),
];

/// The keys of a persistent drive.
pub(super) const DRIVE: &[Key] = &[
    key(
        "mmp",
        Words(&["yes", "cluster", "no"]),
        "yes",
        "multi-mount protection: attached to one VM, to VMs of one cluster, or not protected",
    ),
    key("cache", Words(CACHES), "writeback", "QEMU's cache mode"),
];

/// The keys of a data disk.
pub(super) const DATA_DISK: &[Key] = &[
    key("size", Size, "", "virtual size"),
    key(
        "serial",
        Text,
        "",
        "serial number in the guest, at most 20 characters",
    ),
    key("bus", Words(MODELS), "virtio", "model of the disk"),
    key(
        "path",
        Text,
        "an empty disk",
        "disk file that the disk is an overlay of",
    ),
];

/// The keys of a template.
pub const KEYS: &[Key] = &[
    key(
        "inherits",
        Text,
        "no parent",
        "the template whose keys hold where this one sets none",
    ),
    key(
        "description",
        Text,
        "nothing",
        "what the template is for; not inherited",
    ),
    key(
        "image",
        Text,
        "no image",
        "the boot disk, which a VM gets a throw-away copy of: [REPO:]NAME[@REVISION], or a path",
    ),
    key(
        "resource-set",
        Text,
        "the set marked default",
        "the resource set whose networks a VM is on",
    ),
    key(
        "user-data",
        Either(&[Text, Shape::Anything]),
        "none",
        "cloud-init's user-data: a file, or a map that is written out as #cloud-config",
    ),
    key(
        "instance-id",
        Text,
        "a random UUID",
        "cloud-init's instance-id",
    ),
    key(
        "mount-points",
        Named(&Either(&[Text, Shape::Keys(MOUNT)])),
        "none",
        "host directories in the guest: a tag for each, with a path or path, readonly and type",
    ),
    key(
        "persistent-drives",
        List(&Either(&[
            Text,
            Named(&Either(&[Shape::Keys(DRIVE), Text, Bool])),
        ])),
        "none",
        "disk files that keep what the guest writes: a path, or a path with mmp and cache",
    ),
    key("disk-model", Words(MODELS), "virtio", "model of the disks"),
    key(
        "disk-cache",
        Words(CACHES),
        "unsafe",
        "QEMU's cache mode of the boot disk",
    ),
    key(
        "nic-model",
        Text,
        "virtio-net",
        "QEMU's model of the network cards",
    ),
    key("machine-type", Text, "q35", "QEMU's machine type"),
    key(
        "cpu-model",
        Text,
        "host with KVM, max with TCG",
        "QEMU's CPU model",
    ),
    key(
        "qemu-bin",
        Text,
        "qemu-system-x86_64 in PATH",
        "QEMU's program; subject to policy.yaml",
    ),
    key(
        "custom-args",
        Either(&[List(&Text), Text]),
        "none",
        "arguments that are appended to QEMU's command line; subject to policy.yaml",
    ),
    key(
        "kernel",
        Text,
        "none",
        "a kernel to boot without a boot loader",
    ),
    key("initrd", Text, "none", "the initial RAM disk of the kernel"),
    key(
        "kernel-args",
        Text,
        "none",
        "the command line of the kernel",
    ),
    key(
        "remote-display",
        Words(&["none", "spice", "vnc"]),
        "none",
        "protocol of the graphical console",
    ),
    key(
        "emulator-cores",
        Number(0, MAX_VCPUS as u64),
        "0",
        "cores of a VM's share that QEMU's own threads keep to themselves",
    ),
    key(
        "bind-vcpus",
        Bool,
        "true",
        "whether each vCPU keeps to one CPU",
    ),
    key(
        "full-node",
        Bool,
        "false",
        "whether a VM has its node to itself",
    ),
    key(
        "cpus",
        Number(1, MAX_VCPUS as u64),
        "the job's CPUs divided by its VMs",
        "vCPUs of a VM",
    ),
    key("memory", Size, "a share of the job's memory", "guest RAM"),
    key(
        "accel",
        Words(&["auto", "kvm", "tcg"]),
        "auto",
        "how guest code runs",
    ),
    key(
        "hugepages",
        Words(&["off", "2M", "1G"]),
        "off",
        "page size of guest RAM",
    ),
    key(
        "firmware",
        Words(&["bios", "uefi", "uefi-secure"]),
        "bios",
        "firmware of a VM",
    ),
    key("tpm", Bool, "false", "whether the guest has a virtual TPM"),
    key(
        "gpus",
        Either(&[Number(0, 32), Words(&["all"])]),
        "0",
        "PCI devices of the job's GRES for each VM",
    ),
    key(
        "disk-size",
        Size,
        "the image's",
        "size of the boot disk, at least the image's",
    ),
    key(
        "data-disks",
        List(&Shape::Keys(DATA_DISK)),
        "none",
        "further throw-away disks with serial numbers",
    ),
    key(
        "users",
        Text,
        "none",
        "accounts to make in the guest: me (the job's owner), or a roster file",
    ),
    key(
        "ready",
        Either(&[
            Words(&["running", "agent", "ssh", "cloud-init"]),
            Shape::Keys(&[key(
                "command",
                List(&Text),
                "",
                "a command that exits with 0 in the guest",
            )]),
        ]),
        "running",
        "when a VM counts as ready",
    ),
    key(
        "ready-timeout",
        Number(1, 86_400),
        "600",
        "how long that may take, in seconds",
    ),
    key(
        "hostname",
        Text,
        "vm0, vm1 and so on",
        "host name of the guest; %{vm_rank} stands for the rank",
    ),
    key(
        "dns-aliases",
        Either(&[List(&Text), Text]),
        "none",
        "further names of the guest",
    ),
];
