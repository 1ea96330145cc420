//! The settings of one network: its keys against their table, and values that several types share.

use std::net::IpAddr;

use muster_types::ids::shown;

use crate::key::{Key, names};
use crate::tree::{Node, Reader, Value, join};

/// What is wrong with a file, and what is only odd.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    pub(super) errors: Reader<'a>,
    pub(super) warnings: Reader<'a>,
}

/// A map whose keys were held against their table.
#[derive(Debug)]
pub(super) struct Settings<'n> {
    pub(super) at: (u64, u64),
    pub(super) key: String,
    map: Vec<(&'n str, &'n Node, &'n Node)>,
}

impl<'n> Settings<'n> {
    /// Tells unknown keys, and required ones that are missing.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        node: &'n Node,
        key: &str,
        table: &'static [Key],
    ) -> Self {
        let is_map = matches!(node.value, Value::Map(_) | Value::Null);
        let map = match is_map {
            true => reader.map(node, key),
            false => {
                let first = table.first().map_or("type", |k| k.name);
                reader.wrong(node, key, &format!("a map with keys such as {first}"));
                Vec::new()
            }
        };
        for (word, name, _) in &map {
            if table.iter().all(|k| k.name != *word) {
                reader.unknown_key(name, &join(key, word), word, &names(table));
            }
        }
        for wanted in table.iter().filter(|k| is_map && k.default.is_empty()) {
            if map.iter().all(|(word, ..)| *word != wanted.name) {
                let message = format!("key '{}' is missing: {}", wanted.name, wanted.about);
                reader.error(node.at, key, message);
            }
        }
        Self {
            at: node.at,
            key: key.to_owned(),
            map,
        }
    }

    /// A key's value and path, if it is there.
    pub(super) fn get(&self, word: &str) -> Option<(&'n Node, String)> {
        let (.., value) = self.map.iter().find(|(name, ..)| *name == word)?;
        Some((value, join(&self.key, word)))
    }

    /// Place and path to blame for a key: its own, or the map's where it holds by default.
    pub(super) fn place(&self, word: &str) -> ((u64, u64), String) {
        self.get(word)
            .map_or((self.at, self.key.clone()), |(node, key)| (node.at, key))
    }

    /// Sets `slot` to what `read` makes of a key that is there and right.
    pub(super) fn set<T>(
        &self,
        slot: &mut T,
        word: &str,
        read: impl FnOnce(&'n Node, &str) -> Option<T>,
    ) {
        if let Some((node, key)) = self.get(word)
            && let Some(value) = read(node, &key)
        {
            *slot = value;
        }
    }
}

/// A whole number of 16 bits.
pub(super) fn number16(
    reader: &mut Reader<'_>,
    node: &Node,
    key: &str,
    range: (u16, u16),
) -> Option<u16> {
    let number = reader.number(node, key, range.0.into(), range.1.into())?;
    u16::try_from(number).ok()
}

/// An MTU that IPv4 can live with (RFC 791: 576 bytes) and a 16-bit length can say.
pub(super) fn mtu(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<u16> {
    number16(reader, node, key, (576, u16::MAX))
}

/// What begins the names of devices on the host: the kernel allows 15 characters for a whole name,
/// so that a few are left for job and number.
pub(super) fn device_prefix(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<String> {
    reader.parsed(node, key, |text| {
        let ok = text.len() <= 8
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if ok {
            Ok(text.to_owned())
        } else {
            Err(format!(
                "'{}' cannot begin the names of devices: a letter, then letters, digits, _ or -, at most 8 in all, such as nat",
                shown(text)
            ))
        }
    })
}

/// A device of the kernel's, which is a directory of `/sys`.
pub(super) fn device(
    reader: &mut Reader<'_>,
    node: &Node,
    key: &str,
    (what, most): (&str, usize),
) -> Option<String> {
    reader.parsed(node, key, |text| {
        let ok = (1..=most).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        if ok {
            Ok(text.to_owned())
        } else {
            Err(format!(
                "'{}' is no name of {what}: a letter or digit, then letters, digits, _ - or ., at most {most} in all",
                shown(text)
            ))
        }
    })
}

/// An IPv4 or IPv6 address.
pub(super) fn address(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<IpAddr> {
    if !matches!(node.value, Value::Text(_)) {
        reader.wrong(node, key, "an IP address such as 10.0.0.53");
        return None;
    }
    reader.parsed(node, key, |text| {
        text.parse()
            .map_err(|_| format!("'{}' is no IP address such as 10.0.0.53", shown(text)))
    })
}

/// Checks a domain: what DNS allows (RFC 1035, 2.3.4), and underscores.
pub(super) fn domain(text: &str) -> Result<String, String> {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    if text.len() <= 253 && text.split('.').all(label) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{}' is no domain such as cluster.example: letters, digits, - and _, from 1 to 63 between dots",
            shown(text)
        ))
    }
}
