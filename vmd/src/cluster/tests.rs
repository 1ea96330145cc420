//! A node's life with a job, against a real (embedded) store and a Slurm that only keeps a list: the
//! real one is used in the lab.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use muster_types::api::{Report, Until, WaitOutcome, Waited};
use muster_types::ids::{JobId, Rank};
use muster_types::placement::Placement;
use muster_types::state::{NodePhase, NodeStatus, VmPhase, VmStatus};

use super::*;
use crate::host::slurm::{JobLife, SlurmError, Step, StepCommand};
use crate::journal::tests::facts;
use crate::plan::tests::request;
use crate::settings::tests::settings;
use crate::store::{StoreConfig, Write, keys, open};

/// Keeps what it was asked; its steps are processes that sleep.
#[derive(Debug, Default)]
struct Listed {
    calls: Mutex<Vec<String>>,
    step_fails: bool,
}

impl Listed {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

#[async_trait]
impl Slurm for Listed {
    fn start_step(&self, command: &StepCommand) -> Result<Step, SlurmError> {
        self.note(format!("start {}", command.key));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .unwrap();
        let id = ProcessId::of(Path::new("/proc"), child.id().try_into().unwrap()).unwrap();
        let (tx, ended) = oneshot::channel();
        if self.step_fails {
            std::fs::write(&command.log, "srun: error: no such partition\n").unwrap();
            child.kill().unwrap();
        }
        std::thread::spawn(move || {
            let status = child.wait().unwrap().to_string();
            drop(tx.send(Some(status)));
        });
        Ok(Step { id, ended })
    }
    fn find_step(&self, command: &StepCommand, known: Option<ProcessId>) -> Option<Step> {
        self.note(format!("find {} {}", command.key, known.is_some()));
        None
    }
    async fn cancel_step(&self, job: JobId, step: u32) -> Result<(), SlurmError> {
        self.note(format!("cancel step {job}.{step}"));
        Ok(())
    }
    async fn cancel_job(&self, job: JobId) -> Result<(), SlurmError> {
        self.note(format!("cancel job {job}"));
        Ok(())
    }
    async fn notify(&self, job: JobId, text: &str) -> Result<(), SlurmError> {
        self.note(format!("notify {job} {text}"));
        Ok(())
    }
    async fn life(&self, _: JobKey) -> Result<JobLife, SlurmError> {
        Ok(JobLife::Alive)
    }
}

struct Node {
    context: Arc<Context>,
    slurm: Arc<Listed>,
    _dir: tempfile::TempDir,
}

async fn node(step_fails: bool) -> Node {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    for path in [
        settings.jobs_dir(),
        settings.vm_dir(),
        settings.scratch_dir.clone(),
    ] {
        std::fs::create_dir_all(path).unwrap();
    }
    let path = dir.path().join("state.redb");
    let slurm = Arc::new(Listed {
        step_fails,
        ..Listed::default()
    });
    let context = Context {
        journal: Journal::new(settings.jobs_dir()),
        store: open(&StoreConfig::Embedded { path }).await.unwrap(),
        slurm: Arc::clone(&slurm) as Arc<dyn Slurm>,
        trees: Trees {
            system: dir.path().join("etc"),
            user: None,
        },
        settings,
    };
    Node {
        context: Arc::new(context),
        slurm,
        _dir: dir,
    }
}

fn entry(node: &str, request: Option<String>) -> Entry {
    Entry {
        facts: facts(7, "n[1-2]", node),
        request,
        objects: Vec::new(),
        shim: None,
        refused: None,
        releasing: false,
    }
}

impl Node {
    fn start(&self, entry: Entry) -> Handle {
        self.context.journal.write(&entry).unwrap();
        start(Arc::clone(&self.context), entry)
    }

