//! `type: ethernet`: a private Ethernet over tunnels, with or without addresses. Its keys are in `keys`.

use std::net::{Ipv4Addr, Ipv6Addr};

use muster_types::ids::shown;
use muster_types::network::{Datapath, Ethernet, Layer};
use muster_types::subnet::{Subnet, Subnet6};

use super::keys::L3_ONLY;
use super::rules::reverse_nat;
use super::settings::{Findings, Settings, address, device_prefix, domain, mtu, number16};
use crate::tree::{Node, Reader, Value};

/// What tunnels take of each packet: Ethernet, IPv4, UDP and VXLAN headers.
const TUNNEL_BYTES: u16 = 50;

/// The smallest MTU of IPv6 (RFC 8200, 5).
const IPV6_MTU: u16 = 1280;

/// The most entries of `dns-search` and `reach`.
const MAX_ENTRIES: usize = 32;

/// Reads the settings. What is wrong holds by default in what comes out.
pub(super) fn read(findings: &mut Findings<'_>, settings: &Settings<'_>) -> Ethernet {
    let mut net = Ethernet::default();
    let reader = &mut findings.errors;
    settings.set(&mut net.dev_prefix, "dev-prefix", |n, k| {
        device_prefix(reader, n, k)
    });
    settings.set(&mut net.network_layer, "network-layer", |n, k| {
        reader.choice(n, k, Layer::WORDS)
    });
    settings.set(&mut net.mtu, "mtu", |n, k| mtu(reader, n, k));
    settings.set(&mut net.mac_prefix, "mac-prefix", |n, k| {
        reader.parsed(n, k, str::parse)
    });
    settings.set(&mut net.mac_start_offset, "mac-start-offset", |n, k| {
        number16(reader, n, k, (0, u16::MAX)).map(u32::from)
    });
    settings.set(&mut net.host_if_suffix, "host-if-suffix", |n, k| {
        reader.parsed(n, k, suffix)
    });
    settings.set(&mut net.datapath, "datapath", |n, k| {
        reader.choice(n, k, Datapath::WORDS)
    });
    settings.set(&mut net.port_security, "port-security", |n, k| {
        reader.boolean(n, k)
    });
    settings.set(&mut net.tunnel_port, "tunnel-port", |n, k| {
        number16(reader, n, k, (1, u16::MAX))
    });
    read_l3(reader, settings, &mut net);
    match net.network_layer {
        Layer::L3 => check_l3(findings, settings, &net),
        Layer::L2 => drop_l3(findings, settings, &mut net),
    }
    net
}

fn read_l3(reader: &mut Reader<'_>, settings: &Settings<'_>, net: &mut Ethernet) {
    settings.set(&mut net.int_network, "int-network", |n, k| {
        reader.parsed(n, k, int_network)
    });
    settings.set(&mut net.ext_network, "ext-network", |n, k| {
        reader.parsed(n, k, str::parse)
    });
    settings.set(&mut net.ipv6_network, "ipv6-network", |n, k| {
        reader.parsed(n, k, ipv6_network).map(Some)
    });
    settings.set(&mut net.domain_name, "domain-name", |n, k| {
        reader.parsed(n, k, domain).map(Some)
    });
    settings.set(&mut net.dns_search, "dns-search", |n, k| {
        dns_search(reader, n, k)
    });
    settings.set(&mut net.dns_server, "dns-server", |n, k| {
        address(reader, n, k).map(Some)
    });
    settings.set(&mut net.ntp_server, "ntp-server", |n, k| {
        address(reader, n, k).map(Some)
    });
    settings.set(&mut net.allow_outbound, "allow-outbound", |n, k| {
        reader.choice(n, k, &[("all", true), ("none", false)])
    });
    settings.set(&mut net.reach, "reach", |n, k| reach(reader, n, k));
    settings.set(&mut net.reverse_nat, "reverse-nat", |n, k| {
        reverse_nat(reader, n, k)
    });
    settings.set(&mut net.manage_ip_forward, "manage-ip-forward", |n, k| {
        reader.boolean(n, k)
    });
    settings.set(&mut (), "gateway", |n, k| {
        reader.choice(n, k, &[("local-nat", ())])
    });
}

/// What holds between the keys of a network with addresses.
fn check_l3(findings: &mut Findings<'_>, settings: &Settings<'_>, net: &Ethernet) {
    let int = net.int_network;
    // The default is not used by anything, so it is in nobody's way.
    if let Some((node, key)) = settings.get("ext-network")
        && net.ext_network.overlaps(int)
    {
        let message = format!(
            "{} overlaps int-network {int}: the two must have no address in common",
            net.ext_network
        );
        findings.errors.error(node.at, &key, message);
    }
    let least = IPV6_MTU + TUNNEL_BYTES;
    if net.ipv6_network.is_some() && net.mtu < least {
        let (at, key) = settings.place("mtu");
        let message = format!(
            "{} is too small with 'ipv6-network': at least {least}, since guests get {TUNNEL_BYTES} less and IPv6 needs {IPV6_MTU}",
            net.mtu
        );
        findings.errors.error(at, &key, message);
    }
    if let Some((node, key)) = settings.get("int-network")
        && !PRIVATE.iter().any(|p| is_within(int, *p))
    {
        let message = format!(
            "{int} is no private range (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10): the VMs cannot reach the hosts whose addresses these are"
        );
        findings.warnings.error(node.at, &key, message);
    }
}

