//! What is known of the node's VMs: written by the tasks of the VMs, read by everybody else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use muster_types::api::VmPlan;
use muster_types::ids::Rank;
use muster_types::placement::Placement;
use muster_types::state::{VmPhase, VmStatus, marks};
use tokio::sync::watch;

/// The node's VMs at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// By rank.
    pub vms: Vec<VmStatus>,
    /// Those whose guest has run.
    pub ran: BTreeSet<Rank>,
    /// Events of the start, in microseconds since the Unix epoch ([`marks`]).
    pub timeline: BTreeMap<String, u64>,
    /// Nothing changes any more.
    pub last: bool,
}

/// The one place that holds the state of the VMs.
#[derive(Debug)]
pub struct Board {
    state: watch::Sender<Snapshot>,
    passed: std::sync::Mutex<BTreeMap<&'static str, BTreeSet<Rank>>>,
}

impl Board {
    /// All VMs pending.
    #[must_use]
    pub fn new(vms: &[VmPlan]) -> Self {
        let now = micros() / 1000;
        let pending = |vm: &VmPlan| {
            let place = Placement {
                rank: vm.rank,
                node: 0,
                vcpus: vm.vcpus,
            };
            VmStatus::pending(&place, now)
        };
        let mut vms: Vec<VmStatus> = vms.iter().map(pending).collect();
        vms.sort_by_key(|v| v.rank);
        let first = Snapshot {
            vms,
            ..Snapshot::default()
        };
        Self {
            state: watch::Sender::new(first),
            passed: std::sync::Mutex::default(),
        }
    }

    /// The state, and word of each change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Snapshot> {
        self.state.subscribe()
    }

    /// The VMs now.
    #[must_use]
    pub fn vms(&self) -> Vec<VmStatus> {
        self.state.borrow().vms.clone()
    }

    /// Changes a VM's status; a new phase gets its time.
    pub fn update(&self, rank: Rank, change: impl FnOnce(&mut VmStatus)) {
        self.state.send_modify(|state| {
            if let Some(vm) = state.vms.iter_mut().find(|v| v.rank == rank) {
                let before = vm.phase;
                change(vm);
                if vm.phase != before {
                    vm.since_ms = micros() / 1000;
                }
                if vm.phase == VmPhase::Running {
                    state.ran.insert(rank);
                }
            }
        });
        if self.state.borrow().ran.contains(&rank) {
            self.passed(rank, marks::RUNNING);
        }
    }

    /// Adds to what the user should know of a VM, once.
    pub fn warn(&self, rank: Rank, warning: &str) {
        self.update(rank, |vm| {
            if !vm.warnings.iter().any(|w| w == warning) {
                vm.warnings.push(warning.to_owned());
            }
        });
    }

    /// A VM is past one of the [`marks`]; the node is when all its VMs are.
    pub fn passed(&self, rank: Rank, mark: &'static str) {
        let count = {
            let mut passed = self.passed.lock().unwrap_or_else(|e| e.into_inner());
            let ranks = passed.entry(mark).or_default();
            ranks.insert(rank);
            ranks.len()
        };
        let now = micros();
        self.state.send_if_modified(|state| {
            let news = count == state.vms.len() && !state.timeline.contains_key(mark);
            if news {
                state.timeline.insert(mark.to_owned(), now);
            }
            news
        });
    }

    /// Nothing changes any more.
    pub fn close(&self) {
        self.state.send_modify(|state| state.last = true);
    }

    /// Waits until these VMs are over.
    pub async fn over(&self, ranks: &[Rank]) {
        let mut state = self.state.subscribe();
        let over = |s: &Snapshot| {
            let mut wanted = s.vms.iter().filter(|v| ranks.contains(&v.rank));
            wanted.all(|v| v.phase.is_over())
        };
        // The sender is `self`, so that the wait cannot be cut off.
        drop(state.wait_for(over).await);
    }
}

/// Microseconds since the Unix epoch.
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use muster_types::image::ImageRef;
    use muster_types::request::{Accel, TemplateSpec};

    pub(in crate::shim) fn vms(count: u32) -> Vec<VmPlan> {
        let vm = |rank| VmPlan {
            rank: Rank(rank),
            template: "t".into(),
            spec: TemplateSpec {
                image: Some(ImageRef::File { path: "/i".into() }),
                accel: Accel::Tcg,
                ..TemplateSpec::default()
            },
            vcpus: 1,
        };
        (0..count).map(vm).collect()
    }

    #[test]
    fn a_mark_is_the_last_vms() {
        let board = Board::new(&vms(2));
        board.passed(Rank(0), marks::OVERLAYS);
        board.passed(Rank(0), marks::OVERLAYS);
        assert!(board.state.borrow().timeline.is_empty());
        board.passed(Rank(1), marks::OVERLAYS);
        assert!(board.state.borrow().timeline.contains_key(marks::OVERLAYS));
        for rank in [0, 1] {
            board.update(Rank(rank), |vm| vm.phase = VmPhase::Running);
        }
        assert!(board.state.borrow().timeline.contains_key(marks::RUNNING));
        assert_eq!(board.state.borrow().ran.len(), 2);
    }

    #[tokio::test]
    async fn the_end_of_some_is_waited_for() {
        let board = Board::new(&vms(3));
        board.update(Rank(0), |vm| vm.phase = VmPhase::Stopped);
        board.over(&[Rank(0)]).await;
        tokio::join!(board.over(&[Rank(0), Rank(2)]), async {
            tokio::task::yield_now().await;
            board.update(Rank(2), |vm| vm.phase = VmPhase::Failed);
        });
        assert_eq!(board.vms()[1].phase, VmPhase::Pending);
    }

    #[test]
    fn a_warning_is_given_once() {
        let board = Board::new(&vms(1));
        board.warn(Rank(0), "slow");
        board.warn(Rank(0), "slow");
        assert_eq!(board.vms()[0].warnings, ["slow"]);
    }
}
