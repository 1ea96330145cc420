//! slurmstepd, in a task just before its exec, as the user: waits for the VMs.
//!
//! The only hook that fails a job's work without harm to the node, so it is where a batch script or
//! a step learns why its VMs do not run.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use muster_templates::submit;
use muster_types::api::{ApiError, Until, Wait, WaitCluster, WaitOutcome, Waited};
use muster_types::client::CallError;
use muster_types::ids::JobId;

use crate::arguments::Arguments;
use crate::options::Choice;
use crate::prolog::fault;
use crate::verdict::Verdict;
use crate::vmd::{self, VmdError};

/// How long the VMs may take to run, unless `--vm-wait-timeout` says otherwise.
const LIMIT: Duration = Duration::from_secs(600);

/// What vmd's answer may be late by.
const SLACK: Duration = Duration::from_secs(15);

/// How long a vmd that is being restarted is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause before a connection that was refused for there being too many, or lost, is made anew.
const RETRY: Duration = Duration::from_millis(500);

/// The task that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its job.
    pub job: JobId,
    /// This node.
    pub node: String,
    /// The first of the node's tasks of the step: it says what went wrong on this node.
    pub first_on_node: bool,
    /// The first task of the command that the job was submitted with: it passes warnings on, which
    /// each later step would only repeat.
    pub first: bool,
    /// `--vm-wait` of its command.
    pub wait: Option<String>,
    /// `--vm-wait-timeout` of its command.
    pub wait_timeout: Option<String>,
}

/// Waits until every VM has started.
#[must_use]
pub fn run(choice: &Choice, arguments: &[String], task: &Task) -> Verdict {
    if *choice == Choice::Off {
        return Verdict::good();
    }
    let prefix = format!("muster: {}: ", task.node);
    let fail = |text: &str| Verdict {
        // The other tasks have nothing to add.
        errors: if task.first_on_node {
            Verdict::failure(&prefix, text).errors
        } else {
            Vec::new()
        },
        notes: Vec::new(),
        failed: true,
    };
    let waiting = submit::waiting(task.wait.as_deref(), task.wait_timeout.as_deref());
    let limit = match waiting {
        Ok((Wait::No, _)) => return Verdict::good(),
        // At present a VM is ready when it runs.
        Ok((Wait::Ready | Wait::Running, seconds)) => {
            seconds.map_or(LIMIT, |s| Duration::from_secs(s.into()))
        }
        Err(e) => return fail(&e.to_string()),
    };
    // An argument that is not understood is in the log of each prolog; the rest is good.
    let socket = Arguments::parse(arguments).unwrap_or_default().socket;
    match wait(&socket, task.job, Instant::now() + limit) {
        Ok(Waited {
            outcome: WaitOutcome::Reached,
            warnings,
            ..
        }) => Verdict {
            notes: if task.first {
                warnings
                    .iter()
                    .flat_map(|w| Verdict::logged("muster: warning: ", w).errors)
                    .collect()
            } else {
                Vec::new()
            },
            ..Verdict::good()
        },
        Ok(Waited {
            outcome: WaitOutcome::Failed,
            reason,
            ..
        }) => fail(reason.as_deref().unwrap_or("the virtual cluster failed")),
        Ok(Waited {
            outcome: WaitOutcome::TimedOut,
            reason,
            ..
        }) => fail(&format!(
            "the VMs do not run after {} s: {}",
            limit.as_secs(),
            reason.as_deref().unwrap_or("no reason known")
        )),
        Err(VmdError::Call(CallError::Api(ApiError::NoSuchCluster(text)))) => fail(&format!(
            "{text} (--vm belongs to the command that makes the allocation)"
        )),
        Err(e) => fail(&fault(&e)),
    }
}

