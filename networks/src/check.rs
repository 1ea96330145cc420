//! What must hold before a network's addresses and plans are computed, and the errors that say what does not.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use muster_types::ids::{NodeName, Rank, shown};
use muster_types::network::{Ethernet, Layer};
use muster_types::template::check_host_name;

use crate::addresses::{Addresses, Addresses6, MIN_PREFIX_LENGTH6};
use crate::cluster::{ClusterNetwork, MAX_VNI, MIN_VNI};
use crate::names::MAX_JOB_NETWORKS;

/// Bytes that VXLAN over IPv4 puts around a frame's payload (RFC 7348, 5: Ethernet, VXLAN, UDP, IPv4).
pub const TUNNEL_OVERHEAD: u16 = 50;

/// The smallest MTU of guests on IPv4 (RFC 791, 3.1).
const MIN_MTU: u16 = 576;

/// The smallest MTU of guests on IPv6 (RFC 8200, 5).
const MIN_MTU6: u16 = 1280;

/// Why the VMs of a network cannot have their addresses, or a node no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// More networks than a job may have.
    #[error(
        "network '{network}': it is number {number} of the job, allowed are {MAX_JOB_NETWORKS}"
    )]
    TooMany {
        /// The network.
        network: String,
        /// Its number, from 1.
        number: u32,
    },
    /// More VMs than the range has addresses.
    #[error(
        "network '{network}': {key} {range} has addresses for {most} VMs, {vm} is number {number}: widen {key} or ask for fewer VMs"
    )]
    Room {
        /// The network.
        network: String,
        /// `int-network` or `ipv6-network`.
        key: &'static str,
        /// The range.
        range: String,
        /// VMs that fit.
        most: u64,
        /// The first VM that does not.
        vm: Rank,
        /// Its number, from 1.
        number: u64,
    },
    /// A range that is too large to be given out.
    #[error(
        "network '{network}': ipv6-network {range}: the prefix has {length} bits, allowed are {MIN_PREFIX_LENGTH6} to 126"
    )]
    Prefix6 {
        /// The network.
        network: String,
        /// The range.
        range: String,
        /// Its prefix length.
        length: u8,
    },
    /// More VMs than MAC addresses.
    #[error(
        "network '{network}': mac-start-offset {offset} leaves MAC addresses for {most} VMs, {vm} is number {number}: lower mac-start-offset"
    )]
    Macs {
        /// The network.
        network: String,
        /// Its `mac-start-offset`.
        offset: u32,
        /// VMs that fit.
        most: u32,
        /// The first VM that does not.
        vm: Rank,
        /// Its number, from 1.
        number: u64,
    },
    /// Two VMs of one name.
    #[error(
        "network '{network}': {first} and {second} are both named '{name}': put %{{vm_rank}} into hostname or dns-aliases, or give their templates different ones"
    )]
    Name {
        /// The network.
        network: String,
        /// The name.
        name: String,
        /// The VM that has it.
        first: Rank,
        /// The VM that wants it too.
        second: Rank,
    },
    /// A VM's name that is none.
    #[error("network '{network}': {vm}: {why}")]
    HostName {
        /// The network.
        network: String,
        /// The VM.
        vm: Rank,
        /// The name and what is allowed.
        why: String,
    },
    /// A domain that is none.
    #[error("network '{network}': {key}: {why}")]
    Domain {
        /// The network.
        network: String,
        /// `domain-name` or `dns-search`.
        key: &'static str,
        /// The domain and what is allowed.
        why: String,
    },
    /// A server that the network's namespace, which has no IPv6 to the outside, does not reach.
    #[error(
        "network '{network}': {key} {server}: allowed is an IPv4 address other than 127.0.0.0/8"
    )]
    Server {
        /// The network.
        network: String,
        /// `dns-server` or `ntp-server`.
        key: &'static str,
        /// The server.
        server: IpAddr,
    },
    /// A prefix of device names that cannot be one.
    #[error(
        "network '{network}': {key} '{prefix}': allowed are 1 to 8 of A-Z a-z 0-9 _ -, starting with a letter"
    )]
    Prefix {
        /// The network.
        network: String,
        /// `dev-prefix` or `tap-prefix`.
        key: &'static str,
        /// As written.
        prefix: String,
    },
    /// A node whose tunnels have no end.
    #[error(
        "network '{network}': node '{node}' has no tunnel address: '{node}{suffix}' (its name and host-if-suffix) must resolve to an IPv4 address of its own"
    )]
    Tunnel {
        /// The network.
        network: String,
        /// The node.
        node: NodeName,
        /// The network's `host-if-suffix`.
        suffix: String,
    },
    /// Two nodes whose tunnels have one end.
    #[error(
        "network '{network}': nodes '{first}' and '{second}' have the same tunnel address {address}: each needs its own"
    )]
    SharedTunnel {
        /// The network.
        network: String,
        /// One node.
        first: NodeName,
        /// The other.
        second: NodeName,
        /// The address.
        address: Ipv4Addr,
    },
    /// An identifier outside its range.
    #[error("network '{network}': VNI {vni}, allowed are {MIN_VNI} to {MAX_VNI}")]
    Vni {
        /// The network.
        network: String,
        /// The identifier.
        vni: u32,
    },
    /// Frames too small for IP.
    #[error(
        "network '{network}': guests would have an MTU of {guest} (mtu {mtu}, {underlay} on node '{node}', less {TUNNEL_OVERHEAD} for the tunnel), allowed is {least} or more"
    )]
    Mtu {
        /// The network.
        network: String,
        /// What is left.
        guest: u16,
        /// The network's `mtu`.
        mtu: u16,
        /// The smallest MTU of the nodes.
        underlay: u16,
        /// The node with it.
        node: NodeName,
        /// What IP asks for.
        least: u16,
    },
    /// A VM on a node that the job does not have.
    #[error("network '{network}': {vm} is on node {node}, the job has {nodes}, counted from 0")]
    Node {
        /// The network.
        network: String,
        /// The VM.
        vm: Rank,
        /// The node's index.
        node: usize,
        /// Nodes of the job.
        nodes: usize,
    },
    /// VMs whose numbers are not those of their ranks.
    #[error(
        "network '{network}': {vm} has number {number}, by its rank it is number {expected} (from 0)"
    )]
    Number {
        /// The network.
        network: String,
        /// The VM.
        vm: Rank,
        /// Its number.
        number: u32,
        /// The number it should have.
        expected: usize,
    },
    /// VMs that are not in rank order, or one that is there twice.
    #[error("network '{network}': {vm} comes after {before}: each VM is on it once, in rank order")]
    Order {
        /// The network.
        network: String,
        /// The VM.
        vm: Rank,
        /// The one before it.
        before: Rank,
    },
    /// A datapath that the node lacks.
    #[error(
        "network '{network}': datapath is 'system', but node '{node}' has no kernel module 'openvswitch': load it there, or set datapath to auto or netdev"
    )]
    Datapath {
        /// The network.
        network: String,
        /// The node.
        node: NodeName,
    },
    /// More networks on a node than the range has links for.
    #[error(
        "network '{network}': ext-network {range} has room for {most} networks of a node, this is number {number} on node '{node}': widen ext-network"
    )]
    Slot {
        /// The network.
        network: String,
        /// The node.
        node: NodeName,
        /// The range.
        range: String,
        /// Networks that fit.
        most: u64,
        /// Its number, from 1.
        number: u64,
    },
    /// No port of the node for a reverse-NAT rule.
    #[error(
        "network '{network}': {vm}: no port of node '{node}' for its port {vm_port}, allowed are {min} to {max}, each once"
    )]
    HostPort {
        /// The network.
        network: String,
        /// The VM.
        vm: Rank,
        /// The node.
        node: NodeName,
        /// The VM's port.
        vm_port: u16,
        /// First port of the rule.
        min: u16,
        /// Last port of the rule.
        max: u16,
    },
    /// A directory that is no absolute path of plain characters.
    #[error(
        "network '{network}': directory '{directory}': allowed is an absolute path of A-Z a-z 0-9 / . _ -"
    )]
    Directory {
        /// The network.
        network: String,
        /// As given.
        directory: String,
    },
    /// A node that the plan is not for.
    #[error("network '{network}': there is no node {node}, the job has {nodes}, counted from 0")]
    NoNode {
        /// The network.
        network: String,
        /// The index.
        node: usize,
        /// Nodes of the job.
        nodes: usize,
    },
}