    async fn other_node_says(&self, phase: NodePhase, reason: Option<&str>, vm: VmPhase) {
        let status = NodeStatus {
            key: "7.0".parse().unwrap(),
            phase,
            reason: reason.map(str::to_owned),
            verdict: None,
            vms: vec![vm_status(1, vm)],
            ran: (vm == VmPhase::Running)
                .then_some(Rank(1))
                .into_iter()
                .collect(),
            timeline: std::collections::BTreeMap::new(),
        };
        let key = keys::node_status(JobId(7), "n2");
        let value = serde_json::to_vec(&status).unwrap();
        let writes = [Write::Put { key, value }];
        self.context.store.apply(&[], &writes).await.unwrap();
    }

    async fn left_over(&self) -> Vec<String> {
        let settings = &self.context.settings;
        let mut left = Vec::new();
        for dir in [
            settings.jobs_dir(),
            settings.vm_dir(),
            settings.scratch_dir.clone(),
        ] {
            left.extend(crate::host::directory::entries(&dir).unwrap());
        }
        let keys = self.context.store.list("/muster/").await.unwrap();
        left.extend(keys.entries.into_iter().map(|e| e.key));
        left
    }

    async fn until_called(&self, call: &str) {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        for _ in 0..500 {
            ticks.tick().await;
            if self.slurm.calls().iter().any(|c| c.starts_with(call)) {
                return;
            }
        }
        panic!("waited for '{call}', got {:?}", self.slurm.calls());
    }
}

fn vm_status(rank: u32, phase: VmPhase) -> VmStatus {
    let place = Placement {
        rank: Rank(rank),
        node: 0,
        vcpus: 1,
    };
    VmStatus {
        phase,
        ..VmStatus::pending(&place, 0)
    }
}

fn report(rank: u32, phase: VmPhase) -> Report {
    Report {
        job: JobId(7),
        vms: vec![vm_status(rank, phase)],
        timeline: std::collections::BTreeMap::new(),
        last: phase.is_over(),
    }
}

async fn wait(handle: &Handle, until: Until) -> Waited {
    let mut published = handle.published();
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let now = published.borrow_and_update().clone();
        if let Some(waited) = outcome(until, &now) {
            return waited;
        }
        match tokio::time::timeout_at(limit, published.changed()).await {
            Ok(changed) => changed.unwrap(),
            Err(_) => panic!("waited for {until:?}: {now:?}"),
        }
    }
}

#[tokio::test]
async fn a_cluster_starts_runs_and_leaves_nothing() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some(request(2))));
    let plan = handle.launch(None, 3).await.unwrap();
    assert_eq!(plan.vms.len(), 1);
    assert!(Path::new(&plan.scratch_dir).is_dir() && Path::new(&plan.run_dir).is_dir());
    handle.report(report(0, VmPhase::Running)).await.unwrap();
    n.other_node_says(NodePhase::Prepared, None, VmPhase::Running)
        .await;
    let waited = wait(&handle, Until::Running).await;
    assert_eq!(waited.outcome, WaitOutcome::Reached, "{waited:?}");
    n.until_called("notify 7 muster: tiny:2 runs: vm0 on n1, vm1 on n2")
        .await;
    assert!(
        handle.report(report(1, VmPhase::Running)).await.is_err(),
        "another node's VM"
    );
    handle.report(report(0, VmPhase::Stopped)).await.unwrap();
    let waited = wait(&handle, Until::Started).await;
    assert_eq!(waited.outcome, WaitOutcome::Reached, "{waited:?}");
    let waited = wait(&handle, Until::Running).await;
    assert_eq!(waited.outcome, WaitOutcome::Failed, "{waited:?}");
    assert_eq!(handle.release().await.problems, Vec::<String>::new());
    // What the other node wrote is the other node's.
    assert_eq!(n.left_over().await, [keys::node_status(JobId(7), "n2")]);
    assert_eq!(
        n.slurm
            .calls()
            .iter()
            .filter(|c| c.starts_with("start"))
            .count(),
        1
    );
}

