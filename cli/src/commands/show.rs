//! `muster show`.

use std::io::Write;

use muster_types::state::ClusterView;
use serde::Serialize;

use crate::context::Context;
use crate::target::Target;
use crate::vmd::Vmd;
use crate::{render, vms};

/// A virtual cluster and its VMs in full
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// VMs: vm3, 3, vm[0-3,7] or all [default: all]
    vms: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Cluster {
    cluster: ClusterView,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut cluster = args.target.cluster(context, &Vmd::new(context))?;
    let count = u32::try_from(cluster.vms.len()).unwrap_or(u32::MAX);
    let ranks = vms::select(&args.vms, count)?;
    if args.json {
        cluster.vms.retain(|v| ranks.contains(&v.status.rank));
        super::print_json(out, &Cluster { cluster })
    } else {
        let text = render::show(&cluster, &ranks, context.now_ms);
        Ok(out.write_all(text.as_bytes())?)
    }
}
