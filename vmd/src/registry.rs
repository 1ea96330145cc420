//! The clusters of this node: who is registered, and what the prolog and epilog may ask.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_types::api::{JobFacts, Released};
use muster_types::ids::{JobId, JobKey, NodeName};
use muster_types::state::{ClusterRecord, NodeStatus};
use tracing::{error, info, warn};

use crate::chain::chain;
use crate::cluster::{self, Context, Handle};
use crate::host::directory;
use crate::host::slurm::JobLife;
use crate::journal::{Entry, JournalError};
use crate::store::{Guard, StoreError, Write, keys};

/// How often the store is tried while it does not answer.
const SWEEP_RETRY: Duration = Duration::from_secs(30);

/// What belongs to no job of the journal.
#[derive(Debug)]
pub struct Leftovers {
    directories: Vec<PathBuf>,
    known: Vec<String>,
}

/// All clusters of this node.
#[derive(Debug)]
pub struct Registry {
    context: Arc<Context>,
    clusters: Mutex<BTreeMap<JobId, Handle>>,
}

impl Registry {
    /// A registry without clusters.
    #[must_use]
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            clusters: Mutex::default(),
        }
    }

    /// What its clusters work with.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The cluster of a job on this node.
    #[must_use]
    pub fn get(&self, job: JobId) -> Option<Handle> {
        self.with(|clusters| clusters.get(&job).cloned())
    }

    /// All clusters of this node.
    #[must_use]
    pub fn all(&self) -> Vec<Handle> {
        self.with(|clusters| clusters.values().cloned().collect())
    }

    /// What this node says of a run itself; `None` where the run is not known here.
    #[must_use]
    pub fn own_status(&self, key: JobKey) -> Option<(NodeName, NodeStatus)> {
        let handle = self.get(key.job).filter(|h| h.key() == key)?;
        handle.published().borrow().own.clone()
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<JobId, Handle>) -> T) -> T {
        // The map is whole at every panic point; a poisoned lock is no reason to stop.
        f(&mut self.clusters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers a job. Told twice of the same run, it does nothing; told of a later run, it releases
    /// the earlier one first.
    ///
    /// # Errors
    /// The job cannot be journalled: then nothing was done.
    pub async fn register(
        &self,
        facts: JobFacts,
        request: Option<String>,
    ) -> Result<(), JournalError> {
        let key = facts.key;
        if let Some(old) = self.get(key.job) {
            if old.key() == key {
                return Ok(());
            }
            warn!(old = %old.key(), new = %key, "the job runs again and was not released");
            self.release(old.key()).await;
        }
        let entry = Entry {
            facts,
            request,
            objects: Vec::new(),
            shim: None,
            refused: None,
            releasing: false,
        };
        self.context.journal.write(&entry)?;
        info!(job = %key, uid = entry.facts.uid, "registered");
        self.start(entry);
        Ok(())
    }

    fn start(&self, entry: Entry) {
        let job = entry.key().job;
        let handle = cluster::start(Arc::clone(&self.context), entry);
        self.with(|clusters| clusters.insert(job, handle));
    }

    /// Releases a job. One that is not registered is clean.
    pub async fn release(&self, key: JobKey) -> Released {
        let Some(handle) = self.get(key.job).filter(|h| h.key() == key) else {
            return Released::default();
        };
        let released = handle.release().await;
        self.with(|clusters| {
            if clusters.get(&key.job).is_some_and(|h| h.key() == key) {
                clusters.remove(&key.job);
            }
        });
        released
    }

    /// Takes over what an earlier vmd left: every job of the journal. Returns what belongs to no job
    /// of the journal, to be removed.
    ///
    /// # Errors
    /// The journal or the directories cannot be read.
    pub fn adopt(&self) -> anyhow::Result<Leftovers> {
        let (entries, bad) = self.context.journal.read_all()?;
        let mut known: Vec<String> = entries.iter().map(|e| e.key().to_string()).collect();
        for e in bad {
            // Its job may well run: nothing of it is touched.
            known.extend(e.run());
            error!(error = chain(&e), "journal entry passed over");
        }
        let settings = &self.context.settings;
        let job_of = |key: &String| key.split('.').next().map(str::to_owned);
        let mut directories = Vec::new();
        for name in directory::entries(&settings.scratch_dir)? {
            if name.parse::<JobKey>().is_ok() && !known.contains(&name) {
                directories.push(settings.scratch_dir.join(name));
            }
        }
        for name in directory::entries(&settings.vm_dir())? {
            let is_known = known.iter().filter_map(job_of).any(|job| job == name);
            if name.parse::<JobId>().is_ok() && !is_known {
                directories.push(settings.vm_dir().join(name));
            }
        }
        for entry in entries {
            info!(job = %entry.key(), "taken over");
            self.start(entry);
        }
        Ok(Leftovers { directories, known })
    }

    /// Removes what dead jobs left on this node and in the store under its name: jobs of before a
    /// reboot, or a crash of the node.
    pub async fn sweep(&self, node: &NodeName, leftovers: Leftovers) {
        if !leftovers.directories.is_empty() {
            info!(directories = ?leftovers.directories, "removing what dead jobs left");
        }
        if let Err(e) = directory::remove(&leftovers.directories).await {
            warn!(error = chain(&e), "left over");
        }
        let mut tries = tokio::time::interval(SWEEP_RETRY);
        loop {
            tries.tick().await;
            match sweep_store(&self.context, node, &leftovers.known).await {
                Ok(()) => return,
                Err(e) => warn!(error = chain(&e), "store not swept, trying again"),
            }
        }
    }

    /// Releases the jobs that have no living shim and that Slurm says are over: their epilog came
    /// while no vmd ran. Returns whether one is about to be over: it is to be looked at again soon.
    pub async fn release_orphans(&self) -> bool {
        let mut ending = false;
        for handle in self.all() {
            if handle.has_shim() {
                continue;
            }
            match self.context.slurm.life(handle.key()).await {
                Ok(JobLife::Gone) => {
                    info!(job = %handle.key(), "over without an epilog here, releasing");
                    self.release(handle.key()).await;
                }
                Ok(JobLife::Ending) => ending = true,
                Ok(JobLife::Alive) => {}
                Err(e) => warn!(error = chain(&e), "cannot ask after job"),
            }
        }
        ending
    }
}

/// Deletes what this node wrote for runs that it does not know: its statuses, and the records of
/// jobs that it led.
async fn sweep_store(
    context: &Context,
    node: &NodeName,
    known: &[String],
) -> Result<(), StoreError> {
    let listing = context.store.list(&keys::clusters()).await?;
    for entry in listing.entries {
        let dead = |key: JobKey| !known.contains(&key.to_string());
        let mut writes = Vec::new();
        if let Ok(record) = serde_json::from_slice::<ClusterRecord>(&entry.value) {
            if record.nodes.first() == Some(node) && dead(record.key) {
                let key = keys::user_index(record.uid, record.key.job);
                writes.push(Write::Delete { key });
            }
        } else if let Ok(status) = serde_json::from_slice::<NodeStatus>(&entry.value)
            && entry.key == keys::node_status(status.key.job, node.as_str())
            && dead(status.key)
        {
            writes.push(Write::Delete {
                key: entry.key.clone(),
            });
        }
        if writes.is_empty() {
            continue;
        }
        info!(key = entry.key, "removing a dead job's key");
        let key = entry.key.clone();
        if !matches!(&writes[0], Write::Delete { key: first } if *first == key) {
            writes.push(Write::Delete { key: key.clone() });
        }
        match context
            .store
            .apply(&[Guard::Revision(key, entry.revision)], &writes)
            .await
        {
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
