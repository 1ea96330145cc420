//! `type: bridged`: a NIC in a bridge that the node has.

use muster_types::network::{Bridged, MTU, Vlan, VlanType};

use super::settings::{Settings, device, device_prefix, mtu, number16};
use crate::key::{Key, Shape};
use crate::tree::{Node, Reader};

/// The keys of its settings.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "host-bridge",
        shape: Shape::Text,
        default: "",
        about: "the bridge of Linux or Open vSwitch that each node has, such as br0",
    },
    Key {
        name: "tap-prefix",
        shape: Shape::Text,
        default: "",
        about: "it begins the names of the VMs' devices on the nodes, 1 to 8 characters such as brtap",
    },
    Key {
        name: "mtu",
        shape: Shape::Number(576, 65_535),
        default: "1500",
        about: "MTU of the VMs' interfaces, in bytes",
    },
    Key {
        name: "mac-prefix",
        shape: Shape::Text,
        default: "52:54:00",
        about: "the first one to four bytes of the VMs' MAC addresses",
    },
    Key {
        name: "vlans",
        shape: Shape::List(&Shape::Keys(VLAN)),
        default: "none",
        about: "the VLANs that a VM is on; none: what the bridge does with a port of its own accord",
    },
];

/// The keys of a VLAN.
const VLAN: &[Key] = &[
    Key {
        name: "vid",
        shape: Shape::Number(1, 4094),
        default: "",
        about: "number of the VLAN, 1 to 4094",
    },
    Key {
        name: "type",
        shape: Shape::Words(&["native", "tagged", "untagged"]),
        default: "",
        about: "how it reaches the VM; `native`: untagged in the guest, tagged in the bridge; `tagged`: tagged in both; `untagged`: untagged in both",
    },
];

/// The longest name of a network device (`IFNAMSIZ` of Linux, less the NUL).
const MAX_DEVICE: usize = 15;

/// Reads the settings. What is wrong holds by default in what comes out.
pub(super) fn read(reader: &mut Reader<'_>, settings: &Settings<'_>) -> Bridged {
    let mut net = Bridged {
        host_bridge: String::new(),
        tap_prefix: String::new(),
        mtu: MTU,
        mac_prefix: muster_types::mac::MacPrefix::default(),
        vlans: Vec::new(),
    };
    settings.set(&mut net.host_bridge, "host-bridge", |n, k| {
        device(reader, n, k, ("a bridge", MAX_DEVICE))
    });
    settings.set(&mut net.tap_prefix, "tap-prefix", |n, k| {
        device_prefix(reader, n, k)
    });
    settings.set(&mut net.mtu, "mtu", |n, k| mtu(reader, n, k));
    settings.set(&mut net.mac_prefix, "mac-prefix", |n, k| {
        reader.parsed(n, k, str::parse)
    });
    settings.set(&mut net.vlans, "vlans", |n, k| Some(vlans(reader, n, k)));
    net
}

fn vlans(reader: &mut Reader<'_>, node: &Node, key: &str) -> Vec<Vlan> {
    let mut vlans: Vec<Vlan> = Vec::new();
    for (key, item) in reader.items(node, key, "VLANs such as {vid: 12, type: tagged}") {
        let settings = Settings::read(reader, item, &key, VLAN);
        let (mut vid, mut kind) = (None, None);
        settings.set(&mut vid, "vid", |n, k| {
            number16(reader, n, k, (1, 4094)).map(Some)
        });
        settings.set(&mut kind, "type", |n, k| {
            reader.choice(n, k, VlanType::WORDS).map(Some)
        });
        let (Some(vid), Some(kind)) = (vid, kind) else {
            continue;
        };
        if vlans.iter().any(|v| v.vid == vid) {
            let message = format!("VLAN {vid} is in the list already");
            reader.error(item.at, &key, message);
        } else if kind == VlanType::Native
            && let Some(other) = vlans.iter().find(|v| v.kind == VlanType::Native)
        {
            let message = format!(
                "VLAN {} is 'native' already: untagged frames of a VM go to one VLAN",
                other.vid
            );
            reader.error(item.at, &key, message);
        } else {
            vlans.push(Vlan { vid, kind });
        }
    }
    vlans
}
