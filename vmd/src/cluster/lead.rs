//! What the leading node does for the whole cluster: the record, the VM step, the verdict on nodes
//! that say nothing, and telling the user.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use muster_types::api::Until;
use muster_types::ids::JobKey;
use muster_types::request::Submitter;
use muster_types::state::{ClusterRecord, ClusterView, marks};
use tokio::time::Instant;
use tracing::{info, warn};

use super::actor::{Actor, Event};
use super::{now_ms, wait};
use crate::chain::chain;
use crate::host::slurm::{Slurm, Step, StepCommand, last_lines};
use crate::plan::NodePlan;
use crate::store::{Guard, StateStore, StoreError, Write, keys};

/// A job whose script or step is told the reason in its `task_init` ends by that; one that still
/// lives after this time is cancelled.
const CANCEL_AFTER: Duration = Duration::from_secs(15);

/// How often the record is tried while the state store does not answer.
const RECORD_RETRY: Duration = Duration::from_millis(500);

impl Actor {
    fn step_command(&self, plan: &NodePlan) -> StepCommand {
        let facts = &self.entry.facts;
        StepCommand {
            key: facts.key,
            uid: facts.uid,
            gid: facts.gid,
            user: facts.user.clone(),
            nodes: plan.nodes.len(),
            log: super::step_log(&self.context, facts.key),
        }
    }

    /// Writes the record, or finds it there. Gives up when the nodes' time to prepare is up, if
    /// `limited`; a cluster that runs already waits for its store as long as it takes.
    pub(super) fn write_record(&mut self, plan: &NodePlan, limited: bool) {
        let record = ClusterRecord {
            key: self.entry.key(),
            uid: self.entry.facts.uid,
            user: self.entry.facts.user.clone(),
            nodes: plan.nodes.clone(),
            placement: plan.placement.clone(),
            request: plan.request.clone(),
            created_ms: now_ms(),
        };
        let store = Arc::clone(&self.context.store);
        let deadline = Instant::now() + self.context.settings.prepare_timeout;
        let events = self.events.clone();
        let stopping = Arc::clone(&self.stopping);
        self.recording = Some(tokio::spawn(async move {
            let mut tries = tokio::time::interval(RECORD_RETRY);
            let written = loop {
                tries.tick().await;
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                match put_record(&*store, &record).await {
                    Ok(record) => break Ok(record),
                    Err(e @ RecordError::Superseded(_)) => break Err(chain(&e)),
                    Err(e) if limited && Instant::now() >= deadline => {
                        break Err(format!("cannot write the cluster record: {}", chain(&e)));
                    }
                    Err(e) => warn!(
                        error = chain(&e),
                        "cluster record not written, trying again"
                    ),
                }
            };
            drop(events.send(Event::Recorded(written)));
        }));
    }

    /// Starts the VM step, or takes over the one that an earlier vmd started. Looking up users and
    /// processes can block, so that it is done beside this task.
    pub(super) fn start_step(&mut self) {
        let (Ok(plan), None) = (&self.plan, self.step) else {
            return;
        };
        let command = self.step_command(plan);
        let slurm = Arc::clone(&self.context.slurm);
        let (adopted, known) = (self.adopted, self.entry.step());
        let events = self.events.clone();
        self.stepping = Some(tokio::task::spawn_blocking(move || {
            let found = adopted.then(|| slurm.find_step(&command, known)).flatten();
            let stepped = match found {
                Some(step) => Ok(Some(step)),
                // It was started and is no more: the cluster is over, and does not start again.
                None if known.is_some() => Ok(None),
                None => slurm.start_step(&command).map(Some).map_err(|e| chain(&e)),
            };
            let id = stepped.as_ref().ok().and_then(Option::as_ref).map(|s| s.id);
            drop(events.send(Event::Stepped(stepped)));
            id
        }));
    }

    pub(super) fn stepped(&mut self, stepped: Result<Option<Step>, String>) {
        self.stepping = None;
        match stepped {
            Ok(Some(step)) => {
                self.mark(marks::STEP_SPAWNED);
                self.step_runs(step);
            }
            Ok(None) => self.step_ended(None),
            Err(reason) => self.fail(reason),
        }
    }

