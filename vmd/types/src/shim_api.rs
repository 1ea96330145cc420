//! `io.muster.Shim`: the interface of a shim's control socket, `<run_dir>/ctl.sock`.
//!
//! The socket belongs to the job's user and is mode 0600; root is not involved.

use serde::{Deserialize, Serialize};

use crate::api::{Empty, Method, method};
use crate::ids::{JobId, Rank};
use crate::state::VmStatus;

/// Name of the interface.
pub const INTERFACE: &str = "io.muster.Shim";

/// The interface in varlink's own language.
pub const IDL: &str = include_str!("io.muster.Shim.varlink");

/// The directory that holds the sockets of a job's shim on a node, below the daemon's run directory.
#[must_use]
pub fn run_dir(root: &str, job: JobId) -> String {
    format!("{root}/vm/{job}")
}

/// The daemon's run directory, unless `MUSTER_RUN_DIR` says otherwise.
pub const RUN_DIR: &str = "/run/muster";

/// Name of the control socket in the run directory of a job.
pub const SOCKET_NAME: &str = "ctl.sock";

/// The VMs of this shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {}
method!(List, "io.muster.Shim.List", Vms);

/// Reply of [`List`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Vms {
    /// By rank.
    pub vms: Vec<VmStatus>,
}

/// Power VMs down: by ACPI, and by ending QEMU when that took too long. Answered when they are off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Which.
    pub ranks: Vec<Rank>,
    /// End QEMU at once.
    #[serde(default)]
    pub force: bool,
    /// How long the guest may take, in milliseconds; by default the site's `stop-timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}
method!(Stop, "io.muster.Shim.Stop", Empty);

/// Attach to a serial console. Called with `upgrade`: after the reply the connection carries the
/// console's bytes, first those the ring buffer still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Console {
    /// Which VM.
    pub rank: Rank,
    /// Ask for the right to write; one writer at a time.
    pub write: bool,
}
method!(Console, "io.muster.Shim.Console", Attached);

/// Reply of [`Console`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Whether bytes sent go to the guest; false when another one writes already.
    pub writer: bool,
}

/// The console's log so far (its newest part, where it was rotated). Called with `upgrade`: the bytes follow the
/// reply, then the connection ends; with `follow` it goes on as the guest writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleLog {
    /// Which VM.
    pub rank: Rank,
    /// Go on with what the guest writes from now on.
    #[serde(default)]
    pub follow: bool,
}
method!(ConsoleLog, "io.muster.Shim.ConsoleLog", Empty);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_every_method() {
        let methods = [List::NAME, Stop::NAME, Console::NAME, ConsoleLog::NAME];
        for name in methods {
            let short = name.strip_prefix("io.muster.Shim.").unwrap();
            assert!(IDL.contains(&format!("\nmethod {short}(")), "{short}");
        }
        assert_eq!(IDL.matches("\nmethod ").count(), methods.len());
    }
}
