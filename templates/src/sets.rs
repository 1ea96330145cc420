//! `resources.yaml`: sets of networks and devices that templates name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;

use muster_types::ids::shown;
use muster_types::image::check_name;
use muster_types::network::{Ethernet, Layer, NetworkSpec};
use muster_types::request::MAX_NETWORKS;
use muster_types::subnet::Subnet;

use crate::error::{ConfigError, ConfigErrors};
use crate::key::{File, Key, Shape, names};
use crate::nearest::hint;
use crate::networks::Networks;
use crate::source::Source;
use crate::tree::{self, Node, Reader, Value, join};

/// What the VMs of a template get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSet {
    /// Its name.
    pub name: String,
    /// Its networks, in the order of the VMs' interfaces.
    pub networks: Vec<String>,
    /// Pools of PCI devices that templates may claim from.
    pub devices: Vec<String>,
    /// Whether it is for templates that name no set.
    pub is_default: bool,
    /// File and line.
    pub defined_at: String,
}

/// All resource sets of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceSets {
    sets: BTreeMap<String, ResourceSet>,
    default: Option<String>,
}

const KEYS: &[Key] = &[
    Key {
        name: "networks",
        shape: Shape::Either(&[Shape::Text, Shape::List(&Shape::Text)]),
        default: "none",
        about: "networks of networks.yaml, in the order of the VMs' interfaces",
    },
    Key {
        name: "default",
        shape: Shape::Bool,
        default: "false",
        about: "whether templates that name no set get this one; one set may say true",
    },
    Key {
        name: "devices",
        shape: Shape::Either(&[Shape::Text, Shape::List(&Shape::Text)]),
        default: "none",
        about: "pools of PCI devices that templates may claim from",
    },
];

/// `resources.yaml`.
pub const FILE: File = File {
    name: "resources",
    about: "sets of networks and devices that templates name",
    shape: Shape::Named(&Shape::Keys(KEYS)),
};

/// The most pools of a set.
const MAX_POOLS: usize = 32;

/// Behind so many mistakes no nearest names are looked for: it takes time, and nobody reads on.
const MAX_HINTS: usize = 100;

impl ResourceSets {
    /// Parses the files of the site's tree and holds them against its networks.
    ///
    /// # Errors
    /// Every mistake in every file.
    pub fn parse(sources: &[Source], networks: &Networks) -> Result<Self, ConfigErrors> {
        let mut parser = Parser {
            networks,
            done: <Self as Default>::default(),
            places: HashMap::new(),
            default_at: String::new(),
        };
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

    /// A set by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ResourceSet> {
        self.sets.get(name)
    }

    /// The set for templates that name none.
    #[must_use]
    pub fn default_set(&self) -> Option<&ResourceSet> {
        self.get(self.default.as_deref()?)
    }

    /// All sets by name.
    pub fn iter(&self) -> impl Iterator<Item = &ResourceSet> {
        self.sets.values()
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sets.keys().map(String::as_str)
    }
}

struct Parser<'a> {
    networks: &'a Networks,
    done: ResourceSets,
    /// Place of each set.
    places: HashMap<String, String>,
    default_at: String,
}

