//! Who may: a rule of users, groups, accounts and partitions, and the one who asks.

use std::collections::HashSet;

use muster_types::ids::shown;

use super::Place;
use crate::key::{self, Key, Shape};
use crate::tree::{self, Node, Reader, Value};

/// The keys of a rule.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "accounts",
        shape: Shape::List(&Shape::Text),
        default: "none",
        about: "Slurm accounts whose jobs may",
    },
    Key {
        name: "groups",
        shape: Shape::List(&Shape::Text),
        default: "none",
        about: "groups whose members may",
    },
    Key {
        name: "partitions",
        shape: Shape::List(&Shape::Text),
        default: "all",
        about: "Slurm partitions in one of which the job must be as well",
    },
    Key {
        name: "users",
        shape: Shape::List(&Shape::Text),
        default: "none",
        about: "users who may",
    },
];

/// How many of the asker's groups are told.
const MAX_TOLD: usize = 16;

/// Who asks. A fact that is not known yet decides nothing: the nodes know all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker<'a> {
    /// The job's user.
    pub user: &'a str,
    /// The user's groups by name; looked at only if [`super::Policy::names_groups`].
    pub groups: &'a [String],
    /// The job's account: none is not known yet, an empty one is a job without an account.
    pub account: Option<&'a str>,
    /// The partitions that the job may run in: none at all is not known yet.
    pub partitions: &'a [String],
}

/// Who may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub(super) users: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) accounts: Vec<String>,
    pub(super) partitions: Vec<String>,
    pub(super) place: Place,
    pub(super) at: (u64, u64),
}

/// Why one may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outside {
    /// Who may: `group 'ib' or user 'alice'`.
    pub(super) may: String,
    /// Who asked: `your groups: users, staff`.
    pub(super) asker: String,
}

impl Rule {
    /// What keeps the one who asks out; none: may.
    pub(super) fn refuses(&self, asker: &Asker<'_>) -> Option<Outside> {
        self.refuses_who(asker)
            .or_else(|| self.refuses_where(asker))
    }

    fn refuses_who(&self, asker: &Asker<'_>) -> Option<Outside> {
        let named = [&self.users, &self.groups, &self.accounts];
        if named.iter().all(|names| names.is_empty()) {
            return None;
        }
        // Slurm writes accounts in small letters, however they were given.
        let same_account = |account: &str| {
            let same = |name: &String| name.eq_ignore_ascii_case(account);
            self.accounts.iter().any(same)
        };
        let may_be = asker.account.is_none_or(same_account) && !self.accounts.is_empty();
        let is_user = self.users.iter().any(|name| name == asker.user);
        let in_group = self.groups.iter().any(|name| asker.groups.contains(name));
        if is_user || in_group || may_be {
            return None;
        }
        let mut facts = Vec::new();
        if !self.users.is_empty() {
            facts.push(format!("you: {}", shown(asker.user)));
        }
        if !self.groups.is_empty() {
            facts.push(match asker.groups {
                [] => "your groups: none".to_owned(),
                groups => format!("your groups: {}", some(groups)),
            });
        }
        if let Some(account) = asker.account.filter(|_| !self.accounts.is_empty()) {
            facts.push(match account {
                "" => "the job has no account".to_owned(),
                account => format!("the job's account: {}", shown(account)),
            });
        }
        let may = [
            named_as("user", &self.users),
            named_as("group", &self.groups),
            named_as("account", &self.accounts),
        ];
        Some(Outside {
            may: may.into_iter().flatten().collect::<Vec<_>>().join(" or "),
            asker: facts.join("; "),
        })
    }

    fn refuses_where(&self, asker: &Asker<'_>) -> Option<Outside> {
        let may = named_as("partition", &self.partitions)?;
        let allowed = |p: &String| self.partitions.contains(p);
        if asker.partitions.is_empty() || asker.partitions.iter().any(allowed) {
            return None;
        }
        Some(Outside {
            may: format!("jobs in {may}"),
            asker: match asker.partitions {
                [one] => format!("the job's partition: {}", shown(one)),
                all => format!("the job's partitions: {}", some(all)),
            },
        })
    }
}

/// `group 'a'`, `groups 'a', 'b'`, or nothing.
fn named_as(kind: &str, names: &[String]) -> Option<String> {
    let quoted: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    match quoted.len() {
        0 => None,
        1 => Some(format!("{kind} {}", quoted.join(", "))),
        _ => Some(format!("{kind}s {}", quoted.join(", "))),
    }
}

fn some(names: &[String]) -> String {
    let first: Vec<_> = names.iter().take(MAX_TOLD).map(|n| shown(n)).collect();
    match names.len().saturating_sub(MAX_TOLD) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Reads the rule at `path`; `key` is its name in the file.
pub(super) fn parse(
    reader: &mut Reader<'_>,
    key: &Node,
    node: &Node,
    path: &str,
    place: Place,
) -> Rule {
    let mut rule = Rule {
        users: Vec::new(),
        groups: Vec::new(),
        accounts: Vec::new(),
        partitions: Vec::new(),
        place,
        at: key.at,
    };
    if !matches!(node.value, Value::Map(_) | Value::Null) {
        let wanted = "a map with users, groups, accounts or partitions, such as {groups: [ib]}";
        reader.wrong(node, path, wanted);
        return rule;
    }
    let before = reader.errors.len();
    let keys = reader.map(node, path);
    let is_empty = keys.is_empty();
    for (word, key, value) in keys {
        let path = tree::join(path, word);
        match word {
            "accounts" => rule.accounts = names(reader, value, &path, true),
            "groups" => rule.groups = names(reader, value, &path, false),
            "partitions" => rule.partitions = names(reader, value, &path, true),
            "users" => rule.users = names(reader, value, &path, false),
            _ => reader.unknown_key(key, &path, word, &key::names(KEYS)),
        }
    }
    if is_empty && reader.errors.len() == before {
        let message = "the rule keeps nobody out: name users, groups, accounts or partitions, or \
                       leave it out";
        reader.error(key.at, path, message.into());
    }
    rule
}

/// A list of names, or one name. Accounts and partitions may be called by a number.
fn names(reader: &mut Reader<'_>, node: &Node, path: &str, numbers: bool) -> Vec<String> {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        Value::Text(_) | Value::Int(_) => std::slice::from_ref(node),
        _ => {
            reader.wrong(node, path, "a list of names");
            return Vec::new();
        }
    };
    if items.is_empty() {
        let message = "an empty list allows nobody: name at least one, or leave the key out";
        reader.error(node.at, path, message.into());
    }
    let mut names = Vec::new();
    let mut seen = HashSet::new();
    for (i, item) in items.iter().enumerate() {
        let path = match node.value {
            Value::List(_) => format!("{path}[{i}]"),
            _ => path.to_owned(),
        };
        if let Value::Int(_) = item.value
            && !numbers
        {
            let wanted = "a name, not an id (a name that is a number in quotes)";
            reader.wrong(item, &path, wanted);
            continue;
        }
        let Some(name) = reader.text(item, &path) else {
            continue;
        };
        if name.is_empty()
            || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',')
        {
            reader.wrong(item, &path, "one name, without white space and commas");
        } else if !seen.insert(name.clone()) {
            let message = format!("'{}' is in the list already", shown(&name));
            reader.error(item.at, &path, message);
        } else {
            names.push(name);
        }
    }
    names
}
