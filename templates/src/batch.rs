//! `batch.yaml`: how muster works with this site's Slurm and state store.

use std::time::Duration;

use muster_types::ids::shown;

use crate::error::ConfigErrors;
use crate::key::{File, Key, Shape, names};
use crate::source::Source;
use crate::tree::{self, Node, Reader};

const KEYS: &[Key] = &[
    Key {
        name: "type",
        shape: Shape::Words(&["slurm"]),
        default: "slurm",
        about: "the batch system",
    },
    Key {
        name: "settings",
        shape: Shape::Keys(SETTINGS),
        default: "all defaults",
        about: "how Muster works with this site",
    },
];

const SETTINGS: &[Key] = &[
    Key {
        name: "batch-args",
        shape: Shape::Either(&[Shape::Text, Shape::List(&Shape::Text)]),
        default: "none",
        about: "options that `muster alloc` and `muster batch` add to `salloc` and `sbatch`, before those of the user",
    },
    Key {
        name: "etcd-auth-type",
        shape: Shape::Words(&["none", "password"]),
        default: "none",
        about: "how `vmd` proves to etcd who it is, beside a client certificate; `password`: as etcd's user root",
    },
    Key {
        name: "etcd-ca-cert",
        shape: Shape::Text,
        default: "none",
        about: "file with the certificate that etcd's is signed by",
    },
    Key {
        name: "etcd-client-cert",
        shape: Shape::Text,
        default: "none",
        about: "file with the certificate that `vmd` shows to etcd; with `etcd-client-key` and `https`",
    },
    Key {
        name: "etcd-client-key",
        shape: Shape::Text,
        default: "none",
        about: "file with the key of that certificate",
    },
    Key {
        name: "etcd-client-port",
        shape: Shape::Number(1, 65_535),
        default: "2379",
        about: "etcd's port for clients",
    },
    Key {
        name: "etcd-password-file",
        shape: Shape::Text,
        default: "etcd-password beside batch.yaml",
        about: "file that holds etcd's password and that only root can read",
    },
    Key {
        name: "etcd-protocol",
        shape: Shape::Words(&["http", "https"]),
        default: "http",
        about: "how etcd is spoken to",
    },
    Key {
        name: "etcd-servers",
        shape: Shape::Either(&[Shape::Text, Shape::List(&Shape::Text)]),
        default: "[localhost]",
        about: "host names or addresses of etcd (IPv6 in brackets), without scheme and port",
    },
    Key {
        name: "on-failure",
        shape: Shape::Words(&["cancel", "keep"]),
        default: "cancel",
        about: "what becomes of a job whose VMs do not come up",
    },
    Key {
        name: "operators",
        shape: Shape::Either(&[Shape::Text, Shape::List(&Shape::Text)]),
        default: "none",
        about: "names of users who see the clusters of all, as root does",
    },
    Key {
        name: "prepare-timeout",
        shape: Shape::Number(1, MAX_SECONDS),
        default: "30",
        about: "seconds that all nodes of a job have to prepare it",
    },
    Key {
        name: "scratch-dir",
        shape: Shape::Text,
        default: "/var/lib/muster/scratch",
        about: "where the overlays of VMs are, on every node's own disk",
    },
    Key {
        name: "state",
        shape: Shape::Words(&["etcd", "embedded"]),
        default: "etcd",
        about: "where state is kept; `embedded`: in a file of the one `vmd`, without etcd, for jobs of one node",
    },
    Key {
        name: "stop-timeout",
        shape: Shape::Number(1, MAX_SECONDS),
        default: "20",
        about: "seconds that a VM has to power down before it is ended",
    },
    Key {
        name: "vm-memory-overhead",
        shape: Shape::Number(0, MAX_OVERHEAD),
        default: "192",
        about: "MiB of the job's memory that are kept for QEMU beside each VM's RAM; 1.5 % of the RAM come on top",
    },
];

/// `batch.yaml`.
pub const FILE: File = File {
    name: "batch",
    about: "how Muster works with this site's Slurm and state store",
    shape: Shape::Keys(KEYS),
};

