//! The state store: what the vmds of a site tell each other.
//!
//! Two real back ends: [`etcd`] for clusters of nodes, [`embedded`] (redb) for a Slurm of one node.
//! Values are bytes (JSON to their writers); keys are in [`keys`]. Facts about running VMs are never
//! on a lease: an outage of etcd must not delete them.

pub mod embedded;
pub mod etcd;
pub mod keys;
mod lease;
mod mirror;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

pub use etcd::EtcdConfig;
pub use mirror::{Mirror, Snapshot};

/// The most guards and writes of one transaction (etcd's `--max-txn-ops` default, 128).
pub const MAX_OPERATIONS: usize = 128;

/// The most bytes that the keys and values of one transaction may have together (etcd refuses
/// requests over `--max-request-bytes`, 1.5 MiB by default).
pub const MAX_BYTES: usize = 1 << 20;

/// Seconds that a node counts as alive after its vmd was heard of last.
pub const LEASE_SECONDS: i64 = 30;

/// How long a withdrawal may take before the key is left to its lease.
const WITHDRAWAL: Duration = Duration::from_secs(6);

/// Which back end to open.
#[derive(Debug, Clone)]
pub enum StoreConfig {
    /// An etcd cluster.
    Etcd(EtcdConfig),
    /// A file of this vmd's own.
    Embedded {
        /// The file; its directory exists.
        path: PathBuf,
    },
}

/// One key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The store's revision when it was written last.
    pub revision: i64,
}

/// All keys of a prefix at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// By key.
    pub entries: Vec<Entry>,
    /// The store's revision at the time.
    pub revision: i64,
}

/// What must hold for a transaction to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The key does not exist.
    Absent(String),
    /// The key was written last at this revision.
    Revision(String, i64),
}

impl Guard {
    /// The key it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Absent(key) | Self::Revision(key, _) => key,
        }
    }

    /// Whether it holds for a key written last at `revision`; none: the key is not there.
    fn holds(&self, revision: Option<i64>) -> bool {
        match self {
            Self::Absent(_) => revision.is_none(),
            Self::Revision(_, at) => revision == Some(*at),
        }
    }
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: Vec<u8>,
    },
    /// Deletes a key, if it is there.
    Delete {
        /// The key.
        key: String,
    },
    /// Deletes all keys that start so.
    DeletePrefix {
        /// The prefix.
        prefix: String,
    },
}

/// One change of a watched prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its new value; none when it was deleted.
    pub value: Option<Vec<u8>>,
    /// The store's revision of the change.
    pub revision: i64,
}

/// The state store.
#[async_trait]
pub trait StateStore: Send + Sync + fmt::Debug {
    /// Reads a key.
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError>;

    /// Reads all keys that start with `prefix`.
    async fn list(&self, prefix: &str) -> Result<Listing, StoreError>;

    /// Applies all writes or, when a guard does not hold, none ([`StoreError::Conflict`]). Returns
    /// the revision of the writes. After a time-out or a lost connection they may have been applied
    /// or not: the guarded key tells.
    async fn apply(&self, guards: &[Guard], writes: &[Write]) -> Result<i64, StoreError>;

    /// Watches a prefix for changes from revision `from` on. What keeps it from starting may come as
    /// the watch's first answer.
    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError>;

    /// Sets a key for as long as this process lives and says so: on a lease that a task keeps, and
    /// makes again when it is lost. An etcd that does not answer is tried until the announcement ends.
    async fn announce(&self, key: &str, value: &[u8]) -> Result<Announcement, StoreError>;
}

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    changes: mpsc::Receiver<Result<Vec<Change>, StoreError>>,
}

impl Watch {
    /// A watch that is fed through a channel.
    #[must_use]
    pub fn new(changes: mpsc::Receiver<Result<Vec<Change>, StoreError>>) -> Self {
        Self { changes }
    }

    /// The next changes, in order.
    ///
    /// # Errors
    /// The watch ended: list again and watch from there.
    pub async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        match self.changes.recv().await {
            Some(result) => result,
            None => Err(StoreError::Ended),
        }
    }
}

/// A key on this process's lease. Dropped, it is left to the lease, which runs out.
#[derive(Debug)]
pub struct Announcement {
    withdraw: mpsc::Sender<oneshot::Sender<()>>,
}

impl Announcement {
    /// An announcement whose keeper listens for the withdrawal.
    #[must_use]
    pub fn new(withdraw: mpsc::Sender<oneshot::Sender<()>>) -> Self {
        Self { withdraw }
    }

