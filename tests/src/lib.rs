//! What Muster is tested with: the lab (Slurm in containers), guest images, and the tasks behind `cargo xtask`.
//!
//! This package depends on no other of the workspace, so that `cargo xtask` compiles on a bare machine and can install what the
//! others need. It builds and runs them as a user would.

pub mod artifacts;
pub mod bare;
pub mod bench;
pub mod boot;
pub mod cache;
pub mod command;
pub mod demo;
pub mod docker;
pub mod fuzz;
pub mod guests;
pub mod images;
pub mod lab;
pub mod leaks;
pub mod load;
pub mod packages;
pub mod progress;
pub mod suite;
pub mod test;
pub mod wait;
pub mod workspace;
