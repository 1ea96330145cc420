//! The flows of a network's bridge: known addresses only, nothing learned.
//!
//! ```text
//! 0  who may send          local port: its own MAC and IP; tunnel: MACs of remote VMs
//!    |from a VM     |from the tunnel or the gateway
//! 1  from a VM      2  to local VMs
//!    |ARP request
//! 3  the answer
//! ```
//!
//! VMs are numbered in a row, so their MAC addresses are a few blocks: where a packet is to or from
//! *some* remote VM, the blocks of all VMs are matched below the addresses of the local ones. Only
//! ARP needs a flow for each VM of the job.

use std::net::{Ipv4Addr, Ipv6Addr};

use muster_types::mac::Mac;
use muster_types::network::{Ethernet, Layer};

use crate::addressing::{VmAddress, VmIp};
use crate::blocks::{MacBlock, blocks};
use crate::flow::{Action, Field, Flow, Port};

/// The port of the tunnels.
pub const TUNNEL: Port = 1;

/// The port of the gateway and the services.
pub const GATEWAY: Port = 2;

/// The port of the node's first VM; the others follow.
pub const FIRST_VM: Port = 16;

const ADMIT: u8 = 0;
const FROM_VM: u8 = 1;
const TO_LOCAL: u8 = 2;
const ARP_ANSWER: u8 = 3;

const DHCP_SERVER: u16 = 67;
const DHCP_CLIENT: u16 = 68;
const DHCP6_CLIENT: u16 = 546;
const DHCP6_SERVER: u16 = 547;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

/// What the flows of one node's bridge are made from.
#[derive(Debug)]
pub(crate) struct Switch<'a> {
    pub(crate) spec: &'a Ethernet,
    /// All VMs on the network.
    pub(crate) vms: &'a [VmAddress],
    /// Those of this node with their ports.
    pub(crate) local: Vec<(Port, &'a VmAddress)>,
    /// Whether other nodes have VMs on it.
    pub(crate) tunnel: bool,
    pub(crate) gateway: Mac,
}

