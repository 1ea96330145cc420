//! What a plan is made from: a network of a job, its VMs and nodes, and what one node knows of itself.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use muster_types::ids::{JobKey, NodeName, Rank};
use muster_types::mac::MacPrefix;
use muster_types::network::NetworkSpec;
use muster_types::placement::Placement;
use muster_types::request::ClusterRequest;
use muster_types::template::RANK;
use serde::{Deserialize, Serialize};

/// A network of a job: the same value on all its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ClusterNetwork {
    /// Its name in `networks.yaml`.
    pub name: String,
    /// Which of the job's networks it is, from 0, below [`crate::names::MAX_JOB_NETWORKS`].
    pub index: u8,
    /// How many of the job's networks before it have the same `mac-prefix`: the fourth byte of MAC
    /// addresses.
    #[serde(default)]
    pub mac_index: u8,
    /// Its settings.
    pub spec: NetworkSpec,
    /// The VXLAN network identifier claimed for it, [`MIN_VNI`] to [`MAX_VNI`]; used by `ethernet` only.
    #[serde(default)]
    pub vni: u32,
    /// The run of the job.
    pub key: JobKey,
    /// The job's owner.
    pub uid: u32,
    /// Domain of the nodes, for a network without `domain-name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_domain: Option<String>,
    /// All nodes of the job, in Slurm's order.
    pub nodes: Vec<NodeFacts>,
    /// The VMs on the network, in rank order.
    pub vms: Vec<Attachment>,
}

/// The lowest VNI that is claimed; those below are a site's own.
pub const MIN_VNI: u32 = 4096;

/// The highest VNI (RFC 7348: 24 bits).
pub const MAX_VNI: u32 = 0xff_ffff;

/// One VM's NIC on a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Attachment {
    /// The VM.
    pub rank: Rank,
    /// Its number on this network, from 0 in rank order.
    pub number: u32,
    /// Index of its node in [`ClusterNetwork::nodes`].
    pub node: usize,
    /// Which of the VM's NICs it is, from 0.
    #[serde(default)]
    pub nic: usize,
    /// Its host name.
    pub hostname: String,
    /// Further names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Its vCPUs: the tap has as many queues.
    pub vcpus: u32,
}

/// What all nodes of a job know of one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NodeFacts {
    /// Its name.
    pub name: NodeName,
    /// Where its tunnels end, as it said itself; none: its name did not resolve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_address: Option<Ipv4Addr>,
    /// MTU of the interface with that address, in bytes.
    pub mtu: u16,
}

/// What one node knows of itself, for one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LocalFacts {
    /// Whether Open vSwitch's kernel module is there.
    pub kernel_datapath: bool,
    /// The network's place in `ext-network` on this node: one that no other network of the node has.
    /// It and the host ports are free again when the plan has been undone, not before.
    #[serde(default)]
    pub slot: u32,
    /// The network's own directory below vmd's run directory, an absolute path.
    pub directory: String,
    /// The node's DNS servers; its own loopback addresses are left out, for no namespace reaches them.
    #[serde(default)]
    pub dns_servers: Vec<IpAddr>,
    /// The ports that were found free for reverse NAT: one for each of [`crate::wanted_ports`].
    #[serde(default)]
    pub host_ports: Vec<HostPort>,
    /// What the bridge of a `bridged` network is.
    #[serde(default)]
    pub host_bridge: BridgeKind,
}

/// A port of the node that leads to a port of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostPort {
    /// The VM.
    pub rank: Rank,
    /// Its TCP port.
    pub vm_port: u16,
    /// The node's.
    pub host_port: u16,
}

/// A bridge of the node by its maker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BridgeKind {
    /// Linux's own.
    #[default]
    Linux,
    /// Open vSwitch's.
    OpenVswitch,
}

/// What a job has beside its request, for [`of_request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    /// The run of the job.
    pub key: JobKey,
    /// Its owner.
    pub uid: u32,
    /// Its nodes, in Slurm's order.
    pub nodes: Vec<NodeFacts>,
    /// Their domain.
    pub domain: Option<String>,
    /// The VNI claimed for each network by name.
    pub vnis: BTreeMap<String, u32>,
}

