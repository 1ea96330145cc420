//! `muster wait`.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use muster_types::api::{Until, WaitOutcome, Waited};
use muster_types::ids::JobId;

use crate::context::Context;
use crate::exit::{NoSuch, NotInTime};
use crate::target::Target;
use crate::vmd::Vmd;
use crate::{output, time};

/// How long the record of a job that is named may take to appear: its first node writes it while the
/// job starts.
const APPEARS: Duration = Duration::from_secs(10);

/// Wait until the VMs of a cluster are ready, run, or are off
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// What to wait for
    #[arg(
        long = "for",
        value_enum,
        value_name = "STATE",
        default_value = "ready"
    )]
    state: State,
    /// For how long at most: seconds, or 30s, 10m, 2h [default: 10m; 1d for stopped]
    #[arg(short, long, value_name = "TIME", value_parser = time::parse_limit)]
    timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum State {
    /// Every VM passes its template's test
    Ready,
    /// Every VM runs
    Running,
    /// No VM is left
    Stopped,
}

impl State {
    fn until(self) -> Until {
        match self {
            Self::Ready => Until::Ready,
            Self::Running => Until::Running,
            Self::Stopped => Until::Stopped,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Stopped => "off",
        }
    }
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let vmd = Vmd::new(context);
    let job = args.target.job(context, &vmd)?;
    let default = match args.state {
        State::Stopped => Duration::from_secs(86_400),
        State::Ready | State::Running => Duration::from_secs(600),
    };
    let timeout = args.timeout.unwrap_or(default);
    let words = args.state.words();
    if output::is_interactive() {
        let limit = time::span(time::millis(timeout));
        output::note(format!(
            "waiting until all VMs of job {job} are {words}, at most {limit}"
        ));
    }
    let waited = waited(&vmd, job, args.state.until(), timeout)
        .with_context(|| format!("wait for the VMs of job {job} to be {words}"))?;
    for warning in &waited.warnings {
        output::note(format!("warning: {warning}"));
    }
    let reason = waited.reason.as_deref();
    match waited.outcome {
        WaitOutcome::Reached => {
            writeln!(out, "all VMs of job {job} are {words}")?;
            Ok(())
        }
        WaitOutcome::Failed => anyhow::bail!(
            "the VMs of job {job} cannot be {words} any more: {}",
            reason.unwrap_or("the cluster failed")
        ),
        WaitOutcome::TimedOut => Err(NotInTime(format!(
            "the VMs of job {job} are not {words} after {}: {}",
            time::span(time::millis(timeout)),
            reason.unwrap_or("no more is known")
        ))
        .into()),
    }
}

fn waited(vmd: &Vmd, job: JobId, until: Until, timeout: Duration) -> anyhow::Result<Waited> {
    let start = Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        match vmd.wait(job, until, left) {
            Err(e) if e.is::<NoSuch>() && start.elapsed() < APPEARS.min(timeout) => {
                std::thread::sleep(Duration::from_millis(200));
            }
            other => return other,
        }
    }
}
