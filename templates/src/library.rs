//! Templates: files as written, inheritance resolved.
//!
//! A user's template may inherit from a system one, not the reverse, and hides a system one of the
//! same name. Every key but `description` and `inherits` is inherited.

use std::collections::BTreeMap;

use muster_types::ids::{Mib, shown};
use muster_types::request::{Accel, MAX_VCPUS};

use crate::error::{ConfigError, ConfigErrors};
use crate::nearest::hint;
use crate::source::{Source, Tree};
use crate::tree::{self, Node, Reader, Value};

/// The keys of a template in this release.
const KEYS: &[&str] = &[
    "accel",
    "cpus",
    "description",
    "image",
    "inherits",
    "memory",
];

/// Keys that sites may have in their files and that this release does not act on.
const LATER: &[&str] = &[
    "bind-vcpus",
    "cpu-model",
    "custom-args",
    "data-disks",
    "disk-cache",
    "disk-model",
    "disk-size",
    "dns-aliases",
    "emulator-cores",
    "firmware",
    "full-node",
    "gpus",
    "hostname",
    "hugepages",
    "initrd",
    "instance-id",
    "kernel",
    "kernel-args",
    "machine-type",
    "mount-points",
    "nic-model",
    "persistent-drives",
    "qemu-bin",
    "ready",
    "ready-timeout",
    "remote-display",
    "resource-set",
    "tpm",
    "user-data",
    "users",
];

/// A template with its inheritance resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedTemplate {
    /// Its name.
    pub name: String,
    /// What it is for, for lists.
    pub description: String,
    /// The image as written; none: the template cannot be run, only inherited.
    pub image: Option<String>,
    /// How guest code runs.
    pub accel: Accel,
    /// vCPUs of a VM.
    pub cpus: Option<u32>,
    /// Guest RAM.
    pub memory: Option<Mib>,
    /// The template it inherits from.
    pub inherits: Option<String>,
    /// Which tree defines it.
    pub tree: Tree,
    /// `FILE:LINE` of its definition.
    pub defined_at: String,
}

/// A template as written.
#[derive(Debug, Clone)]
struct Written {
    source: usize,
    at: (u64, u64),
    description: Option<String>,
    inherits: Option<(String, (u64, u64))>,
    image: Option<String>,
    accel: Option<Accel>,
    cpus: Option<u32>,
    memory: Option<Mib>,
}

/// All templates that a user may name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Library {
    templates: BTreeMap<String, ResolvedTemplate>,
}

impl Library {
    /// Parses the files and resolves inheritance.
    ///
    /// # Errors
    /// Every mistake in every file.
    pub fn parse(sources: &[Source]) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let mut trees: [BTreeMap<String, Written>; 2] = Default::default();
        for (index, source) in sources.iter().enumerate() {
            let mut reader = Reader::new(&source.path);
            match tree::parse(source) {
                Ok(root) => {
                    for (name, key, node) in reader.map(&root, "") {
                        let place = &mut trees[usize::from(source.tree == Tree::User)];
                        if let Some(first) = place.get(name) {
                            let file = &sources[first.source].path;
                            let line = first.at.0;
                            let message = format!("defined already at {file}:{line}");
                            reader.error(key.at, name, message);
                        }
                        let written = template(&mut reader, index, name, key, node);
                        place.insert(name.to_owned(), written);
                    }
                }
                Err(e) => errors.push(e),
            }
            errors.append(&mut reader.errors);
        }
        let mut resolver = Resolver {
            sources,
            trees: &trees,
            errors,
        };
        let mut templates = BTreeMap::new();
        for (tree, written) in [Tree::System, Tree::User].into_iter().zip(&trees) {
            for (name, template) in written {
                let resolved = resolver.resolve(name, tree, template);
                templates.insert(name.clone(), resolved);
            }
        }
        if resolver.errors.is_empty() {
            Ok(Self { templates })
        } else {
            resolver.errors.sort_by(|a, b| {
                let place = |e: &ConfigError| sources.iter().position(|s| s.path == e.file);
                (place(a), a.at).cmp(&(place(b), b.at))
            });
            Err(ConfigErrors(resolver.errors))
        }
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.templates.keys().map(String::as_str)
    }

    /// All templates, by name.
    pub fn iter(&self) -> impl Iterator<Item = &ResolvedTemplate> {
        self.templates.values()
    }

    /// One template.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ResolvedTemplate> {
        self.templates.get(name)
    }
}

