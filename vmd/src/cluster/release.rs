//! The end of a job on this node: everything in the journal is undone, backwards, and goes on after
//! errors.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use muster_types::api::Released;
use nix::sys::signal::Signal;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::actor::Actor;
use crate::chain::chain;
use crate::host::directory;
use crate::host::process::{self, ProcessId};
use crate::journal::HostObject;
use crate::store::Write;

/// How long a process may take to end after a signal.
const SIGNAL_GRACE: Duration = Duration::from_secs(5);

/// Keys are tried again this often while the state store does not answer.
const KEYS_RETRY: Duration = Duration::from_secs(5);

impl Actor {
    /// Undoes everything, answers, and stays until the keys in the state store are gone too.
    pub(super) async fn release(&mut self, reply: Option<oneshot::Sender<Released>>) {
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
        let mut store_keys = Vec::new();
        let objects = std::mem::take(&mut self.entry.objects);
        for object in objects.into_iter().rev() {
            match object {
                HostObject::StoreKeys { keys } => store_keys.extend(keys),
                HostObject::Directory { path } => {
                    let removed =
                        tokio::task::spawn_blocking(move || directory::remove(&path)).await;
                    match removed {
                        Ok(Ok(())) => {}
                        Ok(Err(e)) => problems.push(chain(&e)),
                        Err(e) => problems.push(e.to_string()),
                    }
                }
                HostObject::Step { id, log } => {
                    let id = self.step.or(id);
                    if let Some(id) = id {
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
        self.stopping.store(true, Ordering::Relaxed);
        for write in [self.writing.take(), self.recording.take()]
            .into_iter()
            .flatten()
        {
            // Each ends by its own deadline.
            drop(write.await);
        }
        if let Err(first) = self.delete_keys(&store_keys).await {
            problems.push(first);
            self.answer(reply, problems);
            self.keep_deleting(&store_keys).await;
        } else {
            problems.extend(self.forget());
            self.answer(reply, problems);
        }
    }

    fn answer(&self, reply: Option<oneshot::Sender<Released>>, problems: Vec<String>) {
        if problems.is_empty() {
            info!("released");
        } else {
            warn!(?problems, "released with problems");
        }
        if let Some(reply) = reply {
            // The epilog may have given up waiting.
            drop(reply.send(Released { problems }));
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
        if keys.is_empty() {
            return Ok(());
        }
        let deletes: Vec<Write> = keys
            .iter()
            .map(|key| Write::Delete { key: key.clone() })
            .collect();
        let store = Arc::clone(&self.context.store);
        match store.apply(&[], &deletes).await {
            Ok(_) => Ok(()),
            Err(e) => Err(format!(
                "keys of the job stay in the state store: {}",
                chain(&e)
            )),
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
