//! `muster stop`.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, bail};
use muster_types::ids::{JobId, NodeName, Rank};
use muster_types::shim_api::Stop;

use crate::context::Context;
use crate::target::Target;
use crate::vmd::Vmd;
use crate::{output, shim, time, vms};

/// How many nodes are talked to at once.
const AT_ONCE: usize = 16;

/// The longest that a site's own time limit for powering down may be.
const LONGEST: Duration = Duration::from_secs(600);

/// Power VMs down; those that do not follow in time are ended
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// VMs: vm3, 3, vm[0-3,7] or all [default: all]
    vms: Vec<String>,
    /// End them at once, like pulling the plug
    #[arg(short, long)]
    force: bool,
    /// How long a guest may take: seconds, or 30s, 2m [default: the site's stop-timeout]
    #[arg(short, long, value_name = "TIME", value_parser = time::parse_limit, conflicts_with = "force")]
    timeout: Option<Duration>,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let cluster = args.target.cluster(context, &Vmd::new(context))?;
    let count = u32::try_from(cluster.vms.len()).unwrap_or(u32::MAX);
    let ranks = vms::select(&args.vms, count)?;
    let mut by_node: BTreeMap<&NodeName, Vec<Rank>> = BTreeMap::new();
    for vm in cluster
        .vms
        .iter()
        .filter(|v| ranks.contains(&v.status.rank))
    {
        if vm.status.phase.is_over() {
            writeln!(out, "{} on {} is off already", vm.status.rank, vm.node)?;
        } else {
            by_node.entry(&vm.node).or_default().push(vm.status.rank);
        }
    }
    out.flush()?;
    let results = on_all(&by_node, |node, ranks| {
        one_node(args, context, cluster.key.job, node, ranks)
    });
    let mut failed = 0;
    for (node, ranks, result) in results {
        match result {
            Ok(()) => writeln!(out, "{} on {node}: off", named(ranks))?,
            Err(e) => {
                failed += 1;
                output::error(&e.context(format!("stop {} on {node}", named(ranks))));
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} nodes did not stop their VMs", by_node.len());
    }
    Ok(())
}

fn one_node(
    args: &Args,
    context: &Context,
    job: JobId,
    node: &NodeName,
    ranks: &[Rank],
) -> anyhow::Result<()> {
    let first = ranks.first().copied().context("no VM")?;
    let connection = shim::connect(context, job, node, first)?;
    let call = Stop {
        ranks: ranks.to_vec(),
        force: args.force,
        timeout_ms: args.timeout.map(time::millis),
    };
    let limit = args.timeout.unwrap_or(LONGEST) + shim::ANSWER;
    connection.call(&call, limit).map(drop)
}

/// Does something on all nodes, a few at a time; the results are in the order of the nodes.
fn on_all<'a, T: Send>(
    nodes: &'a BTreeMap<&'a NodeName, Vec<Rank>>,
    work: impl Fn(&NodeName, &[Rank]) -> T + Sync,
) -> Vec<(&'a NodeName, &'a [Rank], T)> {
    let next = Mutex::new(nodes.iter().enumerate());
    let mut done: Vec<_> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..AT_ONCE.min(nodes.len()))
            .map(|_| {
                s.spawn(|| {
                    let mut mine = Vec::new();
                    loop {
                        let taken = next.lock().ok().and_then(|mut n| n.next());
                        let Some((i, (&node, ranks))) = taken else {
                            return mine;
                        };
                        mine.push((i, node, ranks.as_slice(), work(node, ranks)));
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .filter_map(|w| w.join().ok())
            .flatten()
            .collect()
    });
    done.sort_by_key(|&(i, ..)| i);
    done.into_iter().map(|(_, n, r, t)| (n, r, t)).collect()
}

fn named(ranks: &[Rank]) -> String {
    let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_of_the_nodes() {
        let names: Vec<NodeName> = (0..40)
            .map(|i| NodeName::new(&format!("n{i:02}")).unwrap())
            .collect();
        let nodes = names.iter().map(|n| (n, vec![Rank(1)])).collect();
        let done = on_all(&nodes, |node, _| node.to_string());
        let expected: Vec<String> = names.iter().map(ToString::to_string).collect();
        assert_eq!(done.into_iter().map(|d| d.2).collect::<Vec<_>>(), expected);
    }
}
