//! `muster ps`.

use muster_types::state::{ClusterView, VmPhase};

use super::{compress, table};
use crate::time::since;

/// One line per cluster.
pub(crate) fn ps(clusters: &[ClusterView], now_ms: u64) -> String {
    let rows = clusters.iter().map(|c| row(c, now_ms)).collect();
    let titles = [
        "JOB",
        "USER",
        "DEFINITION",
        "VMS",
        "NODES",
        "TIME",
        "STATE",
        "REASON",
    ];
    table(&titles, rows)
}

fn row(cluster: &ClusterView, now_ms: u64) -> Vec<String> {
    let running = cluster
        .vms
        .iter()
        .filter(|v| v.status.phase == VmPhase::Running)
        .count();
    vec![
        cluster.key.job.to_string(),
        cluster.user.clone(),
        cluster.definition.clone(),
        format!("{running}/{}", cluster.vms.len()),
        compress(cluster.nodes.iter().map(|n| &n.name)),
        since(now_ms, cluster.created_ms),
        cluster.state.to_string(),
        reason(cluster),
    ]
}

/// Why the cluster is as it is; of nodes that do not answer nothing new is known.
fn reason(cluster: &ClusterView) -> String {
    let silent: Vec<_> = cluster.nodes.iter().filter(|n| !n.alive).collect();
    let mut parts: Vec<String> = cluster.reason.iter().cloned().collect();
    if !silent.is_empty() && !cluster.state.is_over() {
        let names = compress(silent.iter().map(|n| &n.name));
        parts.push(format!("vmd does not answer on {names}"));
    }
    parts.join("; ")
}
