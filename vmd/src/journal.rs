//! The journal: one file per run of a job, `<run>/jobs/<job>.<restart>.json`, written by atomic
//! rename before each host object is made, so that a vmd that starts again knows what is its own.
//!
//! It lies on a tmpfs on purpose: what it records (sockets, processes) dies with the boot.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use muster_types::api::JobFacts;
use muster_types::ids::JobKey;
use serde::{Deserialize, Serialize};

use crate::host::process::ProcessId;

/// What is known of a job on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Entry {
    /// What Slurm said.
    pub facts: JobFacts,
    /// What the user asked for, as it came.
    pub request: Option<String>,
    /// Host objects that exist or are about to, in the order they are made.
    pub objects: Vec<HostObject>,
    /// The shim that took the launch plan last.
    #[serde(default)]
    pub shim: Option<ProcessId>,
    /// Why the job was refused: it stays so, whatever the configuration says later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The release has begun: only the undoing may go on.
    #[serde(default)]
    pub releasing: bool,
}

/// Something on the host that has to be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostObject {
    /// A directory of the job's user.
    Directory {
        /// Where.
        path: PathBuf,
    },
    /// The srun of the VM step; without an id until it has been started.
    Step {
        /// The process.
        id: Option<ProcessId>,
        /// Its log.
        log: PathBuf,
    },
    /// Keys in the state store that this node wrote.
    StoreKeys {
        /// Each is deleted with all below it.
        keys: Vec<String>,
    },
}

impl Entry {
    /// The run of the job.
    #[must_use]
    pub fn key(&self) -> JobKey {
        self.facts.key
    }

    /// The process of the VM step, if it was started.
    #[must_use]
    pub fn step(&self) -> Option<ProcessId> {
        self.objects.iter().find_map(|o| match o {
            HostObject::Step { id, .. } => *id,
            _ => None,
        })
    }

    /// Whether the VM step was to be started.
    #[must_use]
    pub fn step_intended(&self) -> bool {
        self.objects
            .iter()
            .any(|o| matches!(o, HostObject::Step { .. }))
    }

    /// Writes down the process of the VM step.
    pub fn set_step(&mut self, process: ProcessId) {
        for object in &mut self.objects {
            if let HostObject::Step { id, .. } = object {
                *id = Some(process);
            }
        }
    }
}

/// A journal file that cannot be written, read or removed.
#[derive(Debug, thiserror::Error)]
#[error("{what} journal {}", path.display())]
pub struct JournalError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl JournalError {
    /// The run of a job that the file is named after.
    #[must_use]
    pub fn run(&self) -> Option<String> {
        let stem = self.path.file_stem()?.to_str()?;
        stem.parse::<JobKey>().ok().map(|key| key.to_string())
    }
}

/// The journal's directory.
#[derive(Debug, Clone)]
pub struct Journal {
    dir: PathBuf,
}

impl Journal {
    /// A journal in `dir`, which exists and is root's own.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, key: JobKey) -> PathBuf {
        self.dir.join(format!("{key}.json"))
    }

    /// Where srun's messages for the VM step of a job go.
    #[must_use]
    pub fn step_log(&self, key: JobKey) -> PathBuf {
        self.dir.join(format!("{key}.step.log"))
    }

    /// Writes an entry so that a reader sees the old or the new one, never a part.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn write(&self, entry: &Entry) -> Result<(), JournalError> {
        let path = self.path(entry.key());
        let temp = self.dir.join(format!(".{}.tmp", entry.key()));
        let fail = |source| JournalError {
            what: "write",
            path: path.clone(),
            source,
        };
        let bytes = serde_json::to_vec(entry).map_err(|e| fail(e.into()))?;
        let mut file = std::fs::File::create(&temp).map_err(fail)?;
        file.write_all(&bytes).map_err(fail)?;
        std::fs::rename(&temp, &path).map_err(fail)
    }

    /// Removes an entry; one that is not there is well.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn remove(&self, key: JobKey) -> Result<(), JournalError> {
        let path = self.path(key);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(JournalError {
                what: "remove",
                path,
                source,
            }),
            _ => Ok(()),
        }
    }

    /// All entries, and the files that are none, with the reason.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn read_all(&self) -> Result<(Vec<Entry>, Vec<JournalError>), JournalError> {
        let fail = |path: &Path, source| JournalError {
            what: "read",
            path: path.to_owned(),
            source,
        };
        let (mut entries, mut bad) = (Vec::new(), Vec::new());
        for file in std::fs::read_dir(&self.dir).map_err(|e| fail(&self.dir, e))? {
            let path = file.map_err(|e| fail(&self.dir, e))?.path();
            if path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            let read = std::fs::read(&path)
                .and_then(|bytes| serde_json::from_slice::<Entry>(&bytes).map_err(io::Error::from));
            match read {
                Ok(entry) => entries.push(entry),
                Err(e) => bad.push(fail(&path, e)),
            }
        }
        entries.sort_by_key(Entry::key);
        Ok((entries, bad))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use muster_types::ids::{JobId, NodeName};

    pub(crate) fn facts(job: u32, nodelist: &str, node: &str) -> JobFacts {
        JobFacts {
            key: JobKey {
                job: JobId(job),
                restart: 0,
            },
            uid: nix::unistd::getuid().as_raw(),
            gid: nix::unistd::getgid().as_raw(),
            user: "alice".into(),
            node: NodeName::new(node).unwrap(),
            nodelist: nodelist.into(),
            cpus_per_node: "1(x2)".into(),
            partition: "main".into(),
            account: None,
            sluid: None,
        }
    }

    #[test]
    fn what_is_written_is_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path().to_owned());
        let mut entry = Entry {
            facts: facts(7, "n[1-2]", "n1"),
            request: None,
            objects: vec![HostObject::Step {
                id: None,
                log: journal.step_log("7.0".parse().unwrap()),
            }],
            shim: None,
            refused: None,
            releasing: false,
        };
        journal.write(&entry).unwrap();
        let id = ProcessId { pid: 5, start: 6 };
        entry.set_step(id);
        journal.write(&entry).unwrap();
        std::fs::write(dir.path().join("8.0.json"), "{\"facts\":").unwrap();
        std::fs::write(dir.path().join(".9.0.tmp"), "").unwrap();
        let (entries, bad) = journal.read_all().unwrap();
        assert_eq!(entries, [entry.clone()]);
        assert_eq!(entries[0].step(), Some(id));
        assert_eq!(bad.len(), 1);
        assert!(bad[0].to_string().contains("8.0.json"));
        journal.remove(entry.key()).unwrap();
        journal.remove(entry.key()).unwrap();
        assert!(journal.read_all().unwrap().0.is_empty());
    }
}
