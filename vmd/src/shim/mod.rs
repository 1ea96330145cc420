//! `vmd-shim`: runs one node's VMs of a job, as the job's user inside the VM step's cgroup.
//!
//! ```text
//! Launch (waits until the node is prepared) -> memory, KVM -> every VM at once:
//!   overlay -> QEMU, stopped -> QMP -> cont -> running -> over
//! every change -> board -> report to vmd          all VMs over, or SIGTERM -> last report -> end
//! ```
//!
//! VMs do not need vmd: when it is gone they go on, and it is told the state of all of them when it is
//! back. They do need the shim: QEMU is its child and dies with it. The shim has no rights beyond the
//! user's, listens only on a socket of the user's, and leaves no process and no file outside of the
//! directories that vmd made for it and removes.

pub mod board;
pub mod console;
pub mod control;
pub mod ending;
pub mod kvm;
pub mod launch;
pub mod memory;
pub mod node;
pub mod overlay;
pub mod process;
pub mod qmp;
pub mod report;
pub mod signals;
pub mod vm;

use std::path::PathBuf;

use muster_types::api;
use muster_types::ids::JobId;

use self::launch::LaunchError;
use self::node::NodeError;
use self::signals::Signals;

/// Where a shim finds itself, from the environment that Slurm gives a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The job (`SLURM_JOB_ID`).
    pub job: JobId,
    /// The VM step (`SLURM_STEP_ID`).
    pub step: u32,
    /// vmd's socket (`MUSTER_VMD_SOCKET`, default [`api::SOCKET`]).
    pub vmd_socket: PathBuf,
}

/// Why a shim cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// Not started by Slurm.
    #[error(
        "environment variable {name} is missing or no number: vmd-shim is started by Slurm, as the task of a VM step"
    )]
    Environment {
        /// The variable.
        name: &'static str,
    },
    /// Signals cannot be caught.
    #[error("catch signals")]
    Signals(#[source] std::io::Error),
    /// vmd gave no plan.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The node's part failed as a whole.
    #[error(transparent)]
    Node(#[from] NodeError),
}

impl Task {
    /// Reads the environment, given as a function from name to value.
    ///
    /// # Errors
    /// A variable is missing.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, ShimError> {
        let job = env("SLURM_JOB_ID").and_then(|v| v.parse().ok());
        let step = env("SLURM_STEP_ID").and_then(|v| v.parse().ok());
        let missing = |name| ShimError::Environment { name };
        Ok(Self {
            job: job.ok_or_else(|| missing("SLURM_JOB_ID"))?,
            step: step.ok_or_else(|| missing("SLURM_STEP_ID"))?,
            vmd_socket: env("MUSTER_VMD_SOCKET")
                .unwrap_or_else(|| api::SOCKET.to_owned())
                .into(),
        })
    }
}

/// Runs the node's VMs until all are over or Slurm ends the step; whether every VM has started.
///
/// # Errors
/// There is no plan, or nothing could be started at all.
pub async fn run(task: Task) -> Result<bool, ShimError> {
    let mut signals = Signals::catch().map_err(ShimError::Signals)?;
    let plan = tokio::select! {
        plan = launch::plan(&task) => plan?,
        () = signals.next() => return Ok(true),
    };
    Ok(node::run(&task, plan, signals).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_is_slurms() {
        let env = |name: &str| match name {
            "SLURM_JOB_ID" => Some("12".to_owned()),
            "SLURM_STEP_ID" => Some("0".to_owned()),
            _ => None,
        };
        let task = Task::from_env(env).unwrap();
        assert_eq!((task.job, task.step), (JobId(12), 0));
        assert_eq!(task.vmd_socket, PathBuf::from("/run/muster/vmd.sock"));
        let e = Task::from_env(|_| None).unwrap_err();
        assert!(e.to_string().contains("SLURM_JOB_ID"));
    }
}
