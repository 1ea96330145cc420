//! The task that owns a cluster's state on this node.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use muster_types::api::{ApiError, LaunchPlan};
use muster_types::hostlist;
use muster_types::state::{ClusterRecord, NodePhase, NodeStatus, marks};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tracing::{debug, error, warn};

use super::observe::Seen;
use super::{Ask, Context, Published, now_ms, now_us, status};
use crate::chain::chain;
use crate::host::directory;
use crate::host::process::ProcessId;
use crate::host::slurm::Step;
use crate::journal::{Entry, HostObject};
use crate::plan::{self, NodePlan};
use crate::policy::{self, SiteView};
use crate::store::{Mirror, StoreError, Write, keys};

/// Status changes that nobody waits for are written together after this time.
const COALESCE: Duration = Duration::from_millis(200);

/// The least time between two writes of a status, whatever a shim reports.
const PAUSE: Duration = Duration::from_millis(50);

/// A write to the state store that failed is tried again after this time.
const RETRY: Duration = Duration::from_secs(1);

/// What the owner's own background work tells it.
#[derive(Debug)]
pub(super) enum Event {
    /// The host objects are made, or not.
    Prepared(Result<(), String>),
    /// The cluster record is in the state store, or could not be written in time.
    Recorded(Result<ClusterRecord, String>),
    /// The node's status was written, or not.
    Written(Result<(), StoreError>),
    /// The VM step was started or found again, or is over (none), or cannot be started.
    Stepped(Result<Option<Step>, String>),
    /// The srun of the VM step has ended, with its status where it is known.
    StepEnded(Option<String>),
    /// The shim has ended.
    ShimEnded(ProcessId),
    /// Nodes that have said nothing and show no sign of life.
    Lifeless(Vec<String>),
}

pub(super) type LaunchReply = oneshot::Sender<Result<LaunchPlan, ApiError>>;

pub(super) struct Actor {
    pub(super) context: Arc<Context>,
    pub(super) entry: Entry,
    pub(super) plan: Result<NodePlan, String>,
    /// Index of this node in the job; 0 leads.
    pub(super) index: usize,
    pub(super) status: NodeStatus,
    pub(super) record: Option<ClusterRecord>,
    pub(super) step_number: Option<u32>,
    pub(super) step: Option<ProcessId>,
    pub(super) cancel_at: Option<Instant>,
    pub(super) life_check_at: Option<Instant>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) mirror: Mirror,
    pub(super) seen: Vec<Seen>,
    pub(super) launches: Vec<LaunchReply>,
    pub(super) shim_alive: bool,
    /// An adopted cluster takes its own last status from the store before it writes a new one.
    pub(super) restored: bool,
    pub(super) failure_handled: bool,
    pub(super) told_running: bool,
    pub(super) prepare_deadline: Option<Instant>,
    pub(super) launch_deadline: Option<Instant>,
    pub(super) flush_at: Option<Instant>,
    /// The write of the status under way, and of the record: a release waits for them, so that no key
    /// appears after it was deleted.
    pub(super) writing: Option<JoinHandle<()>>,
    pub(super) recording: Option<JoinHandle<()>>,
    pub(super) stopping: Arc<AtomicBool>,
    /// The start of the VM step under way: a release waits for it too.
    pub(super) stepping: Option<JoinHandle<Option<ProcessId>>>,
    shim_watch: Option<AbortHandle>,
    /// No status is written before this time.
    flush_not_before: Instant,
    /// The job was known to an earlier vmd.
    pub(super) adopted: bool,
    /// A failure that is spoken out unless a VM says better why until then.
    pub(super) late_verdict: Option<(Instant, String)>,
    pub(super) publish: watch::Sender<Published>,
}

pub(super) async fn run(
    context: Arc<Context>,
    entry: Entry,
    inbox: mpsc::Receiver<Ask>,
    publish: watch::Sender<Published>,
) {
    let (events, event_inbox) = mpsc::unbounded_channel();
    let releasing = entry.releasing;
    let site = policy::of_entry(&context.trees, &entry).await;
    let mut actor = Actor::new(context, entry, site, events, publish);
    let mut inbox = inbox;
    if releasing {
        actor.release(None, inbox).await;
        return;
    }
    actor.begin();
    if let Some(reply) = actor.serve(&mut inbox, event_inbox).await {
        actor.release(Some(reply), inbox).await;
    }
}

