//! The records of a virtual cluster in the state store, and what they mean together.
//!
//! A cluster has one [`ClusterRecord`], written once by the job's first node, and one [`NodeStatus`]
//! per node, written by that node only. [`view`] is the one place that derives the cluster's state
//! from them; every reader computes the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{JobKey, Mib, NodeName, Rank};
use crate::placement::Placement;
use crate::request::ClusterRequest;

/// Milliseconds since the Unix epoch.
pub type UnixMs = u64;

/// What is fixed for the life of a virtual cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// The run of the job it belongs to.
    pub key: JobKey,
    /// The job's owner.
    pub uid: u32,
    /// The owner's name, for display.
    pub user: String,
    /// Nodes of the job, in Slurm's order.
    pub nodes: Vec<NodeName>,
    /// Where each VM runs, by rank.
    pub placement: Vec<Placement>,
    /// What was asked for.
    pub request: ClusterRequest,
    /// When the first node wrote this record.
    pub created_ms: UnixMs,
}

/// What one node says about a virtual cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The run of the job it belongs to; a status of an older run is not counted.
    pub key: JobKey,
    /// How far the node is.
    pub phase: NodePhase,
    /// Why it failed; one line, with the node's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the whole cluster failed, where no node says so itself (one that never answered, say): the
    /// word of the node that leads the cluster, normally the job's first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The node's VMs, by rank; empty before the shim reported.
    #[serde(default)]
    pub vms: Vec<VmStatus>,
    /// Those of them whose guest has run, whatever became of it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ran: BTreeSet<Rank>,
    /// When each event of the start happened, in microseconds since the Unix epoch. Names: see
    /// [`marks`].
    #[serde(default)]
    pub timeline: BTreeMap<String, u64>,
}

/// Names of the events in [`NodeStatus::timeline`], in their order.
pub mod marks {
    /// The prolog's call arrived at vmd.
    pub const REGISTERED: &str = "registered";
    /// The cluster record is in the state store (first node) or was seen there.
    pub const RECORDED: &str = "recorded";
    /// vmd has started `srun` for the VM step (first node only).
    pub const STEP_SPAWNED: &str = "step-spawned";
    /// The node's host objects exist.
    pub const PREPARED: &str = "prepared";
    /// The shim asked for its launch plan.
    pub const SHIM_CONNECTED: &str = "shim-connected";
    /// The shim was given its launch plan.
    pub const LAUNCHED: &str = "launched";
    /// All overlays of the node are made.
    pub const OVERLAYS: &str = "overlays";
    /// All QEMUs of the node are started, guests not yet running.
    pub const QEMU_STARTED: &str = "qemu-started";
    /// All guests of the node run.
    pub const RUNNING: &str = "running";
}

/// How far a node is with its part of a virtual cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodePhase {
    /// Host objects are being made.
    Preparing,
    /// Host objects exist; the shim may launch.
    Prepared,
    /// The node cannot do its part; see the reason.
    Failed,
    /// The VM step is over on this node.
    Ended,
}

/// One VM as its shim reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmStatus {
    /// Which VM.
    pub rank: Rank,
    /// How far it is.
    pub phase: VmPhase,
    /// Since when.
    pub since_ms: UnixMs,
    /// Why it failed or stopped; one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the user should know though the VM runs, such as emulation instead of KVM.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// `kvm` or `tcg`, once it is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accel: Option<String>,
    /// Number of vCPUs.
    #[serde(default)]
    pub vcpus: u32,
    /// Guest RAM, once it is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Mib>,
    /// QEMU's process id on its node, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The console's log file on the VM's node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console_log: Option<String>,
}

/// The phases of a VM, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmPhase {
    /// Its node is not ready for it.
    Pending,
    /// Its overlay is being made.
    Preparing,
    /// QEMU is being started.
    Starting,
    /// The guest CPU runs.
    Running,
    /// It was asked to power down.
    Stopping,
    /// It is off as asked, by the guest or by the user.
    Stopped,
    /// It did not start, or died; see the reason.
    Failed,
}

impl VmPhase {
    /// Whether nothing of the VM runs any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }
}

impl fmt::Display for VmPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Preparing => "preparing",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        })
    }
}

/// The state of a whole virtual cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterState {
    /// Nodes prepare, or VMs start.
    Starting,
    /// Every VM runs.
    Running,
    /// Some VMs run, others are off or failed; the first failure is the reason.
    Degraded,
    /// It did not come up, or no VM is left and one of them failed.
    Failed,
    /// Every VM is off, as asked.
    Stopped,
}

impl fmt::Display for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        })
    }
}

impl ClusterState {
    /// Whether the cluster will not change to running any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Failed | Self::Stopped)
    }
}

