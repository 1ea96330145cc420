//! Reads the keys that hold lists of what is allowed.

use super::judge::option_name;
use super::{CustomArgs, OwnTemplates, Place, rule};
use crate::tree::{Node, Reader, Value};

/// None: all are allowed.
pub(super) fn custom_args(reader: &mut Reader<'_>, node: &Node) -> Option<CustomArgs> {
    const KEY: &str = "custom-args";
    const WANTED: &str = "true, false or a list of QEMU's options such as [-cdrom, -smbios]";
    let items = match &node.value {
        Value::List(items) => items,
        Value::Bool(true) => return None,
        Value::Bool(false) => return Some(CustomArgs::None),
        _ => {
            reader.wrong(node, KEY, WANTED);
            return None;
        }
    };
    if items.is_empty() {
        let message = "an empty list allows no option: say 'custom-args: false'";
        reader.error(node.at, KEY, message.into());
    }
    let mut names = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let path = format!("{KEY}[{i}]");
        let Some(text) = reader.text(item, &path) else {
            continue;
        };
        let name = option_name(&text);
        let is_name = |name: &&str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        match name.filter(is_name) {
            Some(name) => names.push(name.to_owned()),
            None => {
                let is_bare = |text: &str| {
                    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                };
                let near = match &item.value {
                    Value::Text(text) if name.is_none() && is_bare(text) => {
                        format!(" (did you mean '-{text}'?)")
                    }
                    _ => String::new(),
                };
                let found = item.value.describe();
                let message = format!(
                    "must be the name of an option with its dash and without a value, such as -cdrom, found {found}{near}"
                );
                reader.error(item.at, &path, message);
            }
        }
    }
    Some(CustomArgs::Only(names))
}

pub(super) fn qemu_bins(reader: &mut Reader<'_>, node: &Node) -> Vec<String> {
    const KEY: &str = "qemu-bins";
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        Value::Text(_) => std::slice::from_ref(node),
        _ => {
            reader.wrong(node, KEY, "a list of QEMU programs");
            return Vec::new();
        }
    };
    if items.is_empty() {
        let message = "an empty list allows no program: for the nodes' own QEMU alone say \
                       'qemu-bins: [qemu-system-x86_64]', for any leave the key out";
        reader.error(node.at, KEY, message.into());
    }
    let mut programs = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let path = format!("{KEY}[{i}]");
        let Some(text) = reader.text(item, &path) else {
            continue;
        };
        let wrong = if text.contains(['*', '?', '[']) {
            "patterns are not read: name the program, or all of a directory by its path with a / at the end"
        } else if text.is_empty() || text.contains(['\0', '\n']) || text.starts_with('-') {
            "must be the path of a program, or its name"
        } else if text.contains('/') && !text.starts_with('/') {
            "must be an absolute path, or a name without a /"
        } else if text == "/"
            || text.contains("//")
            || text.split('/').any(|p| p == "." || p == "..")
        {
            "must be a path without . and .. and double slashes"
        } else {
            programs.push(text);
            continue;
        };
        let message = format!("{wrong}, found {}", item.value.describe());
        reader.error(item.at, &path, message);
    }
    programs
}

/// None: everybody may.
pub(super) fn own_templates(
    reader: &mut Reader<'_>,
    key: &Node,
    node: &Node,
    place: Place,
) -> Option<OwnTemplates> {
    const KEY: &str = "templates";
    match &node.value {
        Value::Bool(true) => None,
        Value::Bool(false) => Some(OwnTemplates::Nobody(place)),
        Value::Map(_) => Some(OwnTemplates::Some(rule::parse(
            reader, key, node, KEY, place,
        ))),
        _ => {
            let wanted = "true, false or a map with users, groups, accounts or partitions";
            reader.wrong(node, KEY, wanted);
            None
        }
    }
}
