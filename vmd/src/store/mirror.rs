//! A live copy of one prefix of the store: listed once, then kept by a watch; listed again after any
//! error, for as long as it takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::debug;

use super::{Change, StateStore, StoreError};
use crate::chain::chain;

/// The pause before the first new try.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The prefix as it is known now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Keys and values. A value that did not change keeps its allocation.
    pub entries: BTreeMap<String, Arc<[u8]>>,
    /// Whether it was read at least once.
    pub synced: bool,
    /// Why it may be out of date; none while the watch runs.
    pub store_error: Option<String>,
}

/// A live copy of a prefix. Ends when dropped.
#[derive(Debug)]
pub struct Mirror {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    task: AbortHandle,
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mirror {
    /// Starts copying `prefix`.
    #[must_use]
    pub fn start(store: Arc<dyn StateStore>, prefix: &str) -> Self {
        let (publish, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let prefix = prefix.to_owned();
        let task = tokio::spawn(async move { copy(&*store, &prefix, &publish).await });
        Self {
            snapshots,
            task: task.abort_handle(),
        }
    }

    /// The prefix as it is known now.
    #[must_use]
    pub fn borrow(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshots.borrow())
    }

    /// Returns at the next change; one that was not waited for counts.
    pub async fn changed(&mut self) {
        if self.snapshots.changed().await.is_err() {
            // The task only ends with the mirror.
            std::future::pending::<()>().await;
        }
    }
}

async fn copy(store: &dyn StateStore, prefix: &str, publish: &watch::Sender<Arc<Snapshot>>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match follow(store, prefix, publish, &mut pause).await {
            // What was missed is read again at once.
            Err(StoreError::Compacted(_)) => continue,
            Err(e) => chain(&e),
            Ok(never) => match never {},
        };
        debug!(prefix, error, "mirror interrupted");
        publish.send_if_modified(|snapshot| {
            let is_new = snapshot.store_error.as_deref() != Some(error.as_str());
            if is_new {
                Arc::make_mut(snapshot).store_error = Some(error);
            }
            is_new
        });
        tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn follow(
    store: &dyn StateStore,
    prefix: &str,
    publish: &watch::Sender<Arc<Snapshot>>,
    pause: &mut Duration,
) -> Result<std::convert::Infallible, StoreError> {
    let listing = store.list(prefix).await?;
    let mut watch = store.watch(prefix, listing.revision + 1).await?;
    publish.send_modify(|snapshot| {
        let old = std::mem::take(&mut Arc::make_mut(snapshot).entries);
        let entries = listing.entries.into_iter().map(|e| {
            let kept = old.get(&e.key).filter(|v| ***v == *e.value).cloned();
            (e.key, kept.unwrap_or_else(|| e.value.into()))
        });
        *snapshot = Arc::new(Snapshot {
            entries: entries.collect(),
            synced: true,
            store_error: None,
        });
    });
    *pause = FIRST_PAUSE;
    loop {
        let changes = watch.next().await?;
        publish.send_modify(|snapshot| take(Arc::make_mut(snapshot), changes));
    }
}

fn take(snapshot: &mut Snapshot, changes: Vec<Change>) {
    for change in changes {
        match change.value {
            Some(value) => drop(snapshot.entries.insert(change.key, value.into())),
            None => drop(snapshot.entries.remove(&change.key)),
        }
    }
}
