//! The value of a template's key under reading.

use muster_types::ids::{Mib, shown};
use muster_types::image::{ImageNameError, ImageUri, check_name};
use muster_types::template::{self as spec, Gpus, MAX_DEVICES, MAX_TEXT, RANK, Ready};
use serde_json::{Map, Value as Json, json};

use super::{UserDataSource, UsersSource};
use crate::nearest::hint;
use crate::tree::{self, Node, Reader, Value};

/// How deep an inline `user-data` may nest.
const MAX_DEPTH: usize = 32;

/// The most arguments of QEMU's.
const MAX_ARGUMENTS: usize = 256;

/// The most words of a command in the guest.
const MAX_WORDS: usize = 64;

/// A key's value under reading.
pub(super) struct Field<'r, 'n> {
    pub(super) reader: &'r mut Reader<'n>,
    pub(super) node: &'r Node,
    pub(super) path: &'r str,
}

impl Field<'_, '_> {
    pub(super) fn error(&mut self, message: String) {
        self.reader.error(self.node.at, self.path, message);
    }

    /// It must be something else.
    pub(super) fn wrong(&mut self, wanted: &str) {
        self.reader.wrong(self.node, self.path, wanted);
    }

    /// Text of any kind.
    pub(super) fn text(&mut self) -> Option<String> {
        self.reader.text(self.node, self.path)
    }

    /// Text of one line; `wanted` says what.
    pub(super) fn line(&mut self, wanted: &str) -> Option<String> {
        match &self.node.value {
            Value::Text(_) | Value::Int(_) => {}
            Value::Bool(_) | Value::Float(_) => {
                self.wrong(&format!("{wanted}, in quotes"));
                return None;
            }
            _ => {
                self.wrong(wanted);
                return None;
            }
        }
        let text = self.text()?;
        match one_line(&text) {
            Ok(()) => Some(text),
            Err(why) => {
                self.error(why);
                None
            }
        }
    }

    /// Text of one line that is not empty; `wanted` says what.
    pub(super) fn filled(&mut self, wanted: &str) -> Option<String> {
        let text = self.line(wanted)?;
        if text.trim().is_empty() {
            self.error("must not be empty: leave the key out".into());
            return None;
        }
        Some(text)
    }

    pub(super) fn checked(&mut self, check: impl Fn(&str) -> Result<(), String>) -> Option<String> {
        self.reader.parsed(self.node, self.path, |text| {
            check(text).map(|()| text.to_owned())
        })
    }

    pub(super) fn count(&mut self, from: u32, to: u32) -> Option<u32> {
        let number = self
            .reader
            .number(self.node, self.path, from.into(), to.into());
        number.and_then(|n| u32::try_from(n).ok())
    }

    pub(super) fn boolean(&mut self) -> Option<bool> {
        self.reader.boolean(self.node, self.path)
    }

    pub(super) fn choice<T: Copy>(&mut self, words: &[(&str, T)]) -> Option<T> {
        self.reader.choice(self.node, self.path, words)
    }

    /// One of some words, or the word for none of them, which YAML 1.1 may read as false.
    pub(super) fn choice_or<T: Copy>(
        &mut self,
        none: &str,
        words: &[(&str, T)],
    ) -> Option<Option<T>> {
        if none == "off" && matches!(self.node.value, Value::Bool(false)) {
            return Some(None);
        }
        let mut all = vec![(none, None)];
        all.extend(words.iter().map(|(word, value)| (*word, Some(*value))));
        self.choice(&all)
    }

    pub(super) fn size(&mut self) -> Option<Mib> {
        let text = match &self.node.value {
            Value::Text(text) => text.clone(),
            Value::Int(n) => n.to_string(),
            _ => {
                self.wrong("a size such as 512M or 4G");
                return None;
            }
        };
        let size = text.parse().ok();
        if size.is_none() {
            self.error(format!(
                "'{}' is no size: a whole number with M, G or T (binary units), such as 512M or 4G, \
                 at most 1024T",
                shown(&text)
            ));
        }
        size
    }

