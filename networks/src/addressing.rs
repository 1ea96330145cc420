//! Who has which address and name on a network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use muster_types::ids::{MAX_VMS, Rank};
use muster_types::mac::Mac;
use muster_types::network::{Bridged, Ethernet, Layer, NetworkSpec};
use muster_types::template::check_host_name;

use crate::check::{NetworkError, check_prefix, check_shape, check_tunnels, guest_mtu, ip_ranges};
use crate::cluster::{Attachment, ClusterNetwork};

/// What one VM has on one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmAddress {
    /// The VM.
    pub rank: Rank,
    /// Its number on the network.
    pub number: u32,
    /// Index of its node.
    pub node: usize,
    /// Which of the VM's NICs it is.
    pub nic: usize,
    /// Its MAC address.
    pub mac: Mac,
    /// MTU of the guest's interface in bytes.
    pub mtu: u16,
    /// Its addresses; none where Muster gives none out.
    pub ip: Option<VmIp>,
    /// Its names without a domain: host name, `vm<rank>`, aliases, each once.
    pub names: Vec<String>,
}

/// The IP half of [`VmAddress`], on a network with addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmIp {
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Length of the IPv4 network's prefix.
    pub prefix_length: u8,
    /// The default gateway.
    pub gateway: Ipv4Addr,
    /// The DHCP and DNS service.
    pub service: Ipv4Addr,
    /// Its IPv6 address and the length of the prefix.
    pub v6: Option<(Ipv6Addr, u8)>,
    /// Its domain.
    pub domain: String,
    /// The domains that it searches, its own first.
    pub search: Vec<String>,
}

/// The addresses of all VMs of a network, in rank order. A network of PCI devices has none.
///
/// # Errors
/// The first reason for which one of them cannot be; see [`NetworkError`].
pub fn addresses(net: &ClusterNetwork) -> Result<Vec<VmAddress>, NetworkError> {
    match &net.spec {
        NetworkSpec::Ethernet(spec) => private(net, spec),
        NetworkSpec::Bridged(spec) => bridged(net, spec),
        NetworkSpec::Infiniband(_) | NetworkSpec::Hostib(_) | NetworkSpec::Genericpci(_) => {
            Ok(Vec::new())
        }
    }
}

/// The domain of the VMs on a network with addresses.
fn domain(net: &ClusterNetwork, spec: &Ethernet) -> String {
    match (&spec.domain_name, &net.node_domain) {
        (Some(own), _) => own.clone(),
        (None, Some(nodes)) => format!("muster.{nodes}"),
        (None, None) => "muster".to_owned(),
    }
}

fn private(net: &ClusterNetwork, spec: &Ethernet) -> Result<Vec<VmAddress>, NetworkError> {
    check_prefix(net, "dev-prefix", &spec.dev_prefix)?;
    check_shape(net)?;
    check_tunnels(net, spec)?;
    let mtu = guest_mtu(net, spec)?;
    let named = names(net)?;
    let ip = match spec.network_layer {
        Layer::L2 => None,
        Layer::L3 => Some(ip_ranges(net, spec)?),
    };
    let own_domain = domain(net, spec);
    let mut search = vec![own_domain.clone()];
    for further in &spec.dns_search {
        if !search.contains(further) {
            search.push(further.clone());
        }
    }
    let mac = |vm: &Attachment| {
        let address = spec
            .mac_prefix
            .address(net.mac_index, vm.number, spec.mac_start_offset);
        address.map_err(|_| NetworkError::Macs {
            network: net.name.clone(),
            offset: spec.mac_start_offset,
            most: 65_536_u32.saturating_sub(spec.mac_start_offset),
            vm: vm.rank,
            number: u64::from(vm.number) + 1,
        })
    };
    net.vms
        .iter()
        .zip(named)
        .map(|(vm, names)| {
            Ok(VmAddress {
                rank: vm.rank,
                number: vm.number,
                node: vm.node,
                nic: vm.nic,
                mac: mac(vm)?,
                mtu,
                ip: ip.map(|(v4, v6)| VmIp {
                    v4: v4.vm(vm.number),
                    prefix_length: v4.prefix_length(),
                    gateway: v4.gateway(),
                    service: v4.service(),
                    v6: v6.map(|range| (range.vm(vm.number), range.prefix_length())),
                    domain: own_domain.clone(),
                    search: search.clone(),
                }),
                names,
            })
        })
        .collect()
}

/// MAC addresses in a bridge that many jobs share: the last 12 bits of the job's id, 12 bits of the
/// VM's number. Jobs that run together have ids close to each other, so that they differ; further
/// bridges of the job with the same prefix take other upper bits.
fn bridged(net: &ClusterNetwork, spec: &Bridged) -> Result<Vec<VmAddress>, NetworkError> {
    check_prefix(net, "tap-prefix", &spec.tap_prefix)?;
    check_shape(net)?;
    let named = names(net)?;
    let job = (net.key.job.0.wrapping_add(512 * u32::from(net.mac_index))) % 4096;
    net.vms
        .iter()
        .zip(named)
        .map(|(vm, names)| {
            let [_, high, middle, low] = ((job << 12) | (vm.number % MAX_VMS)).to_be_bytes();
            let number = u32::from(u16::from_be_bytes([middle, low]));
            let mac = spec
                .mac_prefix
                .address(high, number, 0)
                .map_err(|_| NetworkError::Macs {
                    network: net.name.clone(),
                    offset: 0,
                    most: MAX_VMS,
                    vm: vm.rank,
                    number: u64::from(vm.number) + 1,
                })?;
            Ok(VmAddress {
                rank: vm.rank,
                number: vm.number,
                node: vm.node,
                nic: vm.nic,
                mac,
                mtu: spec.mtu,
                ip: None,
                names,
            })
        })
        .collect()
}

/// Each VM's names; DNS knows no capitals, so two that differ in them alone are one.
fn names(net: &ClusterNetwork) -> Result<Vec<Vec<String>>, NetworkError> {
    let mut owners: BTreeMap<String, Rank> = BTreeMap::new();
    let mut all = Vec::with_capacity(net.vms.len());
    for vm in &net.vms {
        let rank_name = vm.rank.name();
        let given = std::iter::once(&vm.hostname)
            .chain(std::iter::once(&rank_name))
            .chain(&vm.aliases);
        let mut own = Vec::new();
        let mut seen = BTreeSet::new();
        for name in given {
            check_host_name(name).map_err(|why| NetworkError::HostName {
                network: net.name.clone(),
                vm: vm.rank,
                why,
            })?;
            let key = name.to_ascii_lowercase();
            if !seen.insert(key.clone()) {
                continue;
            }
            if let Some(first) = owners.insert(key, vm.rank) {
                return Err(NetworkError::Name {
                    network: net.name.clone(),
                    name: name.clone(),
                    first,
                    second: vm.rank,
                });
            }
            own.push(name.clone());
        }
        all.push(own);
    }
    Ok(all)
}