fn template(
    reader: &mut Reader<'_>,
    source: usize,
    name: &str,
    key: &Node,
    node: &Node,
) -> Written {
    let mut written = Written {
        source,
        at: key.at,
        description: None,
        inherits: None,
        image: None,
        accel: None,
        cpus: None,
        memory: None,
    };
    if name.is_empty()
        || name.len() > 128
        || name.contains([',', ':', '/'])
        || name.contains(char::is_whitespace)
    {
        let message =
            "a template's name has 1 to 128 characters, none of them , : / or white space";
        reader.error(key.at, &shown(name), message.into());
    }
    for (word, key, value) in reader.map(node, name) {
        let path = format!("{}.{}", shown(name), shown(word));
        match word {
            "description" => written.description = reader.text(value, &path),
            "inherits" => written.inherits = reader.text(value, &path).map(|t| (t, value.at)),
            "image" => written.image = reader.text(value, &path),
            "accel" => {
                let choices = [
                    ("auto", Accel::Auto),
                    ("kvm", Accel::Kvm),
                    ("tcg", Accel::Tcg),
                ];
                written.accel = reader.choice(value, &path, &choices);
            }
            "cpus" => {
                let cpus = reader.number(value, &path, 1, u64::from(MAX_VCPUS));
                written.cpus = cpus.and_then(|n| u32::try_from(n).ok());
            }
            "memory" => written.memory = memory(reader, value, &path),
            later if LATER.contains(&later) => {
                let message = "this release of muster does not act on this key yet: take it out";
                reader.error(key.at, &path, message.into());
            }
            _ => reader.unknown_key(key, &path, word, KEYS),
        }
    }
    written
}

fn memory(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Mib> {
    if let Value::Float(_) | Value::Bool(_) | Value::List(_) | Value::Map(_) | Value::Null =
        node.value
    {
        let found = node.value.describe();
        let message = format!("must be an amount of memory such as 512M or 4G, found {found}");
        reader.error(node.at, path, message);
        return None;
    }
    let text = reader.text(node, path)?;
    match text.parse() {
        Ok(memory) => Some(memory),
        Err(e) => {
            let e: muster_types::ids::IdError = e;
            reader.error(node.at, path, e.to_string());
            None
        }
    }
}

struct Resolver<'a> {
    sources: &'a [Source],
    trees: &'a [BTreeMap<String, Written>; 2],
    errors: Vec<ConfigError>,
}

impl<'a> Resolver<'a> {
    fn resolve(&mut self, name: &str, tree: Tree, written: &Written) -> ResolvedTemplate {
        let mut resolved = ResolvedTemplate {
            name: name.to_owned(),
            description: written.description.clone().unwrap_or_default(),
            image: written.image.clone(),
            accel: Accel::default(),
            cpus: written.cpus,
            memory: written.memory,
            inherits: written.inherits.as_ref().map(|(parent, _)| parent.clone()),
            tree,
            defined_at: format!("{}:{}", self.sources[written.source].path, written.at.0),
        };
        let mut accel = written.accel;
        let mut path = vec![(tree, name.to_owned())];
        let (mut child, mut child_tree) = (written, tree);
        while let Some((parent, at)) = &child.inherits {
            let Some((parent_tree, parent_written)) = self.find(parent, child_tree, &path) else {
                self.lost_parent(child, child_tree, parent, *at, &path);
                break;
            };
            child = parent_written;
            child_tree = parent_tree;
            path.push((parent_tree, parent.clone()));
            resolved.image = resolved.image.or_else(|| child.image.clone());
            accel = accel.or(child.accel);
            resolved.cpus = resolved.cpus.or(child.cpus);
            resolved.memory = resolved.memory.or(child.memory);
        }
        resolved.accel = accel.unwrap_or_default();
        resolved
    }

    /// The parent as seen from a template: a user's one first, for a user's template; one that hides
    /// a system template of its own name may inherit from that.
    fn find(
        &self,
        parent: &str,
        tree: Tree,
        path: &[(Tree, String)],
    ) -> Option<(Tree, &'a Written)> {
        let trees = match tree {
            Tree::User => &[Tree::User, Tree::System][..],
            Tree::System => &[Tree::System][..],
        };
        let all = self.trees;
        trees.iter().find_map(|&tree| {
            let written = all[usize::from(tree == Tree::User)].get(parent)?;
            let seen = path.iter().any(|(t, n)| *t == tree && n == parent);
            (!seen).then_some((tree, written))
        })
    }