/// The longest time that may be set.
const MAX_SECONDS: u64 = 3600;

/// The largest `vm-memory-overhead` in MiB.
const MAX_OVERHEAD: u64 = 1 << 20;

/// Where state is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// In etcd.
    Etcd,
    /// In a file of the one vmd: jobs of one node only.
    Embedded,
}

/// How etcd is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// In clear.
    Http,
    /// With TLS.
    Https,
}

/// How vmd proves to etcd who it is, beside a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthType {
    /// Not at all.
    None,
    /// As etcd's user root, by a password from a file.
    Password,
}

/// What becomes of a job whose virtual cluster does not come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It is cancelled.
    Cancel,
    /// It is kept.
    Keep,
}

/// What QEMU needs beside guest RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOverhead {
    /// Per VM, in MiB.
    pub mib: u64,
    /// As a share of guest RAM, in thousandths.
    pub permille: u64,
}

/// The batch file's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchConfig {
    /// `state`: `etcd` (default) or `embedded`.
    pub state: State,
    /// `etcd-servers`: host names; default `localhost`.
    pub etcd_servers: Vec<String>,
    /// `etcd-client-port`: default 2379.
    pub etcd_client_port: u16,
    /// `etcd-protocol`: `http` (default) or `https`.
    pub etcd_protocol: Protocol,
    /// `etcd-auth-type`: `none` (default) or `password`.
    pub etcd_auth_type: AuthType,
    /// `etcd-ca-cert`: file.
    pub etcd_ca_cert: Option<String>,
    /// `etcd-client-cert`: file.
    pub etcd_client_cert: Option<String>,
    /// `etcd-client-key`: file.
    pub etcd_client_key: Option<String>,
    /// `etcd-password-file`: default `etcd-password` beside `batch.yaml`.
    pub etcd_password_file: String,
    /// `scratch-dir`: default `/var/lib/muster/scratch`.
    pub scratch_dir: String,
    /// `vm-memory-overhead`: MiB per VM, default 192; 1.5 % of guest RAM come on top.
    pub vm_memory_overhead: MemoryOverhead,
    /// `on-failure`: `cancel` (default) or `keep`.
    pub on_failure: OnFailure,
    /// `prepare-timeout`: seconds, default 30.
    pub prepare_timeout: Duration,
    /// `stop-timeout`: seconds, default 20.
    pub stop_timeout: Duration,
    /// `operators`: names of users who see the clusters of all.
    pub operators: Vec<String>,
    /// `batch-args`: options that `muster alloc` and `muster batch` add to `salloc` and `sbatch`.
    pub batch_args: Vec<String>,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            state: State::Etcd,
            etcd_servers: vec!["localhost".into()],
            etcd_client_port: 2379,
            etcd_protocol: Protocol::Http,
            etcd_auth_type: AuthType::None,
            etcd_ca_cert: None,
            etcd_client_cert: None,
            etcd_client_key: None,
            etcd_password_file: "/etc/muster/etcd-password".into(),
            scratch_dir: "/var/lib/muster/scratch".into(),
            vm_memory_overhead: MemoryOverhead {
                mib: 192,
                permille: 15,
            },
            on_failure: OnFailure::Cancel,
            prepare_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(20),
            operators: Vec::new(),
            batch_args: Vec::new(),
        }
    }
}