/// Takes back what means nothing without addresses: pcocc ignores it, too.
fn drop_l3(findings: &mut Findings<'_>, settings: &Settings<'_>, net: &mut Ethernet) {
    for word in L3_ONLY {
        if let Some((node, key)) = settings.get(word) {
            let message = "has no meaning on an L2 network and is ignored: remove it, or write 'network-layer: L3'";
            findings.warnings.error(node.at, &key, message.into());
        }
    }
    let l2 = std::mem::take(net);
    *net = Ethernet {
        dev_prefix: l2.dev_prefix,
        network_layer: l2.network_layer,
        mtu: l2.mtu,
        mac_prefix: l2.mac_prefix,
        mac_start_offset: l2.mac_start_offset,
        host_if_suffix: l2.host_if_suffix,
        datapath: l2.datapath,
        port_security: l2.port_security,
        tunnel_port: l2.tunnel_port,
        ..Ethernet::default()
    };
}

/// Ranges that no host on the Internet has (RFC 1918, RFC 6598).
const PRIVATE: &[Subnet] = &[
    Subnet::new(Ipv4Addr::new(10, 0, 0, 0), 8),
    Subnet::new(Ipv4Addr::new(172, 16, 0, 0), 12),
    Subnet::new(Ipv4Addr::new(192, 168, 0, 0), 16),
    Subnet::new(Ipv4Addr::new(100, 64, 0, 0), 10),
];

/// Ranges that no interface may be given addresses of (RFC 6890): this host, loopback, link-local,
/// multicast and reserved.
const SPECIAL: &[Subnet] = &[
    Subnet::new(Ipv4Addr::new(0, 0, 0, 0), 8),
    Subnet::new(Ipv4Addr::new(127, 0, 0, 0), 8),
    Subnet::new(Ipv4Addr::new(169, 254, 0, 0), 16),
    Subnet::new(Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// The same of IPv6 (RFC 6890): unspecified, loopback and IPv4 in disguise; link-local; multicast.
const SPECIAL6: &[Subnet6] = &[
    Subnet6::new(Ipv6Addr::UNSPECIFIED, 16),
    Subnet6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    Subnet6::new(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

fn is_within(inner: Subnet, outer: Subnet) -> bool {
    outer.contains(inner.base()) && inner.prefix_length() >= outer.prefix_length()
}

fn int_network(text: &str) -> Result<Subnet, String> {
    let subnet: Subnet = text.parse().map_err(|e| format!("{e}"))?;
    if !(8..=29).contains(&subnet.prefix_length()) {
        return Err(format!(
            "{subnet} has the wrong size: from /8 to /29, which has addresses for 4 VMs"
        ));
    }
    match SPECIAL.iter().find(|s| s.overlaps(subnet)) {
        Some(special) => Err(format!(
            "{subnet} is within {special}, which no interface may have addresses of: take an unused private range such as 10.200.0.0/16"
        )),
        None => Ok(subnet),
    }
}

fn ipv6_network(text: &str) -> Result<Subnet6, String> {
    let subnet: Subnet6 = text.parse().map_err(|e| format!("{e}"))?;
    if !(16..=112).contains(&subnet.prefix_length()) {
        return Err(format!(
            "{subnet} has the wrong size: from /16 to /112, usually /64"
        ));
    }
    match SPECIAL6.iter().find(|s| s.overlaps(subnet)) {
        Some(special) => Err(format!(
            "{subnet} overlaps {special}, which no interface may be given addresses of: take a range such as fd00:1234::/64"
        )),
        None => Ok(subnet),
    }
}

/// A part of a host name, behind a node's name.
fn suffix(text: &str) -> Result<String, String> {
    let ok = text.len() <= 63
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    if ok {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{}' is no end of a host name such as -ib: letters, digits, - and ., at most 63",
            shown(text)
        ))
    }
}

/// A list of domains, or a text with commas between them.
fn dns_search(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<Vec<String>> {
    if !matches!(node.value, Value::List(_)) {
        return reader.parsed(node, key, |text| {
            let parts = text.split(',').map(str::trim);
            let domains: Result<Vec<_>, _> = parts.filter(|p| !p.is_empty()).map(domain).collect();
            domains.and_then(few)
        });
    }
    let items = reader.items(node, key, "domains");
    let domains = items
        .into_iter()
        .filter_map(|(key, item)| reader.parsed(item, &key, domain))
        .collect();
    few(domains).map_err(|e| reader.error(node.at, key, e)).ok()
}

/// Networks, or addresses that stand for themselves.
fn reach(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<Vec<Subnet>> {
    let items = reader.listed(node, key, "networks such as 192.168.7.0/24");
    let subnets = items
        .into_iter()
        .filter_map(|(key, item)| {
            reader.parsed(item, &key, |text| match text.parse::<Ipv4Addr>() {
                Ok(address) => Ok(Subnet::new(address, 32)),
                Err(_) => text.parse::<Subnet>(),
            })
        })
        .collect();
    few(subnets).map_err(|e| reader.error(node.at, key, e)).ok()
}

fn few<T>(list: Vec<T>) -> Result<Vec<T>, String> {
    match list.len() {
        0..=MAX_ENTRIES => Ok(list),
        more => Err(format!(
            "has {more} entries, at most {MAX_ENTRIES} are possible"
        )),
    }
}
