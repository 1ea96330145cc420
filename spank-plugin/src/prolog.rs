//! `slurmstepd spank prolog`, as root on each node of a job: the node's vmd learns of the job.
//!
//! The prolog never waits for longer than [`LIMIT`], and fails (which drains the node) only where the
//! administrator chose that.

use std::path::Path;
use std::time::{Duration, Instant};

use muster_types::api::{JobFacts, RegisterJob};
use muster_types::client::encode_call;
use muster_types::request::{self, REQUEST_VARIABLE, Submitter};
use muster_types::varlink::MAX_CALL_BYTES;

use crate::account;
use crate::arguments::{Arguments, NodeFault};
use crate::command;
use crate::facts::{self, Env};
use crate::options::Choice;
use crate::verdict::{Verdict, chain};
use crate::vmd::{self, VmdError};

/// How long vmd may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a vmd that is being restarted is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the prolog may take in all.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Before each line of the log.
pub const PREFIX: &str = "muster: ";

/// Registers the job. `program` is the running one, beside which Slurm's commands are looked for.
#[must_use]
pub fn run(choice: &Choice, arguments: &[String], env: Env<'_>, program: Option<&Path>) -> Verdict {
    if *choice == Choice::Off {
        return Verdict::good();
    }
    let end = Instant::now() + LIMIT;
    let mut verdict = Verdict::good();
    let arguments = Arguments::parse(arguments).unwrap_or_else(|e| {
        verdict.log(PREFIX, &e.to_string());
        Arguments::default()
    });
    let request = env(&format!("SPANK_{REQUEST_VARIABLE}"));
    let node = facts::node(env);
    let registered = match facts::job(env, &account::of) {
        Ok(facts) => register(facts, request.clone(), &arguments.socket),
        Err(e) => Err(chain(&e)),
    };
    let Err(reason) = registered else {
        return verdict;
    };
    let reason = format!("{node}: {reason}");
    let job = facts::key(env).map_or_else(|_| "?".into(), |key| key.job.to_string());
    verdict.log(PREFIX, &format!("job {job}: {reason}"));
    match arguments.on_node_fault {
        NodeFault::Drain => verdict.failed = true,
        NodeFault::Fail => {
            if is_salloc(request.as_deref()) {
                let commands = |name: &str| arguments.slurm_command(name, program);
                verdict.errors.extend(cancel(&job, &reason, &commands, end));
            }
        }
    }
    verdict
}

fn register(facts: JobFacts, request: Option<String>, socket: &Path) -> Result<(), String> {
    let mut call = RegisterJob { facts, request };
    // A request that no vmd would read is the user's mistake, not the node's: it becomes the job's
    // verdict by being empty.
    let fits = encode_call(&call, false).is_ok_and(|bytes| bytes.len() <= MAX_CALL_BYTES);
    if !fits {
        call.request = Some(String::new());
    }
    match vmd::call(socket, &call, PATIENCE, Instant::now() + ANSWER) {
        Ok(_) => Ok(()),
        Err(e) => Err(fault(&e)),
    }
}

/// A node's fault in the words of every message about it.
#[must_use]
pub fn fault(error: &VmdError) -> String {
    if error.is_answer() {
        format!("vmd: {}", chain(error))
    } else {
        format!("vmd does not answer: {}", chain(error))
    }
}

/// Whether the job is an interactive allocation. Batch scripts and steps are told in their
/// `task_init`; a shell on the submit host has none.
fn is_salloc(request: Option<&str>) -> bool {
    request
        .and_then(|text| request::parse(text).ok())
        .is_some_and(|request| request.submitter == Submitter::Salloc)
}

