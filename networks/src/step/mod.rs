//! Steps of a plan: each a value, printed as what an admin would type.
//!
//! A step that makes something of its own has an [`Undo`]; one that fills what another step made goes
//! with it ([`Step::within`]).

mod print;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use muster_types::ids::{JobKey, Rank};
use muster_types::mac::Mac;
use muster_types::network::Vlan;

use crate::cluster::BridgeKind;
use crate::firewall::host::Rules;
use crate::flow::{Flow, Port};

/// The namespace's end of its link to the node.
pub const INNER_UPLINK: &str = "uplink";

/// The MAC address that stands for all others in a forwarding table: broadcast, multicast.
pub const EVERYBODY: Mac = Mac([0; 6]);

/// One thing to do on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The node's table of nftables, made or made anew, with these ports closed to users.
    HostTable(BTreeSet<u16>),
    /// The node forwards packets.
    IpForward,
    /// The network's part of the node's table.
    HostRules(Rules),
    /// A network namespace.
    Netns(String),
    /// The table of a namespace.
    NetnsRules {
        /// The namespace.
        netns: String,
        /// The script.
        rules: String,
    },
    /// The end of the tunnels to other nodes.
    Vxlan(Vxlan),
    /// Which node has which MAC address.
    Fdb {
        /// The tunnels' end.
        device: String,
        /// An entry for each remote VM, and one for everybody for each remote node.
        entries: Vec<FdbEntry>,
    },
    /// The NIC of a VM.
    Tap(Tap),
    /// The bridge with its ports: one transaction of OVSDB.
    Bridge(Bridge),
    /// The bridge's flows: one bundle of OpenFlow.
    Flows {
        /// The bridge.
        bridge: String,
        /// The flows.
        flows: Vec<Flow>,
    },
    /// The port with the gateway's and the services' addresses, in its namespace.
    Gateway {
        /// The port.
        device: String,
        /// The namespace.
        netns: String,
        /// Addresses with the lengths of their prefixes.
        addresses: Vec<(IpAddr, u8)>,
        /// MTU in bytes.
        mtu: u16,
    },
    /// The link between a namespace and the node.
    Uplink {
        /// The node's end; the other is [`INNER_UPLINK`].
        device: String,
        /// The namespace.
        netns: String,
        /// The node's address on it, with a prefix of 31 bits.
        host: Ipv4Addr,
        /// The namespace's.
        inner: Ipv4Addr,
        /// MTU in bytes.
        mtu: u16,
    },
    /// The directory of the network's files.
    Directory(String),
    /// A file in it.
    File {
        /// The directory.
        directory: String,
        /// The file's name.
        name: &'static str,
        /// Its text.
        text: String,
    },
    /// The DHCP and DNS service.
    Dnsmasq {
        /// The namespace.
        netns: String,
        /// Its configuration file.
        config: String,
        /// The file that it writes its process id to.
        pid_file: String,
    },
    /// A tap becomes a port of a bridge that is not Muster's.
    Attach {
        /// The bridge.
        bridge: String,
        /// What it is.
        kind: BridgeKind,
        /// The tap.
        device: String,
        /// VLANs; none: as the bridge has it.
        vlans: Vec<Vlan>,
    },
}

/// A VXLAN link without learning (ip-link(8)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vxlan {
    /// The device.
    pub device: String,
    /// The network identifier.
    pub vni: u32,
    /// The node's own end.
    pub local: Ipv4Addr,
    /// The UDP port of all ends.
    pub port: u16,
    /// MTU in bytes.
    pub mtu: u16,
}

/// Where packets to a MAC address go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdbEntry {
    /// The address, or [`EVERYBODY`].
    pub mac: Mac,
    /// The other node's end of the tunnel.
    pub remote: Ipv4Addr,
}

