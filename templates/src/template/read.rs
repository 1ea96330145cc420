//! Reading the keys of a template.

use std::collections::BTreeMap;

use muster_types::ids::{Mib, shown};
use muster_types::image::ImageUri;
use muster_types::request::MAX_VCPUS;
use muster_types::template::{
    self as spec, Accel, DataDisk, DiskCache, DiskModel, Display, Drive, Firmware, Gpus, HugePages,
    MAX_DEVICES, Mmp, Mount, MountType, RANK, Ready,
};
use serde_json::{Map, Value as Json, json};

use super::keys::{DATA_DISK, DRIVE, KEYS, MOUNT};
use super::{Settings, UserDataSource, UsersSource};
use crate::key::names;
use crate::tree::{self, Node, Reader, Value};

/// How deep an inline `user-data` may nest.
const MAX_DEPTH: usize = 32;

/// What a template says beside its settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rest {
    /// Its description.
    pub(crate) description: Option<String>,
    /// Its parent, with the place of the value.
    pub(crate) inherits: Option<(String, (u64, u64))>,
    /// Each key that is set, with the place of its value.
    pub(crate) places: Vec<(&'static str, (u64, u64))>,
}

/// Reads a template's map. `name` is its path for messages.
pub(crate) fn read(reader: &mut Reader<'_>, node: &Node, name: &str) -> (Settings, Rest) {
    let mut settings = Settings::default();
    let mut rest = Rest::default();
    for (word, key, value) in reader.map(node, name) {
        let path = tree::join(name, word);
        let mut field = Field {
            reader,
            node: value,
            path: &path,
        };
        match word {
            "description" => rest.description = field.text(),
            "inherits" => rest.inherits = field.text().map(|t| (t, value.at)),
            _ if machine(&mut settings, word, &mut field) => {}
            _ if disks(&mut settings, word, &mut field) => {}
            _ if guest(&mut settings, word, &mut field) => {}
            _ => {
                reader.unknown_key(key, &path, word, &names(KEYS));
                continue;
            }
        }
        let known = KEYS.iter().find(|k| k.name == word);
        rest.places.extend(known.map(|k| (k.name, value.at)));
    }
    (settings, rest)
}

/// The keys of CPUs, memory and the board; whether it was one of them.
fn machine(to: &mut Settings, word: &str, field: &mut Field<'_, '_>) -> bool {
    match word {
        "cpus" => to.cpus = field.count(1, MAX_VCPUS),
        "memory" => to.memory = field.size(),
        "accel" => to.accel = field.choice(Accel::WORDS),
        "hugepages" => to.hugepages = field.choice_or("off", HugePages::WORDS),
        "machine-type" => to.machine_type = field.checked(spec::check_model),
        "cpu-model" => to.cpu_model = field.checked(spec::check_model),
        "nic-model" => to.nic_model = field.checked(spec::check_model),
        "qemu-bin" => to.qemu_bin = field.filled(),
        "custom-args" => to.custom_args = field.texts(256),
        "kernel" => to.kernel = field.filled(),
        "initrd" => to.initrd = field.filled(),
        "kernel-args" => to.kernel_args = field.text(),
        "firmware" => to.firmware = field.choice(Firmware::WORDS),
        "tpm" => to.tpm = field.boolean(),
        "remote-display" => to.remote_display = field.choice_or("none", Display::WORDS),
        "gpus" => to.gpus = field.gpus(),
        "emulator-cores" => to.emulator_cores = field.count(0, MAX_VCPUS),
        "bind-vcpus" => to.bind_vcpus = field.boolean(),
        "full-node" => to.full_node = field.boolean(),
        _ => return false,
    }
    true
}

/// The keys of disks and directories.
fn disks(to: &mut Settings, word: &str, field: &mut Field<'_, '_>) -> bool {
    match word {
        "image" => to.image = field.image(),
        "disk-size" => to.disk_size = field.size(),
        "disk-model" => to.disk_model = field.choice(DiskModel::WORDS),
        "disk-cache" => to.disk_cache = field.choice(DiskCache::WORDS),
        "mount-points" => to.mount_points = field.mounts(),
        "persistent-drives" => to.persistent_drives = field.drives(),
        "data-disks" => to.data_disks = field.data_disks(),
        _ => return false,
    }
    true
}

