//! `cargo xtask`: the project's tasks.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use muster_tests::cache::Cache;
use muster_tests::guests::Guest;
use muster_tests::lab::{Arguments, Lab, Options, User};
use muster_tests::progress::Progress;
use muster_tests::{bare, bench, demo, docker, fuzz, packages, test};

/// The project's tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install the Debian packages that building and testing need.
    Packages,
    /// Slurm in containers, with Muster installed.
    Lab {
        #[command(subcommand)]
        task: LabTask,
    },
    /// Show all of it: build, a Slurm of two nodes, a virtual cluster, and nothing left over.
    Demo,
    /// Run the tests.
    Test(test::Arguments),
    /// Run the parsers against inputs that libFuzzer makes.
    Fuzz(fuzz::Arguments),
    /// Check format and lints, fuzz, and run all tests, as .ci/run does.
    Ci,
    /// Measure, and print ratios.
    Bench {
        /// What to measure.
        #[arg(value_enum)]
        subject: bench::Subject,
    },
    /// Time QEMU by itself; the benchmark runs this on a node.
    #[command(hide = true)]
    BareQemu {
        /// How many at once.
        #[arg(long, default_value_t = 1)]
        count: u32,
        /// File with the command line, words ended by NUL bytes.
        cmdline: PathBuf,
        /// The disk to start a copy of.
        disk: PathBuf,
    },
    /// Make the guest images and print where they are.
    Guests {
        /// Which (default: all).
        #[arg(value_enum)]
        guests: Vec<Guest>,
    },
}

#[derive(Debug, Subcommand)]
enum LabTask {
    /// Bring the lab up; does nothing when it is up as asked.
    Up(Arguments),
    /// Run a command on a host of the lab: its output and exit status are the command's.
    Run {
        /// The host: ctl (where users log in) or node1, node2, ...
        #[arg(long, default_value = "ctl")]
        on: String,
        /// Who runs it.
        #[arg(long = "as", value_enum, default_value_t = User::Alice)]
        user: User,
        /// The command.
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
    /// Take the lab down.
    Down {
        /// Also stop the docker daemon, if `lab up` started it.
        #[arg(long)]
        all: bool,
    },
    /// Say what runs.
    Status,
}

fn main() -> ExitCode {
    let progress = Progress::new();
    match run(Cli::parse().task, &progress) {
        Ok(status) => status,
        Err(error) => {
            progress.say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task, progress: &Progress) -> Result<ExitCode> {
    match task {
        Task::Packages => packages::ensure(progress)?,
        Task::Lab { task } => return lab(task, progress),
        Task::Demo => demo::run(progress)?,
        Task::Test(arguments) => test::run(&arguments, progress)?,
        Task::Fuzz(arguments) => fuzz::run(&arguments, progress)?,
        Task::Ci => test::ci(progress)?,
        Task::Bench { subject } => bench::run(subject, progress)?,
        Task::BareQemu {
            count,
            cmdline,
            disk,
        } => progress.print(bare::time(&cmdline, &disk, count)?),
        Task::Guests { guests } => {
            packages::ensure(progress)?;
            let cache = Cache::open()?;
            docker::ensure(&cache, progress)?;
            let guests = if guests.is_empty() {
                Guest::ALL.to_vec()
            } else {
                guests
            };
            for guest in guests {
                progress.say(guest.build(&cache, progress)?.display());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn lab(task: LabTask, progress: &Progress) -> Result<ExitCode> {
    match task {
        LabTask::Up(arguments) => {
            packages::ensure(progress)?;
            let options = Options::try_from(&arguments)?;
            let cache = Cache::open()?;
            let _claim = cache.claim_lab(progress)?;
            Lab::up(&options, &cache, progress)?;
            progress.say("log in with: cargo xtask lab run -- bash");
        }
        LabTask::Run { on, user, command } => {
            let status = Lab::attach()?.interactive(&on, user, &command)?;
            return Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)));
        }
        LabTask::Down { all } => {
            let cache = Cache::open()?;
            let _claim = cache.claim_lab(progress)?;
            if !Lab::down(&cache, progress)? {
                progress.say("no lab was up");
            }
            if all {
                docker::stop_if_ours(&cache, progress)?;
            }
        }
        LabTask::Status => {
            progress.say(format_args!("the lab is up: {}", Lab::attach()?.options()))
        }
    }
    Ok(ExitCode::SUCCESS)
}
