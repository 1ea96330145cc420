//! Templates: files as written, inheritance resolved.
//!
//! A user's template may inherit from a system one, not the reverse, and hides a system one of the
//! same name. Every key but `description` and `inherits` is inherited.

use std::collections::BTreeMap;

use muster_types::ids::shown;

use crate::error::{ConfigError, ConfigErrors};
use crate::nearest::hint;
use crate::source::{Source, Tree};
use crate::template::{self, Rest, Settings};
use crate::tree::{self, Node, Reader, Value};

/// The word that stands for no virtual machines.
const NONE: &str = "none";

/// How many templates may be above one.
const MAX_ANCESTORS: usize = 32;

/// For how many mistakes of one reading the nearest name is looked for.
const MAX_HINTS: usize = 20;

/// A template with its inheritance resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedTemplate {
    /// Its name.
    pub name: String,
    /// What it is for, for lists.
    pub description: String,
    /// The template it inherits from.
    pub inherits: Option<String>,
    /// Which tree defines it.
    pub tree: Tree,
    /// `FILE:LINE` of its definition.
    pub defined_at: String,
    file: String,
    at: (u64, u64),
    settings: Settings,
    origins: BTreeMap<&'static str, Origin>,
}

/// Where a key of a template comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The template that sets it.
    pub template: String,
    /// The tree of that template.
    pub tree: Tree,
    /// The file.
    pub file: String,
    /// Line and column of the value.
    pub at: (u64, u64),
}

impl ResolvedTemplate {
    /// What it sets and inherits.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where a key comes from; `None` where it is not set.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.origins.get(key)
    }

    /// The template as `templates.yaml` would hold it without inheritance.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        self.settings.to_yaml(&self.name, &self.description)
    }

    /// A mistake in a key, told where the key is set, else where the template begins.
    #[must_use]
    pub fn mistake(&self, key: &str, message: String) -> ConfigError {
        let (template, file, at) = match self.origin(key) {
            Some(origin) => (&origin.template, &origin.file, origin.at),
            None => (&self.name, &self.file, self.at),
        };
        ConfigError {
            file: file.clone(),
            at: Some(at),
            key: tree::join(&shown(template), key),
            message,
        }
    }
}

