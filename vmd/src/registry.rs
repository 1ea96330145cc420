//! The clusters of this node: who is registered, and what the prolog and epilog may ask.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use muster_types::api::{JobFacts, Released};
use muster_types::ids::{JobId, JobKey};
use tracing::{error, info, warn};

use crate::chain::chain;
use crate::cluster::{self, Context, Handle};
use crate::host::directory::{self, DirectoryError};
use crate::host::slurm::JobLife;
use crate::journal::{Entry, JournalError};

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

    /// Takes over what an earlier vmd left: every job of the journal, and the directories of jobs
    /// that have no journal any more.
    ///
    /// # Errors
    /// The journal or the directories cannot be read.
    pub fn adopt(&self) -> anyhow::Result<()> {
        let (entries, bad) = self.context.journal.read_all()?;
        for e in bad {
            error!(error = chain(&e), "journal entry passed over");
        }
        let settings = &self.context.settings;
        let is_known = |name: &str| {
            entries
                .iter()
                .any(|e| e.key().to_string() == name || e.key().job.to_string() == name)
        };
        self.sweep(&settings.scratch_dir, &|name| {
            name.parse::<JobKey>().is_ok() && !is_known(name)
        })?;
        self.sweep(&settings.vm_dir(), &|name| {
            name.parse::<JobId>().is_ok() && !is_known(name)
        })?;
        for entry in entries {
            info!(job = %entry.key(), "taken over");
            self.start(entry);
        }
        Ok(())
    }

    /// Removes the directories of dead jobs: ours by their names, and in no journal.
    fn sweep(
        &self,
        parent: &std::path::Path,
        is_dead: &dyn Fn(&str) -> bool,
    ) -> Result<(), DirectoryError> {
        for name in directory::entries(parent)? {
            if is_dead(&name) {
                let path = parent.join(&name);
                info!(path = %path.display(), "removing what a dead job left");
                if let Err(e) = directory::remove(&path) {
                    warn!(error = chain(&e), "left over");
                }
            }
        }
        Ok(())
    }

    /// Releases the jobs that have no living shim and that Slurm says are over: their epilog came
    /// while no vmd ran.
    pub async fn release_orphans(&self) {
        for handle in self.all() {
            if handle.has_shim() {
                continue;
            }
            match self.context.slurm.life(handle.key()).await {
                Ok(JobLife::Gone) => {
                    info!(job = %handle.key(), "over without an epilog here, releasing");
                    self.release(handle.key()).await;
                }
                Ok(JobLife::Alive | JobLife::Ending) => {}
                Err(e) => warn!(error = chain(&e), "cannot ask after job"),
            }
        }
    }
}