/// One wait, over as many connections as restarts of vmd make necessary.
fn wait(socket: &Path, job: JobId, deadline: Instant) -> Result<Waited, VmdError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let call = WaitCluster {
            job,
            until: Until::Started,
            timeout_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        };
        let error = match vmd::call(socket, &call, PATIENCE, deadline + SLACK) {
            Ok(waited) => return Ok(waited),
            Err(e) => e,
        };
        let again = match &error {
            VmdError::Connect { .. } => false,
            VmdError::Call(CallError::Api(ApiError::Busy(_))) => true,
            VmdError::Call(_) => error.is_lost(),
        };
        if !again || Instant::now() + RETRY >= deadline {
            return Err(error);
        }
        sleep(RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmd::tests::fake;

    fn task(first: bool) -> Task {
        Task {
            job: JobId(7),
            node: "node2".into(),
            first_on_node: first,
            first,
            wait: None,
            wait_timeout: None,
        }
    }

    #[test]
    fn options_say_whether_and_how_long_is_waited() {
        let no = Task {
            wait: Some("no".into()),
            ..task(true)
        };
        let vms = Choice::Vms("tiny".into());
        // Nobody listens: nobody is asked.
        assert_eq!(run(&vms, &["socket=/nowhere".into()], &no), Verdict::good());
        let wrong = Task {
            wait: Some("redy".into()),
            wait_timeout: Some("0".into()),
            ..task(true)
        };
        let told = run(&vms, &[], &wrong);
        assert!(told.failed);
        assert_eq!(
            told.errors,
            [
                "muster: node2: --vm-wait: 'redy' is none of ready, running, no (did you mean 'ready'?)",
                "muster: node2: --vm-wait-timeout: '0' is no number of seconds from 1 to 86400",
            ]
        );
    }

    fn verdict(answers: &'static [&'static str], task: &Task) -> Verdict {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let vmd = fake(&path, answers);
        let arguments = [format!("socket={}", path.display())];
        let verdict = run(&Choice::Vms("tiny".into()), &arguments, task);
        let asked = vmd.join().unwrap();
        assert_eq!(asked.len(), answers.len());
        assert!(asked[0].contains("\"until\":\"started\""), "{}", asked[0]);
        verdict
    }

    const REACHED: &str = "{\"parameters\":{\"outcome\":\"reached\",\"warnings\":[\"no KVM\"]}}\0";
    const FAILED: &str = "{\"parameters\":{\"outcome\":\"failed\",\"reason\":\"vm1: no image\"}}\0";
    const TIMED_OUT: &str =
        "{\"parameters\":{\"outcome\":\"timed-out\",\"reason\":\"vm0 on node1 is starting\"}}\0";
    const BUSY: &str =
        "{\"error\":\"io.muster.Vmd.Busy\",\"parameters\":{\"message\":\"too many\"}}\0";
    const UNKNOWN: &str = "{\"error\":\"io.muster.Vmd.NoSuchCluster\",\
        \"parameters\":{\"message\":\"no cluster of job 7\"}}\0";

    #[test]
    fn none_waits_for_nothing() {
        let arguments = ["socket=/nonexistent/s".to_owned()];
        assert_eq!(run(&Choice::Off, &arguments, &task(true)), Verdict::good());
    }

    #[test]
    fn the_first_task_passes_warnings_on() {
        assert_eq!(
            verdict(&[REACHED], &task(true)).notes,
            ["muster: warning: no KVM"]
        );
        assert_eq!(verdict(&[REACHED], &task(false)), Verdict::good());
    }

    #[test]
    fn failures_carry_node_and_reason() {
        for (answer, text) in [
            (&[FAILED], "muster: node2: vm1: no image"),
            (
                &[TIMED_OUT],
                "muster: node2: the VMs do not run after 600 s: vm0 on node1 is starting",
            ),
            (
                &[UNKNOWN],
                "muster: node2: no cluster of job 7 (--vm belongs to the command that makes the \
                 allocation)",
            ),
        ] {
            let v = verdict(answer, &task(true));
            assert!(v.failed);
            assert_eq!(v.errors, [text]);
        }
        let quiet = verdict(&[FAILED], &task(false));
        assert!(quiet.failed && quiet.errors.is_empty());
    }

    #[test]
    fn a_restart_or_a_busy_vmd_is_met_again() {
        assert!(!verdict(&[BUSY, "", REACHED], &task(true)).failed);
    }
}
