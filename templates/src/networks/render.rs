//! A network as `networks.yaml` says it, with all defaults.

use muster_types::network::{Layer, NetworkSpec};
use serde_json::Value;

use super::{Kind, Network, ethernet};
use crate::key::Key;

/// The definition of a network with all its defaults, as it may be written to `networks.yaml`. What
/// is not set and has no value of its own is there as a comment.
#[must_use]
pub fn to_yaml(network: &Network) -> String {
    let mut lines = vec![
        format!("{}:", network.name),
        format!("  type: {}", network.spec.type_word()),
        "  settings:".to_owned(),
    ];
    let settings = serde_json::to_value(&network.spec).unwrap_or_default();
    let l2 = matches!(&network.spec, NetworkSpec::Ethernet(net) if net.network_layer == Layer::L2);
    for Key { name, default, .. } in Kind::of(&network.spec).keys() {
        // pcocc's only gateway is no setting.
        if *name == "gateway" || (l2 && ethernet::L3_ONLY.contains(name)) {
            continue;
        }
        match settings.get(name) {
            None | Some(Value::Null) => lines.push(format!("    # {name}: {default}")),
            Some(Value::Array(items)) if items.is_empty() => {
                lines.push(format!("    # {name}: {default}"));
            }
            Some(Value::Array(items)) => {
                lines.push(format!("    {name}:"));
                items.iter().for_each(|item| entry(&mut lines, item));
            }
            Some(value) => lines.push(format!("    {name}: {}", setting(name, value))),
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// An entry of a list: a scalar, or a map of scalars.
fn entry(lines: &mut Vec<String>, item: &Value) {
    match item {
        Value::Object(map) => {
            for (i, (name, value)) in map.iter().enumerate() {
                let lead = if i == 0 { "- " } else { "  " };
                lines.push(format!("      {lead}{name}: {}", scalar(value)));
            }
        }
        item => lines.push(format!("      - {}", scalar(item))),
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
