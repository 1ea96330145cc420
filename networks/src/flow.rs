//! OpenFlow flows as values, printed as `ovs-ofctl add-flows` reads them (ovs-fields(7), ovs-actions(7)).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use muster_types::mac::Mac;

use crate::blocks::MacBlock;

/// Number of a port in its bridge (`ofport`).
pub type Port = u16;

/// One flow. Of several that match a packet in a table, the one with the highest priority counts; a
/// packet that none matches is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The table it is in.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// What a packet must have; protocols come before their fields.
    pub fields: Vec<Field>,
    /// What becomes of it; nothing: dropped.
    pub actions: Vec<Action>,
}

/// A field that a packet must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// It came in by this port.
    InPort(Port),
    /// It is from one of these addresses.
    Source(MacBlock),
    /// It is to one of these addresses.
    Destination(MacBlock),
    /// It is to more than one station (the lowest bit of the first byte).
    Group,
    /// It is ARP.
    Arp,
    /// It is an ARP request.
    ArpRequest,
    /// The sender's MAC address in ARP.
    ArpSender(Mac),
    /// The sender's IP address in ARP.
    ArpSenderIp(Ipv4Addr),
    /// The address that ARP asks for.
    ArpTarget(Ipv4Addr),
    /// It is IPv4.
    Ip,
    /// It is UDP over IPv4.
    Udp,
    /// Its IPv4 source.
    IpSource(Ipv4Addr),
    /// It is IPv6.
    Ip6,
    /// It is UDP over IPv6.
    Udp6,
    /// It is ICMPv6.
    Icmp6,
    /// Its IPv6 source, in a range of this length.
    Ip6Source(Ipv6Addr, u8),
    /// Its ICMPv6 type (RFC 4861, 4).
    Icmp6Type(u8),
    /// The target of a neighbour message, in a range of this length.
    NeighbourTarget(Ipv6Addr, u8),
    /// Its UDP source port.
    From(u16),
    /// Its UDP destination port.
    To(u16),
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Out by a port, unless it came in by it.
    Output(Port),
    /// On to another table.
    Table(u8),
    /// This MAC address goes into a register, for [`Action::AnswerArp`].
    Remember(Mac),
    /// An ARP request becomes the answer with the remembered MAC address, and goes back.
    AnswerArp,
}

impl Flow {
    /// A flow of a table and priority, without fields or actions.
    #[must_use]
    pub fn new(table: u8, priority: u16) -> Self {
        Self {
            table,
            priority,
            fields: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// The flow for packets with these fields.
    #[must_use]
    pub fn on(mut self, fields: impl IntoIterator<Item = Field>) -> Self {
        self.fields.extend(fields);
        self
    }

    /// The flow with these actions.
    #[must_use]
    pub fn then(mut self, actions: impl IntoIterator<Item = Action>) -> Self {
        self.actions.extend(actions);
        self
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table={},priority={}", self.table, self.priority)?;
        for field in &self.fields {
            write!(f, ",{field}")?;
        }
        f.write_str(",actions=")?;
        if self.actions.is_empty() {
            return f.write_str("drop");
        }
        for (i, action) in self.actions.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{action}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range6 = |f: &mut fmt::Formatter<'_>, key: &str, address: Ipv6Addr, length: u8| {
            write!(f, "{key}={address}")?;
            if length < 128 {
                write!(f, "/{length}")?;
            }
            Ok(())
        };
        match *self {
            Self::InPort(port) => write!(f, "in_port={port}"),
            Self::Source(block) => write!(f, "dl_src={block}"),
            Self::Destination(block) => write!(f, "dl_dst={block}"),
            Self::Group => f.write_str("dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"),
            Self::Arp => f.write_str("arp"),
            Self::ArpRequest => f.write_str("arp_op=1"),
            Self::ArpSender(mac) => write!(f, "arp_sha={mac}"),
            Self::ArpSenderIp(ip) => write!(f, "arp_spa={ip}"),
            Self::ArpTarget(ip) => write!(f, "arp_tpa={ip}"),
            Self::Ip => f.write_str("ip"),
            Self::Udp => f.write_str("udp"),
            Self::IpSource(ip) => write!(f, "nw_src={ip}"),
            Self::Ip6 => f.write_str("ipv6"),
            Self::Udp6 => f.write_str("udp6"),
            Self::Icmp6 => f.write_str("icmp6"),
            Self::Ip6Source(ip, length) => range6(f, "ipv6_src", ip, length),
            Self::Icmp6Type(kind) => write!(f, "icmp_type={kind}"),
            Self::NeighbourTarget(ip, length) => range6(f, "nd_target", ip, length),
            Self::From(port) => write!(f, "tp_src={port}"),
            Self::To(port) => write!(f, "tp_dst={port}"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(port) => write!(f, "output:{port}"),
            Self::Table(table) => write!(f, "resubmit(,{table})"),
            Self::Remember(mac) => {
                f.write_str("set_field:0x")?;
                mac.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("->xreg0")
            }
            Self::AnswerArp => f.write_str(
                "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],move:OXM_OF_PKT_REG0[0..47]->NXM_OF_ETH_SRC[],\
                 set_field:2->arp_op,move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],\
                 move:OXM_OF_PKT_REG0[0..47]->NXM_NX_ARP_SHA[],move:NXM_OF_ARP_TPA[]->NXM_NX_REG2[],\
                 move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],move:NXM_NX_REG2[]->NXM_OF_ARP_SPA[],IN_PORT",
            ),
        }
    }
}