/// The keys of what the guest is told and how it is reached.
fn guest(to: &mut Settings, word: &str, field: &mut Field<'_, '_>) -> bool {
    match word {
        "resource-set" => to.resource_set = field.filled(),
        "user-data" => to.user_data = field.user_data(),
        "instance-id" => to.instance_id = field.filled(),
        "users" => to.users = field.users(),
        "ready" => to.ready = field.ready(),
        "ready-timeout" => to.ready_timeout = field.count(1, 86_400),
        "hostname" => to.hostname = field.checked(host_name),
        "dns-aliases" => to.dns_aliases = field.aliases(),
        _ => return false,
    }
    true
}

fn host_name(text: &str) -> Result<(), String> {
    spec::check_host_name(&text.replace(RANK, "0"))
}

/// A key's value under reading.
struct Field<'r, 'n> {
    reader: &'r mut Reader<'n>,
    node: &'r Node,
    path: &'r str,
}

impl Field<'_, '_> {
    fn error(&mut self, message: String) {
        self.reader.error(self.node.at, self.path, message);
    }

    fn text(&mut self) -> Option<String> {
        self.reader.text(self.node, self.path)
    }

    /// Text that is not empty.
    fn filled(&mut self) -> Option<String> {
        let text = self.text()?;
        if text.trim().is_empty() {
            self.error("must not be empty: leave the key out".into());
            return None;
        }
        Some(text)
    }

    fn checked(&mut self, check: impl Fn(&str) -> Result<(), String>) -> Option<String> {
        self.reader.parsed(self.node, self.path, |text| {
            check(text).map(|()| text.to_owned())
        })
    }

    fn count(&mut self, from: u32, to: u32) -> Option<u32> {
        let number = self
            .reader
            .number(self.node, self.path, from.into(), to.into());
        number.and_then(|n| u32::try_from(n).ok())
    }

    fn boolean(&mut self) -> Option<bool> {
        self.reader.boolean(self.node, self.path)
    }

    fn choice<T: Copy>(&mut self, words: &[(&str, T)]) -> Option<T> {
        self.reader.choice(self.node, self.path, words)
    }

    /// One of some words, or the word for none of them, which YAML 1.1 may read as false.
    fn choice_or<T: Copy>(&mut self, none: &str, words: &[(&str, T)]) -> Option<Option<T>> {
        if none == "off" && matches!(self.node.value, Value::Bool(false)) {
            return Some(None);
        }
        let mut all = vec![(none, None)];
        all.extend(words.iter().map(|(word, value)| (*word, Some(*value))));
        self.choice(&all)
    }

    fn size(&mut self) -> Option<Mib> {
        if !matches!(self.node.value, Value::Int(_) | Value::Text(_)) {
            let found = self.node.value.describe();
            self.error(format!("must be a size such as 512M or 4G, found {found}"));
            return None;
        }
        self.reader.parsed(self.node, self.path, str::parse)
    }

    fn texts(&mut self, most: usize) -> Option<Vec<String>> {
        let before = self.reader.errors.len();
        let texts = self.reader.texts(self.node, self.path);
        if texts.len() > most {
            self.error(format!(
                "has {} items, at most {most} are possible",
                texts.len()
            ));
        }
        (self.reader.errors.len() == before).then_some(texts)
    }

    fn aliases(&mut self) -> Option<Vec<String>> {
        let aliases = self.texts(MAX_DEVICES)?;
        match aliases.iter().find_map(|a| host_name(a).err()) {
            Some(why) => {
                self.error(why);
                None
            }
            None => Some(aliases),
        }
    }

    /// An image by name or path; what stands in `%{...}` is known at submission.
    fn image(&mut self) -> Option<String> {
        let text = self.filled()?;
        if text.contains(['/', '%']) || text.starts_with('~') {
            return Some(text);
        }
        if let Err(e) = text.parse::<ImageUri>() {
            self.error(e.to_string());
            return None;
        }
        Some(text)
    }