    /// Deletes the key at once. Waits until that is done or has failed, six seconds at most: the
    /// lease runs out by itself then.
    pub async fn withdraw(self) {
        let (done, wait) = oneshot::channel();
        let withdrawal = async {
            if self.withdraw.send(done).await.is_ok() {
                // The keeper answers, or is gone with the runtime.
                drop(wait.await);
            }
        };
        if timeout(WITHDRAWAL, withdrawal).await.is_err() {
            tracing::warn!(
                "the store did not answer in time: the announcement is left to its lease"
            );
        }
    }
}

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A guard did not hold.
    #[error("'{key}' was changed by another")]
    Conflict {
        /// The key whose guard did not hold.
        key: String,
    },
    /// The revision to watch from is no longer kept.
    #[error("the changes since revision {0} are no longer kept")]
    Compacted(i64),
    /// A watch ended.
    #[error("the watch ended")]
    Ended,
    /// etcd ended a watch, or did not begin it.
    #[error("watch at {store}: canceled: {reason}")]
    Canceled {
        /// The endpoints.
        store: String,
        /// etcd's words.
        reason: String,
    },
    /// More or larger than one transaction may be.
    #[error(
        "a transaction of {operations} operations and {bytes} bytes: at most {MAX_OPERATIONS} and {MAX_BYTES} are possible"
    )]
    TooLarge {
        /// Guards and writes.
        operations: usize,
        /// Size of all keys and values.
        bytes: usize,
    },
    /// One transaction would write a key twice.
    #[error("a transaction that writes '{key}' twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// No answer in time.
    #[error("{operation} at {store}: no answer within {seconds} s")]
    TimedOut {
        /// What was asked.
        operation: &'static str,
        /// Where.
        store: String,
        /// The deadline.
        seconds: u64,
    },
    /// etcd refused or cannot be reached.
    #[error("{operation} at {store}: {words}")]
    Etcd {
        /// What was asked.
        operation: &'static str,
        /// The endpoints.
        store: String,
        /// Its words.
        words: String,
    },
    /// A certificate or key file cannot be read.
    #[error("read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The embedded store failed.
    #[error("{operation} in {}", path.display())]
    Embedded {
        /// What was asked.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Its words.
        source: Box<redb::Error>,
    },
    /// The process ends: no more work is taken.
    #[error("use {}: the process ends", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
}

/// Opens the store. An etcd that does not answer is no error here: every call tries again.
///
/// # Errors
/// The configuration cannot work: a certificate that cannot be read, a bad endpoint, a password that
/// etcd refuses, a store file that another process has open.
pub async fn open(config: &StoreConfig) -> Result<Arc<dyn StateStore>, StoreError> {
    Ok(match config {
        StoreConfig::Etcd(config) => Arc::new(etcd::Etcd::open(config).await?),
        StoreConfig::Embedded { path } => Arc::new(embedded::Embedded::open(path)?),
    })
}

/// Refuses what etcd would refuse, so that both back ends take the same transactions: too much, or a
/// key put twice or both put and deleted.
fn check(guards: &[Guard], writes: &[Write]) -> Result<(), StoreError> {
    let operations = guards.len() + writes.len();
    let guarded = guards.iter().map(|guard| guard.key().len());
    let written = writes.iter().map(|write| match write {
        Write::Put { key, value } => key.len() + value.len(),
        Write::Delete { key } => key.len(),
        Write::DeletePrefix { prefix } => prefix.len(),
    });
    let bytes = guarded.chain(written).sum();
    if operations > MAX_OPERATIONS || bytes > MAX_BYTES {
        return Err(StoreError::TooLarge { operations, bytes });
    }
    for (at, write) in writes.iter().enumerate() {
        let Write::Put { key, .. } = write else {
            continue;
        };
        let others = writes.iter().enumerate().filter(|(i, _)| *i != at);
        let twice = others.into_iter().any(|(_, other)| match other {
            Write::Put { key: other, .. } | Write::Delete { key: other } => other == key,
            Write::DeletePrefix { prefix } => key.starts_with(prefix.as_str()),
        });
        if twice {
            return Err(StoreError::Twice { key: key.clone() });
        }
    }
    Ok(())
}

/// The first key behind all keys that start with `prefix`: its last byte that can be raised, raised.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    // An empty prefix means all keys: etcd's sign for that is a NUL byte.
    vec![0]
}