impl Actor {
    fn new(
        context: Arc<Context>,
        entry: Entry,
        site: Result<Option<SiteView>, String>,
        events: mpsc::UnboundedSender<Event>,
        publish: watch::Sender<Published>,
    ) -> Self {
        let key = entry.key();
        let plan = site.and_then(|site| {
            let request = entry.request.as_deref();
            plan::plan(&entry.facts, request, site.as_ref(), &context.settings)
                .map_err(|e| e.to_string())
        });
        let nodes = hostlist::expand(&entry.facts.nodelist).unwrap_or_default();
        let index = nodes.iter().position(|n| *n == entry.facts.node);
        let now = Instant::now();
        let mirror = Mirror::start(Arc::clone(&context.store), &keys::cluster_prefix(key.job));
        let adopted = !entry.objects.is_empty();
        let begun = entry.shim.is_some() || entry.step().is_some();
        Self {
            plan,
            index: index.unwrap_or(0),
            status: NodeStatus {
                key,
                phase: NodePhase::Preparing,
                reason: None,
                verdict: None,
                vms: Vec::new(),
                ran: std::collections::BTreeSet::new(),
                timeline: std::collections::BTreeMap::new(),
            },
            record: None,
            step_number: None,
            step: None,
            cancel_at: None,
            life_check_at: None,
            events,
            mirror,
            seen: nodes.iter().map(|_| Seen::default()).collect(),
            launches: Vec::new(),
            shim_alive: false,
            restored: !adopted,
            failure_handled: false,
            told_running: adopted,
            // A cluster that had come as far as its step is not judged by a vmd that was not there.
            prepare_deadline: (!begun).then(|| now + context.settings.prepare_timeout),
            launch_deadline: None,
            flush_at: None,
            writing: None,
            recording: None,
            stopping: Arc::default(),
            stepping: None,
            shim_watch: None,
            flush_not_before: now,
            adopted,
            late_verdict: None,
            publish,
            context,
            entry,
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.index == 0
    }

    fn begin(&mut self) {
        self.mark(marks::REGISTERED);
        let plan = match &self.plan {
            Ok(plan) => plan.clone(),
            Err(verdict) => {
                let verdict = verdict.clone();
                warn!(verdict, "job refused");
                self.entry.objects = vec![self.own_keys()];
                self.entry.refused = Some(verdict.clone());
                if let Err(e) = self.context.journal.write(&self.entry) {
                    warn!(error = chain(&e), "refused job not journalled");
                }
                return self.fail(verdict);
            }
        };
        debug!(%plan, "planned");
        if self.entry.objects.is_empty() {
            self.entry.objects = self.objects(&plan);
            if let Err(e) = self.context.journal.write(&self.entry) {
                return self.fail(chain(&e));
            }
        }
        self.prepare(&plan);
        if let Some(shim) = self.entry.shim {
            self.watch_shim(shim);
        }
        if self.leads() {
            let begun = self.prepare_deadline.is_none();
            self.write_record(&plan, !begun);
            let grace = self.context.settings.prepare_timeout / 3;
            self.life_check_at =
                (!begun).then(|| Instant::now() + grace.min(Duration::from_secs(10)));
        }
        self.observe();
    }

    /// Everything that this node will make for the job, in order.
    fn objects(&self, plan: &NodePlan) -> Vec<HostObject> {
        let facts = &self.entry.facts;
        let mut objects = vec![self.own_keys()];
        objects.extend(
            plan.directories
                .iter()
                .map(|path| HostObject::Directory { path: path.clone() }),
        );
        if self.leads() {
            objects.push(HostObject::Step {
                id: None,
                log: super::step_log(&self.context, facts.key),
            });
        }
        objects
    }

    /// The keys in the state store that this node writes for the job.
    fn own_keys(&self) -> HostObject {
        let facts = &self.entry.facts;
        let mut keys = vec![keys::node_status(facts.key.job, facts.node.as_str())];
        if self.leads() {
            keys.push(keys::record(facts.key.job));
            keys.push(keys::user_index(facts.uid, facts.key.job));
        }
        HostObject::StoreKeys { keys }
    }

    fn prepare(&self, plan: &NodePlan) {
        let (uid, gid) = (self.entry.facts.uid, self.entry.facts.gid);
        let directories = plan.directories.clone();
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || {
            let made = directories
                .iter()
                .try_for_each(|path| directory::make_for_user(path, uid, gid));
            drop(events.send(Event::Prepared(made.map_err(|e| chain(&e)))));
        });
    }

