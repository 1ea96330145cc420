//! The VM step: the srun that runs one shim on each node of a job.

use std::fmt::Display;

/// The arguments of the srun that runs a VM step, without the program's name. `job` is its id.
///
/// `--overlap` shares the job's CPUs, memory and GRES with the user's own steps, `--mem=0` stands for
/// all of the job's memory, `--vm=none` keeps the plugin from waiting for the VMs that this step is
/// to start, and one shim that fails must not end the others.
#[must_use]
pub fn arguments(job: impl Display, nodes: usize, shim: impl Display) -> Vec<String> {
    [
        &format!("--jobid={job}"),
        "--overlap",
        &format!("--nodes={nodes}"),
        &format!("--ntasks={nodes}"),
        "--ntasks-per-node=1",
        "--cpu-bind=none",
        "--mem=0",
        "--mpi=none",
        "--export=NONE",
        "--input=none",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--job-name=vm",
        "--vm=none",
        &shim.to_string(),
    ]
    .into_iter()
    .map(str::to_owned)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_one_shim_per_node() {
        let args = arguments(7, 2, "/usr/libexec/muster/vmd-shim");
        assert_eq!(args[0], "--jobid=7");
        assert!(args.contains(&"--ntasks=2".to_owned()));
        assert!(args.contains(&"--vm=none".to_owned()));
        assert_eq!(args.last().unwrap(), "/usr/libexec/muster/vmd-shim");
    }
}
