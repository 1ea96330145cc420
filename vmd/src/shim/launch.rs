//! The launch plan: asked of vmd, which answers when the node is prepared.

use std::time::Duration;

use muster_types::api::{ApiError, Launch, LaunchPlan};
use tokio::time::Instant;
use tracing::debug;

use super::Task;
use crate::chain::chain;
use crate::wire::{Connection, WireError};

/// How long vmd may be out of reach: a restart takes seconds.
const VMD_ABSENCE: Duration = Duration::from_secs(20);

/// How long an answer may take. vmd's own deadlines for preparation end before.
const ANSWER: Duration = Duration::from_secs(30 * 60);

/// Time between two attempts to reach vmd.
const RETRY: Duration = Duration::from_millis(200);

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// vmd cannot be reached.
    #[error("launch the VMs of job {job}: vmd was out of reach for {} s", .absence.as_secs())]
    Unreachable {
        /// The job.
        job: muster_types::ids::JobId,
        /// For how long at least.
        absence: Duration,
        /// The last attempt.
        source: WireError,
    },
    /// vmd says no.
    #[error("launch the VMs of job {job}")]
    Refused {
        /// The job.
        job: muster_types::ids::JobId,
        /// Why.
        source: ApiError,
    },
    /// Nothing came.
    #[error("launch the VMs of job {job}: vmd gave no answer within {} min", ANSWER.as_secs() / 60)]
    Late {
        /// The job.
        job: muster_types::ids::JobId,
    },
}

/// Waits for the plan. vmd may be restarted meanwhile.
///
/// # Errors
/// See [`LaunchError`].
pub async fn plan(task: &Task) -> Result<LaunchPlan, LaunchError> {
    let job = task.job;
    let whole = tokio::time::timeout(ANSWER, ask(task, VMD_ABSENCE));
    whole.await.unwrap_or(Err(LaunchError::Late { job }))
}

async fn ask(task: &Task, absence: Duration) -> Result<LaunchPlan, LaunchError> {
    let job = task.job;
    let launch = Launch {
        job,
        step: task.step,
    };
    let mut reached = Instant::now();
    loop {
        let attempt = match Connection::connect(&task.vmd_socket).await {
            Ok(mut connection) => {
                let answer = connection.call(&launch).await;
                // It was there until now, whatever it said.
                reached = Instant::now();
                answer
            }
            Err(e) => Err(e),
        };
        match attempt {
            Ok(plan) => return Ok(plan),
            Err(WireError::Api(source)) if !is_passing(&source) => {
                return Err(LaunchError::Refused { job, source });
            }
            Err(source) if reached.elapsed() > absence => {
                return Err(LaunchError::Unreachable {
                    job,
                    absence,
                    source,
                });
            }
            Err(e) => debug!(error = chain(&e), "launch, trying again"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Whether the same call may succeed a moment later.
pub(super) fn is_passing(e: &ApiError) -> bool {
    matches!(e, ApiError::StoreUnavailable(_) | ApiError::Busy(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;
    use muster_types::ids::{JobId, JobKey, NodeName};
    use muster_types::varlink::Call;
    use tokio::net::UnixListener;

    fn sample() -> LaunchPlan {
        LaunchPlan {
            key: JobKey {
                job: JobId(5),
                restart: 0,
            },
            node: NodeName::new("n1").unwrap(),
            scratch_dir: "/s".into(),
            run_dir: "/r".into(),
            vms: vec![],
            memory_overhead_mib: 1,
            memory_overhead_permille: 1,
            stop_timeout_ms: 1,
        }
    }

    #[tokio::test]
    async fn a_vmd_that_is_restarted_is_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let vmd_socket = dir.path().join("vmd.sock");
        let listener = UnixListener::bind(&vmd_socket).unwrap();
        let vmd = tokio::spawn(async move {
            // Dies while it is asked, then is busy, then answers.
            drop(listener.accept().await.unwrap());
            for busy in [true, false] {
                let (stream, _) = listener.accept().await.unwrap();
                let mut connection = Connection::accepted(stream, "shim".into());
                let call: Call = connection.receive().await.unwrap().unwrap();
                assert_eq!(call.parameters["step"], 3);
                let reply = if busy {
                    wire::failure("io.muster.Vmd", "Busy", "later")
                } else {
                    wire::success(&sample()).unwrap()
                };
                connection.send(&reply).await.unwrap();
            }
        });
        let task = Task {
            job: JobId(5),
            step: 3,
            vmd_socket,
        };
        assert_eq!(plan(&task).await.unwrap(), sample());
        vmd.await.unwrap();
    }

    #[tokio::test]
    async fn a_failed_cluster_is_an_error_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let vmd_socket = dir.path().join("vmd.sock");
        let listener = UnixListener::bind(&vmd_socket).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = Connection::accepted(stream, "shim".into());
            connection.receive::<Call>().await.unwrap();
            let reply = wire::failure("io.muster.Vmd", "ClusterFailed", "n2: no space");
            connection.send(&reply).await.unwrap();
        });
        let task = Task {
            job: JobId(5),
            step: 3,
            vmd_socket,
        };
        let e = plan(&task).await.unwrap_err();
        assert_eq!(chain(&e), "launch the VMs of job 5: n2: no space");
    }

    #[tokio::test]
    async fn a_vmd_that_stays_away_is_given_up() {
        let task = Task {
            job: JobId(5),
            step: 3,
            vmd_socket: "/nonexistent/vmd.sock".into(),
        };
        let e = ask(&task, Duration::ZERO).await.unwrap_err();
        let text = chain(&e);
        assert!(text.contains("out of reach for 0 s"), "{text}");
        assert!(text.contains("/nonexistent/vmd.sock"), "{text}");
    }
}
