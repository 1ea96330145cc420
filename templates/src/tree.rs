//! YAML as a tree that knows its positions, and reading typed values out of it so that every mistake
//! of a file is found, not only the first.

mod explain;
mod limits;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::collections::HashMap;
use std::fmt;

use muster_types::ids::shown;

use crate::error::ConfigError;
use crate::nearest::hint;
use crate::source::{MAX_FILE_BYTES, Source};

/// A value with its place.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) at: (u64, u64),
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(d)?;
        let at = (spanned.referenced.line(), spanned.referenced.column());
        Ok(Self {
            at,
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        Value::deserialize(d)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Int(v))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(i64::try_from(v).map_or(Value::Text(v.to_string()), Value::Int))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::Float(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::Text(v.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = access.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(pair) = access.next_entry()? {
            map.push(pair);
        }
        Ok(Value::Map(map))
    }
}

/// Parses a file. An empty one is a null. Size, number of values, depth and aliases are bounded, so
/// that no file takes long; a key that is there twice is [`Reader::map`]'s to refuse, which sees all
/// of them.
pub(crate) fn parse(source: &Source) -> Result<Node, ConfigError> {
    let error = |at, message| ConfigError {
        file: source.path.clone(),
        at,
        key: String::new(),
        message,
    };
    if source.text.len() > MAX_FILE_BYTES {
        let message = format!("the file is larger than {MAX_FILE_BYTES} bytes");
        return Err(error(None, message));
    }
    if let Some(line) = source.text.lines().position(|l| l.contains('\0')) {
        let line = u64::try_from(line).unwrap_or(0) + 1;
        return Err(error(Some((line, 1)), "a NUL byte is not YAML".into()));
    }
    let only_comments = source
        .text
        .lines()
        .map(str::trim)
        .all(|l| l.is_empty() || l.starts_with('#') || l == "---");
    if only_comments {
        return Ok(Node {
            at: (1, 1),
            value: Value::Null,
        });
    }
    serde_saphyr::from_str_with_options::<Node>(&source.text, limits::options()).map_err(|e| {
        let at = e.location().map(|l| (l.line(), l.column()));
        error(at, limits::told(&e, at))
    })
}

impl Value {
    /// What it is, in words, for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".into(),
            Self::Bool(b) => format!("the boolean {b}"),
            Self::Int(n) => format!("the number {n}"),
            Self::Float(n) => format!("the number {n}"),
            Self::Text(t) => format!("the text '{}'", shown(t)),
            Self::List(_) => "a list".into(),
            Self::Map(_) => "a map".into(),
        }
    }
}

/// For how many mistakes of one file the word that was meant is looked for; a file of nothing but
/// mistakes is told quickly.
const MAX_HINTS: usize = 20;

