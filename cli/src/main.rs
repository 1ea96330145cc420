//! `muster`: what users do with their virtual clusters, and with images and templates.
//!
//! State comes from the local vmd over its socket; what a VM is told to do goes to the shim on the
//! VM's node, directly or through `srun --overlap`. One file per subcommand in [`commands`].

mod commands;
mod context;
mod exit;
mod output;
mod render;
mod shim;
mod socket;
mod target;
mod terminal;
mod time;
mod vmd;
mod vms;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::context::Context;

/// Virtual clusters in Slurm jobs.
///
/// Clusters are started by Slurm: salloc, sbatch or srun with --vm=TEMPLATE[:COUNT],... Commands here
/// act on the cluster of `-j JOB`, else of the job whose shell or script they run in, else on the
/// caller's only running cluster. VMs are named vm0, vm1, ...; several are vm[0-3,7] or all.
///
/// Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such cluster or VM, 4 not ready in time.
#[derive(Debug, Parser)]
#[command(name = "muster", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ps(commands::ps::Args),
    Show(commands::show::Args),
    Wait(commands::wait::Args),
    Console(commands::console::Args),
    Stop(commands::stop::Args),
    /// Images in repositories
    #[command(subcommand)]
    Image(commands::image::Command),
    /// Templates that clusters are made from
    #[command(subcommand)]
    Template(commands::template::Command),
    Plan(commands::plan::Args),
    /// Networks of this site
    #[command(subcommand)]
    Network(commands::network::Command),
    /// The configuration: check, show, schemas for editors
    #[command(subcommand)]
    Config(commands::config::Command),
    /// Parts that muster starts on other nodes
    #[command(subcommand, hide = true)]
    Internal(commands::internal::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let context = Context::from_process();
    let mut out = output::Output::stdout();
    let done = run(cli.command, &context, &mut out)
        .and_then(|()| out.flush().map_err(anyhow::Error::from));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // `muster ps | head` is no failure.
        Err(e) if output::is_closed(&e) => ExitCode::SUCCESS,
        Err(e) => {
            output::error(&e);
            ExitCode::from(exit::code(&e))
        }
    }
}

fn run(command: Command, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Ps(args) => commands::ps::run(&args, context, out),
        Command::Show(args) => commands::show::run(&args, context, out),
        Command::Wait(args) => commands::wait::run(&args, context, out),
        Command::Console(args) => commands::console::run(&args, context, out),
        Command::Stop(args) => commands::stop::run(&args, context, out),
        Command::Image(command) => commands::image::run(&command, context, out),
        Command::Template(command) => commands::template::run(&command, context, out),
        Command::Plan(args) => commands::plan::run(&args, context, out),
        Command::Network(command) => commands::network::run(&command, context, out),
        Command::Config(command) => commands::config::run(&command, context, out),
        Command::Internal(command) => commands::internal::run(&command, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_have_their_code() {
        let error = Cli::try_parse_from(["muster", "wait", "--for", "never"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("ready, running, stopped"));
        let error = Cli::try_parse_from(["muster", "consle"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("'console'"), "{error}");
    }
}
