//! Board, CPUs, memory, and the slots of the PCIe root.

use super::{Arguments, Value};
use crate::machine::{Accel, Machine};

/// The first slot of the spare ports; those before are the machine's own devices.
const FIRST_SPARE_SLOT: u32 = 0x10;

/// The most spare ports: slots 0x10 to 0x1e, and 0x1f is the chipset's own.
const MOST_SPARE: u32 = 15;

/// A slot on the PCIe root for each device of the machine, so that a guest finds a device at the same
/// place whatever else the machine has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Slot {
    Random = 0x2,
    Serial = 0x3,
    BootDisk = 0x4,
}

impl Slot {
    /// Places a device.
    pub(super) fn place(self, device: Value) -> Value {
        device
            .with("bus", "pcie.0")
            .with("addr", format!("{:#x}", self as u32))
    }
}

pub(super) fn render(machine: &Machine, out: &mut Arguments) {
    out.option(
        "-machine",
        Value::key("type", "q35")
            .with("usb", "off")
            .with("vmport", "off")
            .with("dump-guest-core", "off"),
    );
    let (accel, cpu) = match machine.accel {
        Accel::Kvm => (Value::of("kvm"), "host"),
        Accel::Tcg { translation } => (Value::of("tcg").with("tb-size", translation.0), "max"),
    };
    out.option("-accel", accel);
    out.option("-cpu", Value::of(cpu));
    out.option(
        "-smp",
        Value::key("cpus", machine.vcpus)
            .with("sockets", 1)
            .with("cores", machine.vcpus)
            .with("threads", 1),
    );
    out.option("-m", Value::key("size", format!("{}M", machine.memory.0)));
    // Only from the disk that is told to be booted.
    out.option("-boot", Value::key("strict", "on"));
    for port in 0..u32::from(machine.spare_ports).min(MOST_SPARE) {
        out.option(
            "-device",
            Value::of("pcie-root-port")
                .with("id", format!("port{port}"))
                .with("bus", "pcie.0")
                .with("addr", format!("{:#x}", FIRST_SPARE_SLOT + port))
                .with("chassis", port + 1),
        );
    }
    out.option(
        "-object",
        Value::of("rng-random")
            .with("id", "random-source")
            .with("filename", "/dev/urandom"),
    );
    out.option(
        "-device",
        Slot::Random.place(
            Value::of("virtio-rng-pci")
                .with("id", "random")
                .with("rng", "random-source"),
        ),
    );
}
