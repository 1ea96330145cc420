//! `networks.yaml`: the networks that virtual clusters may have.
//!
//! ```text
//!   Source -> per network: type, settings against the type's table (one file per type) -> NetworkSpec
//!          -> across:      what two networks must not share, what they had better not share
//!          -> Networks, with warnings; or all mistakes of all files
//! ```

use std::collections::{BTreeMap, HashMap};

use muster_types::ids::shown;
use muster_types::network::{Layer, NetworkSpec};

use crate::error::{ConfigError, ConfigErrors};
use crate::key::{File, Key, Shape};
use crate::source::Source;
use crate::tree::{self, Node, Reader, join};

use across::Across;
use settings::{Findings, Settings};

mod across;
mod bridged;
mod ethernet;
mod genericpci;
mod hostib;
mod infiniband;
mod keys;
mod render;
mod rules;
mod settings;
#[cfg(test)]
mod tests;

pub use render::to_yaml;

/// The most networks that a site may define.
pub const MAX_DEFINED: usize = 1024;

/// The longest name of a network.
pub const MAX_NAME: usize = 64;

/// A network as an admin defined it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// Its type and settings, with their defaults.
    pub spec: NetworkSpec,
    /// File and line.
    pub defined_at: String,
}

/// All networks of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks {
    networks: BTreeMap<String, Network>,
    warnings: Vec<ConfigError>,
}

/// The types with the words for them; the first is the one to use.
const TYPES: &[(Kind, &[&str])] = &[
    (Kind::Ethernet, ETHERNET),
    (Kind::Bridged, BRIDGED),
    (Kind::Infiniband, INFINIBAND),
    (Kind::Hostib, HOSTIB),
    (Kind::Genericpci, GENERICPCI),
];
const ETHERNET: &[&str] = &["ethernet", "eth"];
const BRIDGED: &[&str] = &["bridged", "bridged-ethernet"];
const INFINIBAND: &[&str] = &["infiniband", "ib"];
const HOSTIB: &[&str] = &["hostib", "host-infiniband"];
const GENERICPCI: &[&str] = &["genericpci"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ethernet,
    Bridged,
    Infiniband,
    Hostib,
    Genericpci,
}

impl Kind {
    fn keys(self) -> &'static [Key] {
        match self {
            Self::Ethernet => keys::ETHERNET,
            Self::Bridged => bridged::KEYS,
            Self::Infiniband => infiniband::KEYS,
            Self::Hostib => hostib::KEYS,
            Self::Genericpci => genericpci::KEYS,
        }
    }

    fn of(spec: &NetworkSpec) -> Self {
        match spec {
            NetworkSpec::Ethernet(_) => Self::Ethernet,
            NetworkSpec::Bridged(_) => Self::Bridged,
            NetworkSpec::Infiniband(_) => Self::Infiniband,
            NetworkSpec::Hostib(_) => Self::Hostib,
            NetworkSpec::Genericpci(_) => Self::Genericpci,
        }
    }
}

const fn type_key(words: &'static [&'static str]) -> Key {
    Key {
        name: "type",
        shape: Shape::Words(words),
        default: "",
        about: "what kind of network it is",
    }
}

const fn settings_key(keys: &'static [Key]) -> Key {
    Key {
        name: "settings",
        shape: Shape::Keys(keys),
        default: "",
        about: "the settings of its type",
    }
}

/// `networks.yaml` and `networks.d/*.yaml`.
pub const FILE: File = File {
    name: "networks",
    about: "the networks that virtual clusters may have",
    shape: Shape::Named(&Shape::Either(&[
        Shape::Keys(&[type_key(ETHERNET), settings_key(keys::ETHERNET)]),
        Shape::Keys(&[type_key(BRIDGED), settings_key(bridged::KEYS)]),
        Shape::Keys(&[type_key(INFINIBAND), settings_key(infiniband::KEYS)]),
        Shape::Keys(&[type_key(HOSTIB), settings_key(hostib::KEYS)]),
        Shape::Keys(&[type_key(GENERICPCI), settings_key(genericpci::KEYS)]),
    ])),
};

