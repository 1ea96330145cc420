//! A network of `networks.yaml` with its defaults: what the submit host and the nodes must agree on.
//!
//! The names on the wire are the keys of the file.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::mac::MacPrefix;
use crate::subnet::{Subnet, Subnet6};
use crate::words::words;

/// A network by its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum NetworkSpec {
    /// A private Ethernet over tunnels.
    Ethernet(Box<Ethernet>),
    /// A NIC in a bridge of the node.
    Bridged(Bridged),
    /// A virtual function with a partition key.
    Infiniband(Infiniband),
    /// A virtual function as it is.
    Hostib(HostIb),
    /// PCI devices by address.
    Genericpci(GenericPci),
}

impl NetworkSpec {
    /// The word of its type in `networks.yaml`.
    #[must_use]
    pub fn type_word(&self) -> &'static str {
        match self {
            Self::Ethernet(_) => "ethernet",
            Self::Bridged(_) => "bridged",
            Self::Infiniband(_) => "infiniband",
            Self::Hostib(_) => "hostib",
            Self::Genericpci(_) => "genericpci",
        }
    }

    /// What two definitions differ in: each key with this one's value and the other's. Empty if
    /// they agree.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let keys = |spec: &Self| match serde_json::to_value(spec) {
            Ok(serde_json::Value::Object(map)) => map.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        let (own, theirs) = (keys(self), keys(other));
        let text = |value: Option<&serde_json::Value>| match value {
            None | Some(serde_json::Value::Null) => "none".to_owned(),
            Some(serde_json::Value::String(s)) => s.clone(),
            Some(other) => other.to_string(),
        };
        let all: std::collections::BTreeSet<_> = own.keys().chain(theirs.keys()).collect();
        all.into_iter()
            .filter(|key| own.get(*key) != theirs.get(*key))
            .map(|key| Difference {
                key: key.clone(),
                own: text(own.get(key)),
                other: text(theirs.get(key)),
            })
            .collect()
    }
}

/// A key in which two definitions of a network differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// This definition's value.
    pub own: String,
    /// The other's.
    pub other: String,
}

words! {
    /// What Muster provides on a private network.
    #[derive(Default)]
    Layer {
        /// Addresses, DHCP, DNS, a gateway.
        #[default]
        L3 = "L3",
        /// Frames between the VMs.
        L2 = "L2",
    }
}

words! {
    /// Open vSwitch's datapath.
    #[derive(Default)]
    Datapath {
        /// The kernel's where its module loads, else the one in user space.
        #[default]
        Auto = "auto",
        /// The kernel's.
        System = "system",
        /// The one in user space.
        Netdev = "netdev",
    }
}

words! {
    /// How a VLAN of a bridge reaches a VM.
    VlanType {
        /// Untagged in the guest, tagged in the bridge.
        Native = "native",
        /// Tagged in the guest.
        Tagged = "tagged",
        /// Untagged on both sides.
        Untagged = "untagged",
    }
}

/// The default `int-network`.
pub const INT_NETWORK: Subnet = Subnet::new(Ipv4Addr::new(10, 200, 0, 0), 16);

/// The default `ext-network`.
pub const EXT_NETWORK: Subnet = Subnet::new(Ipv4Addr::new(10, 201, 0, 0), 16);

/// The default `mtu`, of an Ethernet that nobody changed.
pub const MTU: u16 = 1500;

/// The UDP port of VXLAN (RFC 7348).
pub const VXLAN_PORT: u16 = 4789;

/// Settings of a private Ethernet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Ethernet {
    /// Begins the names of devices on the host, 1 to 8 characters.
    pub dev_prefix: String,
    /// Whether Muster provides addresses.
    pub network_layer: Layer,
    /// MTU of the underlay, in bytes; guests get 50 less.
    pub mtu: u16,
    /// First bytes of the VMs' MAC addresses.
    pub mac_prefix: MacPrefix,
    /// Added to the VM's number in its MAC address.
    pub mac_start_offset: u32,
    /// Added to a node's name to get the name of its tunnels' end.
    pub host_if_suffix: String,
    /// The VMs' addresses.
    pub int_network: Subnet,
    /// pcocc's addresses of VMs on the host; not used, kept for its files.
    pub ext_network: Subnet,
    /// Where DNS queries go; none: the node's own servers.
    pub dns_server: Option<IpAddr>,
    /// Domain of the VMs; none: `muster.` and the node's.
    pub domain_name: Option<String>,
    /// Further domains that guests search, in order.
    pub dns_search: Vec<String>,
    /// NTP server told by DHCP.
    pub ntp_server: Option<IpAddr>,
    /// Whether VMs may open connections to the outside.
    pub allow_outbound: bool,
    /// Ports of the VMs that are reached from the host.
    pub reverse_nat: Vec<ReverseNat>,
    /// Whether Muster turns `ip_forward` on.
    pub manage_ip_forward: bool,
    /// Open vSwitch's datapath.
    pub datapath: Datapath,
    /// Whether a VM may only use its own addresses.
    pub port_security: bool,
    /// UDP port of the tunnels.
    pub tunnel_port: u16,
    /// IPv6 addresses of the VMs; none: no IPv6.
    pub ipv6_network: Option<Subnet6>,
    /// Networks of the host's that VMs may open connections to although they are the node's own or
    /// another job's.
    pub reach: Vec<Subnet>,
}

