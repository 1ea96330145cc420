//! The table of a network's namespace: what VMs may reach, and what reaches them.

use std::net::Ipv4Addr;

use muster_types::network::Ethernet;

use super::{TABLE, list};

/// What the rules are made from.
#[derive(Debug)]
pub(crate) struct Inside<'a> {
    pub(crate) spec: &'a Ethernet,
    /// The port with the gateway's address.
    pub(crate) gateway: &'a str,
    /// The namespace's end of the link to the node; none where nothing is to pass.
    pub(crate) uplink: Option<&'a str>,
    /// Port of the node, VM's address, VM's port.
    pub(crate) ports: Vec<(u16, Ipv4Addr, u16)>,
}

/// The whole table, made anew.
#[must_use]
pub(crate) fn rules(inside: &Inside<'_>) -> String {
    let mut text = format!("add table {TABLE}\n");
    let mut chain = |name: &str, hook: &str, policy: &str, rules: Vec<String>| {
        text += &format!("add chain {TABLE} {name} {{ type {hook}; policy {policy}; }}\n");
        for rule in rules {
            text += &format!("add rule {TABLE} {name} {rule}\n");
        }
    };
    chain(
        "input",
        "filter hook input priority 0",
        "drop",
        input(inside),
    );
    chain(
        "forward",
        "filter hook forward priority 0",
        "drop",
        forward(inside),
    );
    if let Some(uplink) = inside.uplink {
        let ports = inside.ports.iter().map(|(host, ip, vm)| {
            format!("iifname \"{uplink}\" tcp dport {host} dnat ip to {ip}:{vm}")
        });
        chain(
            "prerouting",
            "nat hook prerouting priority -100",
            "accept",
            ports.collect(),
        );
        let out = format!("oifname \"{uplink}\"");
        let masquerade = vec![
            format!("{out} meta l4proto {{ tcp, udp }} masquerade to :1024-65535"),
            format!("{out} masquerade"),
        ];
        chain(
            "postrouting",
            "nat hook postrouting priority 100",
            "accept",
            masquerade,
        );
    }
    text
}

/// The services that the namespace has for its VMs.
fn input(inside: &Inside<'_>) -> Vec<String> {
    let from = format!("iifname \"{}\"", inside.gateway);
    let mut rules = vec![
        "ct state established,related accept".to_owned(),
        format!("{from} udp dport {{ 53, 67 }} accept"),
        format!("{from} tcp dport 53 accept"),
        format!("{from} icmp type echo-request accept"),
    ];
    if inside.spec.ipv6_network.is_some() {
        rules.push(format!("{from} udp dport 547 accept"));
        rules.push(format!(
            "{from} icmpv6 type {{ echo-request, nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert }} accept"
        ));
    }
    rules
}

fn forward(inside: &Inside<'_>) -> Vec<String> {
    const REFUSE: &str = "reject with icmpx admin-prohibited";
    let mut rules = Vec::new();
    let from = format!("iifname \"{}\"", inside.gateway);
    if let Some(uplink) = inside.uplink {
        let out = format!("{from} oifname \"{uplink}\"");
        rules.push("ct state established,related accept".to_owned());
        rules.push(format!("iifname \"{uplink}\" ct status dnat accept"));
        if inside.spec.allow_outbound {
            rules.push(format!("{out} accept"));
        } else {
            if !inside.spec.reach.is_empty() {
                let networks = list(&inside.spec.reach);
                rules.push(format!("{out} ip daddr {{ {networks} }} accept"));
            }
            if let Some(server) = inside.spec.ntp_server {
                rules.push(format!("{out} ip daddr {server} udp dport 123 accept"));
            }
        }
    }
    rules.push(format!("{from} {REFUSE}"));
    rules
}