impl Parser<'_> {
    fn file(&mut self, source: &Source, root: &Node) -> Vec<ConfigError> {
        let mut reader = Reader::new(&source.path);
        for (name, key, node) in reader.map(root, "") {
            let path = join("", name);
            if check_name(name).is_err() {
                let message = format!(
                    "'{}' is no name of a resource set: 1 to 128 of A-Z a-z 0-9 _ . -, not starting with a dot",
                    shown(name)
                );
                reader.error(key.at, &path, message);
            }
            if let Some(place) = self.places.get(name) {
                let message = format!("the resource set is defined in {place} already");
                reader.error(key.at, &path, message);
                continue;
            }
            let defined_at = format!("{}:{}", source.path, key.at.0);
            self.places.insert(name.to_owned(), defined_at.clone());
            let set = self.set(&mut reader, name, node, defined_at);
            self.done.sets.insert(name.to_owned(), set);
        }
        reader.into_errors()
    }

    fn set(
        &mut self,
        reader: &mut Reader<'_>,
        name: &str,
        node: &Node,
        defined_at: String,
    ) -> ResourceSet {
        let path = join("", name);
        let mut set = ResourceSet {
            name: name.to_owned(),
            networks: Vec::new(),
            devices: Vec::new(),
            is_default: false,
            defined_at,
        };
        if !matches!(node.value, Value::Map(_) | Value::Null) {
            reader.wrong(node, &path, "a map such as {networks: [nat, ib]}");
            return set;
        }
        for (word, key, value) in reader.map(node, &path) {
            let path = join(&path, word);
            match word {
                "networks" => set.networks = self.networks(reader, value, &path),
                "devices" => set.devices = devices(reader, value, &path),
                "default" => {
                    set.is_default = reader.boolean(value, &path).unwrap_or(false);
                    if set.is_default {
                        self.default(reader, &set, value, &path);
                    }
                }
                _ => reader.unknown_key(key, &path, word, &names(KEYS)),
            }
        }
        set
    }

    fn default(&mut self, reader: &mut Reader<'_>, set: &ResourceSet, node: &Node, path: &str) {
        match &self.done.default {
            Some(other) => {
                let message = format!(
                    "resource set '{other}' is the default already ({}): one set may be",
                    self.default_at
                );
                reader.error(node.at, path, message);
            }
            None => {
                let file = set.defined_at.rsplit_once(':').map_or("", |(file, _)| file);
                self.default_at = format!("{file}:{}", node.at.0);
                self.done.default = Some(set.name.clone());
            }
        }
    }

    fn networks(&self, reader: &mut Reader<'_>, node: &Node, path: &str) -> Vec<String> {
        let items = reader.listed(node, path, "networks");
        if items.len() > MAX_NETWORKS {
            let message = format!(
                "has {} networks, a VM may be on {MAX_NETWORKS} at most",
                items.len()
            );
            reader.error(node.at, path, message);
            return Vec::new();
        }
        let mut list: Vec<String> = Vec::new();
        for (path, item) in items {
            let Some(name) = reader.text(item, &path) else {
                continue;
            };
            let Some(network) = self.networks.get(&name) else {
                let message = self.unknown(&name, reader.errors.len());
                reader.error(item.at, &path, message);
                continue;
            };
            if list.contains(&name) {
                let message = format!("network '{name}' is in the list already");
                reader.error(item.at, &path, message);
                continue;
            }
            let earlier = list.iter().filter_map(|n| self.networks.get(n));
            let clash = earlier
                .filter_map(|other| Some((other, clash(&other.spec, &network.spec)?)))
                .next();
            if let Some((other, why)) = clash {
                let message = format!(
                    "network '{name}' ({}) cannot be with '{}' ({}): {why}",
                    network.defined_at, other.name, other.defined_at
                );
                reader.error(item.at, &path, message);
            }
            list.push(name);
        }
        list
    }

    fn unknown(&self, name: &str, mistakes: usize) -> String {
        let mut names = self.networks.names().peekable();
        if names.peek().is_none() {
            return format!("no network '{}': networks.yaml defines none", shown(name));
        }
        let near = match mistakes {
            0..MAX_HINTS => hint(name, names),
            _ => String::new(),
        };
        let near = match near.as_str() {
            "" => {
                let some: Vec<_> = self.networks.names().take(10).collect();
                let more = if self.networks.names().nth(10).is_some() {
                    ", ..."
                } else {
                    ""
                };
                format!("; there are {}{more}", some.join(", "))
            }
            near => near.to_owned(),
        };
        format!("no network '{}'{near}", shown(name))
    }
}

fn devices(reader: &mut Reader<'_>, node: &Node, path: &str) -> Vec<String> {
    let items = reader.listed(node, path, "device pools");
    if items.len() > MAX_POOLS {
        let message = format!(
            "has {} pools, at most {MAX_POOLS} are possible",
            items.len()
        );
        reader.error(node.at, path, message);
        return Vec::new();
    }
    let mut pools = Vec::new();
    let mut seen = HashSet::new();
    for (path, item) in items {
        let Some(pool) = reader.text(item, &path) else {
            continue;
        };
        if check_name(&pool).is_err() {
            let message = format!(
                "'{}' is no name of a device pool: 1 to 128 of A-Z a-z 0-9 _ . -, not starting with a dot",
                shown(&pool)
            );
            reader.error(item.at, &path, message);
        } else if !seen.insert(pool.clone()) {
            let message = format!("pool '{pool}' is in the list already");
            reader.error(item.at, &path, message);
        } else {
            pools.push(pool);
        }
    }
    pools
}