/// A virtual cluster as a user sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// Which run of which job.
    pub key: JobKey,
    /// Owner's uid.
    pub uid: u32,
    /// Owner's name.
    pub user: String,
    /// The definition as typed.
    pub definition: String,
    /// Its state.
    pub state: ClusterState,
    /// Whether every VM's guest has run, whatever became of it since.
    #[serde(default)]
    pub started: bool,
    /// Why it failed or is degraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Nodes in order.
    pub nodes: Vec<NodeView>,
    /// VMs by rank.
    pub vms: Vec<VmView>,
    /// When the record was written.
    pub created_ms: UnixMs,
}

/// One node in a [`ClusterView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// How far it is; none before it said anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<NodePhase>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the node's vmd is alive; if not, the rest is what was known last.
    pub alive: bool,
    /// See [`NodeStatus::timeline`].
    #[serde(default)]
    pub timeline: BTreeMap<String, u64>,
}

/// One VM in a [`ClusterView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmView {
    /// Its node.
    pub node: NodeName,
    /// Its template's name.
    pub template: String,
    /// Its image, for display.
    pub image: String,
    /// What its shim said last.
    pub status: VmStatus,
}

/// Derives the view of a cluster from its record, its nodes' statuses (in the order of
/// `record.nodes`, none where a node wrote nothing) and which nodes' vmd is alive.
#[must_use]
pub fn view(
    record: &ClusterRecord,
    statuses: &[Option<NodeStatus>],
    alive: &[bool],
) -> ClusterView {
    let status_of = |i: usize| {
        statuses
            .get(i)
            .and_then(Option::as_ref)
            .filter(|s| s.key == record.key)
    };
    let nodes: Vec<NodeView> = record
        .nodes
        .iter()
        .enumerate()
        .map(|(i, name)| NodeView {
            name: name.clone(),
            phase: status_of(i).map(|s| s.phase),
            reason: status_of(i).and_then(|s| s.reason.clone()),
            alive: alive.get(i).copied().unwrap_or(false),
            timeline: status_of(i).map(|s| s.timeline.clone()).unwrap_or_default(),
        })
        .collect();
    let vms: Vec<VmView> = record
        .request
        .vms()
        .zip(&record.placement)
        .filter_map(|((template, spec), place)| {
            let node = record.nodes.get(place.node)?.clone();
            let reported = status_of(place.node)
                .and_then(|s| s.vms.iter().find(|v| v.rank == place.rank))
                .cloned();
            Some(VmView {
                node,
                template: template.to_owned(),
                image: spec
                    .image
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), ToString::to_string),
                status: reported.unwrap_or_else(|| VmStatus::pending(place, record.created_ms)),
            })
        })
        .collect();
    let verdict = (0..nodes.len()).find_map(|i| status_of(i)?.verdict.clone());
    let (state, reason) = match verdict {
        Some(verdict) => (ClusterState::Failed, Some(verdict)),
        None => derive(&nodes, &vms),
    };
    ClusterView {
        key: record.key,
        uid: record.uid,
        user: record.user.clone(),
        definition: record.request.definition.clone(),
        state,
        started: record
            .placement
            .iter()
            .all(|p| status_of(p.node).is_some_and(|s| s.ran.contains(&p.rank))),
        reason,
        nodes,
        vms,
        created_ms: record.created_ms,
    }
}

impl VmStatus {
    /// A VM of which nothing is known but its place.
    #[must_use]
    pub fn pending(place: &Placement, since_ms: UnixMs) -> Self {
        Self {
            rank: place.rank,
            phase: VmPhase::Pending,
            since_ms,
            reason: None,
            warnings: Vec::new(),
            accel: None,
            vcpus: place.vcpus,
            memory: None,
            pid: None,
            console_log: None,
        }
    }
}