    fn step_runs(&mut self, step: Step) {
        self.step = Some(step.id);
        self.entry.set_step(step.id);
        if let Err(e) = self.context.journal.write(&self.entry) {
            // It is found by its arguments if this vmd dies.
            warn!(error = chain(&e), "VM step not journalled");
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            if let Ok(status) = step.ended.await {
                drop(events.send(Event::StepEnded(status)));
            }
        });
    }

    /// srun has ended: fine once the VMs have run, a failure with srun's words before.
    pub(super) fn step_ended(&mut self, status: Option<&str>) {
        let Some(view) = self.view() else { return };
        info!(status, "VM step ended");
        if view.started || view.state.is_over() {
            return;
        }
        let log = super::step_log(&self.context, self.entry.key());
        let said = last_lines(&crate::host::slurm::log_tail(&log));
        let status = status.unwrap_or("an unknown status");
        // VMs that failed have said better why.
        self.late_verdict = Some((
            Instant::now() + Duration::from_secs(1),
            if said.is_empty() {
                format!("the VM step ended with {status} before all VMs ran")
            } else {
                format!("the VM step ended with {status} before all VMs ran: {said}")
            },
        ));
    }

    /// Looks which of the nodes that have said nothing show a sign of life.
    pub(super) fn check_life(&self) {
        let Some(view) = self.view() else { return };
        let silent: Vec<String> = view
            .nodes
            .iter()
            .filter(|n| n.phase.is_none())
            .map(|n| n.name.to_string())
            .collect();
        let store = Arc::clone(&self.context.store);
        let events = self.events.clone();
        tokio::spawn(async move {
            let mut lifeless = Vec::new();
            for node in silent {
                if let Ok(None) = store.get(&keys::node_alive(&node)).await {
                    lifeless.push(node);
                }
            }
            drop(events.send(Event::Lifeless(lifeless)));
        });
    }

    pub(super) fn nodes_are_lifeless(&mut self, nodes: &[String]) {
        let Some(view) = self.view() else { return };
        let silent = |name: &str| {
            view.nodes
                .iter()
                .any(|n| n.name.as_str() == name && n.phase.is_none())
        };
        if let Some(node) = nodes.iter().find(|n| silent(n)) {
            self.judge_failed(format!("{node}: vmd does not run there"));
        }
    }

    /// Time is up for the nodes to prepare.
    pub(super) fn prepare_is_over(&mut self) {
        let within = self.context.settings.prepare_timeout.as_secs();
        if self.leads() {
            if let Some(view) = self.view()
                && let Some(what) = wait::still_waiting(Until::Started, &view)
            {
                self.judge_failed(format!("{what} after {within} s: does its vmd run?"));
            }
        } else if self.record.is_none()
            && let Ok(plan) = &self.plan
        {
            let first = plan.nodes.first().map(ToString::to_string);
            let first = first.unwrap_or_default();
            let reason =
                format!("{first}: no cluster record from it within {within} s: does its vmd run?");
            self.judge_failed(reason);
        }
    }

    /// Time is up for the VMs to run.
    pub(super) fn launch_is_over(&mut self) {
        let within = self.context.settings.launch_timeout.as_secs();
        if let Some(view) = self.view().filter(|v| !v.started) {
            let what = wait::still_waiting(Until::Started, &view);
            let what = what.unwrap_or_else(|| "a VM does not run".into());
            self.judge_failed(format!("{what}, {within} s after its node was prepared"));
        }
    }

    pub(super) fn tell_running(&self, view: &ClusterView) {
        if self.submitter() != Some(Submitter::Salloc) {
            return;
        }
        let mut places: Vec<String> = view
            .vms
            .iter()
            .take(8)
            .map(|v| format!("{} on {}", v.status.rank, v.node))
            .collect();
        if view.vms.len() > places.len() {
            places.push(format!("{} more", view.vms.len() - places.len()));
        }
        let mut text = format!("muster: {} runs: {}", view.definition, places.join(", "));
        let waited = super::outcome(Until::Started, &self.publish.borrow());
        for warning in waited.map(|w| w.warnings).unwrap_or_default() {
            text.push_str(&format!("; warning: {warning}"));
        }
        self.notify(text, false);
    }

    fn submitter(&self) -> Option<Submitter> {
        self.plan.as_ref().ok().map(|p| p.request.submitter)
    }

    /// Stops what was started, tells the user, and ends the job unless it is to be kept.
    pub(super) fn lead_failure(&mut self, reason: &str, started: bool) {
        warn!(reason, started, "cluster failed");
        self.stop_step();
        let cancel = self.context.settings.cancel_on_failure && !started;
        match self.submitter() {
            Some(Submitter::Salloc) => {
                let end = if cancel { "; the job is cancelled" } else { "" };
                self.notify(
                    format!("muster: the virtual cluster failed: {reason}{end}"),
                    cancel,
                );
            }
            Some(Submitter::Sbatch | Submitter::Srun) if cancel => {
                self.cancel_at = Some(Instant::now() + CANCEL_AFTER);
            }
            Some(Submitter::Sbatch | Submitter::Srun) => {}
            None => {
                self.notify(
                    format!("muster: the virtual cluster failed: {reason}"),
                    false,
                );
                if cancel {
                    self.cancel_at = Some(Instant::now() + CANCEL_AFTER);
                }
            }
        }
    }

    fn stop_step(&self) {
        let Some(step) = self.step else { return };
        let (job, number) = (self.entry.key().job, self.step_number);
        let slurm = Arc::clone(&self.context.slurm);
        let proc_root = self.context.settings.proc_root.clone();
        tokio::spawn(async move {
            if let Some(number) = number {
                match slurm.cancel_step(job, number).await {
                    Ok(()) => return,
                    Err(e) => warn!(error = chain(&e), "VM step not cancelled by Slurm"),
                }
            }
            if let Err(e) = step.signal_group(&proc_root, nix::sys::signal::Signal::SIGTERM) {
                warn!(error = %e, "srun of the VM step not ended");
            }
        });
    }

    /// Shows a text on the user's terminal, then cancels the job if asked to.
    fn notify(&self, text: String, cancel: bool) {
        let slurm = Arc::clone(&self.context.slurm);
        let key = self.entry.key();
        tokio::spawn(async move {
            if let Err(e) = slurm.notify(key.job, &text).await {
                warn!(error = chain(&e), text, "user not told");
            }
            if cancel {
                cancel_job(&*slurm, key).await;
            }
        });
    }

    pub(super) fn cancel_job(&self) {
        let slurm = Arc::clone(&self.context.slurm);
        let key = self.entry.key();
        tokio::spawn(async move { cancel_job(&*slurm, key).await });
    }
}

