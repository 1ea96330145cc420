//! `type: genericpci`: PCI devices of the nodes by their addresses.

use muster_types::ids::shown;
use muster_types::network::GenericPci;

use super::settings::{Settings, device};
use crate::key::{Key, Shape};
use crate::tree::{Node, Reader};

/// The keys of its settings.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "host-device-addrs",
        shape: Shape::List(&Shape::Text),
        default: "",
        about: "addresses of the devices, one for each VM of a node, such as [\"0000:81:00.1\"]",
    },
    Key {
        name: "host-driver",
        shape: Shape::Text,
        default: "",
        about: "the driver that has the devices while no VM does, such as nvme",
    },
];

/// The longest name of a driver; the kernel's modules have fewer (`MODULE_NAME_LEN`).
const MAX_DRIVER: usize = 55;

/// Reads the settings. What is wrong holds by default in what comes out.
pub(super) fn read(reader: &mut Reader<'_>, settings: &Settings<'_>) -> GenericPci {
    let mut net = GenericPci {
        host_device_addrs: Vec::new(),
        host_driver: String::new(),
    };
    settings.set(&mut net.host_device_addrs, "host-device-addrs", |n, k| {
        addresses(reader, n, k)
    });
    settings.set(&mut net.host_driver, "host-driver", |n, k| {
        device(reader, n, k, ("a driver", MAX_DRIVER))
    });
    net
}

fn addresses(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<Vec<String>> {
    let before = reader.errors.len();
    let items = reader.items(node, key, "PCI addresses such as [\"0000:81:00.1\"]");
    if items.is_empty() && reader.errors.len() == before {
        let message = "is empty: list at least one PCI address such as [\"0000:81:00.1\"]";
        reader.error(node.at, key, message.into());
    }
    let addresses = items
        .into_iter()
        .filter_map(|(key, item)| reader.parsed(item, &key, address))
        .collect();
    (reader.errors.len() == before).then_some(addresses)
}

/// `dddd:bb:dd.f`, as `lspci -D` shows it; `bb:dd.f` is in domain 0000.
fn address(text: &str) -> Result<String, String> {
    let hex = |digits: &str, most: u16| {
        let ok = digits.bytes().all(|b| b.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16)
            .ok()
            .filter(|n| ok && *n <= most)
    };
    let parsed = || {
        let (domain, rest) = match text.split(':').count() {
            2 => ("0000", text),
            _ => text.split_once(':')?,
        };
        let (bus, rest) = rest.split_once(':')?;
        let (slot, function) = rest.split_once('.')?;
        let lengths = [domain, bus, slot, function].map(str::len);
        let domain = hex(domain, u16::MAX)?;
        let (bus, slot, function) = (hex(bus, 0xff)?, hex(slot, 0x1f)?, hex(function, 7)?);
        (lengths == [4, 2, 2, 1]).then(|| format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}"))
    };
    parsed().ok_or_else(|| {
        format!(
            "'{}' is no PCI address such as 0000:81:00.1 (domain:bus:device.function, device up to 1f, function up to 7)",
            shown(text)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_have_one_form() {
        for (text, shown) in [
            ("0000:81:00.1", "0000:81:00.1"),
            ("81:00.1", "0000:81:00.1"),
            ("10000:81:00.1", ""),
            ("0001:AB:1f.7", "0001:ab:1f.7"),
            ("81:20.0", ""),
            ("81:00.8", ""),
            ("81:00", ""),
            ("+1:00.0", ""),
            ("0000:81:00:1", ""),
            ("0000:0000:81:00.1", ""),
            ("", ""),
        ] {
            assert_eq!(address(text).unwrap_or_default(), shown, "{text}");
        }
    }
}