/// A template as written.
#[derive(Debug, Clone)]
struct Written {
    source: usize,
    at: (u64, u64),
    settings: Settings,
    rest: Rest,
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
                Ok(root) if !matches!(root.value, Value::Map(_) | Value::Null) => {
                    reader.wrong(
                        &root,
                        "",
                        "templates by name, such as 'tiny: {image: site:tiny}'",
                    );
                }
                Ok(root) => {
                    for (name, key, node) in reader.map(&root, "") {
                        let place = &mut trees[usize::from(source.tree == Tree::User)];
                        if let Some(first) = place.get(name) {
                            let file = &sources[first.source].path;
                            let line = first.at.0;
                            let message = format!("defined already at {file}:{line}");
                            reader.error(key.at, &shown(name), message);
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
    if name.is_empty()
        || name.len() > 128
        || name.contains([',', ':', '/', '='])
        || name.contains(|c: char| c.is_whitespace() || c.is_control())
    {
        let message = "a template's name has 1 to 128 bytes, none of them , : / = or white space";
        reader.error(key.at, &shown(name), message.into());
    } else if name == NONE {
        let message = "'none' is no name for a template: --vm=none means no virtual machines";
        reader.error(key.at, name, message.into());
    }
    let (settings, rest) = template::read(reader, node, &shown(name));
    Written {
        source,
        at: key.at,
        settings,
        rest,
    }
}

struct Resolver<'a> {
    sources: &'a [Source],
    trees: &'a [BTreeMap<String, Written>; 2],
    errors: Vec<ConfigError>,
}

impl<'a> Resolver<'a> {
    fn resolve(&mut self, name: &'a str, tree: Tree, written: &'a Written) -> ResolvedTemplate {
        let mut resolved = ResolvedTemplate {
            name: name.to_owned(),
            description: written.rest.description.clone().unwrap_or_default(),
            inherits: written
                .rest
                .inherits
                .as_ref()
                .map(|(parent, _)| parent.clone()),
            tree,
            defined_at: format!("{}:{}", self.sources[written.source].path, written.at.0),
            file: self.sources[written.source].path.clone(),
            at: written.at,
            settings: written.settings.clone(),
            origins: BTreeMap::new(),
        };
        for (key, _) in &written.rest.places {
            self.origin(&mut resolved, key, (name, tree, written));
        }
        let mut path = vec![(tree, name)];
        let mut child = written;
        while let Some((parent, _)) = &child.rest.inherits {
            let Some((parent_tree, next)) = self.parent(&path, parent) else {
                // A template further up reports it itself.
                if path.len() == 1 {
                    self.no_parent(tree, name, written);
                }
                break;
            };
            if let Some(start) = path.iter().position(|p| *p == (parent_tree, parent)) {
                self.circle(&path[start..], start == 0, child);
                break;
            }
            if path.len() > MAX_ANCESTORS {
                let message = format!(
                    "more than {MAX_ANCESTORS} templates above one another: inherit from one further up"
                );
                self.error(written, tree::join(&shown(name), "inherits"), message);
                break;
            }
            child = next;
            path.push((parent_tree, parent));
            let mut inherited = Vec::new();
            let settings = &mut resolved.settings;
            settings.inherit(&child.settings, |key| inherited.push(key));
            for key in inherited {
                self.origin(&mut resolved, key, (parent, parent_tree, child));
            }
        }
        self.agree(&resolved);
        resolved
    }

    /// Notes where a key of a template comes from.
    fn origin(&self, to: &mut ResolvedTemplate, key: &'static str, of: (&str, Tree, &Written)) {
        let (template, tree, written) = of;
        let place = written.rest.places.iter().find(|(k, _)| *k == key);
        let Some((_, at)) = place else { return };
        let origin = Origin {
            template: template.to_owned(),
            tree,
            file: self.sources[written.source].path.clone(),
            at: *at,
        };
        to.origins.insert(key, origin);
    }

    /// Keys that do not go together, told for the template that brings them together.
    fn agree(&mut self, template: &ResolvedTemplate) {
        for (key, other, message) in template::disagreements(&template.settings) {
            let own = |key| {
                let origin = template.origin(key);
                origin.is_some_and(|o| (o.tree, &o.template) == (template.tree, &template.name))
            };
            if own(key) {
                self.errors.push(template.mistake(key, message));
            } else if own(other) {
                let message = format!("with it, the inherited '{key}' {message}");
                self.errors.push(template.mistake(other, message));
            }
        }
    }

    /// The parent as the last template of `path` sees it. For a user's template that is a user's one
    /// first, but one that hides a system template of its own name inherits from that.
    fn parent(&self, path: &[(Tree, &str)], parent: &str) -> Option<(Tree, &'a Written)> {
        let order = match path.last() {
            Some((Tree::User, own)) if *own == parent => &[Tree::System, Tree::User][..],
            Some((Tree::User, _)) => &[Tree::User, Tree::System][..],
            _ => &[Tree::System][..],
        };
        let trees = self.trees;
        order.iter().find_map(|&tree| {
            let written = trees[usize::from(tree == Tree::User)].get(parent)?;
            Some((tree, written))
        })
    }

    /// A circle of templates, the last of which is `last`. All of them meet it; it is reported for
    /// the one whose name is the first.
    fn circle(&mut self, path: &[(Tree, &str)], begins_on_it: bool, last: &Written) {
        let names: Vec<_> = path.iter().map(|(_, name)| *name).collect();
        let (Some(first), Some(end)) = (names.first(), names.last()) else {
            return;
        };
        if !begins_on_it || names.iter().min() != Some(first) {
            return;
        }
        let circle = names.join(" -> ");
        let which = match names.len() {
            1 => "it",
            _ => "one of them",
        };
        let message = format!(
            "inheritance goes in a circle: {circle} -> {first}: take 'inherits' out of {which}"
        );
        self.error(last, tree::join(&shown(end), "inherits"), message);
    }

    fn no_parent(&mut self, tree: Tree, name: &str, written: &Written) {
        let Some((parent, _)) = &written.rest.inherits else {
            return;
        };
        let parent_shown = shown(parent);
        let message = if tree == Tree::System && self.trees[1].contains_key(parent) {
            format!(
                "'{parent_shown}' is a user's template: a system template inherits from system templates only"
            )
        } else {
            let visible = match tree {
                Tree::System => &self.trees[..1],
                Tree::User => &self.trees[..],
            };
            let known = visible.iter().flat_map(|t| t.keys().map(String::as_str));
            // A file of nothing but mistakes is told quickly.
            let help = match self.errors.len() < MAX_HINTS {
                true => instead(parent, &known.filter(|k| *k != name).collect::<Vec<_>>()),
                false => String::new(),
            };
            format!("no template '{parent_shown}'{help}")
        };
        self.error(written, tree::join(&shown(name), "inherits"), message);
    }

    /// A mistake in the `inherits` of a template.
    fn error(&mut self, written: &Written, key: String, message: String) {
        self.errors.push(ConfigError {
            file: self.sources[written.source].path.clone(),
            at: written.rest.inherits.as_ref().map(|(_, at)| *at),
            key,
            message,
        });
    }
}

/// What could be written for a parent that is not there.
fn instead(parent: &str, others: &[&str]) -> String {
    const FEW: usize = 12;
    let near = hint(parent, others.iter().copied());
    if !near.is_empty() {
        near
    } else if parent.contains([':', '@', '/']) {
        "; an image is named with the key 'image'".into()
    } else if others.is_empty() || others.len() > FEW {
        String::new()
    } else {
        let others: Vec<_> = others.iter().map(|name| shown(name)).collect();
        format!("; templates are {}", others.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_types::ids::Mib;
    use muster_types::template::Accel;
    use proptest::prelude::*;

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
        let own = big.settings();
        assert_eq!(own.image.as_deref(), Some("lab:tiny"));
        assert_eq!(
            (own.cpus, own.memory, own.accel),
            (Some(4), Some(Mib(2048)), Some(Accel::Tcg))
        );
        let image = big.origin("image").unwrap();
        assert_eq!((image.template.as_str(), image.at), ("base", (3, 10)));
        assert_eq!(big.origin("memory").unwrap().template, "big");
        assert_eq!(big.origin("disk-size"), None);
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
        let own = a.settings();
        assert_eq!(
            (a.tree, own.cpus, own.memory),
            (Tree::User, Some(2), Some(Mib(1024)))
        );
        assert_eq!(a.origin("cpus").unwrap().tree, Tree::System);
        let c = library.get("c").unwrap().settings();
        assert_eq!(c.image.as_deref(), Some("other"));
        assert_eq!(library.get("b").unwrap().tree, Tree::System);
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let text = "a:\n  imge: x\n  cpus: none\n  memory: 4K\nb:\n  accel: kwm\n  inherits: c\n  mount-points: {a: }\n";
        let errors = Library::parse(&[system(text)]).unwrap_err().to_string();
        let golden = "\
/etc/muster/templates.yaml:2:3: a.imge: unknown key (did you mean 'image'?)
/etc/muster/templates.yaml:3:9: a.cpus: must be a whole number from 1 to 288, found the text 'none'
/etc/muster/templates.yaml:4:11: a.memory: '4K' is no size: a whole number with M, G or T (binary units), such as 512M or 4G, at most 1024T
/etc/muster/templates.yaml:6:10: b.accel: must be one of auto, kvm, tcg, found the text 'kwm' (did you mean 'kvm'?)
/etc/muster/templates.yaml:7:13: b.inherits: no template 'c'; templates are a
/etc/muster/templates.yaml:8:19: b.mount-points.a: must be a path, or a map with path, readonly and type, found nothing";
        assert_eq!(errors, golden);
    }

    #[test]
    fn circles_are_shown_once() {
        let text = "a: {inherits: b}\nb: {inherits: c}\nc: {inherits: a}\nd: {inherits: d}\ne: {inherits: a}\n";
        let errors = Library::parse(&[system(text)]).unwrap_err();
        let shown: Vec<_> = errors.0.iter().map(|e| e.message.as_str()).collect();
        let circle = "inheritance goes in a circle: ";
        let expected = [
            format!("{circle}a -> b -> c -> a: take 'inherits' out of one of them"),
            format!("{circle}d -> d: take 'inherits' out of it"),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn only_a_template_that_hides_its_parent_skips_itself() {
        let sources = [
            system("a: {image: x}\n"),
            user("a: {inherits: b}\nb: {inherits: a}\n"),
        ];
        let e = Library::parse(&sources).unwrap_err().to_string();
        assert_eq!(
            e,
            "~/.muster/templates.yaml:2:15: b.inherits: inheritance goes in a circle: a -> b -> a: take 'inherits' out of one of them"
        );
        let sources = [
            system("b: {inherits: c}\nc: {inherits: b}\n"),
            user("b: {inherits: b}\n"),
        ];
        let e = Library::parse(&sources).unwrap_err();
        assert_eq!(e.0.len(), 1, "{e}");
        assert_eq!(e.0[0].file, "/etc/muster/templates.yaml");
    }

    #[test]
    fn large_and_wrong_files_are_told_quickly() {
        let start = std::time::Instant::now();
        let chain = |i: u32| format!("a{i}: {{inherits: a{}}}\n", i + 1);
        let text: String = (0..10_000).map(chain).collect();
        let e = Library::parse(&[system(&text)]).unwrap_err();
        assert!(e.0[0].message.contains("more than 32"), "{}", e.0[0]);
        let lost = |i: u32| format!("a{i}: {{inherits: b{i}}}\n");
        let text: String = (0..10_000).map(lost).collect();
        let e = Library::parse(&[system(&text)]).unwrap_err();
        assert!(e.to_string().ends_with("and 9900 more mistakes"));
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }

    proptest! {
        #[test]
        fn never_panics(text in "[abi:{}\\[\\],&*<\\-\n \"'#|>%@!?0-9]{0,120}", users in any::<bool>()) {
            let source = if users { user(&text) } else { system(&text) };
            drop(Library::parse(&[source]));
        }

        #[test]
        fn whatever_the_graph_all_is_resolved_or_told(
            edges in proptest::collection::vec((any::<bool>(), 0..6_u8, 0..7_u8), 0..12)
        ) {
            let mut texts = [String::new(), String::new()];
            let mut seen = std::collections::BTreeSet::new();
            for (users, name, parent) in edges {
                if seen.insert((users, name)) {
                    let text = &mut texts[usize::from(users)];
                    text.push_str(&format!("t{name}: {{inherits: t{parent}}}\n"));
                }
            }
            // t6 is the only root, so that a library without a mistake has its image everywhere.
            texts[0].push_str("t6: {image: x}\n");
            if let Ok(library) = Library::parse(&[system(&texts[0]), user(&texts[1])]) {
                prop_assert!(library.iter().all(|t| t.settings().image.is_some()));
            }
        }
    }

    #[test]
    fn system_templates_do_not_depend_on_users() {
        let sources = [system("a: {inherits: mine}\n"), user("mine: {image: x}\n")];
        let e = Library::parse(&sources).unwrap_err().to_string();
        assert!(e.contains("'mine' is a user's template"), "{e}");
    }
}