/// The networks of a request with the VMs on each; a network without VMs is left out.
///
/// They are in the order of their names, and so numbered the same on every node.
#[must_use]
pub fn of_request(
    request: &ClusterRequest,
    placement: &[Placement],
    job: &JobFacts,
) -> Vec<ClusterNetwork> {
    let mut vms: BTreeMap<&str, Vec<Attachment>> = BTreeMap::new();
    for ((_, template), place) in request.vms().zip(placement) {
        let set = template.resource_set.as_ref();
        let networks = set.and_then(|set| request.resource_sets.get(set));
        let rank = place.rank;
        let named = |text: &String| text.replace(RANK, &rank.0.to_string());
        for (nic, network) in networks.into_iter().flatten().enumerate() {
            let on = vms.entry(network).or_default();
            on.push(Attachment {
                rank,
                number: u32::try_from(on.len()).unwrap_or(u32::MAX),
                node: place.node,
                nic,
                hostname: template
                    .hostname
                    .as_ref()
                    .map_or_else(|| rank.name(), named),
                aliases: template.dns_aliases.iter().map(named).collect(),
                vcpus: place.vcpus,
            });
        }
    }
    let mut prefixes: BTreeMap<String, u8> = BTreeMap::new();
    let mut out = Vec::new();
    for (name, vms) in vms {
        let Some(spec) = request.networks.get(name) else {
            continue;
        };
        let mac_index = mac_prefix(spec).map_or(0, |prefix| {
            let next = prefixes.entry(prefix.to_string()).or_default();
            let mine = *next;
            *next = next.saturating_add(1);
            mine
        });
        out.push(ClusterNetwork {
            name: name.to_owned(),
            index: u8::try_from(out.len()).unwrap_or(u8::MAX),
            mac_index,
            spec: spec.clone(),
            vni: job.vnis.get(name).copied().unwrap_or(0),
            key: job.key,
            uid: job.uid,
            node_domain: job.domain.clone(),
            nodes: job.nodes.clone(),
            vms,
        });
    }
    out
}

fn mac_prefix(spec: &NetworkSpec) -> Option<MacPrefix> {
    match spec {
        NetworkSpec::Ethernet(e) => Some(e.mac_prefix),
        NetworkSpec::Bridged(b) => Some(b.mac_prefix),
        NetworkSpec::Infiniband(_) | NetworkSpec::Hostib(_) | NetworkSpec::Genericpci(_) => None,
    }
}

impl ClusterNetwork {
    /// The VMs of one node, in rank order.
    pub fn vms_on(&self, node: usize) -> impl Iterator<Item = &Attachment> {
        self.vms.iter().filter(move |vm| vm.node == node)
    }

    /// The nodes with VMs on the network, in Slurm's order.
    #[must_use]
    pub fn members(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = self.vms.iter().map(|vm| vm.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_types::ids::JobId;

    #[test]
    fn a_request_gives_numbers_in_rank_order() {
        let template = |set: &str| {
            serde_json::json!({
                "resource-set": set,
                "hostname": format!("n%{{vm_rank}}{set}"),
                "dns-aliases": ["a%{vm_rank}"],
            })
        };
        let ethernet = serde_json::json!({ "type": "ethernet", "dev-prefix": "e" });
        let mut other = ethernet.clone();
        other["mac-prefix"] = "0a:00:00".into();
        let request: ClusterRequest = serde_json::from_value(serde_json::json!({
            "version": muster_types::request::REQUEST_VERSION,
            "definition": "one,two:2",
            "submitter": "sbatch",
            "groups": [{ "template": "one", "count": 1 }, { "template": "two", "count": 2 }],
            "templates": { "one": template("a"), "two": template("b") },
            "resource-sets": { "a": ["nat"], "b": ["pv", "nat", "fast"] },
            "networks": { "fast": other, "nat": ethernet, "pv": ethernet, "unused": ethernet },
        }))
        .unwrap();
        let placement: Vec<_> = [(0, 0), (1, 0), (2, 1)]
            .map(|(rank, node)| Placement {
                rank: Rank(rank),
                node,
                vcpus: 2,
            })
            .into();
        let job = JobFacts {
            key: JobKey {
                job: JobId(7),
                restart: 0,
            },
            uid: 1000,
            nodes: Vec::new(),
            domain: None,
            vnis: BTreeMap::from([("nat".into(), 5000)]),
        };
        let networks = of_request(&request, &placement, &job);
        let shape: Vec<_> = networks
            .iter()
            .map(|n| (n.name.as_str(), n.index, n.mac_index, n.vni, n.vms.len()))
            .collect();
        assert_eq!(
            shape,
            [
                ("fast", 0, 0, 0, 2),
                ("nat", 1, 0, 5000, 3),
                ("pv", 2, 1, 0, 2)
            ]
        );
        let last = networks[1].vms.last().unwrap();
        assert_eq!((last.number, last.nic, last.node), (2, 1, 1));
        assert_eq!(
            (last.hostname.as_str(), last.aliases[0].as_str()),
            ("n2b", "a2")
        );
        assert_eq!(networks[2].members(), [0, 1]);
        assert_eq!(networks[2].vms_on(1).count(), 1);
    }
}
