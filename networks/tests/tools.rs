//! The programs that read what plans say: Open vSwitch's, nftables' and dnsmasq's parsers take it.
//!
//! A missing program is said, and is a failure if `MUSTER_REQUIRE` names it: `ovs`, `nft`, `dnsmasq`.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "the test runs programs and writes their files"
)]

mod support;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use muster_networks::step::Step;
use muster_networks::{NodePlan, host_table};
use support::{Case, cases, missing};

/// Each node's plan of each network, with its name for messages.
fn plans() -> Vec<(String, NodePlan)> {
    let mut all = Vec::new();
    for (path, case) in cases() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Case { networks, .. } = &case;
        for node in 0..networks[0].nodes.len() {
            for (net, plan) in networks.iter().zip(case.plans(node)) {
                all.push((format!("{name}, node {node}, {}", net.name), plan));
            }
        }
    }
    assert!(all.len() > 20);
    all
}

fn run(program: &str, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    // The program may end before it has read everything; its status says why.
    drop(writer.join().unwrap());
    output
}

fn fine(what: &str, output: &Output, input: &str) {
    assert!(
        output.status.success(),
        "{what}: {}\n{input}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn ovs_ofctl_takes_the_flows() {
    if missing("ovs-ofctl", "ovs") {
        return;
    }
    for (name, plan) in plans() {
        for step in &plan.steps {
            let Step::Flows { flows, .. } = step else {
                continue;
            };
            let text: String = flows.iter().map(|flow| format!("{flow}\n")).collect();
            // A bundle is of OpenFlow 1.4 or later.
            let output = run(
                "ovs-ofctl",
                &["-O", "OpenFlow14", "parse-flows", "-"],
                &text,
            );
            fine(&name, &output, &text);
            let taken = String::from_utf8_lossy(&output.stdout)
                .lines()
                .filter(|line| line.contains("FLOW_MOD") || line.contains("NXT_FLOW_MOD"))
                .count();
            assert_eq!(taken, flows.len(), "{name}");
        }
    }
}

#[test]
fn dnsmasq_takes_its_configuration() {
    if missing("dnsmasq", "dnsmasq") {
        return;
    }
    for (name, plan) in plans() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().to_str().unwrap();
        let mut config = None;
        for step in &plan.steps {
            if let Step::File {
                directory,
                name,
                text,
            } = step
            {
                let path = format!("{own}/{name}");
                let text = text.replace(directory.as_str(), own);
                std::fs::write(&path, &text).unwrap();
                if *name == "dnsmasq.conf" {
                    config = Some((path, text));
                }
            }
        }
        if let Some((path, text)) = config {
            let output = run("dnsmasq", &["--test", "-C", &path], "");
            fine(&name, &output, &text);
        }
    }
}

/// Runs `nft` in a network namespace of its own; `None` if there can be none.
fn nft(script: &str) -> Option<Output> {
    let unshare = |arguments: &[&str], input: &str| run("unshare", arguments, input);
    let enter: &[&str] = [&["-n"] as &[&str], &["-rn"]].into_iter().find(|enter| {
        let arguments = [*enter, &["true"]].concat();
        unshare(&arguments, "").status.success()
    })?;
    Some(unshare(&[enter, &["nft", "-f", "-"]].concat(), script))
}

#[test]
fn nft_takes_the_rules_and_takes_them_back() {
    if missing("nft", "nft") || missing("unshare", "nft") {
        return;
    }
    for (name, plan) in plans() {
        let mut node = String::new();
        for step in plan.shared.iter().chain(&plan.steps) {
            match step {
                // Twice: what is there already does no harm.
                Step::HostTable(ports) => node += &host_table(ports).repeat(2),
                Step::HostRules(rules) => {
                    node += &rules.add();
                    node += &rules.remove();
                    // What is gone already does no harm either.
                    node += &rules.remove();
                }
                Step::NetnsRules { rules, .. } => {
                    let Some(output) = nft(rules) else {
                        println!("skipped: there can be no network namespace");
                        return;
                    };
                    fine(&name, &output, rules);
                }
                _ => {}
            }
        }
        if let Some(output) = nft(&node) {
            fine(&name, &output, &node);
        }
    }
}
