//! `slurmstepd spank epilog`, as root on each node, after all steps ended: vmd cleans the node.

use std::time::{Duration, Instant};

use muster_types::api::ReleaseJob;

use crate::arguments::Arguments;
use crate::facts::{self, Env};
use crate::options::Choice;
use crate::prolog::{PREFIX, fault};
use crate::verdict::{Verdict, chain};
use crate::vmd;

/// How long the release of a node may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a vmd that is being restarted is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Releases the job. It does not fail, which would drain the node: what vmd could not undo it logs and
/// takes up again, and a vmd that is away cleans up when it is back.
#[must_use]
pub fn run(choice: &Choice, arguments: &[String], env: Env<'_>) -> Verdict {
    if *choice == Choice::Off {
        return Verdict::good();
    }
    let mut verdict = Verdict::good();
    let arguments = Arguments::parse(arguments).unwrap_or_else(|e| {
        verdict.log(PREFIX, &e.to_string());
        Arguments::default()
    });
    let node = facts::node(env);
    let key = match facts::key(env) {
        Ok(key) => key,
        Err(e) => {
            verdict.log(PREFIX, &format!("{node}: {}", chain(&e)));
            return verdict;
        }
    };
    let job = key.job;
    let deadline = Instant::now() + LIMIT;
    match vmd::call(&arguments.socket, &ReleaseJob { key }, PATIENCE, deadline) {
        Ok(released) => {
            for problem in released.problems {
                verdict.log(PREFIX, &format!("job {job}: {node}: {problem}"));
            }
        }
        Err(e) => verdict.log(PREFIX, &format!("job {job}: {node}: {}", fault(&e))),
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmd::tests::fake;

    fn env(name: &str) -> Option<String> {
        match name {
            "SLURM_JOB_ID" => Some("7".into()),
            "SLURM_JOB_RESTART_COUNT" => Some("1".into()),
            "SLURMD_NODENAME" => Some("node1".into()),
            _ => None,
        }
    }

    #[test]
    fn other_jobs_are_not_touched() {
        let env = |name: &str| -> Option<String> { unreachable!("{name} was read") };
        assert_eq!(run(&Choice::Off, &[], &env), Verdict::good());
    }

    #[test]
    fn what_is_left_is_logged_and_the_node_stays() {
        let dir = tempfile::tempdir().unwrap();
        let arguments = [format!("socket={}", dir.path().join("s").display())];
        let choice = Choice::Vms("tiny".into());
        let vmd = fake(
            &dir.path().join("s"),
            &["{\"parameters\":{\"problems\":[\"a process stays\"]}}\0"],
        );
        let verdict = run(&choice, &arguments, &env);
        assert_eq!(verdict.errors, ["muster: job 7: node1: a process stays"]);
        assert!(!verdict.failed);
        let asked = vmd.join().unwrap().remove(0);
        assert!(asked.contains("{\"job\":7,\"restart\":1}"), "{asked}");
        std::fs::remove_file(dir.path().join("s")).unwrap();
        let verdict = run(&choice, &arguments, &env);
        assert!(verdict.errors[0].contains("vmd does not answer") && !verdict.failed);
    }
}
