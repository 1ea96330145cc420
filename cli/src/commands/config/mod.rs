//! `muster config`.

mod check;
mod schema;
mod show;

use std::io::Write;

use crate::context::Context;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Check(check::Args),
    Schema(schema::Args),
    Show(show::Args),
}

pub(crate) fn run(command: &Command, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Check(args) => check::run(args, context, out),
        Command::Schema(args) => schema::run(args, out),
        Command::Show(args) => show::run(args, context, out),
    }
}