    fn gpus(&mut self) -> Option<Gpus> {
        if matches!(&self.node.value, Value::Text(word) if word == "all") {
            return Some(Gpus::All);
        }
        let most = u64::try_from(MAX_DEVICES).unwrap_or(u64::MAX);
        let count = match self.node.value {
            Value::Int(n) => u64::try_from(n).ok().filter(|n| *n <= most),
            _ => None,
        };
        match count.and_then(|n| u32::try_from(n).ok()) {
            Some(count) => Some(Gpus::Count(count)),
            None => {
                let found = self.node.value.describe();
                self.error(format!(
                    "must be a number from 0 to {most}, or all, found {found}"
                ));
                None
            }
        }
    }

    fn users(&mut self) -> Option<UsersSource> {
        let text = self.filled()?;
        match text.as_str() {
            "none" => Some(UsersSource::None),
            "me" => Some(UsersSource::Me),
            path if path.contains('/') => Some(UsersSource::Roster(text)),
            _ => {
                let near = crate::nearest::hint(&text, ["me", "none"]);
                self.error(format!(
                    "must be me, none, or the path of a roster file, found the text '{}'{near}",
                    shown(&text)
                ));
                None
            }
        }
    }

    fn ready(&mut self) -> Option<Ready> {
        let words = [("running", 0), ("agent", 1), ("ssh", 2), ("cloud-init", 3)];
        if !matches!(self.node.value, Value::Map(_)) {
            let tests = [Ready::Running, Ready::Agent, Ready::Ssh, Ready::CloudInit];
            return tests.get(self.choice(&words)?).cloned();
        }
        let mut ready = None;
        for (word, key, value) in self.reader.map(self.node, self.path) {
            let path = tree::join(self.path, word);
            if word != "command" {
                self.reader.unknown_key(key, &path, word, &["command"]);
                continue;
            }
            let before = self.reader.errors.len();
            let words = match &value.value {
                Value::List(_) => self.reader.texts(value, &path),
                _ => {
                    self.reader
                        .wrong(value, &path, "a list: the program and its arguments");
                    continue;
                }
            };
            if words.is_empty() || words.len() > 64 {
                let message = "has a program and at most 63 arguments";
                self.reader.error(value.at, &path, message.into());
            } else if self.reader.errors.len() == before {
                ready = Some(Ready::Command(words));
            }
        }
        if ready.is_none() && matches!(&self.node.value, Value::Map(pairs) if pairs.is_empty()) {
            self.error(
                "must be running, agent, ssh, cloud-init, or command: [PROGRAM, ...]".into(),
            );
        }
        ready
    }

    /// A path, a map that becomes `#cloud-config`, or a text of several lines that is passed as it is.
    fn user_data(&mut self) -> Option<UserDataSource> {
        match &self.node.value {
            Value::Map(_) => {
                let value = self.plain(self.node, self.path, 0)?;
                // JSON is YAML that no reader can take for something else.
                Some(UserDataSource::Inline(format!("#cloud-config\n{value}\n")))
            }
            Value::Text(text) if text.contains('\n') || text.starts_with('#') => {
                Some(UserDataSource::Inline(text.clone()))
            }
            Value::Text(_) => self.filled().map(UserDataSource::Path),
            other => {
                let found = other.describe();
                self.error(format!(
                    "must be the path of a file, or a map of cloud-config, found {found}"
                ));
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

    fn mounts(&mut self) -> Option<BTreeMap<String, Mount>> {
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

    fn drives(&mut self) -> Option<Vec<Drive>> {
        let before = self.reader.errors.len();
        let items = self.reader.items(self.node, self.path, "drives");
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

    fn data_disks(&mut self) -> Option<Vec<DataDisk>> {
        let before = self.reader.errors.len();
        let items = self
            .reader
            .items(self.node, self.path, "disks, each with size and serial");
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
            "the path of the drive is missing: PATH: {mmp: .., cache: ..}".into(),
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
        _ => reader.unknown_key(key, &path, word, &names(DRIVE)),
    }
}

fn data_disk(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<DataDisk> {
    let before = reader.errors.len();
    let (mut size, mut serial, mut bus, mut file) = (None, None, DiskModel::default(), None);
    if !matches!(node.value, Value::Map(_)) {
        reader.wrong(node, path, "a map with size and serial");
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
            "path" => file = field.filled(),
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
