//! The plan of one network on one node.

use std::fmt;

use muster_types::ids::Rank;
use muster_types::network::{Bridged, Layer, NetworkSpec};

use crate::addressing::{VmAddress, addresses};
use crate::check::NetworkError;
use crate::cluster::{ClusterNetwork, LocalFacts};
use crate::names::{Role, device};
use crate::private::Private;
use crate::step::{Step, Tap, Undo};

/// The most queues of a tap (Linux, `MAX_TAP_QUEUES`).
const MAX_QUEUES: u32 = 256;

/// What a network needs on one node, in order. Printed, it is what an admin would type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlan {
    /// What the node has once for all networks of all jobs: made, or made anew without harm to the
    /// others, and undone when the last one goes.
    pub shared: Vec<Step>,
    /// What is the network's own.
    pub steps: Vec<Step>,
}

impl NodePlan {
    /// How to undo the network's own steps: the last first, each whether or not it was done.
    #[must_use]
    pub fn undo(&self) -> Vec<Undo> {
        self.steps.iter().rev().filter_map(Step::undo).collect()
    }

    /// How to undo what all networks share, once the node has none.
    #[must_use]
    pub fn undo_shared(&self) -> Vec<Undo> {
        self.shared.iter().rev().filter_map(Step::undo).collect()
    }

    /// The taps of the node's VMs, in rank order.
    pub fn taps(&self) -> impl Iterator<Item = &Tap> {
        self.steps.iter().filter_map(|step| match step {
            Step::Tap(tap) => Some(tap),
            _ => None,
        })
    }
}

impl fmt::Display for NodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = self.shared.iter().chain(&self.steps);
        all.try_for_each(|step| writeln!(f, "{step}"))
    }
}

/// A port of the node that reverse NAT needs: a free one of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedPort {
    /// The VM.
    pub rank: Rank,
    /// Its TCP port.
    pub vm_port: u16,
    /// First port of the range.
    pub min: u16,
    /// Last port of the range.
    pub max: u16,
}

/// The ports that a node must find for a network before its plan: one for each VM and rule.
#[must_use]
pub fn wanted_ports(net: &ClusterNetwork, node: usize) -> Vec<WantedPort> {
    let NetworkSpec::Ethernet(spec) = &net.spec else {
        return Vec::new();
    };
    if spec.network_layer == Layer::L2 {
        return Vec::new();
    }
    net.vms_on(node)
        .flat_map(|vm| {
            spec.reverse_nat.iter().map(|rule| WantedPort {
                rank: vm.rank,
                vm_port: rule.vm_port,
                min: rule.min_host_port,
                max: rule.max_host_port,
            })
        })
        .collect()
}

/// The plan of a network for one node. A node without VMs on it, and a network of PCI devices, need
/// nothing.
///
/// # Errors
/// The first reason for which there is none; see [`NetworkError`].
pub fn plan(
    net: &ClusterNetwork,
    node: usize,
    facts: &LocalFacts,
) -> Result<NodePlan, NetworkError> {
    if node >= net.nodes.len() {
        return Err(NetworkError::NoNode {
            network: net.name.clone(),
            node,
            nodes: net.nodes.len(),
        });
    }
    let vms = addresses(net)?;
    let local: Vec<&VmAddress> = vms.iter().filter(|vm| vm.node == node).collect();
    if local.is_empty() {
        return Ok(NodePlan::default());
    }
    match &net.spec {
        NetworkSpec::Ethernet(spec) => {
            let private = Private {
                net,
                spec,
                facts,
                node,
                vms: &vms,
                local,
            };
            private.plan()
        }
        NetworkSpec::Bridged(spec) => Ok(bridged(net, spec, facts, &local)),
        NetworkSpec::Infiniband(_) | NetworkSpec::Hostib(_) | NetworkSpec::Genericpci(_) => {
            Ok(NodePlan::default())
        }
    }
}

pub(crate) fn tap(net: &ClusterNetwork, prefix: &str, vm: &VmAddress) -> Tap {
    let vcpus = net
        .vms
        .iter()
        .find(|a| a.rank == vm.rank)
        .map_or(1, |a| a.vcpus);
    Tap {
        device: device(prefix, net.key.job, net.index, Role::Tap(vm.number)),
        uid: net.uid,
        queues: vcpus.clamp(1, MAX_QUEUES),
        mtu: vm.mtu,
        rank: vm.rank,
        nic: vm.nic,
        mac: vm.mac,
    }
}

fn bridged(
    net: &ClusterNetwork,
    spec: &Bridged,
    facts: &LocalFacts,
    local: &[&VmAddress],
) -> NodePlan {
    let steps = local.iter().flat_map(|vm| {
        let tap = tap(net, &spec.tap_prefix, vm);
        let attach = Step::Attach {
            bridge: spec.host_bridge.clone(),
            kind: facts.host_bridge,
            device: tap.device.clone(),
            vlans: spec.vlans.clone(),
        };
        [Step::Tap(tap), attach]
    });
    NodePlan {
        shared: Vec::new(),
        steps: steps.collect(),
    }
}