    /// Serves requests until the job is released; returns who asked for the release.
    async fn serve(
        &mut self,
        inbox: &mut mpsc::Receiver<Ask>,
        mut events: mpsc::UnboundedReceiver<Event>,
    ) -> Option<oneshot::Sender<muster_types::api::Released>> {
        loop {
            let wake = self.next_deadline();
            tokio::select! {
                ask = inbox.recv() => match ask? {
                    Ask::Launch { shim, step, reply } => self.launch(shim, step, reply),
                    Ask::Report { report, reply } => self.report(report, reply),
                    Ask::Release { reply } => return Some(reply),
                },
                Some(event) = events.recv() => self.on_event(event),
                () = self.mirror.changed() => self.observe(),
                () = tokio::time::sleep_until(wake) => self.on_time(),
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let flush = self
            .flush_at
            .filter(|_| self.writing.is_none() && self.restored);
        let times = [
            flush,
            self.prepare_deadline,
            self.launch_deadline,
            self.cancel_at,
            self.life_check_at,
            self.late_verdict.as_ref().map(|(at, _)| *at),
        ];
        let far = Instant::now() + Duration::from_secs(3600);
        times.into_iter().flatten().min().unwrap_or(far)
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.flush_at) && self.writing.is_none() && self.restored {
            self.flush();
        }
        if due(self.life_check_at) {
            self.life_check_at = None;
            self.check_life();
        }
        if due(self.prepare_deadline) {
            self.prepare_deadline = None;
            self.prepare_is_over();
        }
        if due(self.launch_deadline) {
            self.launch_deadline = None;
            self.launch_is_over();
        }
        if let Some((_, verdict)) = self.late_verdict.take_if(|(at, _)| *at <= now) {
            let better = self.view().is_some_and(|v| v.state.is_over() || v.started);
            if !better {
                self.judge_failed(verdict);
            }
        }
        if due(self.cancel_at) {
            self.cancel_at = None;
            self.cancel_job();
        }
    }

    fn on_event(&mut self, event: Event) {
        debug!(?event);
        match event {
            Event::Prepared(Ok(())) => {
                self.mark(marks::PREPARED);
                if self.status.phase == NodePhase::Preparing {
                    self.status.phase = NodePhase::Prepared;
                }
                self.touch(Duration::ZERO);
            }
            Event::Prepared(Err(reason)) | Event::Recorded(Err(reason)) => self.fail(reason),
            Event::Recorded(Ok(record)) => {
                self.mark(marks::RECORDED);
                self.record = Some(record);
                self.start_step();
            }
            Event::Written(result) => {
                self.writing = None;
                if let Err(e) = result {
                    warn!(error = chain(&e), "status not written, trying again");
                    self.touch(RETRY);
                }
            }
            Event::Stepped(stepped) => self.stepped(stepped),
            Event::StepEnded(status) => {
                self.step = None;
                self.step_ended(status.as_deref());
            }
            Event::ShimEnded(id) if self.entry.shim == Some(id) => {
                self.shim_alive = false;
                if self.status.phase != NodePhase::Ended {
                    status::shim_died(&mut self.status, now_ms());
                    self.touch(Duration::ZERO);
                }
            }
            Event::ShimEnded(_) => {}
            Event::Lifeless(nodes) => self.nodes_are_lifeless(&nodes),
        }
        self.observe();
    }

    fn launch(&mut self, shim: Option<ProcessId>, step: u32, reply: LaunchReply) {
        self.mark(marks::SHIM_CONNECTED);
        self.step_number = Some(step);
        if let Some(id) = shim.filter(|id| self.entry.shim != Some(*id) || !self.shim_alive) {
            self.entry.shim = Some(id);
            if let Err(e) = self.context.journal.write(&self.entry) {
                warn!(error = chain(&e), "shim not journalled");
            }
            self.watch_shim(id);
        }
        self.launches.push(reply);
        self.answer_launches();
    }

    fn watch_shim(&mut self, id: ProcessId) {
        self.shim_alive = true;
        let events = self.events.clone();
        match crate::host::process::ended(id, &self.context.settings.proc_root) {
            Ok(ended) => {
                let watch = tokio::spawn(async move {
                    ended.await;
                    drop(events.send(Event::ShimEnded(id)));
                });
                // One watch at a time: each holds a descriptor.
                if let Some(old) = self.shim_watch.replace(watch.abort_handle()) {
                    old.abort();
                }
            }
            // Gone already, or an older kernel: the first is told at once, the second not at all.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
                drop(events.send(Event::ShimEnded(id)));
            }
            Err(e) => warn!(error = %e, "cannot watch the shim"),
        }
    }

