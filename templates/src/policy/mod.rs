//! `policy.yaml`: what users may do with virtual clusters. Read from the system tree only; judged on
//! the submit host for an early word, and by vmd on each node, where it counts.
//!
//! ```text
//!   Source -> Policy (rules with their places) -> judge(request, asker) -> refusals, one sentence each
//! ```
//!
//! [`rule`] says who: users, groups, accounts, partitions. [`judge`] holds a request against it all;
//! what in it is the user's own says [`own`].

mod judge;
mod own;
mod read;
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
                    let args = read::custom_args(&mut reader, node);
                    policy.custom_args = args.map(|args| (args, place));
                }
                "max-vms-per-job" => {
                    let most = reader.number(node, word, 1, u64::from(MAX_VMS));
                    let most = most.and_then(|most| u32::try_from(most).ok());
                    policy.max_vms = most.map(|most| (most, place));
                }
                "qemu-bins" => policy.qemu_bins = Some((read::qemu_bins(&mut reader, node), place)),
                "resource-sets" if matches!(node.value, Value::List(_)) => {
                    reader.wrong(
                        node,
                        word,
                        "a map from the names of resource sets to their rules",
                    );
                }
                "resource-sets" => {
                    for (set, key, node) in reader.map(node, word) {
                        let place = policy.place(key);
                        let rule =
                            rule::parse(&mut reader, key, node, &tree::join(word, set), place);
                        policy.resource_sets.insert(set.to_owned(), rule);
                    }
                }
                "templates" => {
                    policy.templates = read::own_templates(&mut reader, key, node, place)
                }
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

    /// Whether any rule speaks of templates and their values: only then the site's own are needed.
    #[must_use]
    pub fn judges_templates(&self) -> bool {
        self.templates.is_some() || self.qemu_bins.is_some() || self.custom_args.is_some()
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

#[cfg(test)]
mod tests;