/// A tap of a VM: opened by root with `TUNSETIFF` and `IFF_VNET_HDR`, used by the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tap {
    /// The device.
    pub device: String,
    /// Its owner.
    pub uid: u32,
    /// Number of queues, 1 to 256.
    pub queues: u32,
    /// MTU in bytes.
    pub mtu: u16,
    /// The VM.
    pub rank: Rank,
    /// Which of its NICs it is.
    pub nic: usize,
    /// The MAC address of the NIC in the guest.
    pub mac: Mac,
}

/// A bridge of Open vSwitch (ovs-vswitchd.conf.db(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// Whether the kernel's datapath is used.
    pub kernel_datapath: bool,
    /// The run of the job: `muster:job` and `muster:restart` in `external_ids` of each row.
    pub key: JobKey,
    /// Its ports.
    pub ports: Vec<BridgePort>,
}

/// A port of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgePort {
    /// The device.
    pub device: String,
    /// Its number in flows.
    pub number: Port,
    /// What it is.
    pub kind: PortKind,
}

/// What a port of a bridge is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortKind {
    /// A device that an earlier step made: the tunnels' end.
    Tunnel,
    /// The tap of a VM: `muster:rank`.
    Vm(Rank),
    /// A device that Open vSwitch makes, with this MAC address.
    Internal(Mac),
}

/// How to take away what a step made. It is no mistake if it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// The node's table.
    HostTable,
    /// The node no longer forwards packets, if it did not before.
    IpForward,
    /// The network's part of the node's table.
    HostRules(Rules),
    /// A namespace.
    Netns(String),
    /// A device.
    Device(String),
    /// A bridge of Open vSwitch with all its ports.
    Bridge(String),
    /// A port of a bridge that is not Muster's.
    Port {
        /// The bridge.
        bridge: String,
        /// The port.
        device: String,
    },
    /// A directory with all that is in it.
    Directory(String),
    /// The service with this process id file.
    Dnsmasq(String),
}

impl Step {
    /// How to undo it; `None`: it goes with what [`Step::within`] names.
    #[must_use]
    pub fn undo(&self) -> Option<Undo> {
        match self {
            Self::HostTable(_) => Some(Undo::HostTable),
            Self::IpForward => Some(Undo::IpForward),
            Self::HostRules(rules) => Some(Undo::HostRules(rules.clone())),
            Self::Netns(name) => Some(Undo::Netns(name.clone())),
            Self::Vxlan(Vxlan { device, .. })
            | Self::Tap(Tap { device, .. })
            | Self::Uplink { device, .. } => Some(Undo::Device(device.clone())),
            Self::Bridge(bridge) => Some(Undo::Bridge(bridge.name.clone())),
            Self::Directory(path) => Some(Undo::Directory(path.clone())),
            Self::Dnsmasq { pid_file, .. } => Some(Undo::Dnsmasq(pid_file.clone())),
            Self::Attach {
                bridge,
                kind: BridgeKind::OpenVswitch,
                device,
                ..
            } => Some(Undo::Port {
                bridge: bridge.clone(),
                device: device.clone(),
            }),
            Self::Attach { .. }
            | Self::NetnsRules { .. }
            | Self::Fdb { .. }
            | Self::Flows { .. }
            | Self::Gateway { .. }
            | Self::File { .. } => None,
        }
    }

    /// What the step fills or changes, made by an earlier step: taking that away undoes both. The
    /// name of a namespace, device, bridge or directory.
    #[must_use]
    pub fn within(&self) -> Option<&str> {
        match self {
            Self::NetnsRules { netns, .. }
            | Self::Gateway { netns, .. }
            | Self::Uplink { netns, .. }
            | Self::Dnsmasq { netns, .. } => Some(netns),
            Self::Fdb { device, .. } | Self::Attach { device, .. } => Some(device),
            Self::Flows { bridge, .. } => Some(bridge),
            Self::File { directory, .. } => Some(directory),
            Self::HostTable(_)
            | Self::IpForward
            | Self::HostRules(_)
            | Self::Netns(_)
            | Self::Vxlan(_)
            | Self::Tap(_)
            | Self::Bridge(_)
            | Self::Directory(_) => None,
        }
    }
}
