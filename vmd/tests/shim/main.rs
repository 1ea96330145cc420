//! The shim as a process: with a scripted vmd, and where QEMU is installed with real VMs.
//!
//! `MUSTER_REQUIRE=qemu` makes a missing QEMU a failure; otherwise the tests that need it say that
//! they are skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test's helpers fail as tests do"
)]

mod bench;
mod failures;
mod guest;
mod lives;
mod machines;