async fn cancel_job(slurm: &dyn Slurm, key: JobKey) {
    if let Err(e) = slurm.cancel_job(key.job).await {
        warn!(error = chain(&e), "job not cancelled");
    }
}

/// Why a record cannot be written.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    /// The job runs again, under a higher restart count.
    #[error("the job runs again: the cluster record is of run {0}")]
    Superseded(JobKey),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes the record where there is none, or one of an older run; one of this run is kept.
async fn put_record(
    store: &dyn StateStore,
    record: &ClusterRecord,
) -> Result<ClusterRecord, RecordError> {
    let key = keys::record(record.key.job);
    let value = serde_json::to_vec(record).unwrap_or_default();
    let writes = [
        Write::Put {
            key: key.clone(),
            value,
        },
        Write::Put {
            key: keys::user_index(record.uid, record.key.job),
            value: Vec::new(),
        },
    ];
    match store.apply(&[Guard::Absent(key.clone())], &writes).await {
        Ok(_) => return Ok(record.clone()),
        Err(StoreError::Conflict { .. }) => {}
        Err(e) => return Err(e.into()),
    }
    let Some(old) = store.get(&key).await? else {
        return Err(StoreError::Conflict { key }.into());
    };
    match serde_json::from_slice::<ClusterRecord>(&old.value) {
        Ok(ours) if ours.key == record.key => return Ok(ours),
        Ok(later) if later.key > record.key => return Err(RecordError::Superseded(later.key)),
        _ => {}
    }
    store
        .apply(&[Guard::Revision(key, old.revision)], &writes)
        .await?;
    Ok(record.clone())
}
