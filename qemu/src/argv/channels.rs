//! Byte channels: monitor, serial console, guest agent. Each is a connected socket that QEMU inherits.

use super::boards::Slot;
use super::{Arguments, Value};
use crate::machine::{Fd, Machine};

pub(super) fn render(machine: &Machine, out: &mut Arguments) {
    socket("qmp", machine.qmp, out);
    // `-mon` is deprecated since QEMU 11.1, and its successor is unknown to older ones.
    out.option("-qmp", Value::of("chardev:qmp"));
    socket("console", machine.console, out);
    out.option(
        "-device",
        Value::of("isa-serial")
            .with("id", "serial0")
            .with("chardev", "console"),
    );
    if let Some(agent) = machine.agent {
        socket("agent", agent, out);
        out.option(
            "-device",
            Slot::Serial.place(Value::of("virtio-serial-pci").with("id", "channels")),
        );
        out.option(
            "-device",
            Value::of("virtserialport")
                .with("bus", "channels.0")
                .with("chardev", "agent")
                .with("name", "org.qemu.guest_agent.0"),
        );
    }
}

fn socket(id: &str, fd: Fd, out: &mut Arguments) {
    out.option(
        "-chardev",
        Value::of("socket").with("id", id).with("fd", fd.0),
    );
}