/// Parses the file; without one, the defaults.
///
/// # Errors
/// Every mistake in it.
pub fn parse(source: Option<&Source>) -> Result<BatchConfig, ConfigErrors> {
    let mut config = BatchConfig::default();
    let Some(source) = source else {
        return Ok(config);
    };
    if let Some((dir, _)) = source.path.rsplit_once('/') {
        config.etcd_password_file = format!("{dir}/etcd-password");
    }
    let root = tree::parse(source).map_err(|e| ConfigErrors(vec![e]))?;
    let mut reader = Reader::new(&source.path);
    for (word, key, node) in reader.map(&root, "") {
        match word {
            "type" => drop(reader.choice(node, "type", &[("slurm", ())])),
            "settings" => {
                for (word, key, node) in reader.map(node, "settings") {
                    setting(&mut reader, &mut config, word, key, node);
                }
            }
            _ if names(SETTINGS).contains(&word) => {
                let message = format!("key '{word}' belongs below 'settings'");
                reader.error(key.at, word, message);
            }
            _ => reader.unknown_key(key, word, word, &names(KEYS)),
        }
    }
    if config.etcd_client_cert.is_some() != config.etcd_client_key.is_some() {
        let message = "'etcd-client-cert' and 'etcd-client-key' go together";
        reader.error(root.at, "settings", message.into());
    }
    if config.etcd_client_cert.is_some() && config.etcd_protocol == Protocol::Http {
        let message = "'etcd-client-cert' needs 'etcd-protocol: https'";
        reader.error(root.at, "settings", message.into());
    }
    if reader.errors.is_empty() {
        Ok(config)
    } else {
        Err(ConfigErrors(reader.into_errors()))
    }
}

fn setting(reader: &mut Reader<'_>, config: &mut BatchConfig, word: &str, key: &Node, node: &Node) {
    let path = format!("settings.{word}");
    let set = |slot: &mut String, text: Option<String>| {
        if let Some(text) = text {
            *slot = text;
        }
    };
    match word {
        "state" => {
            let choices = [("etcd", State::Etcd), ("embedded", State::Embedded)];
            config.state = reader.choice(node, &path, &choices).unwrap_or(config.state);
        }
        "etcd-servers" => config.etcd_servers = servers(reader, node, &path),
        "etcd-client-port" => {
            let port = reader.number(node, &path, 1, 65_535);
            config.etcd_client_port = port.and_then(|p| u16::try_from(p).ok()).unwrap_or(2379);
        }
        "etcd-protocol" => {
            let choices = [("http", Protocol::Http), ("https", Protocol::Https)];
            let chosen = reader.choice(node, &path, &choices);
            config.etcd_protocol = chosen.unwrap_or(config.etcd_protocol);
        }
        "etcd-auth-type" => auth_type(reader, config, node, &path),
        "etcd-ca-cert" => config.etcd_ca_cert = reader.absolute_path(node, &path),
        "etcd-client-cert" => config.etcd_client_cert = reader.absolute_path(node, &path),
        "etcd-client-key" => config.etcd_client_key = reader.absolute_path(node, &path),
        "etcd-password-file" => {
            set(
                &mut config.etcd_password_file,
                reader.absolute_path(node, &path),
            );
        }
        "scratch-dir" => set(&mut config.scratch_dir, reader.absolute_path(node, &path)),
        "vm-memory-overhead" => {
            let mib = reader.number(node, &path, 0, MAX_OVERHEAD);
            config.vm_memory_overhead.mib = mib.unwrap_or(192);
        }
        "on-failure" => {
            let choices = [("cancel", OnFailure::Cancel), ("keep", OnFailure::Keep)];
            let chosen = reader.choice(node, &path, &choices);
            config.on_failure = chosen.unwrap_or(config.on_failure);
        }
        "prepare-timeout" => {
            config.prepare_timeout = seconds(reader, node, &path).unwrap_or(config.prepare_timeout);
        }
        "stop-timeout" => {
            config.stop_timeout = seconds(reader, node, &path).unwrap_or(config.stop_timeout);
        }
        "operators" => config.operators = reader.texts(node, &path),
        "batch-args" => config.batch_args = batch_args(reader, node, &path),
        _ => reader.unknown_key(key, &path, word, &names(SETTINGS)),
    }
}

