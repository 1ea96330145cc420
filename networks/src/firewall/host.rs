//! The node's table: who may reach the node, and who its VMs.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use muster_types::subnet::Subnet;

use super::{TABLE, list};

/// What all networks share: made where it is missing, made again without harm.
///
/// `tunnel_ports` are closed to all but root and the nodes of running jobs: a forged VXLAN header
/// would get a user's packet into another job's network.
#[must_use]
pub fn base(tunnel_ports: &BTreeSet<u16>) -> String {
    let mut text = format!("add table {TABLE}\n");
    for (kind, name, of) in [
        ("set", "uplinks", "type ifname"),
        ("set", "links", "type ipv4_addr"),
        ("set", "tunnel-ports", "type inet_service"),
        // A tunnel's packet: from where, to which port, the VNI behind UDP's 8 bytes and VXLAN's 4.
        ("set", "tunnels", "typeof ip saddr . udp dport . @th,96,24"),
        ("map", "input-of", "type ifname : verdict"),
        ("map", "forward-of", "type ifname : verdict"),
        ("map", "reverse-nat", "type inet_service : ipv4_addr"),
    ] {
        text += &format!("add {kind} {TABLE} {name} {{ {of}; }}\n");
    }
    if !tunnel_ports.is_empty() {
        text += &format!(
            "add element {TABLE} tunnel-ports {{ {} }}\n",
            list(tunnel_ports)
        );
    }
    for (chain, hook, rules) in [
        (
            "input",
            "filter hook input priority -10",
            &[
                "ip saddr . udp dport . @th,96,24 @tunnels accept",
                "udp dport @tunnel-ports drop",
                "iifname vmap @input-of",
            ] as &[&str],
        ),
        (
            "output",
            "filter hook output priority -10",
            &["meta skuid != 0 udp dport @tunnel-ports drop"],
        ),
        (
            "forward",
            "filter hook forward priority -10",
            &[
                "iifname vmap @forward-of",
                "oifname @uplinks ct state established,related accept",
                "oifname @uplinks ct status dnat accept",
                "oifname @uplinks drop",
            ],
        ),
        (
            "prerouting",
            "nat hook prerouting priority -100",
            &["fib daddr type local dnat ip to tcp dport map @reverse-nat"],
        ),
        (
            "local",
            "nat hook output priority -100",
            &["fib daddr type local ip daddr != 127.0.0.0/8 dnat ip to tcp dport map @reverse-nat"],
        ),
        (
            "postrouting",
            "nat hook postrouting priority 100",
            &[
                "ip saddr @links meta l4proto { tcp, udp } masquerade to :1024-65535",
                "ip saddr @links masquerade",
            ],
        ),
    ] {
        text += &format!(
            "add chain {TABLE} {chain} {{ type {hook}; policy accept; }}\nflush chain {TABLE} {chain}\n"
        );
        for rule in rules {
            text += &format!("add rule {TABLE} {chain} {rule}\n");
        }
    }
    text
}

/// What one network has in the node's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Chain for packets from the network's namespace to the node itself.
    pub(crate) input: String,
    /// Chain for packets from it to elsewhere.
    pub(crate) forward: String,
    /// The link to the namespace; none on a network without addresses.
    pub(crate) link: Option<Link>,
    /// The other ends of its tunnels, their UDP port and the network's VNI.
    pub(crate) peers: Vec<(Ipv4Addr, u16, u32)>,
}

/// The node's side of a network with addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The device of the link on the node.
    pub(crate) device: String,
    /// The address at its other end.
    pub(crate) address: Ipv4Addr,
    /// What VMs may reach although it is the node's or another job's.
    pub(crate) reach: Vec<Subnet>,
    /// DNS servers that the network's service asks.
    pub(crate) dns: Vec<Ipv4Addr>,
    /// The NTP server told to VMs.
    pub(crate) ntp: Option<Ipv4Addr>,
    /// Ports of the node that lead to the network.
    pub(crate) ports: Vec<u16>,
}