impl Switch<'_> {
    /// All flows, by table and falling priority.
    pub(crate) fn flows(&self) -> Vec<Flow> {
        let macs: Vec<Mac> = self.vms.iter().map(|vm| vm.mac).collect();
        let blocks = blocks(&macs);
        let mut flows = self.admit(&blocks);
        flows.extend(self.vms_packets(&blocks));
        flows.extend(self.to_local());
        if self.l3() {
            flows.push(
                Flow::new(ARP_ANSWER, 100)
                    .on([Field::Arp])
                    .then([Action::AnswerArp]),
            );
        }
        flows.sort_by_key(|flow| (flow.table, std::cmp::Reverse(flow.priority)));
        flows
    }

    fn l3(&self) -> bool {
        self.spec.network_layer == Layer::L3
    }

    fn ipv6(&self) -> bool {
        self.l3() && self.spec.ipv6_network.is_some()
    }

    /// Who may send what.
    fn admit(&self, blocks: &[MacBlock]) -> Vec<Flow> {
        let mut flows = Vec::new();
        if self.l3() {
            let gateway = [
                Field::InPort(GATEWAY),
                Field::Source(MacBlock::one(self.gateway)),
            ];
            flows.push(
                Flow::new(ADMIT, 100)
                    .on(gateway)
                    .then([Action::Table(TO_LOCAL)]),
            );
        }
        for (port, vm) in &self.local {
            if self.spec.port_security {
                flows.extend(self.anti_spoof(*port, vm));
            } else {
                let any = [Field::InPort(*port)];
                flows.push(Flow::new(ADMIT, 100).on(any).then([Action::Table(FROM_VM)]));
            }
        }
        if self.tunnel {
            flows.extend(self.admit_tunnel(blocks));
        }
        flows
    }

    fn admit_tunnel(&self, blocks: &[MacBlock]) -> Vec<Flow> {
        let from = Field::InPort(TUNNEL);
        let mut flows = Vec::new();
        if self.l3() {
            for port in [DHCP_SERVER, DHCP_CLIENT] {
                flows.push(Flow::new(ADMIT, 300).on([from, Field::Udp, Field::To(port)]));
            }
        }
        if self.ipv6() {
            for port in [DHCP6_SERVER, DHCP6_CLIENT] {
                flows.push(Flow::new(ADMIT, 300).on([from, Field::Udp6, Field::To(port)]));
            }
            for kind in [ROUTER_ADVERTISEMENT, REDIRECT] {
                let fields = [from, Field::Icmp6, Field::Icmp6Type(kind)];
                flows.push(Flow::new(ADMIT, 300).on(fields));
            }
        }
        if !self.spec.port_security {
            flows.push(
                Flow::new(ADMIT, 100)
                    .on([from])
                    .then([Action::Table(TO_LOCAL)]),
            );
            return flows;
        }
        for (_, vm) in &self.local {
            let own = Field::Source(MacBlock::one(vm.mac));
            flows.push(Flow::new(ADMIT, 200).on([from, own]));
        }
        for block in blocks {
            let remote = [from, Field::Source(*block)];
            flows.push(
                Flow::new(ADMIT, 100)
                    .on(remote)
                    .then([Action::Table(TO_LOCAL)]),
            );
        }
        flows
    }

    /// What the VM behind a port may send: all that is its own.
    fn anti_spoof(&self, port: Port, vm: &VmAddress) -> Vec<Flow> {
        let own = [Field::InPort(port), Field::Source(MacBlock::one(vm.mac))];
        let admit = |fields: &[Field]| {
            Flow::new(ADMIT, 100)
                .on(own)
                .on(fields.iter().copied())
                .then([Action::Table(FROM_VM)])
        };
        let Some(ip) = &vm.ip else {
            return vec![admit(&[])];
        };
        let arp = |sender| {
            [
                Field::Arp,
                Field::ArpSenderIp(sender),
                Field::ArpSender(vm.mac),
            ]
        };
        let dhcp = [
            Field::Udp,
            Field::IpSource(Ipv4Addr::UNSPECIFIED),
            Field::From(DHCP_CLIENT),
            Field::To(DHCP_SERVER),
        ];
        let mut flows = vec![
            admit(&arp(ip.v4)),
            // A probe for an address conflict has no sender (RFC 5227, 2.1.1).
            admit(&arp(Ipv4Addr::UNSPECIFIED)),
            admit(&[Field::Ip, Field::IpSource(ip.v4)]),
            admit(&dhcp),
        ];
        let Some((v6, _)) = ip.v6 else {
            return flows;
        };
        for (address, length) in [(v6, 128), (LINK_LOCAL, 10)] {
            flows.push(admit(&[Field::Ip6, Field::Ip6Source(address, length)]));
        }
        // Duplicate address detection and multicast reports (RFC 4862, 5.4.2; RFC 3810, 5.2.13).
        for kind in [NEIGHBOUR_SOLICITATION, 143] {
            let unspecified = Field::Ip6Source(Ipv6Addr::UNSPECIFIED, 128);
            flows.push(admit(&[Field::Icmp6, unspecified, Field::Icmp6Type(kind)]));
        }
        let claims = [Field::Icmp6, Field::Icmp6Type(NEIGHBOUR_ADVERTISEMENT)];
        for (address, length) in [(v6, 128), (LINK_LOCAL, 10)] {
            let mut flow = admit(&claims).on([Field::NeighbourTarget(address, length)]);
            flow.priority = 130;
            flows.push(flow);
        }
        flows.push(Flow::new(ADMIT, 120).on(own).on(claims));
        flows
    }

    /// Where a VM's packets go.
    fn vms_packets(&self, blocks: &[MacBlock]) -> Vec<Flow> {
        let mut flows = Vec::new();
        for (port, vm) in &self.local {
            let to = Field::Destination(MacBlock::one(vm.mac));
            flows.push(
                Flow::new(FROM_VM, 100)
                    .on([to])
                    .then([Action::Output(*port)]),
            );
        }
        if self.l3() {
            let to = Field::Destination(MacBlock::one(self.gateway));
            flows.push(
                Flow::new(FROM_VM, 100)
                    .on([to])
                    .then([Action::Output(GATEWAY)]),
            );
            flows.extend(self.answers());
            flows.extend(self.services());
        }
        if self.tunnel {
            for block in blocks {
                let remote = [Field::Destination(*block)];
                flows.push(
                    Flow::new(FROM_VM, 50)
                        .on(remote)
                        .then([Action::Output(TUNNEL)]),
                );
            }
        }
        let mut everybody = self.to_everybody();
        // Neighbours look for the gateway by multicast.
        everybody.extend(self.ipv6().then_some(Action::Output(GATEWAY)));
        everybody.extend(self.tunnel.then_some(Action::Output(TUNNEL)));
        flows.push(
            Flow::new(FROM_VM, 40)
                .on([Field::Group])
                .then(everybody.iter().copied()),
        );
        if !self.spec.port_security {
            flows.push(Flow::new(FROM_VM, 10).then(everybody));
        }
        flows
    }

    /// ARP: every address is known here, so that no request leaves the node.
    fn answers(&self) -> Vec<Flow> {
        let request = |ip| [Field::Arp, Field::ArpRequest, Field::ArpTarget(ip)];
        let answer = |ip, mac| {
            Flow::new(FROM_VM, 200)
                .on(request(ip))
                .then([Action::Remember(mac), Action::Table(ARP_ANSWER)])
        };
        let mut flows = Vec::with_capacity(self.vms.len() + 2);
        let with_ip = |vm: &VmAddress| vm.ip.as_ref().map(|ip| ip.v4);
        for (port, vm) in &self.local {
            // Who asks for its own address looks for a second holder.
            let own = with_ip(vm).map(request).into_iter().flatten();
            flows.push(Flow::new(FROM_VM, 210).on([Field::InPort(*port)]).on(own));
        }
        for vm in self.vms {
            flows.extend(with_ip(vm).map(|ip| answer(ip, vm.mac)));
        }
        let shared = self.vms.iter().find_map(|vm| vm.ip.as_ref());
        for ip in shared
            .into_iter()
            .flat_map(|ip: &VmIp| [ip.gateway, ip.service])
        {
            flows.push(answer(ip, self.gateway));
        }
        if self.spec.port_security {
            flows.push(Flow::new(FROM_VM, 190).on([Field::Arp, Field::Group]));
        }
        flows
    }

    /// DHCP and router discovery are between a VM and its own node.
    fn services(&self) -> Vec<Flow> {
        let to_gateway = |fields: [Field; 2]| {
            Flow::new(FROM_VM, 180)
                .on(fields)
                .then([Action::Output(GATEWAY)])
        };
        let nowhere = |fields: [Field; 2]| Flow::new(FROM_VM, 180).on(fields);
        let mut flows = vec![
            to_gateway([Field::Udp, Field::To(DHCP_SERVER)]),
            nowhere([Field::Udp, Field::To(DHCP_CLIENT)]),
        ];
        if self.ipv6() {
            flows.extend([
                to_gateway([Field::Udp6, Field::To(DHCP6_SERVER)]),
                nowhere([Field::Udp6, Field::To(DHCP6_CLIENT)]),
                to_gateway([Field::Icmp6, Field::Icmp6Type(ROUTER_SOLICITATION)]),
                nowhere([Field::Icmp6, Field::Icmp6Type(ROUTER_ADVERTISEMENT)]),
                nowhere([Field::Icmp6, Field::Icmp6Type(REDIRECT)]),
            ]);
        }
        flows
    }

    /// Where packets from the tunnel and the gateway go: to VMs of this node, and nowhere else.
    fn to_local(&self) -> Vec<Flow> {
        let mut flows = Vec::new();
        for (port, vm) in &self.local {
            let to = Field::Destination(MacBlock::one(vm.mac));
            flows.push(
                Flow::new(TO_LOCAL, 100)
                    .on([to])
                    .then([Action::Output(*port)]),
            );
        }
        let everybody = self.to_everybody();
        flows.push(
            Flow::new(TO_LOCAL, 40)
                .on([Field::Group])
                .then(everybody.iter().copied()),
        );
        if !self.spec.port_security {
            flows.push(Flow::new(TO_LOCAL, 10).then(everybody));
        }
        flows
    }

    fn to_everybody(&self) -> Vec<Action> {
        let ports = self.local.iter().map(|(port, _)| *port);
        ports.map(Action::Output).collect()
    }
}
