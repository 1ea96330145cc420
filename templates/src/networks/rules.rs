//! `reverse-nat`: ports of the VMs that are reached through ports of their node.

use muster_types::network::ReverseNat;

use super::settings::{Settings, number16};
use crate::key::{Key, Shape};
use crate::tree::{Node, Reader, Value};

/// The keys of a rule.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "vm-port",
        shape: Shape::Number(1, 65_535),
        default: "",
        about: "the VM's TCP port, such as 22",
    },
    Key {
        name: "min-host-port",
        shape: Shape::Number(1024, 65_535),
        default: "",
        about: "the first port of the node that may stand for a VM's, such as 60222",
    },
    Key {
        name: "max-host-port",
        shape: Shape::Number(1024, 65_535),
        default: "",
        about: "the last port of the node that may stand for a VM's, such as 60322",
    },
];

/// The most rules of a network.
const MAX_RULES: usize = 16;

/// A rule, or a list of them; a rule with a mistake is left out.
pub(super) fn reverse_nat(
    reader: &mut Reader<'_>,
    node: &Node,
    key: &str,
) -> Option<Vec<ReverseNat>> {
    let items = match node.value {
        Value::List(_) => reader.items(node, key, "rules"),
        _ => vec![(key.to_owned(), node)],
    };
    if items.len() > MAX_RULES {
        let message = format!(
            "has {} rules, at most {MAX_RULES} are possible",
            items.len()
        );
        reader.error(node.at, key, message);
        return None;
    }
    let mut rules: Vec<ReverseNat> = Vec::new();
    for (key, item) in items {
        let Some(rule) = rule(reader, item, &key) else {
            continue;
        };
        if let Some(other) = rules.iter().find(|other| overlap(other, &rule)) {
            let message = format!(
                "host ports {} to {} overlap {} to {} of the rule for port {}: each rule needs ports of its own",
                rule.min_host_port,
                rule.max_host_port,
                other.min_host_port,
                other.max_host_port,
                other.vm_port
            );
            reader.error(item.at, &key, message);
        }
        rules.push(rule);
    }
    Some(rules)
}

/// Whether two rules have a port of the node in common.
pub(super) fn overlap(a: &ReverseNat, b: &ReverseNat) -> bool {
    a.min_host_port <= b.max_host_port && b.min_host_port <= a.max_host_port
}

fn rule(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<ReverseNat> {
    let settings = Settings::read(reader, node, key, KEYS);
    let (mut vm, mut min, mut max) = (None, None, None);
    settings.set(&mut vm, "vm-port", |n, k| {
        number16(reader, n, k, (1, u16::MAX)).map(Some)
    });
    settings.set(&mut min, "min-host-port", |n, k| {
        host_port(reader, n, k).map(Some)
    });
    settings.set(&mut max, "max-host-port", |n, k| {
        host_port(reader, n, k).map(Some)
    });
    let rule = ReverseNat {
        vm_port: vm?,
        min_host_port: min?,
        max_host_port: max?,
    };
    if rule.min_host_port > rule.max_host_port {
        let (at, key) = settings.place("min-host-port");
        let message = format!(
            "{} is above max-host-port {}: write the smaller one here",
            rule.min_host_port, rule.max_host_port
        );
        reader.error(at, &key, message);
        return None;
    }
    Some(rule)
}

/// A port that no service of the node's system has.
fn host_port(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<u16> {
    let low = match &node.value {
        Value::Int(n) => (1..1024).contains(n),
        _ => false,
    };
    if low {
        let wanted = "a whole number from 1024 to 65535, since the ports below are for the node's own services";
        reader.wrong(node, key, wanted);
        return None;
    }
    number16(reader, node, key, (1024, u16::MAX))
}