impl Rules {
    /// Whether there is anything in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.link.is_none() && self.peers.is_empty()
    }

    /// The names in the node's table that are this network's alone: chains, and keys of elements.
    #[must_use]
    pub fn owned(&self) -> Vec<String> {
        let mut all: Vec<String> = self.chains().into_iter().map(String::from).collect();
        all.extend(self.elements().into_iter().flat_map(|(set, elements)| {
            let key = |e: String| e.split(" : ").next().unwrap_or_default().to_owned();
            elements
                .into_iter()
                .map(move |e| format!("{set} {}", key(e)))
        }));
        all
    }

    /// The script that adds the network.
    #[must_use]
    pub fn add(&self) -> String {
        let mut text = self.empty_chains();
        if let Some(link) = &self.link {
            for (chain, rule) in self.rules(link) {
                text += &format!("add rule {TABLE} {chain} {rule}\n");
            }
        }
        text + &self.each_set("add")
    }

    /// The script that takes it away, whether or not it is there: what is deleted is added first.
    #[must_use]
    pub fn remove(&self) -> String {
        let mut text = format!("add table {TABLE}\n{}", self.empty_chains());
        text += &self.each_set("add");
        text += &self.each_set("delete");
        for chain in self.chains() {
            text += &format!("delete chain {TABLE} {chain}\n");
        }
        text
    }

    fn chains(&self) -> Vec<&str> {
        match self.link {
            Some(_) => vec![&self.input, &self.forward],
            None => Vec::new(),
        }
    }

    fn empty_chains(&self) -> String {
        self.chains().iter().fold(String::new(), |text, chain| {
            text + &format!("add chain {TABLE} {chain}\nflush chain {TABLE} {chain}\n")
        })
    }

    /// The rules of the network's chains: what they refuse is told to the sender at once.
    fn rules(&self, link: &Link) -> Vec<(&str, String)> {
        const REFUSE: &str = "reject with icmpx admin-prohibited";
        let mut rules = Vec::new();
        for chain in [&self.input, &self.forward] {
            rules.push((
                chain.as_str(),
                "ct state established,related accept".to_owned(),
            ));
            if !link.reach.is_empty() {
                let networks = list(&link.reach);
                rules.push((
                    chain,
                    format!("ct original ip daddr {{ {networks} }} accept"),
                ));
            }
        }
        if !link.dns.is_empty() {
            let to = format!("ip daddr {{ {} }}", list(&link.dns));
            let rule = format!("{to} meta l4proto {{ tcp, udp }} th dport 53 accept");
            rules.push((&self.input, rule));
        }
        if let Some(server) = link.ntp {
            let rule = format!("ip daddr {server} udp dport 123 accept");
            rules.push((&self.input, rule));
        }
        rules.push((&self.input, REFUSE.to_owned()));
        rules.push((&self.forward, format!("oifname @uplinks {REFUSE}")));
        rules
    }

    /// The network's elements by set.
    fn elements(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut all = Vec::new();
        if let Some(link) = &self.link {
            let device = format!("\"{}\"", link.device);
            all.push(("uplinks", vec![device.clone()]));
            all.push(("links", vec![link.address.to_string()]));
            all.push(("input-of", vec![format!("{device} : jump {}", self.input)]));
            let forward = format!("{device} : jump {}", self.forward);
            all.push(("forward-of", vec![forward]));
            let port = |port: &u16| format!("{port} : {}", link.address);
            all.push(("reverse-nat", link.ports.iter().map(port).collect()));
        }
        let peer = |(from, port, vni): &(Ipv4Addr, u16, u32)| format!("{from} . {port} . {vni}");
        all.push(("tunnels", self.peers.iter().map(peer).collect()));
        all.retain(|(_, elements)| !elements.is_empty());
        all
    }

    fn each_set(&self, verb: &str) -> String {
        self.elements()
            .into_iter()
            .fold(String::new(), |text, (set, elements)| {
                text + &format!("{verb} element {TABLE} {set} {{ {} }}\n", list(elements))
            })
    }
}
