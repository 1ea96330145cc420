//! The embedded store: one redb file of one vmd, for a Slurm of one node.
//!
//! Every write is one redb transaction with a revision of its own. The latest changes are kept in
//! memory, so that a watch can begin at a revision that has just passed.

use std::collections::VecDeque;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::mpsc;

use super::{
    Announcement, Change, Entry, Guard, Listing, StateStore, StoreError, Watch, Write, check,
};

/// Key to (revision, value).
const ENTRIES: TableDefinition<'_, &str, (i64, &[u8])> = TableDefinition::new("entries");
/// The revision counter, under the empty key.
const REVISION: TableDefinition<'_, &str, i64> = TableDefinition::new("revision");
/// Announced keys: removed when the store is opened, as they cannot outlive their process.
const ANNOUNCED: TableDefinition<'_, &str, ()> = TableDefinition::new("announced");

/// How many changes a slow watcher may be behind.
const WATCH_QUEUE: usize = 1024;

/// How many past changes are kept for new watches.
const LOG_CHANGES: usize = 1024;

/// And how many bytes of values in them.
const LOG_BYTES: usize = 4 << 20;

/// A store in a file.
#[derive(Debug, Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    database: Database,
    /// Held over each write and each start of a watch, so that a watcher misses nothing.
    feed: Mutex<Feed>,
}

/// The latest changes, and who waits for more.
#[derive(Debug, Default)]
struct Feed {
    watchers: Vec<Watcher>,
    log: VecDeque<Change>,
    log_bytes: usize,
    /// The last revision whose changes are not in the log.
    forgotten: i64,
}

#[derive(Debug)]
struct Watcher {
    prefix: String,
    from: i64,
    changes: mpsc::Sender<Result<Vec<Change>, StoreError>>,
}

impl Watcher {
    fn own<'a>(&self, changes: impl Iterator<Item = &'a Change>) -> Vec<Change> {
        let own = changes.filter(|c| c.revision >= self.from && c.key.starts_with(&self.prefix));
        own.cloned().collect()
    }

    /// Whether it goes on: one that is gone or too slow is cut off, and lists again.
    fn send(&self, own: Vec<Change>) -> bool {
        if own.is_empty() {
            return !self.changes.is_closed();
        }
        self.changes.try_send(Ok(own)).is_ok()
    }
}

impl Feed {
    fn publish(&mut self, changes: Vec<Change>) {
        self.watchers.retain(|w| w.send(w.own(changes.iter())));
        for change in changes {
            self.log_bytes += bytes(&change);
            self.log.push_back(change);
        }
        while self.log.len() > LOG_CHANGES || self.log_bytes > LOG_BYTES {
            let Some(oldest) = self.log.pop_front() else {
                return;
            };
            self.log_bytes -= bytes(&oldest);
            self.forgotten = oldest.revision;
        }
    }

    fn watch(&mut self, prefix: String, from: i64) -> Result<Watch, StoreError> {
        if from <= self.forgotten {
            return Err(StoreError::Compacted(from));
        }
        let (changes, receiver) = mpsc::channel(WATCH_QUEUE);
        let watcher = Watcher {
            prefix,
            from,
            changes,
        };
        if watcher.send(watcher.own(self.log.iter())) {
            self.watchers.push(watcher);
        }
        Ok(Watch::new(receiver))
    }
}

fn bytes(change: &Change) -> usize {
    change.key.len() + change.value.as_ref().map_or(0, Vec::len)
}

impl Embedded {
    /// Opens the file, mode 0600, and makes it if it is not there.
    ///
    /// # Errors
    /// It cannot be opened, is no store, or another process has it open.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let io = |source: std::io::Error| StoreError::File {
            path: path.to_owned(),
            source,
        };
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        let backend =
            redb::backends::FileBackend::new(file).map_err(|e| failure("open", path, e))?;
        let database = redb::Builder::new()
            .create_with_backend(backend)
            .map_err(|e| failure("open", path, e))?;
        let inner = Inner {
            path: path.to_owned(),
            database,
            feed: Mutex::default(),
        };
        inner.forget_announced()?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// redb waits for the disk: its calls run beside the async tasks.
    async fn blocking<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = Arc::clone(&self.inner);
        match tokio::task::spawn_blocking(move || f(&inner)).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Closed {
                path: self.inner.path.clone(),
            }),
        }
    }
}

fn failure(operation: &'static str, path: &Path, e: impl Into<redb::Error>) -> StoreError {
    StoreError::Embedded {
        operation,
        path: path.to_owned(),
        source: Box::new(e.into()),
    }
}

impl Inner {
    fn forget_announced(&self) -> Result<(), StoreError> {
        let keys = self.read("open", |transaction| {
            let table = transaction.open_table(ANNOUNCED)?;
            let keys = table.iter()?.map(|row| Ok(row?.0.value().to_owned()));
            keys.collect::<Result<Vec<String>, redb::Error>>()
        });
        let keys = match keys {
            // A new file has no tables yet.
            Err(StoreError::Embedded { source, .. })
                if matches!(*source, redb::Error::TableDoesNotExist(_)) =>
            {
                Vec::new()
            }
            other => other?,
        };
        let deletes: Vec<Write> = keys.into_iter().map(|key| Write::Delete { key }).collect();
        let revision = self.write(&[], &deletes, None)?;
        // The log begins here: what was before the start is not in it.
        *self.feed() = Feed {
            forgotten: revision,
            ..Feed::default()
        };
        Ok(())
    }

