//! Bindings to SPANK, the plugin interface of Slurm (spank(8)), as of Slurm 22.05.
//!
//! The functions are not in a library: the program that loads the plugin (`srun`, `slurmd`,
//! `slurmstepd`, ...) provides them, so nothing is linked here and a call from any other program
//! does not resolve. What later releases added is left out, so that a plugin which uses this crate
//! loads in all of them.
//!
//! The build script makes the bindings from the headers in `SLURM_INCLUDE_DIR` (see `build.rs`), or
//! takes the committed ones. [`SLURM_VERSION_NUMBER`] is the release of those headers: Slurm refuses a
//! plugin whose major and minor version are not its own.

#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    non_camel_case_types,
    non_upper_case_globals,
    dead_code,
    clippy::all,
    clippy::pedantic,
    reason = "generated; documented in spank(8) and in Slurm's spank.h"
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::*;

/// Value of `slurm_spank_init_failure_mode`: a failing hook fails the job, the node is not drained.
/// Read by Slurm 25.05 and later, of no effect before.
pub const ESPANK_JOB_FAILURE: std::ffi::c_int = 3012;

/// The step id of a batch script (`SLURM_BATCH_SCRIPT` of slurm.h).
pub const BATCH_STEP: u32 = 0xffff_fffb;

/// `spank_getenv`: the buffer holds the beginning of the value. Part of Slurm's ABI (slurm_errno.h).
pub const ESPANK_NOSPACE: spank_err_t = 3005;

/// Major, minor and patch number of the Slurm release that the bindings are of: `(24, 11, 5)`.
#[must_use]
pub const fn slurm_version() -> (u32, u32, u32) {
    (
        (SLURM_VERSION_NUMBER >> 16) & 0xff,
        (SLURM_VERSION_NUMBER >> 8) & 0xff,
        SLURM_VERSION_NUMBER & 0xff,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_one_that_is_supported() {
        let (major, minor, _) = slurm_version();
        assert!((22..=30).contains(&major), "{major}.{minor}");
        assert!((1..=12).contains(&minor), "{major}.{minor}");
    }

    #[test]
    fn values_are_those_of_the_interface() {
        // Part of Slurm's ABI; the same from 22.05 to 26.05.
        assert_eq!(
            (S_CTX_ERROR, S_CTX_LOCAL, S_CTX_REMOTE, S_CTX_ALLOCATOR),
            (0, 1, 2, 3)
        );
        assert_eq!((S_CTX_SLURMD, S_CTX_JOB_SCRIPT), (4, 5));
        assert_eq!((S_JOB_ID, S_TASK_GLOBAL_ID), (2, 12));
        assert_eq!(ESPANK_SUCCESS, 0);
        assert_eq!(size_of::<spank_option>(), 3 * size_of::<usize>() + 8 + 8);
    }
}
