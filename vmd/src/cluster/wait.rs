//! When a wait for a cluster is over, and in which words.

use muster_types::api::{Until, WaitOutcome, Waited};
use muster_types::state::{ClusterState, ClusterView, NodePhase, VmPhase};

use super::Published;

/// How a wait ends by what is published; `None`: it goes on.
#[must_use]
pub fn outcome(until: Until, published: &Published) -> Option<Waited> {
    let Some(view) = &published.view else {
        let reason = published.failure.clone()?;
        return Some(if until == Until::Stopped {
            reached(Vec::new())
        } else {
            failed(reason)
        });
    };
    let over = |why: &str| failed(view.reason.clone().unwrap_or_else(|| why.to_owned()));
    match (until, view.state) {
        (Until::Started, _) if view.started => {
            let mut warnings = warnings(view);
            if view.state != ClusterState::Running {
                warnings.extend(view.reason.clone());
            }
            Some(reached(warnings))
        }
        (Until::Running | Until::Ready, ClusterState::Running) => Some(reached(warnings(view))),
        (Until::Stopped, ClusterState::Stopped | ClusterState::Failed) => {
            Some(reached(warnings(view)))
        }
        (Until::Stopped, _) => None,
        (_, ClusterState::Failed) => Some(over("the virtual cluster failed")),
        (_, ClusterState::Stopped) => Some(over("all VMs are off")),
        // A VM that was powered off early keeps nobody from starting.
        (Until::Started, ClusterState::Degraded) if view.reason.is_none() => None,
        (_, ClusterState::Degraded) => Some(over("a VM is off")),
        (_, ClusterState::Starting | ClusterState::Running) => None,
    }
}

/// The end of a wait whose time is up: names what it still waits for.
#[must_use]
pub fn ended(until: Until, published: &Published) -> Waited {
    let waiting = match &published.view {
        None => published.waiting.clone(),
        Some(view) => still_waiting(until, view),
    };
    Waited {
        outcome: WaitOutcome::TimedOut,
        reason: waiting.or_else(|| published.store_error.clone()),
        warnings: Vec::new(),
    }
}

/// The first node or VM that keeps a cluster from the wanted state.
pub(super) fn still_waiting(until: Until, view: &ClusterView) -> Option<String> {
    let node = view.nodes.iter().find_map(|n| match n.phase {
        None => Some(format!("node {} has said nothing yet", n.name)),
        Some(NodePhase::Preparing) => Some(format!("node {} is being prepared", n.name)),
        _ => None,
    });
    let vm = view.vms.iter().find_map(|v| {
        let waits = match until {
            Until::Stopped => !v.status.phase.is_over(),
            _ => v.status.phase < VmPhase::Running,
        };
        waits.then(|| format!("{} on {} is {}", v.status.rank, v.node, v.status.phase))
    });
    if until == Until::Stopped {
        vm
    } else {
        node.or(vm)
    }
}

fn warnings(view: &ClusterView) -> Vec<String> {
    let mut all = Vec::new();
    for vm in &view.vms {
        for warning in &vm.status.warnings {
            // Many VMs of a node say the same; once is enough.
            if !all.contains(warning) {
                all.push(warning.clone());
            }
        }
    }
    all.truncate(16);
    all
}

fn reached(warnings: Vec<String>) -> Waited {
    Waited {
        outcome: WaitOutcome::Reached,
        reason: None,
        warnings,
    }
}

fn failed(reason: String) -> Waited {
    Waited {
        outcome: WaitOutcome::Failed,
        reason: Some(reason),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_types::ids::{JobId, JobKey, NodeName, Rank};
    use muster_types::placement::Placement;
    use muster_types::state::{NodeView, VmStatus, VmView};

    fn published(state: ClusterState, started: bool, phase: VmPhase) -> Published {
        let name = NodeName::new("n1").unwrap();
        let place = Placement {
            rank: Rank(0),
            node: 0,
            vcpus: 1,
        };
        let status = VmStatus {
            phase,
            warnings: vec!["no KVM".into()],
            ..VmStatus::pending(&place, 0)
        };
        let view = ClusterView {
            key: JobKey {
                job: JobId(1),
                restart: 0,
            },
            uid: 0,
            user: "a".into(),
            definition: "t".into(),
            state,
            started,
            reason: None,
            nodes: vec![NodeView {
                name: name.clone(),
                phase: Some(NodePhase::Prepared),
                reason: None,
                alive: true,
                timeline: std::collections::BTreeMap::new(),
            }],
            vms: vec![VmView {
                node: name,
                template: "t".into(),
                image: "i".into(),
                status,
            }],
            created_ms: 0,
        };
        Published {
            view: Some(view),
            ..Published::default()
        }
    }

    #[test]
    fn a_wait_ends_when_it_is_decided() {
        use ClusterState::{Degraded, Failed, Running, Starting, Stopped};
        let end = |until, state, started| {
            outcome(until, &published(state, started, VmPhase::Running)).map(|w| w.outcome)
        };
        assert_eq!(end(Until::Running, Starting, false), None);
        assert_eq!(
            end(Until::Running, Running, true),
            Some(WaitOutcome::Reached)
        );
        assert_eq!(
            end(Until::Running, Stopped, true),
            Some(WaitOutcome::Failed)
        );
        assert_eq!(
            end(Until::Started, Stopped, true),
            Some(WaitOutcome::Reached)
        );
        assert_eq!(
            end(Until::Started, Degraded, true),
            Some(WaitOutcome::Reached)
        );
        assert_eq!(
            end(Until::Started, Failed, false),
            Some(WaitOutcome::Failed)
        );
        assert_eq!(end(Until::Stopped, Running, true), None);
        assert_eq!(
            end(Until::Stopped, Failed, true),
            Some(WaitOutcome::Reached)
        );
    }

    #[test]
    fn warnings_and_what_is_waited_for_are_told() {
        let running = published(ClusterState::Running, true, VmPhase::Running);
        let waited = outcome(Until::Ready, &running).unwrap();
        assert_eq!(waited.warnings, ["no KVM"]);
        let starting = published(ClusterState::Starting, false, VmPhase::Starting);
        let late = ended(Until::Running, &starting);
        assert_eq!(late.reason.unwrap(), "vm0 on n1 is starting");
        let before = Published {
            waiting: Some("the record".into()),
            ..Published::default()
        };
        assert_eq!(ended(Until::Running, &before).reason.unwrap(), "the record");
    }
}
