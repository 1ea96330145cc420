//! What the tests of this crate share: the cases of `testdata`, and networks of any size.
#![allow(dead_code, reason = "not every test uses all of it")]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests read their data, may fail, and say what they leave out"
)]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use muster_networks::{Attachment, ClusterNetwork, LocalFacts, NodeFacts, NodePlan, plan};
use muster_types::ids::{JobId, JobKey, NodeName, Rank};
use muster_types::network::{Ethernet, NetworkSpec};
use serde::Deserialize;

/// The input of a case: a job's networks, and what each of its nodes knows for each of them.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) networks: Vec<ClusterNetwork>,
    pub(crate) facts: BTreeMap<String, LocalFacts>,
}

impl Case {
    pub(crate) fn plans(&self, node: usize) -> Vec<NodePlan> {
        let plans = self.networks.iter().map(|net| {
            let facts = self.facts.get(&net.name).unwrap();
            plan(net, node, facts).unwrap()
        });
        plans.collect()
    }
}

/// All cases with their directories.
pub(crate) fn cases() -> Vec<(PathBuf, Case)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut cases: Vec<_> = std::fs::read_dir(&root)
        .unwrap()
        .map(|case| {
            let path = case.unwrap().path();
            let text = std::fs::read_to_string(path.join("input.json")).unwrap();
            let case =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path, case)
        })
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

/// A network with `vms[i]` VMs on node `i`.
pub(crate) fn network(job: u32, index: u8, spec: Ethernet, vms: &[u32]) -> ClusterNetwork {
    let mut all = Vec::new();
    for (node, count) in vms.iter().enumerate() {
        for _ in 0..*count {
            let rank = u32::try_from(all.len()).unwrap();
            all.push(Attachment {
                rank: Rank(rank),
                number: rank,
                node,
                nic: usize::from(index),
                hostname: format!("vm{rank}"),
                aliases: Vec::new(),
                vcpus: 2,
            });
        }
    }
    ClusterNetwork {
        name: format!("net{index}"),
        index,
        mac_index: index,
        spec: NetworkSpec::Ethernet(Box::new(spec)),
        vni: 4096 + job * 8 + u32::from(index),
        key: JobKey {
            job: JobId(job),
            restart: 0,
        },
        uid: 1000,
        node_domain: None,
        nodes: (0_u32..)
            .zip(vms)
            .map(|(i, _)| NodeFacts {
                name: NodeName::new(&format!("n{i}")).unwrap(),
                tunnel_address: Some(Ipv4Addr::from_bits(0x0a01_0001 + i)),
                mtu: 1500,
            })
            .collect(),
        vms: all,
    }
}

/// What a node knows, with the network's place in `ext-network`.
pub(crate) fn facts(job: u32, index: u8, slot: u32) -> LocalFacts {
    LocalFacts {
        kernel_datapath: true,
        slot,
        directory: format!("/run/muster/net/{job}-{index}"),
        dns_servers: vec![Ipv4Addr::new(10, 1, 255, 53).into()],
        host_ports: Vec::new(),
        host_bridge: muster_networks::BridgeKind::Linux,
    }
}

/// Whether a check may be left out because its tool is missing. `MUSTER_REQUIRE` names what may not
/// be.
pub(crate) fn missing(tool: &str, what: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path)
        .chain(places)
        .any(|dir| dir.join(tool).exists());
    if found {
        return false;
    }
    let required = std::env::var("MUSTER_REQUIRE").unwrap_or_default();
    assert!(
        !required.split([',', ' ']).any(|word| word == what),
        "MUSTER_REQUIRE has '{what}', but there is no {tool}"
    );
    println!("skipped: there is no {tool} (MUSTER_REQUIRE={what} makes that a failure)");
    true
}