/// Collects the mistakes of one file.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    file: &'a str,
    hints: usize,
    pub(crate) errors: Vec<ConfigError>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a str) -> Self {
        Self {
            file,
            hints: 0,
            errors: Vec::new(),
        }
    }

    /// All mistakes, in the order of the file.
    pub(crate) fn into_errors(mut self) -> Vec<ConfigError> {
        self.errors.sort_by_key(|e| e.at);
        self.errors
    }

    pub(crate) fn error(&mut self, at: (u64, u64), key: &str, message: String) {
        self.errors.push(ConfigError {
            file: self.file.to_owned(),
            at: Some(at),
            key: key.to_owned(),
            message,
        });
    }

    /// The word that was meant, for the first mistakes.
    fn hint(&mut self, word: &str, words: &[&str]) -> String {
        self.hints += 1;
        match self.hints <= MAX_HINTS {
            true => hint(word, words.iter().copied()),
            false => String::new(),
        }
    }

    pub(crate) fn wrong(&mut self, node: &Node, key: &str, wanted: &str) {
        let found = node.value.describe();
        self.error(node.at, key, format!("must be {wanted}, found {found}"));
    }

    /// A map with text keys, each of them once; a null is an empty one. `key` is the path of the map.
    pub(crate) fn map<'n>(
        &mut self,
        node: &'n Node,
        key: &str,
    ) -> Vec<(&'n str, &'n Node, &'n Node)> {
        let pairs = match &node.value {
            Value::Map(pairs) => pairs.as_slice(),
            Value::Null => &[],
            _ => {
                self.wrong(node, key, "a map");
                &[]
            }
        };
        let mut map: Vec<(&str, &Node, &Node)> = Vec::new();
        let mut first = HashMap::new();
        for (name, value) in pairs {
            let Value::Text(text) = &name.value else {
                self.wrong(
                    name,
                    key,
                    "a map with names as keys (quote a key that is a number or y, n, yes, no, on, off)",
                );
                continue;
            };
            if let Some(at) = first.get(text.as_str()) {
                let (line, _): (u64, u64) = *at;
                let message = format!("the key is in line {line} already");
                self.error(name.at, &join(key, text), message);
                continue;
            }
            first.insert(text.as_str(), name.at);
            map.push((text.as_str(), name, value));
        }
        map
    }

    /// Text; numbers are taken as they would be written.
    pub(crate) fn text(&mut self, node: &Node, key: &str) -> Option<String> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Int(n) => Some(n.to_string()),
            _ => {
                let wanted = match node.value {
                    Value::Bool(_) | Value::Float(_) => "text, in quotes",
                    _ => "text",
                };
                self.wrong(node, key, wanted);
                None
            }
        }
    }

    /// A whole number in a range.
    pub(crate) fn number(&mut self, node: &Node, key: &str, from: u64, to: u64) -> Option<u64> {
        let number = match &node.value {
            Value::Int(n) => u64::try_from(*n).ok(),
            Value::Text(text) => text.parse().ok(),
            _ => None,
        };
        let number = number.filter(|n| (from..=to).contains(n));
        if number.is_none() {
            self.wrong(node, key, &format!("a whole number from {from} to {to}"));
        }
        number
    }

    /// A boolean; the words that YAML 1.1 has for one are taken in quotes too.
    pub(crate) fn boolean(&mut self, node: &Node, key: &str) -> Option<bool> {
        let found = match &node.value {
            Value::Bool(found) => Some(*found),
            Value::Text(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Some(true),
                "false" | "no" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        };
        if found.is_none() {
            self.wrong(node, key, "true or false");
        }
        found
    }

    /// The items of a list, each with its path; a null is an empty one. `wanted` says what is listed.
    pub(crate) fn items<'n>(
        &mut self,
        node: &'n Node,
        key: &str,
        wanted: &str,
    ) -> Vec<(String, &'n Node)> {
        match &node.value {
            Value::List(items) => items
                .iter()
                .enumerate()
                .map(|(i, item)| (format!("{key}[{i}]"), item))
                .collect(),
            Value::Null => Vec::new(),
            _ => {
                self.wrong(node, key, &format!("a list of {wanted}"));
                Vec::new()
            }
        }
    }

    /// The items of a list; a single text is a list of one. See [`Self::items`].
    pub(crate) fn listed<'n>(
        &mut self,
        node: &'n Node,
        key: &str,
        wanted: &str,
    ) -> Vec<(String, &'n Node)> {
        match node.value {
            Value::Text(_) => vec![(key.to_owned(), node)],
            _ => self.items(node, key, wanted),
        }
    }

    /// What `parse` makes of a text.
    pub(crate) fn parsed<T, E: fmt::Display>(
        &mut self,
        node: &Node,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(node, key)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(e) => {
                self.error(node.at, key, e.to_string());
                None
            }
        }
    }

    /// The mistake of a key that is not there; `node` is the map.
    pub(crate) fn missing_key(&mut self, node: &Node, key: &str, word: &str) {
        let message = format!("key '{word}' is missing");
        self.error(node.at, key, message);
    }

    /// One of some words. An unquoted `no`, `yes`, `on` or `off` is read as the word.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        node: &Node,
        key: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let word = match &node.value {
            Value::Text(text) => text.as_str(),
            Value::Bool(true) => "yes",
            Value::Bool(false) => "no",
            _ => "",
        };
        let found = choices.iter().find(|(name, _)| *name == word);
        if found.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let near = self.hint(word, &names);
            let found = node.value.describe();
            let message = format!("must be one of {}, found {found}{near}", names.join(", "));
            self.error(node.at, key, message);
        }
        found.map(|(_, value)| *value)
    }

    /// A list of texts; a single text is a list of one.
    pub(crate) fn texts(&mut self, node: &Node, key: &str) -> Vec<String> {
        match &node.value {
            Value::List(items) => {
                let texts = items
                    .iter()
                    .enumerate()
                    .filter_map(|(i, item)| self.text(item, &format!("{key}[{i}]")));
                texts.collect()
            }
            Value::Text(text) => vec![text.clone()],
            _ => {
                self.wrong(node, key, "a list of texts");
                Vec::new()
            }
        }
    }

    /// A file or directory by its absolute path.
    pub(crate) fn absolute_path(&mut self, node: &Node, key: &str) -> Option<String> {
        let path = self.text(node, key)?;
        if path.starts_with('/') && !path.contains('\0') {
            return Some(path);
        }
        self.wrong(node, key, "an absolute path");
        None
    }

    /// The mistake of a key that nobody knows. A long list of keys helps only who has none in mind.
    pub(crate) fn unknown_key(&mut self, name: &Node, key: &str, word: &str, allowed: &[&str]) {
        const FEW: usize = 12;
        let near = self.hint(word, allowed);
        let list = if self.hints <= MAX_HINTS && (near.is_empty() || allowed.len() <= FEW) {
            let mut allowed = allowed.to_vec();
            allowed.sort_unstable();
            format!("; allowed are {}", allowed.join(", "))
        } else {
            String::new()
        };
        self.error(name.at, key, format!("unknown key{near}{list}"));
    }
}

