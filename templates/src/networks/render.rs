//! A network as `networks.yaml` says it, with all defaults.

use muster_types::network::{Layer, NetworkSpec};
use serde_json::Value;

use super::{Kind, Network, keys};
use crate::key::{Key, Shape};

/// The definition of a network with all its defaults, as it may be written to `networks.yaml`. What
/// is not set and has no value of its own is there as a comment.
#[must_use]
pub fn to_yaml(network: &Network) -> String {
    let mut lines = vec![
        format!("{}:", scalar(&Value::String(network.name.clone()))),
        format!("  type: {}", network.spec.type_word()),
        "  settings:".to_owned(),
    ];
    let settings = serde_json::to_value(&network.spec).unwrap_or_default();
    let l2 = matches!(&network.spec, NetworkSpec::Ethernet(net) if net.network_layer == Layer::L2);
    for Key {
        name,
        default,
        shape,
        ..
    } in Kind::of(&network.spec).keys()
    {
        // pcocc's only gateway is no setting.
        if *name == "gateway" || (l2 && keys::L3_ONLY.contains(name)) {
            continue;
        }
        match settings.get(name) {
            None | Some(Value::Null) => lines.push(format!("    # {name}: {default}")),
            Some(Value::Array(items)) if items.is_empty() => {
                lines.push(format!("    # {name}: {default}"));
            }
            Some(Value::Array(items)) => {
                lines.push(format!("    {name}:"));
                items
                    .iter()
                    .for_each(|item| entry(&mut lines, item, *shape));
            }
            Some(value) => lines.push(format!("    {name}: {}", setting(name, value))),
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// An entry of a list: a scalar, or a map of scalars in the order of its table.
fn entry(lines: &mut Vec<String>, item: &Value, shape: Shape) {
    match item {
        Value::Object(map) => {
            let mut lead = "- ";
            for Key { name, .. } in inner(shape) {
                if let Some(value) = map.get(*name) {
                    lines.push(format!("      {lead}{name}: {}", scalar(value)));
                    lead = "  ";
                }
            }
        }
        item => lines.push(format!("      - {}", scalar(item))),
    }
}

/// The keys of the maps of a list.
fn inner(shape: Shape) -> &'static [Key] {
    match shape {
        Shape::Keys(keys) => keys,
        Shape::List(item) => inner(*item),
        Shape::Either(shapes) => shapes.last().map_or(&[], |last| inner(*last)),
        _ => &[],
    }
}

/// A value in the words of the file.
fn setting(name: &str, value: &Value) -> String {
    match (name, value) {
        ("allow-outbound", Value::Bool(true)) => "all".into(),
        ("allow-outbound", Value::Bool(false)) => "none".into(),
        ("min-pkey" | "max-pkey", Value::Number(n)) => {
            format!("\"{:#06x}\"", n.as_u64().unwrap_or_default())
        }
        (_, value) => scalar(value),
    }
}

/// A scalar; text is quoted where a reader of YAML could take it for something else.
fn scalar(value: &Value) -> String {
    let plain = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b))
            && !RESERVED.contains(&text.to_ascii_lowercase().as_str())
    };
    match value {
        Value::String(text) if plain(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Words that YAML 1.1 or 1.2 reads as something else than text.
const RESERVED: &[&str] = &[
    "true", "false", "yes", "no", "on", "off", "y", "n", "null", "none", "inf", "nan",
];
