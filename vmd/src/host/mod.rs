//! The operating system as vmd sees it: the only place of the daemon that touches processes,
//! directories and Slurm's commands. What it depends on (`/proc`, the run directory, the programs)
//! is passed in, so that tests use directories of their own.

pub mod account;
pub mod cgroup;
pub mod directory;
pub mod process;
pub mod slurm;
