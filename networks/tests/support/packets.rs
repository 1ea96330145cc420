//! A bridge that carries packets by its flows, as Open vSwitch would.

use std::net::Ipv4Addr;

use muster_networks::blocks::MacBlock;
use muster_networks::flow::{Action, Field, Flow, Port};
use muster_types::mac::Mac;

/// To everybody.
pub(crate) const BROADCAST: Mac = Mac([0xff; 6]);

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// ARP: a request or not, sender's MAC and IP, target's IP.
    Arp(bool, Mac, Ipv4Addr, Ipv4Addr),
    /// UDP: source address, source and destination port.
    Udp(Ipv4Addr, u16, u16),
    /// Neither ARP nor IP.
    Other,
}

/// A packet that comes in by a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) port: Port,
    pub(crate) from: Mac,
    pub(crate) to: Mac,
    pub(crate) payload: Payload,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Outcome {
    /// The ports by which it goes out, sorted; one entry for each copy.
    pub(crate) ports: Vec<Port>,
    /// The MAC address that an ARP request was answered with.
    pub(crate) answer: Option<Mac>,
}

pub(crate) fn carry(flows: &[Flow], packet: &Packet) -> Outcome {
    let mut outcome = Outcome::default();
    let mut remembered = None;
    let mut table = 0;
    loop {
        let best = flows
            .iter()
            .filter(|flow| flow.table == table && flow.fields.iter().all(|f| has(packet, f)))
            .max_by_key(|flow| flow.priority);
        let Some(flow) = best else { break };
        let mut next = None;
        for action in &flow.actions {
            match action {
                Action::Output(port) if *port != packet.port => outcome.ports.push(*port),
                Action::Output(_) => {}
                Action::Table(to) => next = Some(*to),
                Action::Remember(mac) => remembered = Some(*mac),
                Action::AnswerArp => outcome.answer = remembered,
            }
        }
        let Some(to) = next else { break };
        assert!(to > table, "tables are left upwards only");
        table = to;
    }
    outcome.ports.sort_unstable();
    outcome
}

fn has(packet: &Packet, field: &Field) -> bool {
    let within = |block: &MacBlock, mac| block.contains(mac);
    match (field, packet.payload) {
        (Field::InPort(port), _) => *port == packet.port,
        (Field::Source(block), _) => within(block, packet.from),
        (Field::Destination(block), _) => within(block, packet.to),
        (Field::Group, _) => packet.to.0[0] & 1 == 1,
        (Field::Arp, payload) => matches!(payload, Payload::Arp(..)),
        (Field::ArpRequest, Payload::Arp(request, ..)) => request,
        (Field::ArpSender(mac), Payload::Arp(_, sender, ..)) => *mac == sender,
        (Field::ArpSenderIp(ip), Payload::Arp(_, _, sender, _)) => *ip == sender,
        (Field::ArpTarget(ip), Payload::Arp(_, _, _, target)) => *ip == target,
        (Field::Ip | Field::Udp, payload) => matches!(payload, Payload::Udp(..)),
        (Field::IpSource(ip), Payload::Udp(source, ..)) => *ip == source,
        (Field::From(port), Payload::Udp(_, from, _)) => *port == from,
        (Field::To(port), Payload::Udp(_, _, to)) => *port == to,
        _ => false,
    }
}
