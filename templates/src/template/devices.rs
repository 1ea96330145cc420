//! Reading the directories, drives and disks of a template.

use std::collections::BTreeMap;

use muster_types::ids::shown;
use muster_types::template::{
    self as spec, DataDisk, DiskCache, DiskModel, Drive, MAX_DEVICES, Mmp, Mount, MountType,
};

use super::field::Field;
use super::keys::{DATA_DISK, DRIVE, MOUNT};
use crate::key::names;
use crate::tree::{self, Node, Reader, Value};

impl Field<'_, '_> {
    pub(super) fn mounts(&mut self) -> Option<BTreeMap<String, Mount>> {
        if !matches!(self.node.value, Value::Map(_) | Value::Null) {
            self.wrong("a tag for each directory, such as {home: /home}");
            return None;
        }
        let before = self.reader.errors.len();
        let mut mounts = BTreeMap::new();
        for (tag, key, value) in self.reader.map(self.node, self.path) {
            let path = tree::join(self.path, tag);
            if let Err(why) = spec::check_tag(tag) {
                self.reader.error(key.at, &path, why);
                continue;
            }
            if let Some(mount) = mount(self.reader, value, &path) {
                mounts.insert(tag.to_owned(), mount);
            }
        }
        self.limit(mounts.len(), "mounts");
        (self.reader.errors.len() == before).then_some(mounts)
    }

    pub(super) fn drives(&mut self) -> Option<Vec<Drive>> {
        let before = self.reader.errors.len();
        let items = self
            .reader
            .items(self.node, self.path, "paths, each behind '- '");
        let mut drives: Vec<Drive> = Vec::new();
        for (path, item) in &items {
            let Some(drive) = drive(self.reader, item, path) else {
                continue;
            };
            if drives.iter().any(|d| d.path == drive.path) {
                let message = format!("drive '{}' is in the list already", shown(&drive.path));
                self.reader.error(item.at, path, message);
            }
            drives.push(drive);
        }
        self.limit(items.len(), "drives");
        (self.reader.errors.len() == before).then_some(drives)
    }

    pub(super) fn data_disks(&mut self) -> Option<Vec<DataDisk>> {
        let before = self.reader.errors.len();
        let items = self.reader.items(
            self.node,
            self.path,
            "disks, such as [{size: 10G, serial: scratch}]",
        );
        let mut disks: Vec<DataDisk> = Vec::new();
        for (path, item) in &items {
            let Some(disk) = data_disk(self.reader, item, path) else {
                continue;
            };
            if disks.iter().any(|d| d.serial == disk.serial) {
                let message = format!("serial '{}' is in the list already", disk.serial);
                self.reader.error(item.at, path, message);
            }
            disks.push(disk);
        }
        self.limit(items.len(), "disks");
        (self.reader.errors.len() == before).then_some(disks)
    }

    fn limit(&mut self, count: usize, what: &str) {
        if count > MAX_DEVICES {
            self.error(format!(
                "{count} {what}, at most {MAX_DEVICES} are possible"
            ));
        }
    }
}
fn mount(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Mount> {
    let mut mount = Mount {
        path: String::new(),
        readonly: false,
        kind: MountType::default(),
    };
    match &node.value {
        Value::Map(_) => {}
        Value::Text(text) if !text.is_empty() => {
            mount.path.clone_from(text);
            return Some(mount);
        }
        _ => {
            reader.wrong(node, path, "a path, or a map with path, readonly and type");
            return None;
        }
    }
    let before = reader.errors.len();
    let map = reader.map(node, path);
    for (word, key, value) in &map {
        let path = tree::join(path, word);
        match *word {
            "path" => mount.path = reader.text(value, &path).unwrap_or_default(),
            "readonly" => mount.readonly = reader.boolean(value, &path).unwrap_or_default(),
            "type" => {
                let kind = reader.choice(value, &path, MountType::WORDS);
                mount.kind = kind.unwrap_or_default();
            }
            _ => reader.unknown_key(key, &path, word, &names(MOUNT)),
        }
    }
    if reader.errors.len() == before && mount.path.is_empty() {
        reader.missing_key(node, path, "path");
    }
    (reader.errors.len() == before).then_some(mount)
}

/// A path; or a map of the path to its settings; or, as pcocc's own sample has it by its indentation,
/// a map of the path to nothing with the settings beside it.
fn drive(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Drive> {
    let mut drive = Drive {
        path: String::new(),
        mmp: Mmp::default(),
        cache: DiskCache::default(),
    };
    match &node.value {
        Value::Map(_) => {}
        Value::Text(text) if !text.is_empty() => {
            drive.path.clone_from(text);
            return Some(drive);
        }
        _ => {
            reader.wrong(node, path, "a path, or a path with a map of mmp and cache");
            return None;
        }
    }
    let before = reader.errors.len();
    for (word, key, value) in reader.map(node, path) {
        let is_path = word.contains('/') || word.starts_with(['~', '%']);
        if !is_path {
            drive_setting(reader, &mut drive, word, (key, value), path);
        } else if drive.path.is_empty() {
            word.clone_into(&mut drive.path);
            let path = tree::join(path, word);
            for (word, key, value) in reader.map(value, &path) {
                drive_setting(reader, &mut drive, word, (key, value), &path);
            }
        } else {
            let message = "a second path in one item: begin it with '- ' on a line of its own";
            reader.error(key.at, &tree::join(path, word), message.into());
        }
    }
    if drive.path.is_empty() && reader.errors.len() == before {
        reader.error(
            node.at,
            path,
            "the path of the drive is missing: write /PATH: {mmp: cluster}".into(),
        );
    }
    (reader.errors.len() == before).then_some(drive)
}

fn drive_setting(
    reader: &mut Reader<'_>,
    drive: &mut Drive,
    word: &str,
    (key, value): (&Node, &Node),
    path: &str,
) {
    let path = tree::join(path, word);
    match word {
        "mmp" => drive.mmp = reader.choice(value, &path, Mmp::WORDS).unwrap_or_default(),
        "cache" => {
            let cache = reader.choice(value, &path, DiskCache::WORDS);
            drive.cache = cache.unwrap_or_default();
        }
        _ if matches!(value.value, Value::Map(_) | Value::Null) => {
            let message = "no path, which holds a '/', and none of the settings mmp and cache";
            reader.error(key.at, &path, message.into());
        }
        _ => reader.unknown_key(key, &path, word, &names(DRIVE)),
    }
}

fn data_disk(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<DataDisk> {
    let before = reader.errors.len();
    let (mut size, mut serial, mut bus, mut file) = (None, None, DiskModel::default(), None);
    if !matches!(node.value, Value::Map(_)) {
        reader.wrong(
            node,
            path,
            "a map with size and serial, such as {size: 10G, serial: scratch}",
        );
        return None;
    }
    for (word, key, value) in reader.map(node, path) {
        let path = tree::join(path, word);
        let mut field = Field {
            reader,
            node: value,
            path: &path,
        };
        match word {
            "size" => size = field.size(),
            "serial" => serial = field.checked(spec::check_serial),
            "bus" => bus = field.choice(DiskModel::WORDS).unwrap_or_default(),
            "path" => file = field.filled("the path of a disk file"),
            _ => reader.unknown_key(key, &path, word, &names(DATA_DISK)),
        }
    }
    if reader.errors.len() == before {
        for (word, missing) in [("size", size.is_none()), ("serial", serial.is_none())] {
            if missing {
                reader.missing_key(node, path, word);
            }
        }
    }
    Some(DataDisk {
        size: size?,
        serial: serial?,
        bus,
        path: file,
    })
}