    fn report(
        &mut self,
        report: muster_types::api::Report,
        reply: oneshot::Sender<Result<(), ApiError>>,
    ) {
        let before = self.status.clone();
        let taken = match &self.plan {
            Ok(plan) => status::take(&mut self.status, plan, report),
            Err(verdict) => Err(verdict.clone()),
        };
        // The shim may be gone before it reads the answer.
        drop(reply.send(taken.map_err(ApiError::InvalidCall)));
        if self.status == before {
            return;
        }
        let settled = status::is_settled(&self.status);
        self.touch(if settled { Duration::ZERO } else { COALESCE });
        self.observe();
    }

    /// Gives the plan to the shims that wait, as soon as it may be acted on.
    pub(super) fn answer_launches(&mut self) {
        if self.launches.is_empty() {
            return;
        }
        let failure = self.failure();
        let answer = match (&failure, &self.plan) {
            (Some(reason), _) | (None, Err(reason)) => Err(reason.clone()),
            (None, Ok(plan)) if self.is_prepared() && self.record.is_some() => {
                Ok(plan.launch.clone())
            }
            (None, Ok(_)) => return,
        };
        if answer.is_ok() {
            self.mark(marks::LAUNCHED);
        }
        for reply in self.launches.drain(..) {
            drop(reply.send(answer.clone().map_err(ApiError::ClusterFailed)));
        }
    }

    fn is_prepared(&self) -> bool {
        matches!(self.status.phase, NodePhase::Prepared | NodePhase::Ended)
    }

    /// This node cannot do its part.
    pub(super) fn fail(&mut self, reason: String) {
        error!(reason, "node failed");
        self.status.phase = NodePhase::Failed;
        self.status.reason = Some(reason);
        self.touch(Duration::ZERO);
        self.observe();
    }

    /// The whole cluster has failed, by the word of the node that leads.
    pub(super) fn judge_failed(&mut self, verdict: String) {
        error!(verdict, "cluster failed");
        self.status.verdict = Some(verdict);
        self.touch(Duration::ZERO);
        self.observe();
    }

    /// Asks for the status to be written within `within`.
    fn touch(&mut self, within: Duration) {
        let at = (Instant::now() + within).max(self.flush_not_before);
        self.flush_at = Some(self.flush_at.map_or(at, |old| old.min(at)));
    }

    fn flush(&mut self) {
        self.flush_at = None;
        self.flush_not_before = Instant::now() + PAUSE;
        let facts = &self.entry.facts;
        let key = keys::node_status(facts.key.job, facts.node.as_str());
        let store = Arc::clone(&self.context.store);
        let events = self.events.clone();
        let value = serde_json::to_vec(&self.status).unwrap_or_default();
        self.writing = Some(tokio::spawn(async move {
            let written = store.apply(&[], &[Write::Put { key, value }]).await;
            drop(events.send(Event::Written(written.map(drop))));
        }));
    }

    pub(super) fn mark(&mut self, name: &str) {
        let at = now_us();
        self.status.timeline.entry(name.to_owned()).or_insert(at);
    }
}
