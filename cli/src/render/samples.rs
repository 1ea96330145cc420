//! Clusters to test with, and the golden files of their renderings.

use std::collections::BTreeMap;
use std::path::Path;

use muster_types::ids::{JobId, JobKey, Mib, NodeName, Rank};
use muster_types::state::{
    ClusterState, ClusterView, NodePhase, NodeView, VmPhase, VmStatus, VmView,
};

use super::{ps, show};

/// When the samples are looked at.
pub(crate) const NOW_MS: u64 = 1_796_089_594_000;

fn node(name: &str, phase: Option<NodePhase>) -> NodeView {
    NodeView {
        name: NodeName::new(name).unwrap(),
        phase,
        reason: None,
        alive: true,
        timeline: BTreeMap::new(),
    }
}

fn vm(rank: u32, node: &str) -> VmView {
    VmView {
        node: NodeName::new(node).unwrap(),
        template: "tiny".into(),
        image: "lab:tiny@0".into(),
        status: VmStatus {
            rank: Rank(rank),
            phase: VmPhase::Running,
            since_ms: NOW_MS - 131_000,
            reason: None,
            warnings: Vec::new(),
            accel: Some("kvm".into()),
            vcpus: 2,
            memory: Some(Mib(512)),
            pid: Some(4711),
            console_log: Some(format!("/var/lib/muster/scratch/42/vm{rank}/console.log")),
        },
    }
}

/// Two VMs that run on two nodes.
pub(crate) fn cluster() -> ClusterView {
    ClusterView {
        key: JobKey {
            job: JobId(42),
            restart: 0,
        },
        uid: 1500,
        user: "alice".into(),
        definition: "tiny:2".into(),
        state: ClusterState::Running,
        started: true,
        reason: None,
        nodes: vec![
            node("node1", Some(NodePhase::Prepared)),
            node("node2", Some(NodePhase::Prepared)),
        ],
        vms: vec![vm(0, "node1"), vm(1, "node2")],
        created_ms: NOW_MS - 133_000,
    }
}

/// One VM was killed, the other is emulated.
fn degraded() -> ClusterView {
    let mut c = cluster();
    c.key = JobKey {
        job: JobId(43),
        restart: 2,
    };
    c.state = ClusterState::Degraded;
    c.reason = Some("vm1 on node2: QEMU killed by signal 9".into());
    let status = &mut c.vms[0].status;
    status.accel = Some("tcg".into());
    status.vcpus = 1;
    status.warnings =
        vec!["no KVM on node1: /dev/kvm is missing; the VM is emulated and slow".into()];
    let status = &mut c.vms[1].status;
    status.phase = VmPhase::Failed;
    status.reason = Some("QEMU killed by signal 9".into());
    status.pid = None;
    c
}

/// Nothing is known of the second node yet.
fn starting() -> ClusterView {
    let mut c = cluster();
    c.key.job = JobId(44);
    c.state = ClusterState::Starting;
    c.nodes[0].phase = Some(NodePhase::Preparing);
    c.nodes[1].phase = None;
    for vm in &mut c.vms {
        vm.status = VmStatus {
            phase: VmPhase::Pending,
            accel: None,
            memory: None,
            pid: None,
            console_log: None,
            ..vm.status.clone()
        };
    }
    c
}

/// The daemon of the second node is down, its VM may run.
fn silent() -> ClusterView {
    let mut c = cluster();
    c.key.job = JobId(45);
    c.nodes[1].alive = false;
    c
}

/// A node failed, the job is over.
fn failed() -> ClusterView {
    let mut c = starting();
    c.key.job = JobId(46);
    c.state = ClusterState::Failed;
    c.reason = Some("node2: image lab:tiny@0: layer is missing".into());
    c.nodes[1].phase = Some(NodePhase::Failed);
    c.nodes[1].reason = Some("image lab:tiny@0: layer is missing".into());
    c.nodes[0].alive = false;
    c.created_ms = NOW_MS - 11_040_000;
    c
}

/// Compares with a file of `testdata`; `UPDATE=1` writes it.
pub(crate) fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        expected,
        "{} differs; UPDATE=1 rewrites it",
        path.display()
    );
}

#[test]
fn ps_of_all_kinds() {
    let all = [cluster(), degraded(), starting(), silent(), failed()];
    golden("ps.txt", &ps(&all, NOW_MS));
    golden("ps-none.txt", &ps(&[], NOW_MS));
}

#[test]
fn show_of_each_kind() {
    for (name, c) in [
        ("running", cluster()),
        ("degraded", degraded()),
        ("starting", starting()),
        ("silent", silent()),
        ("failed", failed()),
    ] {
        let all = c.vms.iter().map(|v| v.status.rank).collect();
        golden(&format!("show-{name}.txt"), &show(&c, &all, NOW_MS));
    }
    let one = [Rank(1)].into();
    golden("show-vm1.txt", &show(&cluster(), &one, NOW_MS));
}
