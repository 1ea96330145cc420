//! `muster show`.

use std::collections::BTreeSet;
use std::fmt::Write;

use muster_types::ids::Rank;
use muster_types::state::{ClusterView, NodePhase, VmPhase, VmView};

use crate::time::since;

/// A cluster and some of its VMs, all that is known of them.
pub(crate) fn show(cluster: &ClusterView, ranks: &BTreeSet<Rank>, now_ms: u64) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    cluster_lines(&mut text, cluster, now_ms).ok();
    let vms = cluster
        .vms
        .iter()
        .filter(|v| ranks.contains(&v.status.rank));
    for vm in vms {
        let node = cluster.nodes.iter().find(|n| n.name == vm.node);
        let silent = !cluster.state.is_over()
            && node.is_some_and(|n| !n.alive && n.phase != Some(NodePhase::Ended));
        vm_lines(&mut text, vm, silent, now_ms).ok();
    }
    text
}

fn cluster_lines(text: &mut String, cluster: &ClusterView, now_ms: u64) -> std::fmt::Result {
    writeln!(
        text,
        "job {}: {} of {}, {}, begun {} ago",
        cluster.key.job,
        cluster.definition,
        cluster.user,
        cluster.state,
        since(now_ms, cluster.created_ms)
    )?;
    if cluster.key.restart > 0 {
        writeln!(text, "  restarted by Slurm: {} times", cluster.key.restart)?;
    }
    if let Some(reason) = &cluster.reason {
        writeln!(text, "  reason: {reason}")?;
    }
    for node in &cluster.nodes {
        write!(text, "  {}: {}", node.name, node_phase(node.phase))?;
        if let Some(reason) = &node.reason {
            write!(text, ": {reason}")?;
        }
        if !node.alive && !cluster.state.is_over() {
            write!(text, " (as last known: vmd does not answer there)")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn node_phase(phase: Option<NodePhase>) -> &'static str {
    match phase {
        None => "has said nothing yet",
        Some(NodePhase::Preparing) => "is being prepared",
        Some(NodePhase::Prepared) => "prepared",
        Some(NodePhase::Failed) => "failed",
        Some(NodePhase::Ended) => "ended",
    }
}

fn vm_lines(text: &mut String, vm: &VmView, silent: bool, now_ms: u64) -> std::fmt::Result {
    let status = &vm.status;
    writeln!(text)?;
    write!(text, "{} on {}: ", status.rank, vm.node)?;
    let age = since(now_ms, status.since_ms);
    if silent && !status.phase.is_over() {
        writeln!(
            text,
            "unknown (last known: {} since {age} ago)",
            status.phase
        )?;
    } else {
        writeln!(text, "{} since {age} ago", status.phase)?;
    }
    if let Some(reason) = &status.reason {
        writeln!(text, "  reason: {reason}")?;
    }
    writeln!(text, "  template {}, image {}", vm.template, vm.image)?;
    let cpus = match status.vcpus {
        0 => "CPUs not decided".to_owned(),
        1 => "1 CPU".to_owned(),
        n => format!("{n} CPUs"),
    };
    let memory = status
        .memory
        .map_or_else(|| "memory not decided".to_owned(), |m| m.to_string());
    write!(text, "  {cpus}, {memory}")?;
    match status.accel.as_deref() {
        Some("tcg") => writeln!(text, ", emulated (tcg)")?,
        Some(accel) => writeln!(text, ", {accel}")?,
        None => writeln!(text)?,
    }
    if let Some(pid) = status.pid
        && status.phase >= VmPhase::Starting
        && !status.phase.is_over()
    {
        writeln!(text, "  QEMU process {pid}")?;
    }
    if let Some(log) = &status.console_log {
        writeln!(text, "  console log {log}")?;
    }
    for warning in &status.warnings {
        writeln!(text, "  warning: {warning}")?;
    }
    Ok(())
}