/// Why no VM can be on both networks, if none can.
fn clash(a: &NetworkSpec, b: &NetworkSpec) -> Option<String> {
    if let (NetworkSpec::Ethernet(a), NetworkSpec::Ethernet(b)) = (a, b) {
        let has_addresses = |net: &Ethernet| net.network_layer == Layer::L3;
        if has_addresses(a) && has_addresses(b) {
            if a.int_network.overlaps(b.int_network) {
                return Some(format!(
                    "int-network {} and {} overlap, so that a VM's routes are ambiguous; give one of them another int-network, such as {}",
                    b.int_network,
                    a.int_network,
                    free(a.int_network, b.int_network)
                ));
            }
            if let (Some(six), Some(other)) = (b.ipv6_network, a.ipv6_network)
                && six.overlaps(other)
            {
                return Some(format!(
                    "ipv6-network {six} and {other} overlap, so that a VM's routes are ambiguous"
                ));
            }
        }
    }
    None
}

/// A usual private range that overlaps neither.
fn free(a: Subnet, b: Subnet) -> Subnet {
    let tens = (202..=249).map(|n| Ipv4Addr::new(10, n, 0, 0));
    let others = (16..=31).map(|n| Ipv4Addr::new(172, n, 0, 0));
    tens.chain(others)
        .map(|base| Subnet::new(base, 16))
        .find(|s| !s.overlaps(a) && !s.overlaps(b))
        .unwrap_or(Subnet::new(Ipv4Addr::new(192, 168, 0, 0), 16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Tree;
    use proptest::prelude::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.into(),
            text: text.into(),
            tree: Tree::System,
        }
    }

    fn networks() -> Networks {
        let text = "nat: {type: ethernet, settings: {dev-prefix: nat}}\npv: {type: ethernet, settings: {network-layer: L2, dev-prefix: pv}}\n";
        Networks::parse(&[source("networks.yaml", text)]).unwrap()
    }

    #[test]
    fn sets_keep_the_order_of_their_networks() {
        let text = "b: {networks: [pv, nat], default: true}\na: {networks: nat}\n";
        let sets = ResourceSets::parse(&[source("resources.yaml", text)], &networks()).unwrap();
        assert_eq!(sets.default_set().unwrap().networks, ["pv", "nat"]);
        assert_eq!(sets.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(sets.get("a").unwrap().defined_at, "resources.yaml:2");
        assert!(sets.get("c").is_none());
        let none = ResourceSets::parse(&[], &networks()).unwrap();
        assert!(none.default_set().is_none());
    }

    #[test]
    fn a_set_of_two_files_is_told_with_the_first() {
        let files = [
            source("a.yaml", "s: {networks: [nat]}\n"),
            source("b.yaml", "# two\ns: {default: true}\n"),
        ];
        let e = ResourceSets::parse(&files, &networks()).unwrap_err();
        let told = "b.yaml:2:1: s: the resource set is defined in a.yaml:1 already";
        assert_eq!(e.to_string(), told);
    }

    #[test]
    fn the_range_that_is_proposed_is_free() {
        let subnet = |s: &str| s.parse::<Subnet>().unwrap();
        let proposed = free(subnet("10.200.0.0/16"), subnet("10.200.7.0/24"));
        assert_eq!(proposed, subnet("10.202.0.0/16"));
        let proposed = free(subnet("10.0.0.0/8"), subnet("172.16.0.0/13"));
        assert_eq!(proposed, subnet("172.24.0.0/16"));
    }

    proptest! {
        #[test]
        fn random_text_does_not_panic(text in "[ -~\n]{0,200}", list in "[a-z, \\[\\]{}]{0,30}") {
            let file = source("resources.yaml", &text);
            drop(ResourceSets::parse(&[file], &networks()));
            let file = source("resources.yaml", &format!("s:\n  networks: {list}\n  devices: {list}\n"));
            drop(ResourceSets::parse(&[file], &networks()));
        }
    }
}
