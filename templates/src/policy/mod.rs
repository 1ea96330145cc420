//! `policy.yaml`: what users may do with virtual clusters. Read from the system tree only; judged on
//! the submit host for an early word, and by vmd on each node, where it counts.
//!
//! ```text
//!   Source -> Policy (rules with their places) -> judge(request, asker) -> refusals, one sentence each
//! ```
//!
//! [`rule`] says who: users, groups, accounts, partitions. [`judge`] holds a request against it all.

mod judge;
mod own;
mod rule;

use std::collections::BTreeMap;
use std::fmt;

use muster_types::ids::{MAX_VMS, shown};

use crate::error::{ConfigError, ConfigErrors};
use crate::key::{self, File, Key, Shape};
use crate::nearest::hint;
use crate::source::Source;
use crate::tree::{self, Node, Reader, Value};

pub use judge::Refusal;
pub use own::Own;
pub use rule::{Asker, Rule};

/// The file's keys.
pub const KEYS: &[Key] = &[
    Key {
        name: "custom-args",
        shape: Shape::Either(&[Shape::Bool, Shape::List(&Shape::Text)]),
        default: "true",
        about: "whether templates of users may add arguments to QEMU's command line, or the options \
                that they may add",
    },
    Key {
        name: "max-vms-per-job",
        shape: Shape::Number(1, MAX_VMS as u64),
        default: "4096",
        about: "how many virtual machines a job may have",
    },
    Key {
        name: "qemu-bins",
        shape: Shape::List(&Shape::Text),
        default: "any",
        about: "the QEMU programs that templates of users may name: absolute paths, directories with \
                a / at the end, names that are looked for in PATH",
    },
    Key {
        name: "resource-sets",
        shape: Shape::Named(&Shape::Keys(rule::KEYS)),
        default: "every set is for everybody",
        about: "who may use a resource set; one that is not listed is for everybody",
    },
    Key {
        name: "templates",
        shape: Shape::Either(&[Shape::Bool, Shape::Keys(rule::KEYS)]),
        default: "true",
        about: "whether users may use templates of their own, or which of them may",
    },
];

/// `policy.yaml`.
pub const FILE: File = File {
    name: "policy",
    about: "What users may do; a file of the system tree only",
    shape: Shape::Keys(KEYS),
};

/// Where a rule stands, for who is refused by it: `policy.yaml:3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    file: String,
    line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Which arguments users may add to QEMU's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CustomArgs {
    None,
    /// Names of options without their dashes.
    Only(Vec<String>),
}

/// Who may use templates of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OwnTemplates {
    Nobody(Place),
    Some(Rule),
}

/// What users may do. The default allows everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The file as it is called in mistakes; empty without one.
    file: String,
    resource_sets: BTreeMap<String, Rule>,
    qemu_bins: Option<(Vec<String>, Place)>,
    custom_args: Option<(CustomArgs, Place)>,
    max_vms: Option<(u32, Place)>,
    templates: Option<OwnTemplates>,
}

impl Policy {
    /// Parses the file; without one, everything is allowed.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(source: Option<&Source>) -> Result<Self, ConfigErrors> {
        let mut policy = Self::default();
        let Some(source) = source else {
            return Ok(policy);
        };
        policy.file.clone_from(&source.path);
        let root = tree::parse(source).map_err(|e| ConfigErrors(vec![e]))?;
        let mut reader = Reader::new(&source.path);
        for (word, key, node) in reader.map(&root, "") {
            let place = policy.place(key);
            match word {
                "custom-args" => {
                    let args = custom_args(&mut reader, node);
                    policy.custom_args = args.map(|args| (args, place));
                }
                "max-vms-per-job" => {
                    let most = reader.number(node, word, 1, u64::from(MAX_VMS));
                    let most = most.and_then(|most| u32::try_from(most).ok());
                    policy.max_vms = most.map(|most| (most, place));
                }
                "qemu-bins" => policy.qemu_bins = Some((qemu_bins(&mut reader, node), place)),
                "resource-sets" => {
                    for (set, key, node) in reader.map(node, word) {
                        let place = policy.place(key);
                        let rule =
                            rule::parse(&mut reader, key, node, &tree::join(word, set), place);
                        policy.resource_sets.insert(set.to_owned(), rule);
                    }
                }
                "templates" => policy.templates = own_templates(&mut reader, key, node, place),
                _ => reader.unknown_key(key, &shown(word), word, &key::names(KEYS)),
            }
        }
        if reader.errors.is_empty() {
            Ok(policy)
        } else {
            Err(ConfigErrors(reader.into_errors()))
        }
    }

    /// Whether there is no rule at all.
    #[must_use]
    pub fn allows_everything(&self) -> bool {
        *self
            == Self {
                file: self.file.clone(),
                ..Self::default()
            }
    }

    /// The rules on resource sets that the site does not define.
    #[must_use]
    pub fn check_sets(&self, sets: &[&str]) -> Vec<ConfigError> {
        let lost = self
            .resource_sets
            .iter()
            .filter(|(name, _)| !sets.contains(&name.as_str()));
        let error = |(name, rule): (&String, &Rule)| ConfigError {
            file: self.file.clone(),
            at: Some(rule.at),
            key: tree::join("resource-sets", name),
            message: match sets {
                [] => "no such resource set: resources.yaml defines none".to_owned(),
                _ => format!(
                    "no such resource set{}; resources.yaml has {}",
                    hint(name, sets.iter().copied()),
                    sets.join(", ")
                ),
            },
        };
        let mut errors: Vec<ConfigError> = lost.map(error).collect();
        errors.sort_by_key(|e| e.at);
        errors
    }

    /// Whether any rule speaks of groups: only then the user database has to be asked for them.
    #[must_use]
    pub fn names_groups(&self) -> bool {
        let own = match &self.templates {
            Some(OwnTemplates::Some(rule)) => Some(rule),
            _ => None,
        };
        let mut rules = self.resource_sets.values().chain(own);
        rules.any(|rule| !rule.groups.is_empty())
    }

    fn place(&self, key: &Node) -> Place {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        Place {
            file: name.to_owned(),
            line: key.at.0,
        }
    }
}

/// None: all are allowed.
fn custom_args(reader: &mut Reader<'_>, node: &Node) -> Option<CustomArgs> {
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
        let name = judge::option_name(&text);
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

fn qemu_bins(reader: &mut Reader<'_>, node: &Node) -> Vec<String> {
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
fn own_templates(
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

#[cfg(test)]
mod tests;