/// The path of a key in the map at `path`.
pub(crate) fn join(path: &str, word: &str) -> String {
    match path {
        "" => shown(word),
        _ => format!("{path}.{}", shown(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Tree;

    fn source(text: &str) -> Source {
        Source {
            path: "f.yaml".into(),
            text: text.into(),
            tree: Tree::System,
        }
    }

    #[test]
    fn positions_are_those_of_the_file() {
        let node = parse(&source("a: 1\nb:\n  - x\n  - no\n")).unwrap();
        let Value::Map(pairs) = &node.value else {
            panic!("{node:?}")
        };
        assert_eq!(pairs[0].1.at, (1, 4));
        let Value::List(items) = &pairs[1].1.value else {
            panic!("{node:?}")
        };
        assert_eq!(items[0].at, (3, 5));
        assert!(matches!(items[1].value, Value::Bool(false)));
    }

    #[test]
    fn an_empty_file_is_nothing() {
        for text in ["", "# only a comment\n", "---\n"] {
            assert!(matches!(parse(&source(text)).unwrap().value, Value::Null));
        }
    }

    #[test]
    fn what_is_no_yaml_is_refused_with_its_place() {
        let e = parse(&source("a: 1\nb: [1\nc: }\n")).unwrap_err();
        assert_eq!(e.at.unwrap().0, 3, "{e}");
        assert!(parse(&source("path: %{env:HOME}\n")).is_err());
        assert!(
            parse(&source("a: \0\n"))
                .unwrap_err()
                .to_string()
                .contains("NUL")
        );
    }

    #[test]
    fn each_key_is_there_once() {
        let file =
            source("base: &base {a: 1, b: 2}\nx: {<<: *base, b: 3}\nz: {c: 1, c: 2, c: 3}\n");
        let root = parse(&file).unwrap();
        let mut reader = Reader::new("f.yaml");
        let map = reader.map(&root, "");
        let x = reader.map(map[1].2, "x");
        assert_eq!(x.len(), 2);
        assert!(
            x.iter()
                .any(|(k, _, v)| *k == "b" && matches!(v.value, Value::Int(3)))
        );
        assert!(reader.errors.is_empty());
        assert_eq!(reader.map(map[2].2, "z").len(), 1);
        let told: Vec<_> = reader.errors.iter().map(ToString::to_string).collect();
        let expected = ["f.yaml:3:11: z.c: the key is in line 3 already"; 1];
        assert_eq!(told[..1], expected);
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn what_a_site_may_have_is_not_near_a_limit() {
        // One base for all templates, a page of comments, a text of many lines, nested cloud-config.
        let mut text = String::from("base: &base\n  a: 1\n");
        text.push_str(&"  # a long explanation\n".repeat(2_000));
        text.push_str("  b: 2\n");
        for i in 0..5_000 {
            text.push_str(&format!("t{i}: {{<<: *base, c: {i}}}\n"));
        }
        text.push_str(&format!("deep: {}x{}\n", "[".repeat(20), "]".repeat(20)));
        text.push_str(&format!("long: {}\n", "x".repeat(100_000)));
        text.push_str(&format!("{}: 1\n", "k".repeat(1_000)));
        let Value::Map(pairs) = parse(&source(&text)).unwrap().value else {
            panic!("no map")
        };
        assert_eq!(pairs.len(), 5_004);
        let Value::Map(last) = &pairs[5_000].1.value else {
            panic!("no map")
        };
        assert_eq!(last.len(), 3);
    }
}
