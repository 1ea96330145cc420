//! The state store: what the vmds of a site tell each other.
//!
//! Two real back ends: [`etcd`] for clusters of nodes, [`embedded`] (redb) for a Slurm of one node.
//! Values are bytes (JSON to their writers); keys are in [`keys`]. Facts about running VMs are never
//! on a lease: an outage of etcd must not delete them.

pub mod embedded;
pub mod etcd;
pub mod keys;
mod mirror;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;

pub use etcd::EtcdConfig;
pub use mirror::{Mirror, Snapshot};

/// The most guards and writes of one transaction (etcd's `--max-txn-ops` default, 128).
pub const MAX_OPERATIONS: usize = 128;

/// The largest value in bytes (etcd's `--max-request-bytes` default is 1.5 MiB).
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Seconds that a node counts as alive after its vmd was heard of last.
pub const LEASE_SECONDS: i64 = 30;

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
    /// the revision of the writes.
    async fn apply(&self, guards: &[Guard], writes: &[Write]) -> Result<i64, StoreError>;

    /// Watches a prefix for changes from revision `from` on.
    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError>;

    /// Sets a key for as long as this process lives and says so: on its one lease.
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

/// A key on this process's lease.
#[derive(Debug)]
pub struct Announcement {
    withdraw: mpsc::Sender<tokio::sync::oneshot::Sender<()>>,
}

impl Announcement {
    /// An announcement whose keeper listens for the withdrawal.
    #[must_use]
    pub fn new(withdraw: mpsc::Sender<tokio::sync::oneshot::Sender<()>>) -> Self {
        Self { withdraw }
    }

    /// Deletes the key at once; waits until that is done or has failed (a few seconds at most).
    pub async fn withdraw(self) {
        let (done, wait) = tokio::sync::oneshot::channel();
        if self.withdraw.send(done).await.is_ok() {
            // The keeper may have failed; the lease runs out by itself then.
            drop(wait.await);
        }
    }
}

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A guard did not hold.
    #[error("'{key}' was changed by another")]
    Conflict {
        /// The first guarded key.
        key: String,
    },
    /// The revision to watch from is no longer kept.
    #[error("the changes since revision {0} are no longer kept")]
    Compacted(i64),
    /// A watch ended.
    #[error("the watch ended")]
    Ended,
    /// More or larger than one transaction may be.
    #[error(
        "a transaction of {operations} operations, the largest value {bytes} bytes: at most {MAX_OPERATIONS} and {MAX_VALUE_BYTES} are possible"
    )]
    TooLarge {
        /// Guards and writes.
        operations: usize,
        /// Size of the largest value.
        bytes: usize,
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
}

/// Opens the store. An etcd that does not answer is no error here: every call tries again.
///
/// # Errors
/// The configuration cannot work: a certificate that cannot be read, a bad endpoint, a store file
/// that another process has open.
pub async fn open(config: &StoreConfig) -> Result<Arc<dyn StateStore>, StoreError> {
    Ok(match config {
        StoreConfig::Etcd(config) => Arc::new(etcd::Etcd::open(config).await?),
        StoreConfig::Embedded { path } => Arc::new(embedded::Embedded::open(path)?),
    })
}

/// Checks a transaction's size.
fn check_size(guards: &[Guard], writes: &[Write]) -> Result<(), StoreError> {
    let operations = guards.len() + writes.len();
    let bytes = writes.iter().map(|w| match w {
        Write::Put { value, .. } => value.len(),
        _ => 0,
    });
    let bytes = bytes.max().unwrap_or(0);
    if operations > MAX_OPERATIONS || bytes > MAX_VALUE_BYTES {
        return Err(StoreError::TooLarge { operations, bytes });
    }
    Ok(())
}

fn conflict(guards: &[Guard]) -> StoreError {
    let key = match guards.first() {
        Some(Guard::Absent(key) | Guard::Revision(key, _)) => key.clone(),
        None => String::new(),
    };
    StoreError::Conflict { key }
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
