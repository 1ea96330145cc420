//! Tests in the lab: what users do on a real Slurm, and what is left afterwards.
//!
//! They need a lab that is up (`cargo xtask test` brings one up for each configuration) and `MUSTER_LAB=1`. Without it each says
//! that it was skipped; with it nothing is skipped.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, which the lints take for no tests"
)]

#[path = "lab/allocation.rs"]
mod allocation;
#[path = "lab/clusters.rs"]
mod clusters;
#[path = "lab/faults.rs"]
mod faults;
#[path = "lab/privacy.rs"]
mod privacy;
#[path = "lab/site.rs"]
mod site;
#[path = "lab/submission.rs"]
mod submission;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use muster_tests::lab::{Lab, User};
use muster_tests::leaks;

const MINUTE: Duration = Duration::from_secs(60);

/// Runs `test` in the lab, then looks for leftovers.
fn in_lab(test: impl FnOnce(&Lab)) {
    if std::env::var_os("MUSTER_LAB").is_none() {
        println!("skipped: needs a lab; run it with: cargo xtask test --only lab");
        return;
    }
    let lab = Lab::attach().unwrap();
    let tested = catch_unwind(AssertUnwindSafe(|| test(&lab)));
    if let Err(failure) = tested {
        // What a failed test leaves running is not the next one's.
        println!("{}", lab.logs(40).unwrap());
        for user in ["alice", "bob"] {
            lab.root("ctl", &format!("scancel --user={user}")).unwrap();
        }
        if let Err(left) = leaks::check(&lab, leaks::DEADLINE * 3) {
            println!("{left:#}");
        }
        resume_unwind(failure);
    }
    leaks::check(&lab, leaks::DEADLINE).unwrap();
}

#[test]
fn a_job_without_vms_runs_on_all_nodes() {
    in_lab(|lab| {
        let nodes = lab.options().node_names();
        let count = format!("-N{}", nodes.len());
        let output = lab
            .run(
                "ctl",
                User::Alice,
                &["srun", &count, "--label", "hostname"],
                MINUTE,
            )
            .unwrap();
        assert!(output.ok(), "{output}");
        let mut names: Vec<&str> = output
            .stdout
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1))
            .collect();
        names.sort_unstable();
        assert_eq!(names, nodes);
    });
}

#[test]
fn users_have_a_home_that_all_hosts_share() {
    in_lab(|lab| {
        for (user, uid) in [(User::Alice, 1500), (User::Bob, 1501)] {
            let mark = format!("{}-{}", user.name(), std::process::id());
            let written = lab
                .sh(
                    "ctl",
                    user,
                    &format!("id -u && echo {mark} > ~/mark"),
                    MINUTE,
                )
                .unwrap();
            assert_eq!(written.stdout.trim(), uid.to_string(), "{written}");
            let read = lab
                .sh("node1", user, "cat ~/mark && rm ~/mark", MINUTE)
                .unwrap();
            assert_eq!(read.stdout.trim(), mark, "{read}");
        }
        let peek = lab.sh("ctl", User::Bob, "ls /home/alice", MINUTE).unwrap();
        assert!(!peek.ok(), "bob can look into alice's home: {peek}");
    });
}

#[test]
fn a_command_in_the_background_can_be_talked_to_and_stopped() {
    in_lab(|lab| {
        let mut shell = lab
            .start("ctl", User::Alice, &["salloc", "--quiet", "-N1", "bash"])
            .unwrap();
        shell
            .write("echo job is $SLURM_JOB_ID; srun hostname; echo end of the first part\n")
            .unwrap();
        shell.expect("end of the first part", MINUTE).unwrap();
        assert!(shell.stdout().contains("node"), "{}", shell.stdout());
        assert!(
            !leaks::find(lab).unwrap().is_empty(),
            "a running job must be found"
        );
        shell.signal("TERM").unwrap();
        shell.wait(MINUTE).unwrap();
    });
}

#[test]
fn a_command_that_does_not_end_is_killed() {
    in_lab(|lab| {
        let error = lab
            .run(
                "node1",
                User::Alice,
                &["sleep", "100"],
                Duration::from_secs(1),
            )
            .unwrap_err();
        assert!(
            error.to_string().contains("did not end within 1 s"),
            "{error}"
        );
    });
}
