//! The plan of a cluster as values.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::Context as _;
use muster_networks::{
    BridgeKind, ClusterNetwork, HostPort, JobFacts, LocalFacts, MIN_VNI, NodeFacts, VmAddress,
    addresses, of_request, wanted_ports,
};
use muster_qemu::memory::{self, Overhead};
use muster_qemu::{Accel as QemuAccel, Fd, Machine};
use muster_templates::batch::BatchConfig;
use muster_types::ids::{JobId, JobKey, Mib, Rank};
use muster_types::network::NetworkSpec;
use muster_types::placement::{self, Placement};
use muster_types::request::ClusterRequest;
use muster_types::shim_api;
use muster_types::step;
use muster_types::template::{Accel, TemplateSpec};
use serde::Serialize;

use super::nodes::Node;
use crate::context::Context;

/// The job that the plan is shown for.
const JOB: JobKey = JobKey {
    job: JobId(1),
    restart: 0,
};

/// The descriptors that the shim opens for a VM, in this order.
const FIRST_FD: i32 = 3;

/// MTU of the nodes' interfaces that is assumed.
const MTU: u16 = 1500;

/// Everything that is planned.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) definition: String,
    /// What is not known here and was assumed.
    pub(super) assumptions: Vec<String>,
    pub(super) vms: Vec<Vm>,
    pub(super) nodes: Vec<NodeView>,
}

#[derive(Debug, Serialize)]
pub(super) struct Vm {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) vcpus: u32,
    pub(super) memory_mib: u64,
    pub(super) template: String,
    pub(super) image: Option<String>,
    pub(super) networks: Vec<Nic>,
}

/// A VM on a network.
#[derive(Debug, Serialize)]
pub(super) struct Nic {
    pub(super) network: String,
    pub(super) mac: String,
    pub(super) address: Option<String>,
    pub(super) mtu: u16,
}

/// What happens on a node, each step as an admin would type it.
#[derive(Debug, Serialize)]
pub(super) struct NodeView {
    pub(super) name: String,
    pub(super) cpus: u32,
    pub(super) memory_mib: u64,
    /// As root.
    pub(super) steps: Vec<String>,
    /// As root, by network; planned, and not done by this release.
    pub(super) networks: BTreeMap<String, Vec<String>>,
    /// As the user, in the job.
    pub(super) commands: Vec<VmCommands>,
}

#[derive(Debug, Serialize)]
pub(super) struct VmCommands {
    pub(super) vm: String,
    pub(super) overlay: Option<Vec<String>>,
    pub(super) qemu: Vec<String>,
}

/// Plans a request for nodes.
pub(super) fn plan(
    request: &ClusterRequest,
    nodes: &[Node],
    batch: &BatchConfig,
    context: &Context,
) -> anyhow::Result<View> {
    let cpus: Vec<u32> = nodes.iter().map(|n| n.cpus).collect();
    let places = placement::place(&cpus, request)?;
    let overhead = Overhead {
        fixed_mib: batch.vm_memory_overhead.mib,
        permille: batch.vm_memory_overhead.permille,
    };
    let specs: Vec<(&str, &TemplateSpec)> = request.vms().collect();
    let mut memory = vec![Mib(0); specs.len()];
    for (index, node) in nodes.iter().enumerate() {
        let here: Vec<usize> = (0..places.len())
            .filter(|&i| places[i].node == index)
            .collect();
        let wanted: Vec<Option<Mib>> = here.iter().map(|&i| specs[i].1.memory).collect();
        let shares = memory::divide(&wanted, node.memory, overhead)
            .with_context(|| format!("divide the memory of node {}", node.name))?;
        for (vm, share) in here.into_iter().zip(shares) {
            memory[vm] = share;
        }
    }
    let networks = of_request(request, &places, &facts(request, nodes, context));
    let mut addressed = Vec::new();
    for network in &networks {
        addressed.push((network, addresses(network)?));
    }
    let vms = places
        .iter()
        .zip(&specs)
        .zip(&memory)
        .map(|((place, (template, spec)), memory)| Vm {
            name: place.rank.name(),
            node: name_of(nodes, place.node),
            vcpus: place.vcpus,
            memory_mib: memory.0,
            template: (*template).to_owned(),
            image: spec.image.as_ref().map(ToString::to_string),
            networks: nics(place.rank, &addressed),
        });
    let vms = vms.collect();
    let mut views = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let here = (0..places.len()).filter(|&i| places[i].node == index);
        let scratch = format!("{}/{JOB}", batch.scratch_dir);
        let commands =
            here.map(|i| commands(&places[i], specs[i].1, memory[i], overhead, &scratch));
        views.push(NodeView {
            name: node.name.to_string(),
            cpus: node.cpus,
            memory_mib: node.memory.0,
            steps: steps(index, nodes.len(), &scratch, context),
            commands: commands.collect::<anyhow::Result<_>>()?,
            networks: network_steps(&networks, index)?,
        });
    }
    Ok(View {
        definition: request.definition.clone(),
        assumptions: assumptions(request, nodes, !networks.is_empty()),
        vms,
        nodes: views,
    })
}

fn name_of(nodes: &[Node], index: usize) -> String {
    nodes
        .get(index)
        .map_or_else(String::new, |n| n.name.to_string())
}