impl Networks {
    /// Parses the files of the site's tree: `networks.yaml`, then `networks.d/*.yaml`.
    ///
    /// # Errors
    /// Every mistake in every file.
    pub fn parse(sources: &[Source]) -> Result<Self, ConfigErrors> {
        let mut parser = Parser::default();
        let mut errors = Vec::new();
        for source in sources {
            match tree::parse(source) {
                Ok(root) => errors.append(&mut parser.file(source, &root)),
                Err(e) => errors.push(e),
            }
        }
        if errors.is_empty() {
            Ok(parser.done)
        } else {
            Err(ConfigErrors(errors))
        }
    }

    /// A network by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Network> {
        self.networks.get(name)
    }

    /// All networks by name.
    pub fn iter(&self) -> impl Iterator<Item = &Network> {
        self.networks.values()
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.networks.keys().map(String::as_str)
    }

    /// What is allowed and odd: settings without effect, networks that get in each other's way.
    #[must_use]
    pub fn warnings(&self) -> &[ConfigError] {
        &self.warnings
    }
}

/// How many VMs of one virtual cluster a network has addresses for; `u64::MAX` where it gives none.
#[must_use]
pub fn room(spec: &NetworkSpec) -> u64 {
    /// The MAC addresses of a prefix.
    const MACS: u64 = 1 << 16;
    match spec {
        NetworkSpec::Ethernet(net) => {
            let macs = MACS.saturating_sub(net.mac_start_offset.into());
            // Network and broadcast address, gateway and DNS server are taken.
            match net.network_layer {
                Layer::L3 => macs.min(net.int_network.size().saturating_sub(4)),
                Layer::L2 => macs,
            }
        }
        NetworkSpec::Bridged(_) => MACS,
        NetworkSpec::Infiniband(_) | NetworkSpec::Hostib(_) | NetworkSpec::Genericpci(_) => {
            u64::MAX
        }
    }
}

#[derive(Default)]
struct Parser {
    done: Networks,
    /// Place of each name, those of wrong networks too.
    places: HashMap<String, String>,
    across: Across,
}