fn seconds(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Duration> {
    let seconds = reader.number(node, path, 1, MAX_SECONDS)?;
    Some(Duration::from_secs(seconds))
}

fn servers(reader: &mut Reader<'_>, node: &Node, path: &str) -> Vec<String> {
    let wanted = "host names or addresses such as etcd1 or '[fd00::2]', without scheme and port";
    let told = reader.errors.len();
    let items = reader.listed(node, path, wanted);
    if items.is_empty() && reader.errors.len() == told {
        reader.error(
            node.at,
            path,
            format!("is empty: list at least one of {wanted}"),
        );
    }
    let server = |text: &str| {
        let in_brackets = text.starts_with('[') && text.ends_with(']');
        let ok = !text.is_empty()
            && text.bytes().all(|b| {
                b.is_ascii_alphanumeric()
                    || matches!(b, b'.' | b'-')
                    || (in_brackets && matches!(b, b':' | b'[' | b']'))
            });
        if ok {
            Ok(text.to_owned())
        } else {
            let found = shown(text);
            Err(format!("'{found}' is not possible: allowed are {wanted}"))
        }
    };
    items
        .into_iter()
        .filter_map(|(key, item)| reader.parsed(item, &key, server))
        .collect()
}

/// Arguments as they are handed to the commands, without a shell between.
fn batch_args(reader: &mut Reader<'_>, node: &Node, path: &str) -> Vec<String> {
    let arg = |text: &str| {
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if text.is_empty() || text.contains('\0') {
            Err("an argument may not be empty or hold a NUL byte".to_owned())
        } else if first.starts_with('-') && !first.contains('=') && !rest.is_empty() {
            let (first, rest) = (shown(first), shown(rest.trim()));
            let found = shown(text);
            Err(format!(
                "'{found}' would be one argument: write ['{first}', '{rest}']"
            ))
        } else {
            Ok(text.to_owned())
        }
    };
    let items = reader.listed(node, path, "options such as ['--account=vm']");
    items
        .into_iter()
        .filter_map(|(key, item)| reader.parsed(item, &key, arg))
        .collect()
}

fn auth_type(reader: &mut Reader<'_>, config: &mut BatchConfig, node: &Node, path: &str) {
    if matches!(&node.value, tree::Value::Text(t) if t == "munge") {
        let message = "'munge' needs pcocc's patched etcd and gives users etcd credentials: use a client certificate (etcd-client-cert, etcd-client-key) or 'password'";
        reader.error(node.at, path, message.into());
        return;
    }
    let choices = [("none", AuthType::None), ("password", AuthType::Password)];
    let chosen = reader.choice(node, path, &choices);
    config.etcd_auth_type = chosen.unwrap_or(config.etcd_auth_type);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Tree;

    fn parsed(text: &str) -> Result<BatchConfig, String> {
        let source = Source {
            path: "/etc/pcocc/batch.yaml".into(),
            text: text.into(),
            tree: Tree::System,
        };
        parse(Some(&source)).map_err(|e| e.to_string())
    }

    #[test]
    fn a_pcocc_file_is_read() {
        let text = "type: slurm\nsettings:\n  etcd-servers:\n    - node1\n    - node2\n  etcd-client-port: 2379\n  etcd-protocol: http\n  etcd-auth-type: password\n";
        let config = parsed(text).unwrap();
        assert_eq!(config.etcd_servers, ["node1", "node2"]);
        assert_eq!(config.etcd_auth_type, AuthType::Password);
        assert_eq!(config.etcd_password_file, "/etc/pcocc/etcd-password");
        assert_eq!(parse(None).unwrap(), BatchConfig::default());
        let empty = parsed("type: slurm\n").unwrap();
        assert_eq!(empty.etcd_servers, BatchConfig::default().etcd_servers);
    }

    #[test]
    fn mistakes_are_told() {
        let text = "type: pbs\nsettings:\n  etcd-auth-type: munge\n  etcd-servers: ['http://a']\n  prepare-timeout: 0\n  scratch-dir: tmp\n  on-failur: keep\n  etcd-client-cert: /c\n";
        let e = parsed(text).unwrap_err();
        for part in [
            "batch.yaml:1:7: type: must be one of slurm",
            "3:19: settings.etcd-auth-type: 'munge' needs",
            "settings.etcd-servers[0]: 'http://a' is not possible",
            "from 1 to 3600, found the number 0",
            "must be an absolute path, found the text 'tmp'",
            "did you mean 'on-failure'?",
            "go together",
        ] {
            assert!(e.contains(part), "{part} in {e}");
        }
    }
}