/// Tells the user and ends the job, leaving the node in service. Returns what did not work.
fn cancel(
    job: &str,
    reason: &str,
    commands: &dyn Fn(&str) -> std::path::PathBuf,
    end: Instant,
) -> Vec<String> {
    let text = format!("muster: {reason}");
    let half = Instant::now() + end.saturating_duration_since(Instant::now()) / 2;
    [
        command::run(&commands("scontrol"), &["notify", job, &text], half),
        command::run(&commands("scancel"), &[job], end),
    ]
    .into_iter()
    .filter_map(|done| {
        done.err()
            .map(|e| format!("{PREFIX}job {job}: {}", chain(&e)))
    })
    .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::tests::PROLOG_22_05;
    use crate::vmd::tests::fake;
    use std::os::unix::fs::PermissionsExt;

    pub(crate) fn facts() -> JobFacts {
        facts::job(&|name| variable(name, None), &|_| None).unwrap()
    }

    fn variable(name: &str, request: Option<&str>) -> Option<String> {
        if name == "SPANK_MUSTER_REQUEST" {
            return request.map(str::to_owned);
        }
        PROLOG_22_05
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| (*v).to_owned())
    }

    const REQUEST: &str = "{\"version\":2,\"definition\":\"tiny\",\"submitter\":\"salloc\",\
        \"groups\":[{\"template\":\"tiny\",\"count\":1}],\
        \"templates\":{\"tiny\":{\"image\":{\"file\":{\"path\":\"/x\"}}}}}";

    fn vms() -> Choice {
        Choice::Vms("tiny".into())
    }

    fn with_socket(dir: &Path, more: &[&str]) -> Vec<String> {
        let mut arguments = vec![format!("socket={}", dir.join("s").display())];
        arguments.extend(more.iter().map(|a| (*a).to_owned()));
        arguments
    }

    #[test]
    fn other_jobs_are_not_touched() {
        let env = |name: &str| -> Option<String> { unreachable!("{name} was read") };
        let bad = ["nonsense".to_owned()];
        assert_eq!(run(&Choice::Off, &bad, &env, None), Verdict::good());
    }

    #[test]
    fn the_job_is_registered_with_the_request_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let vmd = fake(&dir.path().join("s"), &["{}\0"]);
        let env = |name: &str| variable(name, Some("not even JSON"));
        let verdict = run(&vms(), &with_socket(dir.path(), &[]), &env, None);
        assert_eq!(verdict, Verdict::good());
        let asked = vmd.join().unwrap().remove(0);
        assert!(asked.contains("\"request\":\"not even JSON\""), "{asked}");
        assert!(asked.contains("\"nodelist\":\"node[1-2]\""), "{asked}");
    }

    #[test]
    fn a_fault_drains_only_where_that_was_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let env = |name: &str| variable(name, None);
        let verdict = run(&vms(), &with_socket(dir.path(), &[]), &env, None);
        assert!(!verdict.failed);
        let [line] = &verdict.errors[..] else {
            panic!("{verdict:?}")
        };
        assert!(
            line.starts_with("muster: job 7: node1: vmd does not answer: connect to /"),
            "{line}"
        );
        let drain = with_socket(dir.path(), &["on_node_fault=drain"]);
        assert!(run(&vms(), &drain, &env, None).failed);
    }

    #[test]
    fn an_answer_that_refuses_is_a_fault_too() {
        let dir = tempfile::tempdir().unwrap();
        let vmd = fake(
            &dir.path().join("s"),
            &[
                "{\"error\":\"io.muster.Vmd.Internal\",\"parameters\":{\"message\":\"disk full\"}}\0",
            ],
        );
        let env = |name: &str| variable(name, None);
        let verdict = run(&vms(), &with_socket(dir.path(), &[]), &env, None);
        assert_eq!(verdict.errors, ["muster: job 7: node1: vmd: disk full"]);
        vmd.join().unwrap();
    }

    #[test]
    fn an_interactive_job_is_told_and_cancelled() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        for name in ["scontrol", "scancel"] {
            let path = dir.path().join(name);
            let script = format!("#!/bin/sh\necho {name} \"$@\" >>{}\n", log.display());
            std::fs::write(&path, script).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let bin = format!("slurm_bin={}", dir.path().display());
        let arguments = with_socket(dir.path(), &[&bin]);
        let batch = REQUEST.replace("salloc", "sbatch");
        assert!(!run(&vms(), &arguments, &|n| variable(n, Some(&batch)), None).failed);
        assert!(!log.exists(), "a batch job is left to its task_init");
        let verdict = run(&vms(), &arguments, &|n| variable(n, Some(REQUEST)), None);
        assert!(!verdict.failed && verdict.errors.len() == 1, "{verdict:?}");
        let log = std::fs::read_to_string(log).unwrap();
        assert!(
            log.starts_with("scontrol notify 7 muster: node1: vmd does not answer"),
            "{log}"
        );
        assert!(log.ends_with("scancel 7\n"), "{log}");
    }
}
