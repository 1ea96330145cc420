//! The end of a job on this node: everything in the journal is undone, backwards, and goes on after
//! errors.

use std::sync::atomic::Ordering;
use std::time::Duration;

use muster_types::api::Released;
use muster_types::ids::JobKey;
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use super::Ask;
use super::actor::Actor;
use crate::chain::chain;
use crate::host::directory;
use crate::host::process::{self, ProcessId};
use crate::journal::HostObject;
use crate::store::{Guard, StoreError, Write, keys};

/// How long a process may take to end after a signal.
const SIGNAL_GRACE: Duration = Duration::from_secs(5);

/// Keys are tried again this often while the state store does not answer.
const KEYS_RETRY: Duration = Duration::from_secs(5);

impl Actor {
    /// Undoes everything, answers, and stays until the keys in the state store are gone too.
    /// Other releases of the same run wait in the inbox for the same answer.
    pub(super) async fn release(
        &mut self,
        reply: Option<oneshot::Sender<Released>>,
        inbox: mpsc::Receiver<Ask>,
    ) {
        let mut problems = Vec::new();
        self.entry.releasing = true;
        if let Err(e) = self.context.journal.write(&self.entry) {
            problems.push(chain(&e));
        }
        if let Some(shim) = self.entry.shim {
            // Slurm has ended the step by now; what is left is not to outlive its job.
            problems.extend(
                self.end("vmd-shim", shim, &[Signal::SIGTERM, Signal::SIGKILL])
                    .await,
            );
        }
        self.stopping.store(true, Ordering::Relaxed);
        let mut step = self.step;
        if let Some(starting) = self.stepping.take() {
            step = step.or(starting.await.unwrap_or_default());
        }
        let mut store_keys = Vec::new();
        let mut directories = Vec::new();
        let objects = std::mem::take(&mut self.entry.objects);
        for object in objects.into_iter().rev() {
            match object {
                HostObject::StoreKeys { keys } => store_keys.extend(keys),
                HostObject::Directory { path } => directories.push(path),
                HostObject::Step { id, log } => {
                    if let Some(id) = step.or(id) {
                        let signals = [Signal::SIGTERM, Signal::SIGKILL];
                        problems.extend(self.end("srun of the VM step", id, &signals).await);
                    }
                    if let Err(e) = std::fs::remove_file(&log)
                        && e.kind() != std::io::ErrorKind::NotFound
                    {
                        problems.push(format!("remove {}: {e}", log.display()));
                    }
                }
            }
        }
        if let Err(e) = directory::remove(&directories).await {
            problems.push(chain(&e));
        }
        for write in [self.writing.take(), self.recording.take()]
            .into_iter()
            .flatten()
        {
            // Each ends by its own deadline.
            drop(write.await);
        }
        if let Err(first) = self.delete_keys(&store_keys).await {
            problems.push(first);
            answer(reply, inbox, problems);
            self.keep_deleting(&store_keys).await;
        } else {
            problems.extend(self.forget());
            answer(reply, inbox, problems);
        }
    }

    /// Ends a process group with signals of rising force.
    async fn end(&self, what: &str, id: ProcessId, signals: &[Signal]) -> Option<String> {
        let proc_root = &self.context.settings.proc_root;
        for &signal in signals {
            let Ok(ended) = process::ended(id, proc_root) else {
                return None;
            };
            if let Err(e) = id.signal_group(proc_root, signal) {
                return Some(format!("{what} (pid {}): {signal}: {e}", id.pid));
            }
            if tokio::time::timeout(SIGNAL_GRACE, ended).await.is_ok() {
                return None;
            }
        }
        Some(format!("{what} (pid {}) does not end", id.pid))
    }

    async fn delete_keys(&self, keys: &[String]) -> Result<(), String> {
        for key in keys
            .iter()
            .filter(|k| !k.starts_with(&keys::users(self.entry.facts.uid)))
        {
            let deleted = self.delete_own(key, keys).await;
            deleted
                .map_err(|e| format!("keys of the job stay in the state store: {}", chain(&e)))?;
        }
        Ok(())
    }

    /// Deletes a key whose value is of this run; a later run's stays. The record takes the user's
    /// index with it.
    async fn delete_own(&self, key: &str, all: &[String]) -> Result<(), StoreError> {
        #[derive(serde::Deserialize)]
        struct Keyed {
            key: JobKey,
        }
        let store = &self.context.store;
        let Some(entry) = store.get(key).await? else {
            return Ok(());
        };
        let value = serde_json::from_slice::<Keyed>(&entry.value);
        if value.is_ok_and(|v| v.key != self.entry.key()) {
            return Ok(());
        }
        let mut writes = vec![Write::Delete {
            key: key.to_owned(),
        }];
        if key == keys::record(self.entry.key().job) {
            let index = keys::users(self.entry.facts.uid);
            let index = all.iter().filter(|k| k.starts_with(&index));
            writes.extend(index.map(|key| Write::Delete { key: key.clone() }));
        }
        let guard = [Guard::Revision(key.to_owned(), entry.revision)];
        match store.apply(&guard, &writes).await {
            // Another run has written it since.
            Err(StoreError::Conflict { .. }) | Ok(_) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The host is clean, but not the store: the journal keeps the keys until they are deleted.
    async fn keep_deleting(&mut self, keys: &[String]) {
        self.entry.objects = vec![HostObject::StoreKeys {
            keys: keys.to_vec(),
        }];
        self.entry.shim = None;
        if let Err(e) = self.context.journal.write(&self.entry) {
            warn!(error = chain(&e), "keys not journalled");
        }
        let mut tries = tokio::time::interval(KEYS_RETRY);
        tries.tick().await;
        loop {
            tries.tick().await;
            match self.delete_keys(keys).await {
                Ok(()) => break,
                Err(e) => warn!(error = e, "trying again"),
            }
        }
        if let Some(problem) = self.forget() {
            warn!(problem);
        }
    }

    fn forget(&self) -> Option<String> {
        self.context
            .journal
            .remove(self.entry.key())
            .err()
            .map(|e| chain(&e))
    }
}

/// Tells all who asked for the release how it ended.
fn answer(
    reply: Option<oneshot::Sender<Released>>,
    mut inbox: mpsc::Receiver<Ask>,
    problems: Vec<String>,
) {
    if problems.is_empty() {
        info!("released");
    } else {
        warn!(?problems, "released with problems");
    }
    inbox.close();
    let mut replies: Vec<_> = reply.into_iter().collect();
    while let Ok(ask) = inbox.try_recv() {
        if let Ask::Release { reply } = ask {
            replies.push(reply);
        }
    }
    for reply in replies {
        let problems = problems.clone();
        // The epilog may have given up waiting.
        drop(reply.send(Released { problems }));
    }
}