fn derive(nodes: &[NodeView], vms: &[VmView]) -> (ClusterState, Option<String>) {
    let node_failure = nodes
        .iter()
        .find(|n| n.phase == Some(NodePhase::Failed))
        .map(|n| format!("{}: {}", n.name, n.reason.as_deref().unwrap_or("failed")));
    if node_failure.is_some() {
        return (ClusterState::Failed, node_failure);
    }
    let vm_failure = vms
        .iter()
        .find(|v| v.status.phase == VmPhase::Failed)
        .map(|v| {
            let reason = v.status.reason.as_deref().unwrap_or("failed");
            format!("{} on {}: {reason}", v.status.rank, v.node)
        });
    let phases = || vms.iter().map(|v| v.status.phase);
    let ended = |v: &VmView| {
        v.status.phase.is_over()
            || nodes
                .iter()
                .any(|n| n.name == v.node && n.phase == Some(NodePhase::Ended))
    };
    let state = if vms.iter().all(ended) {
        if vm_failure.is_some() {
            ClusterState::Failed
        } else {
            ClusterState::Stopped
        }
    } else if vms.iter().any(ended) {
        ClusterState::Degraded
    } else if phases().all(|p| p >= VmPhase::Running) {
        ClusterState::Running
    } else {
        ClusterState::Starting
    };
    (state, vm_failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::image::ImageRef;
    use crate::request::{Accel, REQUEST_VERSION, Submitter, TemplateSpec, VmGroup};

    fn record() -> ClusterRecord {
        let spec = TemplateSpec {
            image: Some(ImageRef::File { path: "/i".into() }),
            accel: Accel::Tcg,
            ..TemplateSpec::default()
        };
        ClusterRecord {
            key: JobKey {
                job: JobId(5),
                restart: 1,
            },
            uid: 1500,
            user: "alice".into(),
            nodes: vec![NodeName::new("a").unwrap(), NodeName::new("b").unwrap()],
            placement: vec![
                Placement {
                    rank: Rank(0),
                    node: 0,
                    vcpus: 1,
                },
                Placement {
                    rank: Rank(1),
                    node: 1,
                    vcpus: 1,
                },
            ],
            request: ClusterRequest {
                version: REQUEST_VERSION,
                definition: "t:2".into(),
                submitter: Submitter::Sbatch,
                groups: vec![VmGroup {
                    template: "t".into(),
                    count: 2,
                }],
                templates: BTreeMap::from([("t".into(), spec)]),
                resource_sets: BTreeMap::new(),
                networks: BTreeMap::new(),
            },
            created_ms: 1,
        }
    }

    fn status(rank: u32, phase: VmPhase, reason: Option<&str>) -> Option<NodeStatus> {
        let place = Placement {
            rank: Rank(rank),
            node: rank as usize,
            vcpus: 1,
        };
        let vm = VmStatus {
            phase,
            reason: reason.map(str::to_owned),
            ..VmStatus::pending(&place, 2)
        };
        Some(NodeStatus {
            key: JobKey {
                job: JobId(5),
                restart: 1,
            },
            phase: NodePhase::Prepared,
            reason: None,
            verdict: None,
            vms: vec![vm],
            ran: BTreeSet::new(),
            timeline: BTreeMap::new(),
        })
    }

    fn state(a: Option<NodeStatus>, b: Option<NodeStatus>) -> (ClusterState, Option<String>) {
        let v = view(&record(), &[a, b], &[true, true]);
        (v.state, v.reason)
    }

    #[test]
    fn state_follows_the_vms() {
        use VmPhase::{Failed, Running, Starting, Stopped};
        assert_eq!(state(None, None).0, ClusterState::Starting);
        assert_eq!(
            state(status(0, Running, None), status(1, Starting, None)).0,
            ClusterState::Starting
        );
        assert_eq!(
            state(status(0, Running, None), status(1, Running, None)).0,
            ClusterState::Running
        );
        let degraded = state(
            status(0, Running, None),
            status(1, Failed, Some("killed by signal 9")),
        );
        assert_eq!(
            degraded,
            (
                ClusterState::Degraded,
                Some("vm1 on b: killed by signal 9".into())
            )
        );
        assert_eq!(
            state(status(0, Stopped, None), status(1, Running, None)).0,
            ClusterState::Degraded
        );
        assert_eq!(
            state(status(0, Stopped, None), status(1, Stopped, None)).0,
            ClusterState::Stopped
        );
        assert_eq!(
            state(status(0, Stopped, None), status(1, Failed, Some("x"))).0,
            ClusterState::Failed
        );
    }

    #[test]
    fn a_failed_node_fails_the_cluster_with_its_name() {
        let mut failed = status(1, VmPhase::Pending, None).unwrap();
        failed.phase = NodePhase::Failed;
        failed.reason = Some("no space".into());
        assert_eq!(
            state(status(0, VmPhase::Running, None), Some(failed)),
            (ClusterState::Failed, Some("b: no space".into()))
        );
    }

    #[test]
    fn a_verdict_stands_for_nodes_that_say_nothing() {
        let mut lead = status(0, VmPhase::Pending, None).unwrap();
        lead.verdict = Some("b: vmd does not run there".into());
        let expected = (ClusterState::Failed, lead.verdict.clone());
        assert_eq!(state(Some(lead), None), expected);
    }

    #[test]
    fn a_status_of_an_older_run_is_not_counted() {
        let mut old = status(0, VmPhase::Running, None).unwrap();
        old.key.restart = 0;
        let v = view(&record(), &[Some(old), None], &[true, false]);
        assert_eq!(v.vms[0].status.phase, VmPhase::Pending);
        assert!(!v.nodes[1].alive);
    }
}
