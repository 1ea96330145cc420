//! Whether a process is inside the cgroup of a job.
//!
//! Paths are never built, only read from `/proc/<pid>/cgroup` (cgroups(7)): Slurm names a job's
//! cgroup `job_<id>` up to 25.05 and by its SLUID since 25.11, cgroup v1 has a line per controller,
//! v2 one line.

use std::io;
use std::path::Path;

use muster_types::ids::JobId;

/// Reads the cgroups of a process.
///
/// # Errors
/// The process is gone.
pub fn of_process(proc_root: &Path, pid: i32) -> io::Result<String> {
    std::fs::read_to_string(proc_root.join(pid.to_string()).join("cgroup"))
}

/// Whether a process with these cgroups belongs to the job: below a directory that Slurm made
/// (`slurm`, `slurm_<node>`, `slurmstepd.scope`, `<node>_slurmstepd.scope`), in one named after it.
#[must_use]
pub fn is_in_job(cgroups: &str, job: JobId, sluid: Option<&str>) -> bool {
    let by_id = format!("job_{job}");
    cgroups.lines().any(|line| {
        // hierarchy-ID:controller-list:cgroup-path
        let Some(path) = line.splitn(3, ':').nth(2) else {
            return false;
        };
        let mut below_slurm = false;
        for part in path.split('/') {
            if below_slurm && (part == by_id || sluid.is_some_and(|s| names_sluid(part, s))) {
                return true;
            }
            below_slurm |= part == "slurm"
                || part.starts_with("slurm_")
                || part == "slurmstepd.scope"
                || part.ends_with("_slurmstepd.scope");
        }
        false
    })
}

/// A component that is the SLUID, or `job_` and the SLUID.
fn names_sluid(part: &str, sluid: &str) -> bool {
    !sluid.is_empty() && part.strip_prefix("job_").unwrap_or(part) == sluid
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "9:memory:/slurm_node1/uid_1500/job_12/step_0/task_0\n1:name=systemd:/\n";
    const V2: &str = "0::/system.slice/node1_slurmstepd.scope/job_12/step_0/user/task_0\n";
    const SLUID: &str = "0::/system.slice/slurmstepd.scope/s769M8QCZ3MK00/step_0/user/task_0\n";

    #[test]
    fn a_task_is_in_its_job_only() {
        for text in [V1, V2] {
            assert!(is_in_job(text, JobId(12), None));
            assert!(!is_in_job(text, JobId(1), None));
        }
        assert!(is_in_job(SLUID, JobId(1), Some("s769M8QCZ3MK00")));
        assert!(!is_in_job(SLUID, JobId(1), Some("s769M8QCZ3MK01")));
        assert!(!is_in_job(SLUID, JobId(1), None));
    }

    #[test]
    fn a_users_own_cgroup_is_no_job() {
        let own = "0::/user.slice/user-1500.slice/user@1500.service/job_12\n";
        assert!(!is_in_job(own, JobId(12), None));
        assert!(!is_in_job("", JobId(12), None));
        assert!(!is_in_job("garbage", JobId(12), Some("")));
    }
}