#[tokio::test]
async fn a_bad_request_is_a_verdict_not_an_error() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some("{}".into())));
    let waited = wait(&handle, Until::Started).await;
    assert_eq!(waited.outcome, WaitOutcome::Failed);
    assert!(waited.reason.unwrap().contains("cluster request refused"));
    let e = handle.launch(None, 0).await.unwrap_err();
    assert!(matches!(e, ApiError::ClusterFailed(_)), "{e:?}");
    n.until_called("notify 7 muster: the virtual cluster failed: cluster request")
        .await;
    handle.release().await;
    assert!(n.left_over().await.is_empty());
    assert!(!n.slurm.calls().iter().any(|c| c.starts_with("start")));
}

#[tokio::test]
async fn a_job_is_judged_once() {
    let n = node(false).await;
    let etc = n.context.trees.system.clone();
    std::fs::create_dir(&etc).unwrap();
    let policy = |text: &str| std::fs::write(etc.join("policy.yaml"), text).unwrap();
    let journalled = || n.context.journal.read_all().unwrap().0.remove(0);
    policy("max-vms-per-job: 1\n");
    let refused =
        "refused by the site's policy: the job has 2 VMs, at most 1 VM is allowed (policy.yaml:1)";
    let handle = n.start(entry("n1", Some(request(2))));
    let waited = wait(&handle, Until::Started).await;
    assert_eq!(waited.reason.as_deref(), Some(refused));
    policy("");
    // What later vmds find.
    assert_eq!(journalled().refused.as_deref(), Some(refused));
    let again = start(Arc::clone(&n.context), journalled());
    let waited = wait(&again, Until::Started).await;
    assert_eq!(waited.reason.as_deref(), Some(refused));
    again.release().await;
    assert!(n.left_over().await.is_empty());
    assert!(!n.slurm.calls().iter().any(|c| c.starts_with("start")));

    let handle = n.start(entry("n1", Some(request(2))));
    handle.launch(None, 3).await.unwrap();
    policy("max-vms-per-job: 1\n");
    let again = start(Arc::clone(&n.context), journalled());
    again.launch(None, 3).await.unwrap();
    again.release().await;
}

#[tokio::test]
async fn another_nodes_failure_ends_the_job_with_its_name() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some(request(2))));
    handle.launch(None, 3).await.unwrap();
    n.other_node_says(NodePhase::Failed, Some("no space"), VmPhase::Pending)
        .await;
    let waited = wait(&handle, Until::Started).await;
    assert_eq!(waited.reason.as_deref(), Some("n2: no space"));
    n.until_called("cancel step 7.3").await;
    n.until_called(
        "notify 7 muster: the virtual cluster failed: n2: no space; the job is cancelled",
    )
    .await;
    n.until_called("cancel job 7").await;
}

#[tokio::test]
async fn a_node_without_vmd_is_named() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some(request(2))));
    let waited = wait(&handle, Until::Started).await;
    assert_eq!(waited.reason.as_deref(), Some("n2: vmd does not run there"));
}

#[tokio::test]
async fn a_first_node_without_vmd_is_named_by_the_second() {
    let n = node(false).await;
    let handle = n.start(entry("n2", Some(request(2))));
    let waited = wait(&handle, Until::Started).await;
    let reason = waited.reason.unwrap();
    assert!(
        reason.starts_with("n1: no cluster record from it within 2 s"),
        "{reason}"
    );
    n.until_called("cancel job 7").await;
}

