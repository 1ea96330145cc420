//! A virtual cluster on this node: one task owns its state ([`actor`], what it sees in [`observe`]), everything else sends it
//! requests through a [`Handle`].
//!
//! ```text
//!   RegisterJob -> planned -> [record written | record seen] + [prepared] -> launch plan given out
//!                     |                                                         -> shim reports
//!                     +-> failed (verdict)                                      -> ended
//!   ReleaseJob  -> releasing -> host clean -> store keys deleted -> task ends
//! ```
//!
//! The node with index 0 leads: it writes the record, starts the VM step, judges the nodes that say
//! nothing, and tells the user. A cluster's state is never stored; it is derived from the record and
//! the nodes' statuses ([`muster_types::state::view`]).

mod actor;
mod lead;
mod observe;
mod publish;
mod release;
mod status;
#[cfg(test)]
mod tests;
mod wait;

use std::path::PathBuf;
use std::sync::Arc;

use muster_config::Trees;
use muster_types::api::{ApiError, LaunchPlan, Released, Report};
use muster_types::ids::JobKey;
use tokio::sync::{mpsc, oneshot, watch};

pub use publish::Published;
pub use wait::{ended, outcome};

use crate::host::process::ProcessId;
use crate::host::slurm::Slurm;
use crate::journal::{Entry, Journal};
use crate::settings::Settings;
use crate::store::StateStore;

/// What every cluster of a vmd works with.
#[derive(Debug)]
pub struct Context {
    /// Settings of this vmd.
    pub settings: Settings,
    /// The site's configuration, read anew for each job.
    pub trees: Trees,
    /// Where host objects are written down.
    pub journal: Journal,
    /// The state store.
    pub store: Arc<dyn StateStore>,
    /// Slurm's commands.
    pub slurm: Arc<dyn Slurm>,
}

/// A request to the task that owns a cluster.
#[derive(Debug)]
pub(crate) enum Ask {
    /// A shim wants its plan; answered when the node is prepared.
    Launch {
        shim: Option<ProcessId>,
        step: u32,
        reply: oneshot::Sender<Result<LaunchPlan, ApiError>>,
    },
    /// A shim reports its VMs.
    Report {
        report: Report,
        reply: oneshot::Sender<Result<(), ApiError>>,
    },
    /// The job is over on this node.
    Release { reply: oneshot::Sender<Released> },
}

/// The way to a cluster's task.
#[derive(Debug, Clone)]
pub struct Handle {
    key: JobKey,
    uid: u32,
    sluid: Option<String>,
    asks: mpsc::Sender<Ask>,
    published: watch::Receiver<Published>,
}

impl Handle {
    /// The run of the job.
    #[must_use]
    pub fn key(&self) -> JobKey {
        self.key
    }

    /// The job's owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The job's SLUID, where Slurm has one.
    #[must_use]
    pub fn sluid(&self) -> Option<&str> {
        self.sluid.as_deref()
    }

    /// The cluster as seen from this node, now and later.
    #[must_use]
    pub fn published(&self) -> watch::Receiver<Published> {
        self.published.clone()
    }

    /// Whether a shim of this node is known to be alive.
    #[must_use]
    pub fn has_shim(&self) -> bool {
        self.published.borrow().shim_alive
    }

    /// Waits until the node is prepared and takes the plan for its VMs.
    ///
    /// # Errors
    /// The cluster failed, or the job was released meanwhile.
    pub async fn launch(&self, shim: Option<ProcessId>, step: u32) -> Result<LaunchPlan, ApiError> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask::Launch { shim, step, reply };
        self.asks.send(ask).await.map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())?
    }

    /// Takes a shim's report.
    ///
    /// # Errors
    /// It names VMs of other nodes, or the job was released meanwhile.
    pub async fn report(&self, report: Report) -> Result<(), ApiError> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask::Report { report, reply };
        self.asks.send(ask).await.map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())?
    }

    /// Undoes everything on this node; returns what could not be undone. A cluster that is gone
    /// already is clean.
    pub async fn release(&self) -> Released {
        let (reply, answer) = oneshot::channel();
        if self.asks.send(Ask::Release { reply }).await.is_err() {
            return Released::default();
        }
        answer.await.unwrap_or_default()
    }

    fn gone(&self) -> ApiError {
        ApiError::NoSuchCluster(format!("job {} is over on this node", self.key.job))
    }
}

/// Starts the task that owns a cluster. The entry is in the journal already; one of an earlier vmd is
/// taken over as far as it had come.
#[must_use]
pub fn start(context: Arc<Context>, entry: Entry) -> Handle {
    // A cluster has one shim, one prolog and one epilog on a node; more wait in the channel.
    let (asks, inbox) = mpsc::channel(64);
    let (publish, published) = watch::channel(Published::default());
    let handle = Handle {
        key: entry.key(),
        uid: entry.facts.uid,
        sluid: entry.facts.sluid.clone(),
        asks,
        published,
    };
    tokio::spawn(actor::run(context, entry, inbox, publish));
    handle
}

/// Milliseconds since the Unix epoch.
fn now_ms() -> u64 {
    now_us() / 1000
}

/// Microseconds since the Unix epoch.
fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

/// Where a step's log lies, from the journal entry.
fn step_log(context: &Context, key: JobKey) -> PathBuf {
    context.journal.step_log(key)
}