    /// A list of texts that `check` takes; a single text is a list of one.
    fn each(
        &mut self,
        wanted: &str,
        most: usize,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Option<Vec<String>> {
        let before = self.reader.errors.len();
        let items = self.reader.listed(self.node, self.path, wanted);
        if items.len() > most {
            self.error(format!(
                "has {} {wanted}, at most {most} are possible",
                items.len()
            ));
            return None;
        }
        let texts = items.into_iter().filter_map(|(path, node)| {
            let taken = |text: &str| check(text).map(|()| text.to_owned());
            self.reader.parsed(node, &path, taken)
        });
        let texts: Vec<String> = texts.collect();
        (self.reader.errors.len() == before).then_some(texts)
    }

    pub(super) fn arguments(&mut self) -> Option<Vec<String>> {
        self.each("arguments", MAX_ARGUMENTS, argument)
    }

    pub(super) fn aliases(&mut self) -> Option<Vec<String>> {
        self.each("names", MAX_DEVICES, host_name)
    }

    pub(super) fn resource_set(&mut self) -> Option<String> {
        let text = self.filled("the name of one resource set")?;
        if check_name(&text).is_err() {
            self.error(format!(
                "'{}' is no name of a resource set: 1 to 128 of A-Z a-z 0-9 _ . -, not starting with a dot",
                shown(&text)
            ));
            return None;
        }
        Some(text)
    }

    /// An image by name or path; what stands in `%{...}` is known at submission.
    pub(super) fn image(&mut self) -> Option<String> {
        let text = self.filled("the name of an image, or a path")?;
        if let Err(why) = check_no_url(&text) {
            self.error(why);
            return None;
        }
        if text.contains(['/', '%']) || text.starts_with('~') {
            return Some(text);
        }
        match text.parse::<ImageUri>() {
            Ok(_) => Some(text),
            Err(e @ ImageNameError::Revision(_)) => {
                self.error(format!("{e}: leave '@' out for the highest"));
                None
            }
            Err(e) => {
                self.error(e.to_string());
                None
            }
        }
    }

    pub(super) fn gpus(&mut self) -> Option<Gpus> {
        let most = u32::try_from(MAX_DEVICES).unwrap_or(u32::MAX);
        let count = match &self.node.value {
            Value::Text(word) if word == "all" => return Some(Gpus::All),
            Value::Text(text) => text.parse().ok(),
            Value::Int(n) => u32::try_from(*n).ok(),
            _ => None,
        };
        let count = count.filter(|n| *n <= most);
        if count.is_none() {
            self.wrong(&format!("a whole number from 0 to {most}, or all"));
        }
        count.map(Gpus::Count)
    }

    pub(super) fn users(&mut self) -> Option<UsersSource> {
        const WANTED: &str = "me, none, or the path of a roster file";
        let text = self.filled(WANTED)?;
        match text.as_str() {
            "none" => Some(UsersSource::None),
            "me" => Some(UsersSource::Me),
            path if path.contains('/') => Some(UsersSource::Roster(text)),
            _ => {
                let near = hint(&text, ["me", "none"]);
                self.error(format!(
                    "must be {WANTED}, found the text '{}'{near}",
                    shown(&text)
                ));
                None
            }
        }
    }

    pub(super) fn ready(&mut self) -> Option<Ready> {
        const WORDS: [&str; 4] = ["running", "agent", "ssh", "cloud-init"];
        const WANTED: &str =
            "running, agent, ssh, cloud-init, or {command: [PROGRAM, ARGUMENT...]}";
        match &self.node.value {
            Value::Map(pairs) if !pairs.is_empty() => self.ready_command(),
            Value::Text(word) => {
                let tests = [Ready::Running, Ready::Agent, Ready::Ssh, Ready::CloudInit];
                let place = WORDS.iter().position(|w| w == word);
                if place.is_none() {
                    let near = hint(word, WORDS);
                    let word = shown(word);
                    self.error(format!("must be {WANTED}, found the text '{word}'{near}"));
                }
                tests.get(place?).cloned()
            }
            _ => {
                self.wrong(WANTED);
                None
            }
        }
    }

    fn ready_command(&mut self) -> Option<Ready> {
        let mut ready = None;
        for (word, key, node) in self.reader.map(self.node, self.path) {
            let path = tree::join(self.path, word);
            if word != "command" {
                self.reader.unknown_key(key, &path, word, &["command"]);
                continue;
            }
            let mut field = Field {
                reader: self.reader,
                node,
                path: &path,
            };
            match &node.value {
                Value::List(items) if items.is_empty() => {
                    field.error(
                        "must be a list of the program and its arguments, found none".into(),
                    );
                }
                Value::List(_) => {
                    let words = field.each("words", MAX_WORDS, word_of_command);
                    ready = words.map(Ready::Command);
                }
                _ => field.wrong("a list of the program and its arguments"),
            }
        }
        ready
    }

    /// A path, a map that becomes `#cloud-config`, or a text of several lines that is passed as it is.
    pub(super) fn user_data(&mut self) -> Option<UserDataSource> {
        const WANTED: &str = "the path of a file, or a map of cloud-config";
        match &self.node.value {
            Value::Map(_) => {
                let value = self.plain(self.node, self.path, 0)?;
                // JSON is YAML that no reader can take for something else.
                Some(UserDataSource::Inline(format!("#cloud-config\n{value}\n")))
            }
            Value::Text(text) if text.contains('\n') || text.starts_with('#') => {
                Some(UserDataSource::Inline(text.clone()))
            }
            Value::Text(_) => self.filled(WANTED).map(UserDataSource::Path),
            _ => {
                self.wrong(WANTED);
                None
            }
        }
    }

    /// A tree without its positions.
    fn plain(&mut self, node: &Node, path: &str, depth: usize) -> Option<Json> {
        if depth > MAX_DEPTH {
            self.reader.error(
                node.at,
                path,
                format!("nests deeper than {MAX_DEPTH} levels"),
            );
            return None;
        }
        Some(match &node.value {
            Value::Null => Json::Null,
            Value::Bool(b) => json!(b),
            Value::Int(n) => json!(n),
            Value::Float(n) => json!(n),
            Value::Text(text) => json!(text),
            Value::List(items) => {
                let plain = |(i, item)| self.plain(item, &format!("{path}[{i}]"), depth + 1);
                Json::Array(items.iter().enumerate().map(plain).collect::<Option<_>>()?)
            }
            Value::Map(_) => {
                let before = self.reader.errors.len();
                let mut map = Map::new();
                for (word, _, value) in self.reader.map(node, path) {
                    let value = self.plain(value, &tree::join(path, word), depth + 1)?;
                    map.insert(word.to_owned(), value);
                }
                if self.reader.errors.len() > before {
                    return None;
                }
                Json::Object(map)
            }
        })
    }
}

/// An image is a file or a name; nothing is fetched.
pub(crate) fn check_no_url(image: &str) -> Result<(), String> {
    match image.contains("://") {
        true => Err(format!(
            "'{}' is no image: download it, import it with 'muster image import', and write its name",
            shown(image)
        )),
        false => Ok(()),
    }
}

/// What a request can carry.
fn one_line(text: &str) -> Result<(), String> {
    if text.contains(['\n', '\0']) || text.len() > MAX_TEXT {
        return Err(format!("must be one line of at most {MAX_TEXT} bytes"));
    }
    Ok(())
}

/// An argument of QEMU's. An option and its value are two.
fn argument(text: &str) -> Result<(), String> {
    one_line(text)?;
    match text.split_once(' ') {
        _ if text.is_empty() => Err("must not be empty".into()),
        Some((option, value)) if option.starts_with('-') => Err(format!(
            "'{}' would be one argument: write ['{}', '{}']",
            shown(text),
            shown(option),
            shown(value.trim_start())
        )),
        _ => Ok(()),
    }
}

fn word_of_command(text: &str) -> Result<(), String> {
    match text.contains('\0') || text.len() > MAX_TEXT {
        true => Err(format!("must have at most {MAX_TEXT} bytes")),
        false => Ok(()),
    }
}

/// A host name of each VM of a template.
pub(super) fn host_name(text: &str) -> Result<(), String> {
    let of_first = text.replace(RANK, "0");
    if of_first.contains("%{") {
        return Err(format!(
            "'{}' is no host name: of the names in %{{...}} only {RANK} can stand in it",
            shown(text)
        ));
    }
    spec::check_host_name(&of_first)
}