fn assumptions(request: &ClusterRequest, nodes: &[Node], networked: bool) -> Vec<String> {
    let mut all = vec![format!("the job is {}", JOB.job)];
    if nodes.iter().any(|n| n.is_assumed) {
        all.push("the job has 1 GiB of memory for each CPU".into());
    }
    if request.templates.values().any(|t| t.accel == Accel::Auto) {
        all.push("KVM can be used, where a template leaves it open (accel: auto)".into());
    }
    if networked {
        all.push(format!(
            "nodes have the addresses 192.0.2.1 and up, an MTU of {MTU} and Open vSwitch's kernel module; VNIs from {MIN_VNI} on are free, and so are the first ports of each range"
        ));
    }
    all
}

/// What the networks' plan rests on. The addresses are of a range for documentation (RFC 5737).
fn facts(request: &ClusterRequest, nodes: &[Node], context: &Context) -> JobFacts {
    let node = |(i, node): (u32, &Node)| NodeFacts {
        name: node.name.clone(),
        tunnel_address: Some(Ipv4Addr::from_bits(
            Ipv4Addr::new(192, 0, 2, 1).to_bits().wrapping_add(i),
        )),
        mtu: MTU,
    };
    JobFacts {
        key: JOB,
        uid: context.uid,
        nodes: (0..).zip(nodes).map(node).collect(),
        domain: None,
        vnis: request.networks.keys().cloned().zip(MIN_VNI..).collect(),
    }
}

fn nics(rank: Rank, networks: &[(&ClusterNetwork, Vec<VmAddress>)]) -> Vec<Nic> {
    let mut nics: Vec<(usize, Nic)> = Vec::new();
    for (network, addresses) in networks {
        for vm in addresses.iter().filter(|vm| vm.rank == rank) {
            let nic = Nic {
                network: network.name.clone(),
                mac: vm.mac.to_string(),
                address: vm
                    .ip
                    .as_ref()
                    .map(|ip| format!("{}/{}", ip.v4, ip.prefix_length)),
                mtu: vm.mtu,
            };
            nics.push((vm.nic, nic));
        }
    }
    nics.sort_by_key(|(nic, _)| *nic);
    nics.into_iter().map(|(_, nic)| nic).collect()
}

/// What vmd does first, the leading node first of all.
fn steps(index: usize, nodes: usize, scratch: &str, context: &Context) -> Vec<String> {
    let run = format!("{}/vm/{}", context.run_dir, JOB.job);
    let mut steps: Vec<String> = [scratch, &run]
        .map(|dir| format!("install -d -m 0700 -o {} {dir}", context.user))
        .into();
    if index == 0 {
        let step = step::arguments(JOB.job, nodes, "vmd-shim");
        steps.push(format!(
            "runuser -u {} -- srun {}",
            context.user,
            step.join(" ")
        ));
    }
    steps
}

fn network_steps(
    networks: &[ClusterNetwork],
    node: usize,
) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let mut all = BTreeMap::new();
    let mut used: Vec<u16> = Vec::new();
    for (slot, network) in (0..).zip(networks) {
        let mut host_ports = Vec::new();
        for wanted in wanted_ports(network, node) {
            let free = (wanted.min..=wanted.max).find(|p| !used.contains(p));
            let host_port = free.with_context(|| {
                format!(
                    "network '{}': the ports {} to {} are too few for the VMs of a node",
                    network.name, wanted.min, wanted.max
                )
            })?;
            used.push(host_port);
            host_ports.push(HostPort {
                rank: wanted.rank,
                vm_port: wanted.vm_port,
                host_port,
            });
        }
        let facts = LocalFacts {
            kernel_datapath: true,
            slot,
            directory: format!("{}/net/{JOB}/{slot}", shim_api::RUN_DIR),
            dns_servers: Vec::new(),
            host_ports,
            host_bridge: BridgeKind::Linux,
        };
        let plan = muster_networks::plan(network, node, &facts)?;
        let lines = plan.to_string().lines().map(str::to_owned).collect();
        let what = match network.spec {
            NetworkSpec::Ethernet(_) | NetworkSpec::Bridged(_) => lines,
            ref other => vec![format!(
                "# {}: devices are bound by the node",
                other.type_word()
            )],
        };
        all.insert(network.name.clone(), what);
    }
    Ok(all)
}

fn commands(
    place: &Placement,
    spec: &TemplateSpec,
    memory: Mib,
    overhead: Overhead,
    scratch: &str,
) -> anyhow::Result<VmCommands> {
    let name = place.rank.name();
    let disk = format!("{scratch}/{name}/disk.qcow2");
    let overlay = match &spec.image {
        None => None,
        Some(image) => {
            let layer = muster_images::boot_layer(image)
                .with_context(|| format!("look at image {image}"))?;
            let mut line = ["qemu-img", "create", "-q", "-f", "qcow2", "-F"]
                .map(str::to_owned)
                .to_vec();
            line.extend([
                layer.format.name().to_owned(),
                "-b".to_owned(),
                layer.path.display().to_string(),
                disk.clone(),
            ]);
            Some(line)
        }
    };
    let machine = Machine {
        name: format!("job{}-{name}", JOB.job),
        accel: match spec.accel {
            Accel::Tcg => memory::emulation(memory, overhead),
            Accel::Auto | Accel::Kvm => QemuAccel::Kvm,
        },
        vcpus: place.vcpus,
        memory,
        boot_overlay: disk,
        qmp: Fd(FIRST_FD),
        console: Fd(FIRST_FD + 1),
        agent: None,
        spare_ports: 0,
    };
    let mut qemu = vec![Machine::PROGRAM.to_owned()];
    qemu.extend(machine.argv());
    Ok(VmCommands {
        vm: name,
        overlay,
        qemu,
    })
}
