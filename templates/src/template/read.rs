//! Reading the keys of a template.

use muster_types::request::MAX_VCPUS;
use muster_types::template::{
    self as spec, Accel, DiskCache, DiskModel, Display, Firmware, HugePages,
};

use super::Settings;
use super::field::{Field, host_name};
use super::keys::KEYS;
use crate::key::names;
use crate::tree::{self, Node, Reader, Value};

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
    if !matches!(node.value, Value::Map(_) | Value::Null) {
        not_keys(reader, node, name);
        return (settings, rest);
    }
    for (word, key, value) in reader.map(node, name) {
        let path = tree::join(name, word);
        let mut field = Field {
            reader,
            node: value,
            path: &path,
        };
        match word {
            "description" => rest.description = field.text(),
            "inherits" => {
                let parent = field.filled("the name of one template");
                rest.inherits = parent.map(|parent| (parent, value.at));
            }
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
        "qemu-bin" => to.qemu_bin = field.filled("the path or name of a program"),
        "custom-args" => to.custom_args = field.arguments(),
        "kernel" => to.kernel = field.filled("the path of a file"),
        "initrd" => to.initrd = field.filled("the path of a file"),
        "kernel-args" => to.kernel_args = field.line("one text, such as 'console=ttyS0 quiet'"),
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
        "resource-set" => to.resource_set = field.resource_set(),
        "user-data" => to.user_data = field.user_data(),
        "instance-id" => to.instance_id = field.filled("text"),
        "users" => to.users = field.users(),
        "ready" => to.ready = field.ready(),
        "ready-timeout" => to.ready_timeout = field.count(1, 86_400),
        "hostname" => to.hostname = field.checked(host_name),
        "dns-aliases" => to.dns_aliases = field.aliases(),
        _ => return false,
    }
    true
}

/// The mistake of a template that is no map.
fn not_keys(reader: &mut Reader<'_>, node: &Node, name: &str) {
    if names(KEYS).contains(&name) {
        let message = "this is a key of a template: indent it below the template's name";
        reader.error(node.at, name, message.into());
        return;
    }
    let wanted = "the template's keys, such as 'image: tiny', each indented on a line of its own and \
                  with a space behind the colon";
    reader.wrong(node, name, wanted);
}
