//! Muster: machine to QEMU command line, guest memory, QMP messages; no I/O.
//!
//! A [`Machine`] is a whole virtual machine as a value; [`Machine::argv`] renders it as the arguments
//! of `qemu-system-x86_64`, always in the same order. What QEMU of Debian 12 (7.2) and every later
//! release takes, and nothing else, is used. [`memory`] decides how much RAM the guests of a node get,
//! [`qmp`] reads and writes the monitor's messages.

#![forbid(unsafe_code)]

mod argv;
pub mod machine;
pub mod memory;
pub mod qmp;

pub use machine::{Accel, Fd, Machine};
