//! `muster ps`.

use std::io::Write;

use anyhow::Context as _;
use muster_types::ids::shown;
use muster_types::state::ClusterView;
use nix::unistd::User;
use serde::Serialize;

use crate::context::Context;
use crate::exit::Usage;
use crate::render;
use crate::vmd::Vmd;

/// Virtual clusters: who, what, where, since when, in which state
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Those of all users, as far as you may see them
    #[arg(short, long, conflicts_with = "user")]
    all: bool,
    /// Those of a user, by name or number
    #[arg(short, long)]
    user: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Clusters {
    clusters: Vec<ClusterView>,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let uid = match &args.user {
        _ if args.all => None,
        None => Some(context.uid),
        Some(user) => Some(uid_of(user)?),
    };
    let clusters = Vmd::new(context).clusters(uid)?;
    if args.json {
        super::print_json(out, &Clusters { clusters })
    } else {
        let text = render::ps(&clusters, context.now_ms);
        Ok(out.write_all(text.as_bytes())?)
    }
}

fn uid_of(user: &str) -> anyhow::Result<u32> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let found = User::from_name(user).with_context(|| format!("look up user {}", shown(user)))?;
    match found {
        Some(user) => Ok(user.uid.as_raw()),
        None => Err(Usage(format!("no user '{}'", shown(user))).into()),
    }
}
