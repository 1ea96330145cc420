//! QEMU as a process: its name, what it may not do, and what it does when the guest ends.

use super::{Arguments, Value};
use crate::machine::Machine;

pub(super) fn render(machine: &Machine, out: &mut Arguments) {
    out.option(
        "-name",
        Value::key("guest", &machine.name).with("debug-threads", "on"),
    );
    // Nothing but what is asked for: no default devices, and no file of the host's or the user's.
    out.flag("-nodefaults");
    out.flag("-no-user-config");
    out.option("-display", Value::of("none"));
    // The guest waits for `cont`, after its vCPUs are where they belong.
    out.flag("-S");
    out.option(
        "-sandbox",
        Value::of("on")
            .with("obsolete", "deny")
            .with("elevateprivileges", "deny")
            .with("spawn", "deny"),
    );
    out.option(
        "-action",
        Value::key("reboot", "reset").with("shutdown", "poweroff"),
    );
}
