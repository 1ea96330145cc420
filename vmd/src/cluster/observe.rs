//! What a cluster's task sees: the store's copy of the cluster and its own state together, published
//! for those who wait, and acted on.

use std::sync::Arc;

use muster_types::api::ApiError;
use muster_types::state::{
    self, ClusterRecord, ClusterState, ClusterView, NodePhase, NodeStatus, VmPhase, marks,
};
use tokio::time::Instant;
use tracing::info;

use super::actor::Actor;
use super::{Published, now_ms, now_us, status};
use crate::store::keys;

/// A node's status as last seen in the store, parsed once.
#[derive(Default)]
pub(super) struct Seen {
    bytes: Option<Arc<[u8]>>,
    status: Option<NodeStatus>,
}

impl Actor {
    /// Looks at the store's state and this node's own, tells those who wait, and acts on it.
    pub(super) fn observe(&mut self) {
        self.read_store();
        let view = self.record.as_ref().map(|record| {
            let statuses: Vec<_> = (0..record.nodes.len())
                .map(|i| {
                    if i == self.index {
                        Some(self.status.clone())
                    } else {
                        self.seen.get(i).and_then(|s| s.status.clone())
                    }
                })
                .collect();
            state::view(record, &statuses, &vec![true; record.nodes.len()])
        });
        let failure = self.failure();
        let published = Published {
            waiting: view.is_none().then(|| self.waits_for()),
            failure: failure.clone(),
            shim_alive: self.shim_alive,
            store_error: self.mirror.borrow().store_error.clone(),
            view: view.clone(),
            // What an adopted cluster has not read from the store yet is older than what is there.
            own: self
                .restored
                .then(|| (self.entry.facts.node.clone(), self.status.clone())),
        };
        self.publish.send_if_modified(|old| {
            let changed = *old != published;
            *old = published;
            changed
        });
        let cluster_failure = view
            .as_ref()
            .filter(|v| v.state == ClusterState::Failed || lost_at_start(v))
            .map(|v| v.reason.clone().unwrap_or_else(|| "failed".into()));
        if let Some(reason) = cluster_failure.or(failure) {
            self.act_on_failure(&reason, view.as_ref());
        } else if let Some(view) = view {
            self.follow_start(&view);
        }
    }

    /// The cluster as it was published last.
    pub(super) fn view(&self) -> Option<ClusterView> {
        self.publish.borrow().view.clone()
    }

    pub(super) fn waits_for(&self) -> String {
        let first = self.plan.as_ref().ok().and_then(|p| p.nodes.first());
        match first {
            Some(first) if !self.leads() => format!("node {first} to write the cluster record"),
            _ => "the state store to take the cluster record".into(),
        }
    }

    pub(super) fn read_store(&mut self) {
        let snapshot = self.mirror.borrow();
        let job = self.entry.key().job;
        let parse = |bytes: &Arc<[u8]>| serde_json::from_slice::<ClusterRecord>(bytes).ok();
        if self.record.is_none()
            && let Some(record) = snapshot.entries.get(&keys::record(job)).and_then(parse)
            && record.key == self.entry.key()
        {
            self.status
                .timeline
                .entry(marks::RECORDED.to_owned())
                .or_insert(now_us());
            self.record = Some(record);
        }
        if let Ok(plan) = &self.plan {
            for (seen, node) in self.seen.iter_mut().zip(&plan.nodes) {
                let bytes = snapshot.entries.get(&keys::node_status(job, node.as_str()));
                let same = match (&seen.bytes, bytes) {
                    (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                    (None, None) => true,
                    _ => false,
                };
                if !same {
                    seen.status = bytes.and_then(|b| serde_json::from_slice(b).ok());
                    seen.bytes = bytes.cloned();
                }
            }
        }
        if !self.restored && snapshot.synced {
            self.restored = true;
            self.restore();
        }
        self.answer_launches();
    }

    /// Takes over what an earlier vmd knew of this node's VMs.
    pub(super) fn restore(&mut self) {
        let old = self.seen.get(self.index).and_then(|s| s.status.clone());
        let Some(old) = old.filter(|s| s.key == self.status.key) else {
            return;
        };
        if self.status.vms.is_empty() {
            self.status.vms = old.vms;
        }
        self.status.ran.extend(old.ran);
        for (name, at) in old.timeline {
            self.status.timeline.insert(name, at);
        }
        self.status.verdict = self.status.verdict.take().or(old.verdict);
        if old.phase == NodePhase::Ended {
            self.status.phase = NodePhase::Ended;
        } else if self.entry.shim.is_some() && !self.shim_alive {
            // It died while no vmd was there to see it.
            status::shim_died(&mut self.status, now_ms());
        }
    }

    /// Why this node knows of a failure without a view of the cluster.
    pub(super) fn failure(&self) -> Option<String> {
        if let Some(verdict) = &self.status.verdict {
            return Some(verdict.clone());
        }
        let reason = self.status.reason.as_deref();
        match (&self.plan, self.status.phase) {
            (Err(verdict), _) => Some(verdict.clone()),
            (Ok(_), NodePhase::Failed) => {
                let node = &self.entry.facts.node;
                Some(format!("{node}: {}", reason.unwrap_or("failed")))
            }
            _ => None,
        }
    }

    /// The cluster has not failed: sets the launch deadline, and tells the user when it runs.
    pub(super) fn follow_start(&mut self, view: &ClusterView) {
        let prepared =
            |n: &state::NodeView| matches!(n.phase, Some(NodePhase::Prepared | NodePhase::Ended));
        if self.prepare_deadline.is_some() && view.nodes.iter().all(prepared) {
            self.prepare_deadline = None;
            self.life_check_at = None;
            if self.leads() && !view.started {
                let timeout = self.context.settings.launch_timeout;
                self.launch_deadline = Some(Instant::now() + timeout);
            }
        }
        if view.started {
            self.launch_deadline = None;
        }
        if view.state == ClusterState::Running && !self.told_running {
            self.told_running = true;
            info!("all VMs run");
            if self.leads() {
                self.tell_running(view);
            }
        }
    }

    pub(super) fn act_on_failure(&mut self, reason: &str, view: Option<&ClusterView>) {
        if self.failure_handled {
            return;
        }
        self.failure_handled = true;
        self.prepare_deadline = None;
        self.launch_deadline = None;
        self.life_check_at = None;
        for reply in self.launches.drain(..) {
            drop(reply.send(Err(ApiError::ClusterFailed(reason.to_owned()))));
        }
        // The second node stands in for a first one that never wrote a record.
        if self.leads() || (self.index == 1 && self.record.is_none()) {
            self.lead_failure(reason, view.is_some_and(|v| v.started));
        }
    }
}

/// A VM failed before all had run: what is left of such a cluster is not what was asked for.
fn lost_at_start(view: &ClusterView) -> bool {
    !view.started && view.vms.iter().any(|v| v.status.phase == VmPhase::Failed)
}
