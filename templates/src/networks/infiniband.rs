//! `type: infiniband`: a virtual function whose ports are members of the virtual cluster's partition.

use muster_types::ids::shown;
use muster_types::network::Infiniband;

use super::settings::{Findings, Settings, device};
use crate::key::{Key, Shape};
use crate::tree::{Node, Reader, Value};

/// The keys of its settings.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "host-device",
        shape: Shape::Text,
        default: "",
        about: "the device of the nodes whose virtual functions VMs get, such as mlx5_0",
    },
    Key {
        name: "min-pkey",
        shape: Shape::Text,
        default: "",
        about: "the first partition key for virtual clusters, such as 0x2000",
    },
    Key {
        name: "max-pkey",
        shape: Shape::Text,
        default: "",
        about: "the last partition key for virtual clusters, such as 0x3000",
    },
    Key {
        name: "opensm-daemon",
        shape: Shape::Text,
        default: "",
        about: "name of the OpenSM process that is told to read its partitions again, such as opensm",
    },
    Key {
        name: "opensm-partition-cfg",
        shape: Shape::Text,
        default: "",
        about: "OpenSM's partition file, which Muster writes, such as /etc/opensm/partitions.conf",
    },
    Key {
        name: "opensm-partition-tpl",
        shape: Shape::Text,
        default: "",
        about: "file with the partitions that are always there, such as /etc/opensm/partitions.conf.tpl",
    },
    Key {
        name: "license",
        shape: Shape::Text,
        default: "none",
        about: "Slurm licence that a job takes for the network",
    },
];

/// The longest name of a device in `/sys/class/infiniband` (`IB_DEVICE_NAME_MAX` of Linux, less the NUL).
pub(super) const MAX_DEVICE: usize = 63;

/// The partition that all ports are members of (InfiniBand specification, volume 1, 10.9.2).
const DEFAULT_PKEY: u16 = 0x7fff;

/// The bit of a partition key that makes a port a full member.
const MEMBERSHIP: u64 = 0x8000;

/// Reads the settings. What is wrong holds by default in what comes out.
pub(super) fn read(findings: &mut Findings<'_>, settings: &Settings<'_>) -> Infiniband {
    let mut net = Infiniband {
        host_device: String::new(),
        min_pkey: 1,
        max_pkey: DEFAULT_PKEY,
        opensm_daemon: String::new(),
        opensm_partition_cfg: String::new(),
        opensm_partition_tpl: String::new(),
        license: None,
    };
    let reader = &mut findings.errors;
    settings.set(&mut net.host_device, "host-device", |n, k| {
        device(reader, n, k, ("an InfiniBand device", MAX_DEVICE))
    });
    settings.set(&mut net.min_pkey, "min-pkey", |n, k| pkey(reader, n, k));
    settings.set(&mut net.max_pkey, "max-pkey", |n, k| pkey(reader, n, k));
    settings.set(&mut net.opensm_daemon, "opensm-daemon", |n, k| {
        device(reader, n, k, ("a process", MAX_DEVICE))
    });
    settings.set(
        &mut net.opensm_partition_cfg,
        "opensm-partition-cfg",
        |n, k| reader.absolute_path(n, k),
    );
    settings.set(
        &mut net.opensm_partition_tpl,
        "opensm-partition-tpl",
        |n, k| reader.absolute_path(n, k),
    );
    settings.set(&mut net.license, "license", |n, k| {
        reader.parsed(n, k, license).map(Some)
    });
    if net.min_pkey > net.max_pkey {
        let (at, key) = settings.place("min-pkey");
        let message = format!(
            "{:#06x} is above max-pkey {:#06x}: write the smaller one here",
            net.min_pkey, net.max_pkey
        );
        reader.error(at, &key, message);
    }
    if let Some((node, key)) = settings.get("opensm-partition-tpl")
        && net.opensm_partition_tpl == net.opensm_partition_cfg
        && !net.opensm_partition_tpl.is_empty()
    {
        let message = format!(
            "'{}' is 'opensm-partition-cfg' already, which Muster overwrites: copy the file and name the copy here, such as '{0}.tpl'",
            shown(&net.opensm_partition_tpl)
        );
        reader.error(node.at, &key, message);
    }
    if let Some((node, key)) = settings.get("max-pkey")
        && net.max_pkey == DEFAULT_PKEY
    {
        let message = "0x7fff is the default partition, which all ports are members of: the largest key of a virtual cluster's own is 0x7ffe";
        findings.warnings.error(node.at, &key, message.into());
    }
    net
}

/// A partition key: a number, or text such as `0x2000`.
fn pkey(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<u16> {
    let number = match &node.value {
        Value::Int(n) => u64::try_from(*n).ok(),
        Value::Text(text) => match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
            _ => text.parse().ok(),
        },
        _ => None,
    };
    match number {
        Some(n @ 1..=0x7fff) => return u16::try_from(n).ok(),
        Some(n @ 0x8001..=0xffff) => {
            let message = format!(
                "{n:#06x} has the bit of full members: write the key without it, {:#06x}",
                n & !MEMBERSHIP
            );
            reader.error(node.at, key, message);
        }
        _ => reader.wrong(node, key, "a partition key from 0x0001 to 0x7fff"),
    }
    None
}

/// A licence as Slurm's `-L` takes it.
fn license(text: &str) -> Result<String, String> {
    let ok = (1..=256).contains(&text.len())
        && text
            .chars()
            .all(|c| !c.is_whitespace() && !c.is_control() && c != ',' && c != '|');
    if ok {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{}' is no licence such as pkey: one name, without white space, comma and bar",
            shown(text)
        ))
    }
}
