//! `spank_muster.so`: the SPANK plugin of Muster, `--vm` for `salloc`, `sbatch` and `srun`.
//!
//! Slurm loads it into many programs, and each loads it for another part of a job's life:
//!
//! | context | module | what happens |
//! |---|---|---|
//! | salloc, sbatch, srun; the user | [`allocator`] | the cluster definition becomes a request, or the command ends with the reason |
//! | `slurmstepd spank prolog`; root | [`prolog`] | the job is registered with the node's vmd |
//! | slurmstepd, a task before its exec; the user | [`remote`] | waits for the VMs, or fails the task with the reason |
//! | `slurmstepd spank epilog`; root | [`epilog`] | vmd cleans the node |
//!
//! A job without `--vm` costs one look at the option. The hooks say what is to be printed and whether
//! they fail as a [`Verdict`]; only `ffi` speaks to Slurm. There is no thread and no async code here:
//! slurmstepd forks its tasks without an exec.

pub mod account;
pub mod allocator;
pub mod arguments;
pub mod command;
pub mod command_options;
pub mod epilog;
pub mod facts;
// The functions it calls are those of the loading program: a unit test has none of them.
#[cfg(not(test))]
mod ffi;
pub mod options;
pub mod prolog;
pub mod remote;
pub mod submission;
pub mod verdict;
pub mod vmd;

pub use verdict::Verdict;
