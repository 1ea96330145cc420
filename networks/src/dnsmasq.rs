//! The DHCP and DNS service of a network: the files of one dnsmasq(8), 2.90 or later.
//!
//! It answers the VMs of its node alone, from files that are written once: names of all VMs of the
//! job, leases of the node's own.

use std::net::Ipv4Addr;

use muster_types::network::Ethernet;

use crate::addresses::Addresses6;
use crate::addressing::{VmAddress, VmIp};

/// What the files are made from.
#[derive(Debug)]
pub(crate) struct Service<'a> {
    pub(crate) spec: &'a Ethernet,
    /// All VMs.
    pub(crate) vms: &'a [VmAddress],
    /// The VMs of this node.
    pub(crate) local: Vec<&'a VmAddress>,
    /// What one of them has, for what all have in common.
    pub(crate) ip: &'a VmIp,
    pub(crate) mtu: u16,
    pub(crate) gateway_device: &'a str,
    pub(crate) directory: &'a str,
    /// Where it asks for other names.
    pub(crate) upstream: Vec<Ipv4Addr>,
}

/// The file names in the service's directory.
pub(crate) const CONFIG: &str = "dnsmasq.conf";
pub(crate) const LEASES: &str = "leases";
pub(crate) const NAMES: &str = "names";
pub(crate) const PID: &str = "dnsmasq.pid";

impl Service<'_> {
    /// The configuration file.
    pub(crate) fn config(&self) -> String {
        let (spec, ip, directory) = (self.spec, self.ip, self.directory);
        let mut lines = vec![
            format!("interface={}", self.gateway_device),
            "except-interface=lo".to_owned(),
            "bind-interfaces".to_owned(),
            "port=53".to_owned(),
            "no-hosts".to_owned(),
            "no-resolv".to_owned(),
            "no-poll".to_owned(),
            "no-ping".to_owned(),
            "leasefile-ro".to_owned(),
            "dhcp-authoritative".to_owned(),
            // An address of each family for each VM.
            format!("dhcp-lease-max={}", 2 * self.local.len()),
            format!("pid-file={directory}/{PID}"),
            format!("addn-hosts={directory}/{NAMES}"),
            format!("dhcp-hostsfile={directory}/{LEASES}"),
            format!(
                "dhcp-range={},static,{},infinite",
                spec.int_network.base(),
                netmask(ip.prefix_length)
            ),
        ];
        lines.push(format!("domain={}", ip.domain));
        lines.push(format!("local=/{}/", ip.domain));
        // Nobody else knows the addresses of the network.
        lines.push(format!("rev-server={}", spec.int_network));
        if let Some(range) = spec.ipv6_network {
            let v6 = Addresses6::new(range);
            lines.push(format!(
                "dhcp-range={},static,{},infinite",
                v6.base(),
                v6.prefix_length()
            ));
            lines.push(format!("rev-server={range}"));
            // Addresses come by DHCPv6; the router is none to the outside (RFC 4861, 6.2.3).
            lines.push("enable-ra".to_owned());
            lines.push(format!("ra-param={},0,0", self.gateway_device));
        }
        lines.extend(
            self.upstream
                .iter()
                .map(|server| format!("server={server}")),
        );
        lines.extend(self.options());
        lines.join("\n") + "\n"
    }

    /// What DHCP tells VMs, by the names of `dnsmasq --help dhcp`.
    fn options(&self) -> Vec<String> {
        let (spec, ip) = (self.spec, self.ip);
        let option = |what: &str, value: &dyn std::fmt::Display| {
            format!("dhcp-option=option:{what},{value}")
        };
        let search = ip.search.join(",");
        let mut lines = vec![
            option("router", &ip.gateway),
            option("dns-server", &ip.service),
            option("mtu", &self.mtu),
            option("domain-search", &search),
        ];
        if let Some(server) = spec.ntp_server {
            lines.push(option("ntp-server", &server));
        }
        if let Some(range) = spec.ipv6_network {
            let service = Addresses6::new(range).service();
            lines.push(format!("dhcp-option=option6:dns-server,[{service}]"));
            lines.push(format!("dhcp-option=option6:domain-search,{search}"));
        }
        lines
    }

    /// The leases of the node's VMs.
    pub(crate) fn leases(&self) -> String {
        let lease = |vm: &&VmAddress| {
            let ip = vm.ip.as_ref()?;
            let v6 = ip.v6.map(|(v6, _)| format!("[{v6}],")).unwrap_or_default();
            let name = vm.names.first()?;
            Some(format!("{},{},{v6}{name},infinite\n", vm.mac, ip.v4))
        };
        self.local.iter().filter_map(lease).collect()
    }

    /// All VMs' names, with and without domain; the first is the answer to an address.
    pub(crate) fn names(&self) -> String {
        let mut text = String::new();
        for vm in self.vms {
            let Some(ip) = &vm.ip else { continue };
            let mut names = Vec::with_capacity(2 * vm.names.len());
            for name in &vm.names {
                // A name with a dot has its domain.
                if !name.contains('.') {
                    names.push(format!("{name}.{}", ip.domain));
                }
                names.push(name.clone());
            }
            let names = names.join(" ");
            let v6 = ip.v6.map(|(v6, _)| format!("{v6} {names}\n"));
            text += &format!("{} {names}\n{}", ip.v4, v6.unwrap_or_default());
        }
        text
    }
}

/// A prefix length as dnsmasq's IPv4 ranges have it.
fn netmask(length: u8) -> Ipv4Addr {
    let host_bits = 32 - u32::from(length.min(32));
    Ipv4Addr::from_bits(u32::MAX.checked_shl(host_bits).unwrap_or(0))
}
