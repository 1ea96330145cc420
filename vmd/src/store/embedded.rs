//! The embedded store: one redb file of one vmd, for a Slurm of one node.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::mpsc;

use super::{
    Announcement, Change, Entry, Guard, Listing, StateStore, StoreError, Watch, Write, check_size,
    conflict,
};

/// Key to (revision, value).
const ENTRIES: TableDefinition<'_, &str, (i64, &[u8])> = TableDefinition::new("entries");
/// The revision counter, under the empty key.
const REVISION: TableDefinition<'_, &str, i64> = TableDefinition::new("revision");
/// Announced keys: removed when the store is opened, as they cannot outlive their process.
const ANNOUNCED: TableDefinition<'_, &str, ()> = TableDefinition::new("announced");

/// How many changes a slow watcher may be behind.
const WATCH_QUEUE: usize = 1024;

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
    watchers: Mutex<Vec<Watcher>>,
}

#[derive(Debug)]
struct Watcher {
    prefix: String,
    changes: mpsc::Sender<Result<Vec<Change>, StoreError>>,
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
            watchers: Mutex::default(),
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
            Err(_) => Err(StoreError::Ended),
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
        self.write(&[], &deletes, None).map(drop)
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

    fn write(
        &self,
        guards: &[Guard],
        writes: &[Write],
        announced: Option<&str>,
    ) -> Result<i64, StoreError> {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        let (revision, changes) = self
            .commit(guards, writes, announced)
            .map_err(|e| failure("write", &self.path, e))?
            .ok_or_else(|| conflict(guards))?;
        watchers.retain(|watcher| {
            let own: Vec<Change> = changes
                .iter()
                .filter(|c| c.key.starts_with(&watcher.prefix))
                .cloned()
                .collect();
            // A watcher that is too slow is cut off and lists again.
            own.is_empty() || watcher.changes.try_send(Ok(own)).is_ok()
        });
        Ok(revision)
    }

    /// `None`: a guard did not hold and nothing was changed.
    fn commit(
        &self,
        guards: &[Guard],
        writes: &[Write],
        announced: Option<&str>,
    ) -> Result<Option<(i64, Vec<Change>)>, redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut changes = Vec::new();
        let revision;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            let mut counter = transaction.open_table(REVISION)?;
            let mut announcements = transaction.open_table(ANNOUNCED)?;
            for guard in guards {
                let holds = match guard {
                    Guard::Absent(key) => entries.get(key.as_str())?.is_none(),
                    Guard::Revision(key, at) => {
                        entries.get(key.as_str())?.map(|e| e.value().0) == Some(*at)
                    }
                };
                if !holds {
                    return Ok(None);
                }
            }
            revision = counter.get("")?.map_or(0, |r| r.value()) + 1;
            counter.insert("", revision)?;
            for write in writes {
                match write {
                    Write::Put { key, value } => {
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
        Ok(Some((revision, changes.into_iter().map(change).collect())))
    }
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
        check_size(guards, writes)?;
        let (guards, writes) = (guards.to_vec(), writes.to_vec());
        self.blocking(move |inner| inner.write(&guards, &writes, None))
            .await
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        let prefix = prefix.to_owned();
        self.blocking(move |inner| {
            let mut watchers = inner
                .watchers
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let revision = inner.read("watch", |transaction| {
                let counter = transaction.open_table(REVISION)?;
                Ok(counter.get("")?.map_or(0, |r| r.value()))
            })?;
            // Old changes are not kept: the caller lists again.
            if from <= revision {
                return Err(StoreError::Compacted(from));
            }
            let (changes, receiver) = mpsc::channel(WATCH_QUEUE);
            watchers.push(Watcher { prefix, changes });
            Ok(Watch::new(receiver))
        })
        .await
    }

    async fn announce(&self, key: &str, value: &[u8]) -> Result<Announcement, StoreError> {
        let put = Write::Put {
            key: key.to_owned(),
            value: value.to_vec(),
        };
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
