//! Templates as text: values as JSON, which YAML contains, so that nothing has to be guessed when it
//! is read again.

use std::collections::BTreeMap;

use muster_types::ids::Mib;
use muster_types::template::{
    Accel, DataDisk, DiskCache, DiskModel, Display, Drive, Firmware, Gpus, HugePages, Mmp, Mount,
    MountType, Ready,
};
use serde_json::{Map, Value, json};

use super::{Settings, UserDataSource, UsersSource};

/// A value as `templates.yaml` holds it.
pub(super) trait Shown {
    fn shown(&self) -> Value;
}

impl Shown for String {
    fn shown(&self) -> Value {
        json!(self)
    }
}

impl Shown for u32 {
    fn shown(&self) -> Value {
        json!(self)
    }
}

impl Shown for bool {
    fn shown(&self) -> Value {
        json!(self)
    }
}

impl Shown for Mib {
    fn shown(&self) -> Value {
        json!(size(*self))
    }
}

impl Shown for Vec<String> {
    fn shown(&self) -> Value {
        json!(self)
    }
}

macro_rules! shown_words {
    ($($type:ty),+) => {
        $(impl Shown for $type {
            fn shown(&self) -> Value {
                json!(self.word())
            }
        })+
    };
}
shown_words!(Accel, DiskCache, DiskModel, Firmware);

impl Shown for Option<HugePages> {
    fn shown(&self) -> Value {
        json!(self.map_or("off", HugePages::word))
    }
}

impl Shown for Option<Display> {
    fn shown(&self) -> Value {
        json!(self.map_or("none", Display::word))
    }
}

impl Shown for UserDataSource {
    fn shown(&self) -> Value {
        match self {
            Self::Path(text) | Self::Inline(text) => json!(text),
        }
    }
}

impl Shown for UsersSource {
    fn shown(&self) -> Value {
        json!(match self {
            Self::None => "none",
            Self::Me => "me",
            Self::Roster(path) => path,
        })
    }
}

impl Shown for BTreeMap<String, Mount> {
    fn shown(&self) -> Value {
        let shown = |mount: &Mount| {
            let mut map = Map::from_iter([("path".to_owned(), json!(mount.path))]);
            if mount.readonly {
                map.insert("readonly".into(), json!(true));
            }
            if mount.kind != MountType::default() {
                map.insert("type".into(), json!(mount.kind.word()));
            }
            Value::Object(map)
        };
        self.iter()
            .map(|(tag, mount)| (tag.clone(), shown(mount)))
            .collect::<Map<_, _>>()
            .into()
    }
}

impl Shown for Vec<Drive> {
    fn shown(&self) -> Value {
        let shown = |drive: &Drive| {
            if drive.mmp == Mmp::default() && drive.cache == DiskCache::default() {
                return json!(drive.path);
            }
            let settings = json!({ "mmp": drive.mmp.word(), "cache": drive.cache.word() });
            Value::Object(Map::from_iter([(drive.path.clone(), settings)]))
        };
        self.iter().map(shown).collect()
    }
}

impl Shown for Vec<DataDisk> {
    fn shown(&self) -> Value {
        let shown = |disk: &DataDisk| {
            let mut map = Map::from_iter([
                ("size".to_owned(), json!(size(disk.size))),
                ("serial".to_owned(), json!(disk.serial)),
            ]);
            if disk.bus != DiskModel::default() {
                map.insert("bus".into(), json!(disk.bus.word()));
            }
            if let Some(path) = &disk.path {
                map.insert("path".into(), json!(path));
            }
            Value::Object(map)
        };
        self.iter().map(shown).collect()
    }
}

impl Shown for Gpus {
    fn shown(&self) -> Value {
        match self {
            Self::Count(count) => json!(count),
            Self::All => json!("all"),
        }
    }
}

impl Shown for Ready {
    fn shown(&self) -> Value {
        match self {
            Self::Running => json!("running"),
            Self::Agent => json!("agent"),
            Self::Ssh => json!("ssh"),
            Self::CloudInit => json!("cloud-init"),
            Self::Command(words) => json!({ "command": words }),
        }
    }
}

/// A size in the largest unit that divides it.
fn size(Mib(mib): Mib) -> String {
    match mib {
        n if n % (1 << 20) == 0 => format!("{}T", n >> 20),
        n if n % (1 << 10) == 0 => format!("{}G", n >> 10),
        n => format!("{n}M"),
    }
}

/// A value on one line: bare where it cannot be misread, else as JSON.
pub(crate) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => printable(&other.to_string()),
    }
}

/// JSON without the characters that YAML does not print (YAML 1.2.2, 5.1) or takes for line breaks,
/// and that a terminal may obey. Outside of its texts JSON has none of them.
fn printable(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out
}

/// Whether a text means itself without quotes, in YAML 1.1 and 1.2.
fn is_plain(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan",
    ];
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'/')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"_./-".contains(&b))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

pub(super) fn yaml(settings: &Settings, name: &str, description: &str) -> String {
    let mut text = format!("{}:", scalar(&json!(name)));
    let mut all = settings.set();
    if !description.is_empty() {
        all.insert(0, ("description", json!(description)));
    }
    if all.is_empty() {
        text.push_str(" {}");
    }
    for (key, value) in all {
        text.push_str(&format!("\n  {key}: {}", scalar(&value)));
    }
    text.push('\n');
    text
}
