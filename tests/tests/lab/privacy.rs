//! What another user may not: tried through the command, and straight at both sockets.

use muster_tests::lab::{Lab, User};

use crate::allocation::{Allocation, LONG, all_qemus};
use crate::in_lab;

/// Calls a method on a socket as bob, on a node, and returns what comes back.
fn call(lab: &Lab, node: &str, socket: &str, method: &str, parameters: &str) -> String {
    let message = format!("{{\"method\":\"{method}\",\"parameters\":{parameters}}}");
    let script = format!(
        "printf '%s\\0' '{message}' | timeout 20 socat -t 10 - UNIX-CONNECT:{socket} | tr '\\0' '\\n'"
    );
    lab.sh(node, User::Bob, &script, LONG).unwrap().to_string()
}

#[test]
fn another_user_sees_and_reaches_nothing() {
    in_lab(|lab| {
        let allocation = Allocation::start(lab, "tiny:2");
        let job = allocation.job.clone();
        let bob = |script: &str| lab.sh("ctl", User::Bob, script, LONG).unwrap();
        assert!(!bob("muster ps").stdout.contains("tiny"));
        assert!(!bob("muster ps -a").stdout.contains("alice"));
        for command in [
            "show",
            "console vm0 </dev/null",
            "console -l vm0",
            "stop --force vm0",
            "wait",
        ] {
            let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
            let output = bob(&format!("muster {name} -j {job} {rest}"));
            assert_eq!(output.status, 3, "{command}: {output}");
        }
        let vmd = "/run/muster/vmd.sock";
        for node in lab.options().node_names() {
            let denied = |method: &str, parameters: &str, error: &str| {
                let answer = call(
                    lab,
                    &node,
                    vmd,
                    &format!("io.muster.Vmd.{method}"),
                    parameters,
                );
                assert!(answer.contains(error), "{method}: {answer}");
            };
            denied("GetCluster", &format!("{{\"job\":{job}}}"), "NoSuchCluster");
            denied(
                "WaitCluster",
                &format!("{{\"job\":{job},\"until\":\"running\",\"timeout_ms\":1}}"),
                "NoSuchCluster",
            );
            denied(
                "Launch",
                &format!("{{\"job\":{job},\"step\":0}}"),
                "NoSuchCluster",
            );
            denied(
                "Report",
                &format!("{{\"job\":{job},\"vms\":[]}}"),
                "NoSuchCluster",
            );
            denied("ListClusters", "{\"uid\":1500}", "PermissionDenied");
            denied(
                "ReleaseJob",
                &format!("{{\"key\":{{\"job\":{job},\"restart\":0}}}}"),
                "PermissionDenied",
            );
            let control = format!("/run/muster/vm/{job}/ctl.sock");
            let answer = call(lab, &node, &control, "io.muster.Shim.List", "{}");
            assert!(answer.contains("Permission denied"), "{answer}");
            let scratch =
                format!("ls /var/lib/muster/scratch/{job}.0 /run/muster/vm/{job} /run/muster/jobs");
            assert!(!lab.sh(&node, User::Bob, &scratch, LONG).unwrap().ok());
        }
        assert_eq!(all_qemus(lab, &job).len(), 2);
        allocation.end();
    });
}

#[test]
fn a_process_outside_the_job_cannot_launch_for_it() {
    in_lab(|lab| {
        let allocation = Allocation::start(lab, "tiny:2");
        let message = format!(
            "{{\"method\":\"io.muster.Vmd.Launch\",\"parameters\":{{\"job\":{},\"step\":0}}}}",
            allocation.job
        );
        let script = format!(
            "printf '%s\\0' '{message}' | timeout 20 socat -t 10 - UNIX-CONNECT:/run/muster/vmd.sock"
        );
        let answer = lab
            .sh("node1", User::Alice, &script, LONG)
            .unwrap()
            .to_string();
        assert!(answer.contains("PermissionDenied"), "{answer}");
        allocation.end();
    });
}

#[test]
fn garbage_on_the_socket_harms_nobody() {
    in_lab(|lab| {
        for garbage in [
            "head -c 1000000 /dev/urandom",
            "head -c 1000000 /dev/zero | tr '\\0' a",
            "printf '{\"method\":3}\\0'",
            "printf '[[[[[\\0'",
            "printf '{\"method\":\"io.muster.Vmd.Nope\"}\\0'",
        ] {
            let script = format!(
                "{garbage} | timeout 20 socat -t 1 - UNIX-CONNECT:/run/muster/vmd.sock | head -c 300"
            );
            lab.sh("node1", User::Bob, &script, LONG).unwrap();
        }
        assert!(lab.vmd_runs("node1").unwrap());
        let output = lab.sh("node1", User::Bob, "muster ps", LONG).unwrap();
        assert!(output.ok(), "{output}");
    });
}