impl Default for Ethernet {
    fn default() -> Self {
        Self {
            dev_prefix: String::new(),
            network_layer: Layer::L3,
            mtu: MTU,
            mac_prefix: MacPrefix::default(),
            mac_start_offset: 0,
            host_if_suffix: String::new(),
            int_network: INT_NETWORK,
            ext_network: EXT_NETWORK,
            dns_server: None,
            domain_name: None,
            dns_search: Vec::new(),
            ntp_server: None,
            allow_outbound: true,
            reverse_nat: Vec::new(),
            manage_ip_forward: true,
            datapath: Datapath::Auto,
            port_security: true,
            tunnel_port: VXLAN_PORT,
            ipv6_network: None,
            reach: Vec::new(),
        }
    }
}

/// A port of each VM, reached through a free port of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ReverseNat {
    /// The VM's TCP port.
    pub vm_port: u16,
    /// First port of the node.
    pub min_host_port: u16,
    /// Last port of the node.
    pub max_host_port: u16,
}

/// Settings of a NIC in a bridge of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Bridged {
    /// The bridge, of Linux or Open vSwitch.
    pub host_bridge: String,
    /// Begins the names of taps, 1 to 8 characters.
    pub tap_prefix: String,
    /// MTU of the guests, in bytes.
    pub mtu: u16,
    /// First bytes of the VMs' MAC addresses.
    pub mac_prefix: MacPrefix,
    /// VLANs; none: as the bridge has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<Vlan>,
}

/// A VLAN of a bridged network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Vlan {
    /// VLAN id, 1 to 4094 (IEEE 802.1Q).
    pub vid: u16,
    /// How it reaches the VM.
    #[serde(rename = "type")]
    pub kind: VlanType,
}

/// Settings of an InfiniBand network with partition keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Infiniband {
    /// The physical function, such as `mlx5_0`.
    pub host_device: String,
    /// First partition key, 0x0001 to 0x7fff.
    pub min_pkey: u16,
    /// Last partition key.
    pub max_pkey: u16,
    /// Name of the OpenSM process.
    pub opensm_daemon: String,
    /// OpenSM's partition file, written by `muster pkeyd`.
    pub opensm_partition_cfg: String,
    /// Its static part.
    pub opensm_partition_tpl: String,
    /// Slurm licence that a job takes per network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
}

/// Settings of an InfiniBand virtual function without a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostIb {
    /// The physical function.
    pub host_device: String,
}

/// Settings of PCI devices by address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GenericPci {
    /// Addresses, `0000:81:00.1`; one device per VM of a node.
    pub host_device_addrs: Vec<String>,
    /// The driver that has them while no VM does.
    pub host_driver: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_keys() {
        let base = Ethernet {
            dev_prefix: "nat".into(),
            ..Ethernet::default()
        };
        let changed = Ethernet {
            mtu: 9000,
            dns_server: Some(Ipv4Addr::LOCALHOST.into()),
            ..base.clone()
        };
        let a = NetworkSpec::Ethernet(Box::new(base.clone()));
        let b = NetworkSpec::Ethernet(Box::new(changed));
        assert_eq!(a.differences(&a), []);
        let told: Vec<_> = a
            .differences(&b)
            .into_iter()
            .map(|d| format!("{} {} {}", d.key, d.own, d.other))
            .collect();
        assert_eq!(told, ["dns-server none 127.0.0.1", "mtu 1500 9000"]);
        let json = serde_json::to_string(&a).unwrap();
        assert_eq!(serde_json::from_str::<NetworkSpec>(&json).unwrap(), a);
        let hostib = NetworkSpec::Hostib(HostIb {
            host_device: "mlx5_0".into(),
        });
        let told = hostib.differences(&a);
        assert!(
            told.iter()
                .any(|d| d.key == "type" && d.other == "ethernet")
        );
    }

    #[test]
    fn forged_specs_are_refused() {
        for forged in [
            "{\"type\":\"ethernet\",\"x\":1}",
            "{\"type\":\"ethernet\",\"int-network\":\"10.0.0.1/8\"}",
            "{\"type\":\"ethernet\",\"mac-prefix\":\"53:0:0\"}",
            "{\"type\":\"nat\"}",
        ] {
            assert!(
                serde_json::from_str::<NetworkSpec>(forged).is_err(),
                "{forged}"
            );
        }
    }
}
