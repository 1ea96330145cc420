//! The keys of `type: ethernet`.

use super::rules;
use crate::key::{Key, Shape};

/// The keys of the settings.
pub(super) const ETHERNET: &[Key] = &[
    Key {
        name: "dev-prefix",
        shape: Shape::Text,
        default: "",
        about: "it begins the names of this network's devices on the nodes, 1 to 8 characters such as nat",
    },
    Key {
        name: "network-layer",
        shape: Shape::Words(&["L3", "L2"]),
        default: "L3",
        about: "`L3`: Muster gives addresses, names and a way out; `L2`: Ethernet between the VMs and nothing else",
    },
    Key {
        name: "mtu",
        shape: Shape::Number(576, 65_535),
        default: "1500",
        about: "MTU of the network that carries the tunnels, in bytes; guests get 50 less",
    },
    Key {
        name: "mac-prefix",
        shape: Shape::Text,
        default: "52:54:00",
        about: "the first one to four bytes of the VMs' MAC addresses",
    },
    Key {
        name: "mac-start-offset",
        shape: Shape::Number(0, 65_535),
        default: "0",
        about: "number in the MAC address of the first VM",
    },
    Key {
        name: "host-if-suffix",
        shape: Shape::Text,
        default: "none",
        about: "added to a node's name to get the name of its interface that carries the tunnels, such as -ib",
    },
    Key {
        name: "datapath",
        shape: Shape::Words(&["auto", "system", "netdev"]),
        default: "auto",
        about: "Open vSwitch's datapath: the kernel's (`system`), the one in user space (`netdev`), or the kernel's where its module loads (`auto`)",
    },
    Key {
        name: "port-security",
        shape: Shape::Bool,
        default: "true",
        about: "whether a VM may only send from its own addresses; `false` for VMs that switch or route",
    },
    Key {
        name: "tunnel-port",
        shape: Shape::Number(1, 65_535),
        default: "4789",
        about: "UDP port of the tunnels",
    },
    Key {
        name: "int-network",
        shape: Shape::Text,
        default: "10.200.0.0/16",
        about: "the VMs' addresses; each virtual cluster has them to itself",
    },
    Key {
        name: "ext-network",
        shape: Shape::Text,
        default: "10.201.0.0/16",
        about: "pcocc's addresses of VMs on the node; read and not used",
    },
    Key {
        name: "ipv6-network",
        shape: Shape::Text,
        default: "none",
        about: "the VMs' IPv6 addresses, such as fd00:1234::/64; none: no IPv6",
    },
    Key {
        name: "domain-name",
        shape: Shape::Text,
        default: "muster. and the node's domain",
        about: "domain of the VMs",
    },
    Key {
        name: "dns-search",
        shape: Shape::Either(&[Shape::Text, Shape::List(&Shape::Text)]),
        default: "none",
        about: "further domains that guests search, a list or a text with commas",
    },
    Key {
        name: "dns-server",
        shape: Shape::Text,
        default: "the node's own",
        about: "address of the server that answers for all other names",
    },
    Key {
        name: "ntp-server",
        shape: Shape::Text,
        default: "none",
        about: "address of the time server that DHCP tells",
    },
    Key {
        name: "allow-outbound",
        shape: Shape::Words(&["all", "none"]),
        default: "all",
        about: "whether VMs may open connections to the outside",
    },
    Key {
        name: "reach",
        shape: Shape::Either(&[Shape::Text, Shape::List(&Shape::Text)]),
        default: "none",
        about: "networks that VMs may open connections to although they are the node's own or another job's",
    },
    Key {
        name: "reverse-nat",
        shape: Shape::Either(&[
            Shape::Keys(rules::KEYS),
            Shape::List(&Shape::Keys(rules::KEYS)),
        ]),
        default: "none",
        about: "ports of the VMs that are reached through ports of their node, a rule or a list of up to 16",
    },
    Key {
        name: "manage-ip-forward",
        shape: Shape::Bool,
        default: "true",
        about: "whether Muster turns the node's `ip_forward` on while VMs need it",
    },
    Key {
        name: "gateway",
        shape: Shape::Words(&["local-nat"]),
        default: "local-nat",
        about: "pcocc's word for the only way out there is",
    },
];

/// The keys that mean nothing without addresses.
pub(super) const L3_ONLY: &[&str] = &[
    "int-network",
    "ext-network",
    "ipv6-network",
    "domain-name",
    "dns-search",
    "dns-server",
    "ntp-server",
    "allow-outbound",
    "reach",
    "reverse-nat",
    "manage-ip-forward",
    "gateway",
];