    fn read<T>(
        &self,
        operation: &'static str,
        f: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let transaction = self.database.begin_read();
        let transaction = transaction.map_err(|e| failure(operation, &self.path, e))?;
        f(&transaction).map_err(|e| failure(operation, &self.path, e))
    }

    fn feed(&self) -> MutexGuard<'_, Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(
        &self,
        guards: &[Guard],
        writes: &[Write],
        announced: Option<&str>,
    ) -> Result<i64, StoreError> {
        let mut feed = self.feed();
        let committed = self
            .commit(guards, writes, announced)
            .map_err(|e| failure("write", &self.path, e))?;
        match committed {
            Commit::Done(revision, changes) => {
                feed.publish(changes);
                Ok(revision)
            }
            Commit::Conflict(key) => Err(StoreError::Conflict { key }),
        }
    }

    fn commit(
        &self,
        guards: &[Guard],
        writes: &[Write],
        announced: Option<&str>,
    ) -> Result<Commit, redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut changes = Vec::new();
        let revision;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            let mut counter = transaction.open_table(REVISION)?;
            let mut announcements = transaction.open_table(ANNOUNCED)?;
            for guard in guards {
                let at = entries.get(guard.key())?.map(|row| row.value().0);
                if !guard.holds(at) {
                    return Ok(Commit::Conflict(guard.key().to_owned()));
                }
            }
            revision = counter.get("")?.map_or(0, |r| r.value()) + 1;
            counter.insert("", revision)?;
            for write in writes {
                match write {
                    Write::Put { key, value } => {
                        announcements.remove(key.as_str())?;
                        entries.insert(key.as_str(), (revision, value.as_slice()))?;
                        changes.push((key.clone(), Some(value.clone())));
                    }
                    Write::Delete { key } => {
                        announcements.remove(key.as_str())?;
                        if entries.remove(key.as_str())?.is_some() {
                            changes.push((key.clone(), None));
                        }
                    }
                    Write::DeletePrefix { prefix } => {
                        let keys = keys_of(&entries, prefix)?;
                        for key in keys {
                            announcements.remove(key.as_str())?;
                            entries.remove(key.as_str())?;
                            changes.push((key, None));
                        }
                    }
                }
            }
            if let Some(key) = announced {
                announcements.insert(key, ())?;
            }
        }
        transaction.commit()?;
        let change = |(key, value)| Change {
            key,
            value,
            revision,
        };
        let changes = changes.into_iter().map(change).collect();
        Ok(Commit::Done(revision, changes))
    }
}

/// What came of a transaction.
enum Commit {
    /// It has a revision, and changed this.
    Done(i64, Vec<Change>),
    /// The guard of this key did not hold; nothing was changed.
    Conflict(String),
}

fn keys_of(
    table: &impl ReadableTable<&'static str, (i64, &'static [u8])>,
    prefix: &str,
) -> Result<Vec<String>, redb::Error> {
    let mut keys = Vec::new();
    for row in table.range(prefix..)? {
        let (key, _) = row?;
        if !key.value().starts_with(prefix) {
            break;
        }
        keys.push(key.value().to_owned());
    }
    Ok(keys)
}

#[async_trait]
impl StateStore for Embedded {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let key = key.to_owned();
        self.blocking(move |inner| {
            inner.read("read", |transaction| {
                let table = transaction.open_table(ENTRIES)?;
                Ok(table.get(key.as_str())?.map(|row| {
                    let (revision, value) = row.value();
                    Entry {
                        value: value.to_vec(),
                        revision,
                        key: key.clone(),
                    }
                }))
            })
        })
        .await
    }

    async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        let prefix = prefix.to_owned();
        self.blocking(move |inner| {
            inner.read("list", |transaction| {
                let table = transaction.open_table(ENTRIES)?;
                let mut entries = Vec::new();
                for row in table.range(prefix.as_str()..)? {
                    let (key, row) = row?;
                    if !key.value().starts_with(&prefix) {
                        break;
                    }
                    let (revision, value) = row.value();
                    entries.push(Entry {
                        key: key.value().to_owned(),
                        value: value.to_vec(),
                        revision,
                    });
                }
                let counter = transaction.open_table(REVISION)?;
                let revision = counter.get("")?.map_or(0, |r| r.value());
                Ok(Listing { entries, revision })
            })
        })
        .await
    }

    async fn apply(&self, guards: &[Guard], writes: &[Write]) -> Result<i64, StoreError> {
        check(guards, writes)?;
        let (guards, writes) = (guards.to_vec(), writes.to_vec());
        self.blocking(move |inner| inner.write(&guards, &writes, None))
            .await
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        let prefix = prefix.to_owned();
        self.blocking(move |inner| inner.feed().watch(prefix, from))
            .await
    }

    async fn announce(&self, key: &str, value: &[u8]) -> Result<Announcement, StoreError> {
        let put = Write::Put {
            key: key.to_owned(),
            value: value.to_vec(),
        };
        check(&[], std::slice::from_ref(&put))?;
        let name = key.to_owned();
        self.blocking(move |inner| inner.write(&[], &[put], Some(&name)))
            .await?;
        let (withdraw, mut asked) = mpsc::channel::<tokio::sync::oneshot::Sender<()>>(1);
        let (store, key) = (self.clone(), key.to_owned());
        tokio::spawn(async move {
            let Some(done) = asked.recv().await else {
                return;
            };
            if let Err(e) = store.apply(&[], &[Write::Delete { key }]).await {
                tracing::warn!(
                    error = crate::chain::chain(&e),
                    "announcement not withdrawn"
                );
            }
            // Whoever asked may have stopped waiting.
            done.send(()).ok();
        });
        Ok(Announcement::new(withdraw))
    }
}
