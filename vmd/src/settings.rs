//! What a vmd runs with: directories, deadlines and policy, from its command line and `batch.yaml`.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of one vmd, fixed while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Runtime state (`/run/muster`); on a tmpfs.
    pub run_dir: PathBuf,
    /// Parent of the jobs' scratch directories (`scratch-dir`).
    pub scratch_dir: PathBuf,
    /// Root of the process file system.
    pub proc_root: PathBuf,
    /// What QEMU needs beside guest RAM, per VM, in MiB (`vm-memory-overhead`).
    pub memory_overhead_mib: u64,
    /// The same as a share of guest RAM, in thousandths.
    pub memory_overhead_permille: u64,
    /// How long a VM may take to power down (`stop-timeout`).
    pub stop_timeout: Duration,
    /// How long the nodes of a job may take to prepare (`prepare-timeout`).
    pub prepare_timeout: Duration,
    /// How long the VMs may take from the nodes being prepared to running.
    pub launch_timeout: Duration,
    /// Cancel the job when its cluster fails (`on-failure: cancel`).
    pub cancel_on_failure: bool,
    /// Uids that see all clusters, beside root.
    pub operators: Vec<u32>,
}

impl Settings {
    /// Directory of the journal.
    #[must_use]
    pub fn jobs_dir(&self) -> PathBuf {
        self.run_dir.join("jobs")
    }

    /// Parent of the directories that hold the shims' sockets.
    #[must_use]
    pub fn vm_dir(&self) -> PathBuf {
        self.run_dir.join("vm")
    }

    /// Whether a user sees all clusters.
    #[must_use]
    pub fn sees_all(&self, uid: u32) -> bool {
        uid == 0 || self.operators.contains(&uid)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::Path;

    pub(crate) fn settings(root: &Path) -> Settings {
        Settings {
            run_dir: root.join("run"),
            scratch_dir: root.join("scratch"),
            proc_root: "/proc".into(),
            memory_overhead_mib: 192,
            memory_overhead_permille: 15,
            stop_timeout: Duration::from_secs(20),
            prepare_timeout: Duration::from_secs(2),
            launch_timeout: Duration::from_secs(2),
            cancel_on_failure: true,
            operators: vec![4242],
        }
    }

    #[test]
    fn root_and_operators_see_all() {
        let s = settings(Path::new("/x"));
        assert!(s.sees_all(0) && s.sees_all(4242) && !s.sees_all(1500));
        assert_eq!(s.vm_dir(), Path::new("/x/run/vm"));
    }
}
