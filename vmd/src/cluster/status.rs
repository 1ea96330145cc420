//! What a shim reports, made fit to be kept: it comes from a process of the user.

use muster_types::api::Report;
use muster_types::ids::Rank;
use muster_types::state::{NodePhase, NodeStatus, VmPhase, VmStatus, marks};

use crate::plan::NodePlan;

/// The most characters of a reason, warning or path that are kept.
const TEXT: usize = 600;

/// The most warnings of a VM that are kept.
const WARNINGS: usize = 4;

/// Takes a report into the node's status.
///
/// # Errors
/// It names a VM that is not this node's, or one twice.
pub(super) fn take(status: &mut NodeStatus, plan: &NodePlan, report: Report) -> Result<(), String> {
    let mut vms = report.vms;
    vms.sort_by_key(|v| v.rank);
    if let Some(two) = vms.windows(2).find(|w| w[0].rank == w[1].rank) {
        return Err(format!("{} is reported twice", two[0].rank));
    }
    let ours = |rank: Rank| plan.launch.vms.iter().find(|v| v.rank == rank);
    for vm in &mut vms {
        let planned =
            ours(vm.rank).ok_or_else(|| format!("{} is not a VM of this node", vm.rank))?;
        vm.vcpus = planned.vcpus;
        clean(vm);
        if matches!(vm.phase, VmPhase::Running | VmPhase::Stopping) {
            status.ran.insert(vm.rank);
        }
    }
    status.vms = vms;
    for name in [marks::OVERLAYS, marks::QEMU_STARTED, marks::RUNNING] {
        if let Some(at) = report.timeline.get(name) {
            status.timeline.insert(name.to_owned(), *at);
        }
    }
    if report.last {
        end(status);
    }
    Ok(())
}

/// The node's part is over. One that failed stays failed: its reason is the cluster's.
fn end(status: &mut NodeStatus) {
    if status.phase != NodePhase::Failed {
        status.phase = NodePhase::Ended;
    }
}

fn clean(vm: &mut VmStatus) {
    let texts = [&mut vm.reason, &mut vm.console_log, &mut vm.accel];
    for text in texts.into_iter().flatten() {
        *text = line(text);
    }
    vm.warnings.truncate(WARNINGS);
    for warning in &mut vm.warnings {
        *warning = line(warning);
    }
}

fn line(text: &str) -> String {
    let cut = text.chars().take(TEXT);
    cut.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Whether every VM of the node is past its start, so that the status is worth being known at once.
pub(super) fn is_settled(status: &NodeStatus) -> bool {
    status.vms.iter().all(|v| v.phase >= VmPhase::Running)
}

/// Marks the VMs of a shim that died: QEMU dies with its shim.
pub(super) fn shim_died(status: &mut NodeStatus, since_ms: u64) {
    for vm in &mut status.vms {
        if !vm.phase.is_over() {
            vm.phase = VmPhase::Failed;
            vm.reason = Some("vmd-shim was ended; the VM ended with it".into());
            vm.since_ms = since_ms;
            vm.pid = None;
        }
    }
    end(status);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::facts;
    use crate::plan::tests::request;
    use crate::settings::tests::settings;
    use muster_types::placement::Placement;
    use std::collections::{BTreeMap, BTreeSet};

    fn setup() -> (NodeStatus, NodePlan) {
        let dir = tempfile::tempdir().unwrap();
        let facts = facts(7, "n[1-2]", "n2");
        let plan =
            crate::plan::plan(&facts, Some(&request(2)), None, &settings(dir.path())).unwrap();
        let status = NodeStatus {
            key: facts.key,
            phase: NodePhase::Prepared,
            reason: None,
            verdict: None,
            vms: Vec::new(),
            ran: BTreeSet::new(),
            timeline: BTreeMap::new(),
        };
        (status, plan)
    }

    fn report(rank: u32, phase: VmPhase, reason: &str) -> Report {
        let place = Placement {
            rank: Rank(rank),
            node: 1,
            vcpus: 64,
        };
        let vm = VmStatus {
            phase,
            reason: Some(reason.into()),
            ..VmStatus::pending(&place, 0)
        };
        Report {
            job: muster_types::ids::JobId(7),
            vms: vec![vm],
            timeline: BTreeMap::new(),
            last: false,
        }
    }

    #[test]
    fn a_report_is_cut_to_what_can_be_true() {
        let (mut status, plan) = setup();
        let long = format!("a\n{}", "x".repeat(5000));
        take(&mut status, &plan, report(1, VmPhase::Running, &long)).unwrap();
        assert_eq!(status.vms[0].vcpus, 1);
        let reason = status.vms[0].reason.as_deref().unwrap();
        assert!(reason.starts_with("a x") && reason.len() == TEXT);
        assert!(is_settled(&status));
        take(&mut status, &plan, report(1, VmPhase::Failed, "killed")).unwrap();
        assert!(
            status.ran.contains(&Rank(1)),
            "that it ran is not forgotten"
        );
    }

    #[test]
    fn a_report_on_strange_vms_is_refused() {
        let (mut status, plan) = setup();
        let e = take(&mut status, &plan, report(0, VmPhase::Running, "")).unwrap_err();
        assert_eq!(e, "vm0 is not a VM of this node");
        let mut twice = report(1, VmPhase::Running, "");
        twice.vms.push(twice.vms[0].clone());
        assert!(
            take(&mut status, &plan, twice)
                .unwrap_err()
                .contains("twice")
        );
        assert!(status.vms.is_empty());
    }

    #[test]
    fn a_node_that_failed_stays_failed() {
        let (mut status, plan) = setup();
        status.phase = NodePhase::Failed;
        shim_died(&mut status, 5);
        assert_eq!(status.phase, NodePhase::Failed);
        let mut last = report(1, VmPhase::Stopped, "");
        last.last = true;
        take(&mut status, &plan, last).unwrap();
        assert_eq!(status.phase, NodePhase::Failed);
    }

    #[test]
    fn vms_end_with_their_shim() {
        let (mut status, plan) = setup();
        take(&mut status, &plan, report(1, VmPhase::Running, "")).unwrap();
        shim_died(&mut status, 5);
        assert_eq!(status.vms[0].phase, VmPhase::Failed);
        assert_eq!(status.phase, NodePhase::Ended);
    }
}