/// The ranges of a network with addresses, large enough for its VMs.
pub(crate) fn ip_ranges(
    net: &ClusterNetwork,
    spec: &Ethernet,
) -> Result<(Addresses, Option<Addresses6>), NetworkError> {
    let v4 = Addresses::new(spec.int_network);
    check_room(net, "int-network", &spec.int_network, v4.room())?;
    let v6 = spec.ipv6_network.map(Addresses6::new);
    if let (Some(v6), Some(range)) = (v6, spec.ipv6_network) {
        if !(MIN_PREFIX_LENGTH6..=126).contains(&v6.prefix_length()) {
            return Err(NetworkError::Prefix6 {
                network: net.name.clone(),
                range: range.to_string(),
                length: v6.prefix_length(),
            });
        }
        check_room(net, "ipv6-network", &range, v6.room())?;
    }
    for (key, name) in spec
        .domain_name
        .iter()
        .map(|name| ("domain-name", name))
        .chain(spec.dns_search.iter().map(|name| ("dns-search", name)))
        .chain(net.node_domain.iter().map(|name| ("node's domain", name)))
    {
        check_host_name(name).map_err(|why| NetworkError::Domain {
            network: net.name.clone(),
            key,
            why,
        })?;
    }
    for (key, server) in [
        ("dns-server", spec.dns_server),
        ("ntp-server", spec.ntp_server),
    ] {
        if let Some(server) = server.filter(|s| s.is_ipv6() || s.is_loopback()) {
            return Err(NetworkError::Server {
                network: net.name.clone(),
                key,
                server,
            });
        }
    }
    Ok((v4, v6))
}

