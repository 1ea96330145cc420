//! Disks: each is a chain of block nodes and a device whose requests have a thread of their own.

use super::boards::Slot;
use super::{Arguments, Value};
use crate::machine::Machine;

pub(super) fn render(machine: &Machine, out: &mut Arguments) {
    out.option("-object", Value::of("iothread").with("id", "boot-thread"));
    out.option(
        "-blockdev",
        Value::key("driver", "file")
            .with("node-name", "boot-file")
            .with("filename", &machine.boot_overlay)
            .with("discard", "unmap")
            // The overlay ends with its machine: nothing is gained by syncing it.
            .with("cache.no-flush", "on"),
    );
    out.option(
        "-blockdev",
        Value::key("driver", "qcow2")
            .with("node-name", "boot")
            .with("file", "boot-file")
            .with("discard", "unmap"),
    );
    out.option(
        "-device",
        Slot::BootDisk.place(
            Value::of("virtio-blk-pci")
                .with("id", "boot-disk")
                .with("drive", "boot")
                .with("iothread", "boot-thread")
                .with("bootindex", 1),
        ),
    );
}