impl Parser {
    fn file(&mut self, source: &Source, root: &Node) -> Vec<ConfigError> {
        let mut findings = Findings {
            errors: Reader::new(&source.path),
            warnings: Reader::new(&source.path),
        };
        for (name, key, node) in findings.errors.map(root, "") {
            let path = join("", name);
            let before = findings.errors.errors.len();
            if let Err(message) = check_name(name) {
                findings.errors.error(key.at, &path, message);
            }
            if let Some(place) = self.places.get(name) {
                let message = format!("the network is defined in {place} already");
                findings.errors.error(key.at, &path, message);
                continue;
            }
            if self.places.len() == MAX_DEFINED {
                let message = format!("more than {MAX_DEFINED} networks are not possible");
                findings.errors.error(key.at, &path, message);
                break;
            }
            let defined_at = format!("{}:{}", source.path, key.at.0);
            self.places.insert(name.to_owned(), defined_at.clone());
            let Some((spec, settings)) = network(&mut findings, name, node) else {
                continue;
            };
            if findings.errors.errors.len() > before {
                continue;
            }
            let network = Network {
                name: name.to_owned(),
                spec,
                defined_at,
            };
            self.across.check(&mut findings, &network, &settings);
            self.done.networks.insert(name.to_owned(), network);
        }
        let mut warnings = findings.warnings.into_errors();
        self.done.warnings.append(&mut warnings);
        findings.errors.into_errors()
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let ok = name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if ok {
        return Ok(());
    }
    Err(format!(
        "'{}' is no name of a network: a letter, then letters, digits, _ or -, at most {MAX_NAME} in all",
        shown(name)
    ))
}

/// Reads one network; none where its type or its settings are not to be had.
fn network<'n>(
    findings: &mut Findings<'_>,
    name: &str,
    node: &'n Node,
) -> Option<(NetworkSpec, Settings<'n>)> {
    let path = join("", name);
    let reader = &mut findings.errors;
    if !matches!(node.value, tree::Value::Map(_) | tree::Value::Null) {
        let wanted = "a map such as {type: ethernet, settings: {dev-prefix: nat}}";
        reader.wrong(node, &path, wanted);
        return None;
    }
    let map = reader.map(node, &path);
    let kind = match map.iter().find(|(word, ..)| *word == "type") {
        Some((.., value)) => kind(reader, value, &join(&path, "type"), name),
        None => {
            let words: Vec<_> = TYPES.iter().map(|(_, words)| words[0]).collect();
            let message = format!("key 'type' is missing: one of {}", words.join(", "));
            reader.error(node.at, &path, message);
            None
        }
    };
    for (word, key, _) in &map {
        if matches!(*word, "type" | "settings") {
            continue;
        }
        let key_path = join(&path, word);
        if kind.is_some_and(|kind| kind.keys().iter().any(|k| k.name == *word)) {
            let message = format!("key '{word}' belongs below 'settings'");
            reader.error(key.at, &key_path, message);
        } else {
            reader.unknown_key(key, &key_path, word, &["settings", "type"]);
        }
    }
    let kind = kind?;
    let Some((.., node)) = map.iter().find(|(word, ..)| *word == "settings") else {
        let required = kind.keys().iter().filter(|k| k.default.is_empty());
        let required: Vec<_> = required.map(|k| k.name).collect();
        let message = format!(
            "key 'settings' is missing: a map with at least {}",
            required.join(", ")
        );
        reader.error(node.at, &path, message);
        return None;
    };
    let settings = Settings::read(reader, node, &join(&path, "settings"), kind.keys());
    let spec = match kind {
        Kind::Ethernet => NetworkSpec::Ethernet(Box::new(ethernet::read(findings, &settings))),
        Kind::Bridged => NetworkSpec::Bridged(bridged::read(reader, &settings)),
        Kind::Infiniband => NetworkSpec::Infiniband(infiniband::read(findings, &settings)),
        Kind::Hostib => NetworkSpec::Hostib(hostib::read(reader, &settings)),
        Kind::Genericpci => NetworkSpec::Genericpci(genericpci::read(reader, &settings)),
    };
    Some((spec, settings))
}

fn kind(reader: &mut Reader<'_>, node: &Node, key: &str, name: &str) -> Option<Kind> {
    if let tree::Value::Text(word) = &node.value
        && let Some(message) = retired(word, name)
    {
        reader.error(node.at, key, message);
        return None;
    }
    let choices: Vec<_> = TYPES
        .iter()
        .flat_map(|(kind, words)| words.iter().map(|word| (*word, *kind)))
        .collect();
    reader.choice(node, key, &choices)
}

/// What to write for a type that pcocc had before 0.5.
fn retired(word: &str, name: &str) -> Option<String> {
    let prefix: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .skip_while(char::is_ascii_digit)
        .take(8)
        .collect();
    let prefix = if prefix.is_empty() { word } else { &prefix };
    match word {
        "pv" => Some(format!(
            "networks of type 'pv' are now of type 'ethernet': write 'type: ethernet' and 'settings: {{network-layer: L2, dev-prefix: {prefix}}}' (mtu, mac-prefix and host-if-suffix may stay; bridge-prefix and tap-prefix go)"
        )),
        "nat" => Some(format!(
            "networks of type 'nat' are now of type 'ethernet': write 'type: ethernet' and 'settings: {{network-layer: L3, dev-prefix: {prefix}, int-network: 10.200.0.0/16}}' (mtu, domain-name, dns-server, ntp-server, allow-outbound and reverse-nat may stay; all other keys go)"
        )),
        _ => None,
    }
}
