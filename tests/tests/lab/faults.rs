//! Daemons and VMs that die, and nodes without a vmd.

use muster_tests::lab::User;
use muster_tests::wait::{Look, wait_for};

use crate::allocation::{Allocation, LONG, all_nodes, all_qemus};
use crate::in_lab;

#[test]
fn vms_go_on_without_vmd_and_it_finds_them_again() {
    in_lab(|lab| {
        let job = Allocation::start(lab, "tiny:2");
        let before = all_qemus(lab, &job.job);
        for node in lab.options().node_names() {
            lab.kill_vmd(&node).unwrap();
        }
        assert_eq!(all_qemus(lab, &job.job), before);
        for node in lab.options().node_names() {
            lab.start_vmd(&node).unwrap();
        }
        job.until_ps_shows(lab, "2/2");
        job.until_ps_shows(lab, "running");
        assert_eq!(all_qemus(lab, &job.job), before, "the VMs are the same");
        // What happens after the restart is seen too.
        lab.root(&before[0].0, &format!("kill -9 {}", before[0].1))
            .unwrap();
        job.until_ps_shows(lab, "1/2");
        job.end();
    });
}

#[test]
fn a_job_that_ends_without_vmd_is_released_later() {
    in_lab(|lab| {
        let job = Allocation::start(lab, "tiny:2");
        lab.kill_vmd("node1").unwrap();
        job.end();
        lab.start_vmd("node1").unwrap();
    });
}

#[test]
fn a_killed_qemu_is_shown_with_the_reason() {
    in_lab(|lab| {
        let mut job = Allocation::start(lab, "tiny:2");
        let (node, pid) = all_qemus(lab, &job.job).pop().unwrap();
        lab.root(&node, &format!("kill -9 {pid}")).unwrap();
        job.until_ps_shows(lab, "degraded");
        let show = job.sh("muster show");
        assert!(show.contains("killed by signal 9"), "{show}");
        job.end();
    });
}

#[test]
fn a_killed_shim_takes_its_vms_along_and_is_shown() {
    in_lab(|lab| {
        let job = Allocation::start(lab, "tiny:2");
        lab.root("node1", "pkill -9 -x vmd-shim").unwrap();
        wait_for("muster to notice", LONG, || {
            let ps = lab.sh("ctl", User::Alice, "muster ps", LONG)?;
            let over = ["degraded", "failed"].iter().any(|s| ps.stdout.contains(s));
            Ok(if over {
                Look::Ready(())
            } else {
                Look::NotYet(ps.to_string())
            })
        })
        .unwrap();
        job.end();
    });
}

#[test]
fn a_node_without_vmd_fails_the_job_by_name_and_is_not_drained() {
    in_lab(|lab| {
        let nodes = lab.options().node_names();
        let dead = nodes.last().unwrap();
        lab.kill_vmd(dead).unwrap();
        let options = all_nodes(lab).join(" ");
        let output = lab
            .sh(
                "ctl",
                User::Alice,
                &format!("salloc {options} --vm=tiny:2 sleep 100"),
                LONG,
            )
            .unwrap();
        assert!(output.stderr.contains(dead.as_str()), "{output}");
        assert!(output.stderr.contains("revoked"), "{output}");
        let output = lab
            .sh(
                "ctl",
                User::Alice,
                &format!("srun {options} --vm=tiny:2 sleep 100"),
                LONG,
            )
            .unwrap();
        assert_ne!(output.status, 0, "{output}");
        assert!(output.stderr.contains(dead.as_str()), "{output}");
        let states = lab
            .root("ctl", "sinfo --noheader --Node --format=%T")
            .unwrap();
        assert!(!states.contains("drain"), "{states}");
        lab.start_vmd(dead).unwrap();
    });
}

#[test]
fn etcd_away_for_a_while_is_survived() {
    in_lab(|lab| {
        if lab.options().state == muster_tests::lab::State::Embedded {
            // Nothing to stop: the store is in vmd.
            return;
        }
        let mut job = Allocation::start(lab, "tiny:2");
        lab.stop_etcd().unwrap();
        let log = format!(
            "muster console -j {} -l vm0 && echo no etcd needed",
            job.job
        );
        let console = lab.sh("node1", User::Alice, &log, LONG).unwrap();
        let ps = job.sh("muster ps");
        let refused = lab
            .sh("ctl", User::Alice, "srun -n1 --vm=tiny:1 true", LONG)
            .unwrap();
        lab.start_etcd().unwrap();
        assert!(console.stdout.contains("no etcd needed"), "{console}");
        assert!(
            ps.contains("the state store does not answer") && ps.contains("refused"),
            "{ps}"
        );
        assert_ne!(refused.status, 0, "{refused}");
        assert!(
            refused.stderr.contains("cannot write the cluster record"),
            "{refused}"
        );
        job.until_ps_shows(lab, "2/2");
        job.end();
    });
}
