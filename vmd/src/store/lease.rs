//! A key that lives as long as its vmd: kept on a lease of etcd by one task.
//!
//! The task grants a lease, puts the key on it and keeps it three times in its time to live. A lease
//! that etcd no longer knows (it ran out while etcd could not be reached, or etcd lost its data) is
//! granted again and the key put again. Each keep-alive is a stream of its own: none can go stale.

use std::time::Duration;

use etcd_client::PutOptions;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use super::etcd::Etcd;
use super::{LEASE_SECONDS, StoreError};
use crate::chain::chain;

/// Time between two keep-alives: a third of the lease.
const KEEP: Duration = Duration::from_secs(LEASE_SECONDS.unsigned_abs() / 3);

/// Time between two tries while etcd does not answer.
const RETRY: Duration = Duration::from_secs(2);

/// The keeper of one announced key.
pub(super) struct Keeper {
    /// Where.
    pub(super) store: Etcd,
    /// The key.
    pub(super) key: String,
    /// Its value.
    pub(super) value: Vec<u8>,
}

impl Keeper {
    /// Runs until the announcement is withdrawn or dropped.
    pub(super) async fn run(self, mut asked: mpsc::Receiver<oneshot::Sender<()>>) {
        let mut ticks = tokio::time::interval(KEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lease = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                done = asked.recv() => {
                    // No sender: the announcement was dropped, and the lease runs out.
                    let Some(done) = done else { return };
                    if let Some(id) = lease {
                        self.revoke(id).await;
                    }
                    // Whoever asked may have stopped waiting.
                    done.send(()).ok();
                    return;
                }
            }
            match self.keep_or_grant(lease).await {
                Ok(id) if lease == Some(id) => {}
                Ok(id) => {
                    info!(key = self.key, "announced");
                    lease = Some(id);
                }
                Err(e) => {
                    warn!(
                        key = self.key,
                        error = chain(&e),
                        "not announced, trying again"
                    );
                    ticks.reset_after(RETRY);
                }
            }
        }
    }

    async fn keep_or_grant(&self, lease: Option<i64>) -> Result<i64, StoreError> {
        match lease {
            Some(id) if self.keep(id).await? => Ok(id),
            _ => self.grant().await,
        }
    }

    async fn grant(&self) -> Result<i64, StoreError> {
        let mut leases = self.store.leases();
        let granted = leases.grant(LEASE_SECONDS, None);
        let id = self.store.within("grant a lease", granted).await?.id();
        let options = PutOptions::new().with_lease(id);
        let mut keys = self.store.keys();
        let put = keys.put(self.key.as_str(), self.value.as_slice(), Some(options));
        self.store.within("announce", put).await?;
        Ok(id)
    }

    /// Whether the lease was still there. Opening the stream of keep-alives sends the first one.
    async fn keep(&self, id: i64) -> Result<bool, StoreError> {
        let mut leases = self.store.leases();
        let kept = async {
            match leases.keep_alive(id).await {
                Ok(_) => Ok(true),
                // How the client says that etcd answered with no time to live.
                Err(etcd_client::Error::LeaseKeepAliveError(_)) => Ok(false),
                Err(e) => Err(e),
            }
        };
        self.store.within("keep the lease", kept).await
    }

    async fn revoke(&self, id: i64) {
        let mut leases = self.store.leases();
        if let Err(e) = self
            .store
            .within("revoke the lease", leases.revoke(id))
            .await
        {
            warn!(key = self.key, error = chain(&e), "lease not revoked");
        }
    }
}
