//! `muster plan`: what a submission would do, with nothing done.

mod nodes;
mod print;
mod view;

use std::io::Write;

use anyhow::{Context as _, bail};
use muster_config::{Site, UserFiles};
use muster_templates::policy::{Asker, Own};
use muster_templates::submit::{self, Options, Submission, Wish};
use muster_types::request::Submitter;
use nix::unistd::{Group, getgroups};

use crate::context::Context;
use crate::output::note;

/// Show what a submission would do: placement, addresses, the steps of each node, QEMU's command
/// lines. Nothing is done
///
/// The definition is resolved as salloc --vm=DEFINITION would do it here and now; what Slurm and the
/// nodes add is assumed and said.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster definition, as with --vm: TEMPLATE[:COUNT],...
    definition: String,
    /// The job's nodes with its CPUs and memory on each, for example a:4,b:4 or n[1-8]:16:64G
    /// [default: this host with one CPU for each VM; memory: 1G for each CPU]
    #[arg(long, value_name = "NODES:CPUS[:MEMORY],...")]
    nodes: Option<String>,
    /// As --vm-image of salloc
    #[arg(long, value_name = "[TEMPLATE=]IMAGE")]
    image: Vec<String>,
    /// As --vm-mount of salloc
    #[arg(long, value_name = "TAG=PATH,...")]
    mount: Vec<String>,
    /// As --vm-user-data of salloc
    #[arg(long, value_name = "FILE")]
    user_data: Option<String>,
    /// Only the VMs and their addresses, not what the nodes do
    #[arg(long, conflicts_with = "json")]
    brief: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let trees = context.trees();
    let batch = muster_config::batch(&trees).context("read the configuration")?;
    let site = context.with_names(|names| Site::read(&trees, names));
    let site = site.context("read the configuration")?;
    let taken = submission(args, &site, context)?;
    for warning in &taken.warnings {
        note(format!("warning: {warning}"));
    }
    for refusal in refusals(&taken, &site, &trees, context)? {
        note(format!("warning: the policy refuses this: {refusal}"));
    }
    let vms = taken.request.vm_count();
    let nodes = match &args.nodes {
        Some(text) => nodes::parse(text)?,
        None => nodes::here(vms)?,
    };
    let view = view::plan(&taken.request, &nodes, &batch, context)?;
    if args.json {
        super::print_json(out, &view)
    } else {
        Ok(print::print(&view, args.brief, out)?)
    }
}

fn submission(args: &Args, site: &Site, context: &Context) -> anyhow::Result<Submission> {
    let options = Options {
        images: args.image.clone(),
        mounts: args.mount.clone(),
        user_data: args.user_data.clone(),
        ..Options::default()
    };
    let wish = Wish {
        definition: &args.definition,
        submitter: Submitter::Salloc,
        options: &options,
    };
    let taken = context.with_names(|names| submit::resolve(&wish, &site.view(), names, &UserFiles));
    taken.map_err(|e| anyhow::anyhow!("the submission would be refused\n{e}"))
}

/// What the site's policy says, as far as it can be known here.
fn refusals(
    taken: &Submission,
    site: &Site,
    trees: &muster_config::Trees,
    context: &Context,
) -> anyhow::Result<Vec<String>> {
    let policy = muster_config::policy(trees).context("read the policy")?;
    if policy.allows_everything() {
        return Ok(Vec::new());
    }
    let Ok(gids) = getgroups() else {
        bail!("find out your groups");
    };
    let name = |gid| Group::from_gid(gid).ok().flatten().map(|g| g.name);
    let groups: Vec<String> = gids.into_iter().filter_map(name).collect();
    let asker = Asker {
        user: &context.user,
        groups: &groups,
        account: None,
        partitions: &[],
    };
    let own = Own::by_library(&taken.request, &site.library);
    let refusals = policy.judge(&taken.request, &asker, &own);
    Ok(refusals.iter().map(ToString::to_string).collect())
}