fn check_room(
    net: &ClusterNetwork,
    key: &'static str,
    range: &dyn ToString,
    most: u64,
) -> Result<(), NetworkError> {
    match net.vms.iter().find(|vm| u64::from(vm.number) >= most) {
        None => Ok(()),
        Some(vm) => Err(NetworkError::Room {
            network: net.name.clone(),
            key,
            range: range.to_string(),
            most,
            vm: vm.rank,
            number: u64::from(vm.number) + 1,
        }),
    }
}

/// What the kernel and every tool take without quoting.
pub(crate) fn check_prefix(
    net: &ClusterNetwork,
    key: &'static str,
    prefix: &str,
) -> Result<(), NetworkError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let ok = (1..=8).contains(&prefix.len())
        && prefix.starts_with(|c: char| c.is_ascii_alphabetic())
        && prefix.bytes().all(plain);
    if ok {
        return Ok(());
    }
    Err(NetworkError::Prefix {
        network: net.name.clone(),
        key,
        prefix: shown(prefix),
    })
}

/// Index of the network, nodes and numbers of its VMs.
pub(crate) fn check_shape(net: &ClusterNetwork) -> Result<(), NetworkError> {
    let network = || net.name.clone();
    if net.index.max(net.mac_index) >= MAX_JOB_NETWORKS {
        return Err(NetworkError::TooMany {
            network: network(),
            number: u32::from(net.index.max(net.mac_index)) + 1,
        });
    }
    let mut last = None;
    for (expected, vm) in net.vms.iter().enumerate() {
        if vm.node >= net.nodes.len() {
            return Err(NetworkError::Node {
                network: network(),
                vm: vm.rank,
                node: vm.node,
                nodes: net.nodes.len(),
            });
        }
        if let Some(before) = last.filter(|last| *last >= vm.rank) {
            return Err(NetworkError::Order {
                network: network(),
                vm: vm.rank,
                before,
            });
        }
        if usize::try_from(vm.number) != Ok(expected) {
            return Err(NetworkError::Number {
                network: network(),
                vm: vm.rank,
                number: vm.number,
                expected,
            });
        }
        last = Some(vm.rank);
    }
    Ok(())
}

/// Every node with VMs has an end for its tunnels, if there is more than one.
pub(crate) fn check_tunnels(net: &ClusterNetwork, spec: &Ethernet) -> Result<(), NetworkError> {
    if !(MIN_VNI..=MAX_VNI).contains(&net.vni) {
        return Err(NetworkError::Vni {
            network: net.name.clone(),
            vni: net.vni,
        });
    }
    let members = net.members();
    if members.len() < 2 {
        return Ok(());
    }
    let mut seen: BTreeMap<Ipv4Addr, &NodeName> = BTreeMap::new();
    for node in members.iter().filter_map(|node| net.nodes.get(*node)) {
        let address = node.tunnel_address.ok_or_else(|| NetworkError::Tunnel {
            network: net.name.clone(),
            node: node.name.clone(),
            suffix: shown(&spec.host_if_suffix),
        })?;
        if let Some(first) = seen.insert(address, &node.name) {
            return Err(NetworkError::SharedTunnel {
                network: net.name.clone(),
                first: first.clone(),
                second: node.name.clone(),
                address,
            });
        }
    }
    Ok(())
}

/// The MTU of the guests: that of the network or of the smallest node, less what tunnels need.
pub(crate) fn guest_mtu(net: &ClusterNetwork, spec: &Ethernet) -> Result<u16, NetworkError> {
    let members = net.members();
    let nodes = members.iter().filter_map(|node| net.nodes.get(*node));
    let Some(smallest) = nodes.min_by_key(|node| node.mtu) else {
        return Ok(spec.mtu.saturating_sub(TUNNEL_OVERHEAD));
    };
    let guest = spec.mtu.min(smallest.mtu).saturating_sub(TUNNEL_OVERHEAD);
    let ipv6 = spec.ipv6_network.is_some() && spec.network_layer == Layer::L3;
    let least = if ipv6 { MIN_MTU6 } else { MIN_MTU };
    if guest >= least {
        return Ok(guest);
    }
    Err(NetworkError::Mtu {
        network: net.name.clone(),
        guest,
        mtu: spec.mtu,
        underlay: smallest.mtu,
        node: smallest.name.clone(),
        least,
    })
}