#[tokio::test]
async fn a_step_that_slurm_refuses_is_told_in_its_words() {
    let n = node(true).await;
    let handle = n.start(entry("n1", Some(request(2))));
    n.other_node_says(NodePhase::Prepared, None, VmPhase::Pending)
        .await;
    let waited = wait(&handle, Until::Started).await;
    let reason = waited.reason.unwrap();
    assert!(
        reason.contains("srun: error: no such partition"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_later_vmd_takes_over_and_does_not_start_again() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some(request(1))));
    n.other_node_says(NodePhase::Prepared, None, VmPhase::Pending)
        .await;
    handle.launch(None, 3).await.unwrap();
    handle.report(report(0, VmPhase::Running)).await.unwrap();
    let waited = wait(&handle, Until::Running).await;
    assert_eq!(waited.outcome, WaitOutcome::Reached, "{waited:?}");
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let key = keys::node_status(JobId(7), "n1");
    loop {
        ticks.tick().await;
        let written = n.context.store.get(&key).await.unwrap();
        let written = written.map(|e| serde_json::from_slice::<NodeStatus>(&e.value).unwrap());
        if written.is_some_and(|s| s.ran.contains(&Rank(0))) {
            break;
        }
    }
    // The old task is not stopped: it stands for nothing but a store that already has the state.
    let entries = n.context.journal.read_all().unwrap().0;
    assert!(entries[0].step().is_some());
    let again = start(Arc::clone(&n.context), entries[0].clone());
    let waited = wait(&again, Until::Started).await;
    assert_eq!(waited.outcome, WaitOutcome::Reached, "{waited:?}");
    n.until_called("find 7.0 true").await;
    assert_eq!(
        n.slurm
            .calls()
            .iter()
            .filter(|c| c.starts_with("start"))
            .count(),
        1
    );
    assert_eq!(again.release().await.problems, Vec::<String>::new());
}

#[tokio::test]
async fn a_restart_without_the_store_does_not_end_a_cluster_that_runs() {
    let n = node(false).await;
    for name in ["n1", "n2"] {
        let mut old = entry(name, Some(request(2)));
        old.objects = vec![crate::journal::HostObject::StoreKeys { keys: Vec::new() }];
        // This test's own process stands for the shim.
        let own = i32::try_from(std::process::id()).unwrap();
        old.shim = ProcessId::of(Path::new("/proc"), own);
        old.facts.key.job = JobId(9);
        // No record comes: the store has lost its data, or does not answer.
        let handle = start(Arc::clone(&n.context), old);
        drop(handle.report(report(0, VmPhase::Running)).await);
        let waited = tokio::time::timeout(
            n.context.settings.prepare_timeout + Duration::from_millis(500),
            wait(&handle, Until::Stopped),
        );
        assert!(waited.await.is_err(), "the cluster was judged");
        if name == "n2" {
            assert!(!n.slurm.calls().iter().any(|c| c.starts_with("cancel")));
        }
    }
}

#[tokio::test]
async fn a_vm_that_fails_at_the_start_is_acted_on_at_once() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some(request(2))));
    n.other_node_says(NodePhase::Prepared, None, VmPhase::Running)
        .await;
    handle.launch(None, 3).await.unwrap();
    let mut failed = report(0, VmPhase::Failed);
    failed.vms[0].reason = Some("no image".into());
    handle.report(failed).await.unwrap();
    n.until_called("notify 7 muster: the virtual cluster failed: vm0 on n1: no image")
        .await;
    n.until_called("cancel job 7").await;
}

#[tokio::test]
async fn a_vm_that_powers_off_early_keeps_nobody_from_starting() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some(request(2))));
    n.other_node_says(NodePhase::Prepared, None, VmPhase::Starting)
        .await;
    handle.launch(None, 3).await.unwrap();
    handle.report(report(0, VmPhase::Running)).await.unwrap();
    handle.report(report(0, VmPhase::Stopped)).await.unwrap();
    n.other_node_says(NodePhase::Prepared, None, VmPhase::Running)
        .await;
    let waited = wait(&handle, Until::Started).await;
    assert_eq!(waited.outcome, WaitOutcome::Reached, "{waited:?}");
    let late = n.context.settings.launch_timeout + Duration::from_millis(500);
    let failed = tokio::time::timeout(late, wait(&handle, Until::Stopped)).await;
    assert!(
        failed.is_err(),
        "the launch deadline ended a cluster that had started: {failed:?}"
    );
}