    fn lost_parent(
        &mut self,
        child: &Written,
        tree: Tree,
        parent: &str,
        at: (u64, u64),
        path: &[(Tree, String)],
    ) {
        let names = || path.iter().map(|(_, name)| name.as_str());
        let message = if names().any(|n| n == parent) {
            let start = names().position(|n| n == parent).unwrap_or(0);
            let cycle: Vec<_> = names().skip(start).chain([parent]).collect();
            // Every template on the cycle would report it; its first name does.
            if names().skip(start).min() != names().next() {
                return;
            }
            format!("inheritance goes in a circle: {}", cycle.join(" -> "))
        } else if tree == Tree::System && self.trees[1].contains_key(parent) {
            format!(
                "'{}' is a user's template: a system template inherits from system templates only",
                shown(parent)
            )
        } else {
            if path.len() > 1 {
                // The template that names the lost parent reports it itself.
                return;
            }
            let known = self.trees.iter().flat_map(|t| t.keys().map(String::as_str));
            format!("no template '{}'{}", shown(parent), hint(parent, known))
        };
        let name = path.last().map(|(_, n)| n.as_str()).unwrap_or_default();
        self.errors.push(ConfigError {
            file: self.sources[child.source].path.clone(),
            at: Some(at),
            key: format!("{name}.inherits"),
            message,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(text: &str) -> Source {
        Source {
            path: "/etc/muster/templates.yaml".into(),
            text: text.into(),
            tree: Tree::System,
        }
    }

    fn user(text: &str) -> Source {
        Source {
            path: "~/.muster/templates.yaml".into(),
            text: text.into(),
            tree: Tree::User,
        }
    }

    #[test]
    fn keys_but_the_description_are_inherited() {
        let text = "base:\n  description: b\n  image: lab:tiny\n  memory: 1G\n  accel: tcg\n\
                    big:\n  inherits: base\n  cpus: 4\n  memory: 2048\n";
        let library = Library::parse(&[system(text)]).unwrap();
        let big = library.get("big").unwrap();
        assert_eq!(big.description, "");
        assert_eq!(big.image.as_deref(), Some("lab:tiny"));
        assert_eq!(
            (big.cpus, big.memory, big.accel),
            (Some(4), Some(Mib(2048)), Accel::Tcg)
        );
        assert_eq!(big.defined_at, "/etc/muster/templates.yaml:6");
        assert_eq!(library.names().collect::<Vec<_>>(), ["base", "big"]);
    }

    #[test]
    fn users_extend_and_hide_system_templates() {
        let sources = [
            system("a: {image: x, cpus: 2}\nb: {image: other}\n"),
            user("a: {inherits: a, memory: 1G}\nc: {inherits: b}\n"),
        ];
        let library = Library::parse(&sources).unwrap();
        let a = library.get("a").unwrap();
        assert_eq!(
            (a.tree, a.cpus, a.memory),
            (Tree::User, Some(2), Some(Mib(1024)))
        );
        assert_eq!(library.get("c").unwrap().image.as_deref(), Some("other"));
        assert_eq!(library.get("b").unwrap().tree, Tree::System);
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let text = "a:\n  imge: x\n  cpus: none\n  memory: 4K\nb:\n  accel: kwm\n  inherits: c\n  mount-points: {}\n";
        let errors = Library::parse(&[system(text)]).unwrap_err().to_string();
        let golden = "\
/etc/muster/templates.yaml:2:3: a.imge: unknown key (did you mean 'image'?); known are accel, cpus, description, image, inherits, memory
/etc/muster/templates.yaml:3:9: a.cpus: must be a whole number from 1 to 288, found the text 'none'
/etc/muster/templates.yaml:4:11: a.memory: '4K' is no amount of memory: a number with M, G or T (binary units), such as 512M or 4G
/etc/muster/templates.yaml:6:10: b.accel: must be one of auto, kvm, tcg, found the text 'kwm' (did you mean 'kvm'?)
/etc/muster/templates.yaml:7:13: b.inherits: no template 'c' (did you mean 'a'?)
/etc/muster/templates.yaml:8:3: b.mount-points: this release of muster does not act on this key yet: take it out";
        assert_eq!(errors, golden);
    }

    #[test]
    fn circles_are_shown_once() {
        let text = "a: {inherits: b}\nb: {inherits: c}\nc: {inherits: a}\nd: {inherits: d}\ne: {inherits: a}\n";
        let errors = Library::parse(&[system(text)]).unwrap_err();
        let shown: Vec<_> = errors.0.iter().map(|e| e.message.as_str()).collect();
        let circle = "inheritance goes in a circle: ";
        let expected = [
            format!("{circle}a -> b -> c -> a"),
            format!("{circle}d -> d"),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn system_templates_do_not_depend_on_users() {
        let sources = [system("a: {inherits: mine}\n"), user("mine: {image: x}\n")];
        let e = Library::parse(&sources).unwrap_err().to_string();
        assert!(e.contains("'mine' is a user's template"), "{e}");
    }
}
