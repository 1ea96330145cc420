//! `muster image`.

mod import;
mod list;

use std::io::Write;

use crate::context::Context;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Import(import::Args),
    List(list::Args),
}

pub(crate) fn run(command: &Command, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Import(args) => import::run(args, context, out),
        Command::List(args) => list::run(args, context, out),
    }
}