#[tokio::test]
async fn who_was_told_that_vms_run_reads_that_they_do() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some(request(1))));
    handle.launch(None, 3).await.unwrap();
    handle.report(report(0, VmPhase::Running)).await.unwrap();
    let mut published = handle.published();
    let runs = |p: &Published| p.view.as_ref().is_some_and(|v| v.started);
    published.wait_for(runs).await.unwrap();
    // The store may be behind by now; what is shown is not.
    let own = |key| (key == handle.key()).then(|| published.borrow().own.clone())?;
    let shown = crate::query::get(&n.context, JobId(7), &own).await.unwrap();
    let phase = shown.unwrap().vms[0].status.phase;
    assert_eq!(phase, VmPhase::Running);
    handle.release().await;
}

#[tokio::test]
async fn many_launches_and_reports_hold_nothing() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some(request(2))));
    let own = i32::try_from(std::process::id()).unwrap();
    let shim = ProcessId::of(Path::new("/proc"), own);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    handle.launch(shim, 3).await.unwrap();
    let before = descriptors();
    for i in 0..200 {
        handle.launch(shim, 3).await.unwrap();
        let mut report = report(0, VmPhase::Running);
        report.timeline.insert(format!("mark {i}"), i);
        handle.report(report).await.unwrap();
    }
    // Other tests open some of their own.
    assert!(
        descriptors() < before + 100,
        "{before} to {}",
        descriptors()
    );
    let view = handle.published().borrow().view.clone().unwrap();
    assert!(
        view.nodes[0].timeline.len() <= 9,
        "{:?}",
        view.nodes[0].timeline
    );
}

#[tokio::test]
async fn a_later_runs_keys_are_its_own() {
    let n = node(false).await;
    let mut later = entry("n1", Some(request(1)));
    later.facts.key.restart = 1;
    let old = n.start(entry("n1", Some(request(1))));
    old.launch(None, 3).await.unwrap();
    let new = n.start(later);
    new.launch(None, 4).await.unwrap();
    assert!(old.release().await.problems.is_empty());
    let record = n.context.store.get(&keys::record(JobId(7))).await.unwrap();
    let record: muster_types::state::ClusterRecord =
        serde_json::from_slice(&record.unwrap().value).unwrap();
    assert_eq!(record.key.restart, 1);
    // The old run cannot write over it either.
    let again = n.start(entry("n1", Some(request(1))));
    let waited = wait(&again, Until::Started).await;
    assert!(waited.reason.unwrap().contains("the job runs again"));
}

#[tokio::test]
async fn every_release_of_a_run_waits_for_the_same_end() {
    let n = node(false).await;
    let handle = n.start(entry("n1", Some(request(1))));
    let plan = handle.launch(None, 3).await.unwrap();
    for i in 0..2000 {
        std::fs::write(Path::new(&plan.scratch_dir).join(i.to_string()), "").unwrap();
    }
    let (first, second) = tokio::join!(handle.release(), handle.release());
    assert!(first.problems.is_empty() && second.problems.is_empty());
    assert!(!Path::new(&plan.scratch_dir).exists());
    assert!(handle.release().await.problems.is_empty());
}

#[tokio::test]
async fn a_shim_that_died_unseen_is_not_running() {
    let n = node(false).await;
    let mut old = entry("n1", Some(request(1)));
    old.objects = vec![crate::journal::HostObject::StoreKeys { keys: Vec::new() }];
    old.shim = Some(ProcessId { pid: 1, start: 1 });
    let status = NodeStatus {
        key: "7.0".parse().unwrap(),
        phase: NodePhase::Prepared,
        reason: None,
        verdict: None,
        vms: vec![vm_status(0, VmPhase::Running)],
        ran: [Rank(0)].into(),
        timeline: std::collections::BTreeMap::new(),
    };
    let key = keys::node_status(JobId(7), "n1");
    let value = serde_json::to_vec(&status).unwrap();
    n.context
        .store
        .apply(&[], &[Write::Put { key, value }])
        .await
        .unwrap();
    let handle = n.start(old);
    let waited = wait(&handle, Until::Stopped).await;
    assert_eq!(waited.outcome, WaitOutcome::Reached);
    let view = handle.published().borrow().view.clone().unwrap();
    assert_eq!(view.vms[0].status.phase, VmPhase::Failed);
    assert!(view.started, "that it ran is known");
}
