//! `muster console`.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::{Context as _, bail};
use muster_types::ids::{NodeName, Rank};
use muster_types::shim_api::{Console, ConsoleLog};
use muster_types::state::{ClusterView, VmView};
use nix::sys::signal::Signal;

use crate::context::Context;
use crate::exit::Usage;
use crate::output::{self, marked};
use crate::shim::{self, End, Pump, Session};
use crate::target::Target;
use crate::terminal::{LeaveKeys, RawMode, Signals};
use crate::vmd::Vmd;
use crate::vms;

/// The serial console of a VM, or its log
///
/// Leave the console with Ctrl-], or with Ctrl-C three times within a second. One at a time may
/// type; others see it. Without a terminal, standard input goes to the console as it is, and the
/// console is shown until it closes or Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Print what the console has shown so far
    #[arg(short, long)]
    log: bool,
    /// With --log: go on with what it shows from now on
    #[arg(short, long, requires = "log")]
    follow: bool,
    /// The VM [default: vm0]
    vm: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let cluster = args.target.cluster(context, &Vmd::new(context))?;
    let vm = one(&cluster, args.vm.as_deref())?;
    let (rank, node) = (vm.status.rank, &vm.node);
    if args.log {
        log(args.follow, context, &cluster, vm, out)
            .with_context(|| format!("read the console log of {rank} on {node}"))
    } else if vm.status.phase.is_over() {
        let reason = vm.status.reason.as_deref().unwrap_or("no reason is known");
        bail!(
            "{rank} on {node} is {}: {reason} (muster console -l {rank} prints its log)",
            vm.status.phase
        )
    } else {
        attach(context, &cluster, rank, node, out)
            .with_context(|| format!("attach to the console of {rank} on {node}"))
    }
}

fn one<'a>(cluster: &'a ClusterView, word: Option<&str>) -> anyhow::Result<&'a VmView> {
    let count = u32::try_from(cluster.vms.len()).unwrap_or(u32::MAX);
    let ranks = vms::select(&[word.unwrap_or("vm0").to_owned()], count)?;
    let mut chosen = cluster
        .vms
        .iter()
        .filter(|v| ranks.contains(&v.status.rank));
    match (chosen.next(), chosen.next()) {
        (Some(vm), None) => Ok(vm),
        _ => Err(Usage("a console is of one VM: name one, such as vm0".to_owned()).into()),
    }
}

fn log(
    follow: bool,
    context: &Context,
    cluster: &ClusterView,
    vm: &VmView,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let job = cluster.key.job;
    // The shim ends with its VMs; the log stays until the job does.
    if vm.status.phase.is_over()
        && let Some(path) = &vm.status.console_log
    {
        return shim::read_file(context, job, &vm.node, path, out);
    }
    let call = ConsoleLog {
        rank: vm.status.rank,
        follow,
    };
    let connection = shim::connect(context, job, &vm.node, vm.status.rank)?;
    let (_, session) = connection.upgrade(&call)?;
    let Session {
        mut link,
        first,
        step: _step,
    } = session;
    if !follow {
        link.set_limit(Some(shim::ANSWER));
    }
    out.write_all(&first)?;
    out.flush()?;
    let mut chunk = [0_u8; 16 * 1024];
    loop {
        match link.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                out.write_all(&chunk[..n])?;
                if follow {
                    out.flush()?;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn attach(
    context: &Context,
    cluster: &ClusterView,
    rank: Rank,
    node: &NodeName,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let call = Console { rank, write: true };
    let connection = shim::connect(context, cluster.key.job, node, rank)?;
    let (attached, session) = connection.upgrade(&call)?;
    let Session {
        link,
        first,
        // Held until the terminal is as it was: its end may take a moment.
        step: _step,
    } = session;
    let signals = Signals::take().context("take signals")?;
    let stdin = io::stdin();
    let end = {
        let raw = RawMode::enter().context("put the terminal in raw mode")?;
        let say = |text: &str| {
            // A raw terminal does not return the carriage by itself.
            let end = if raw.is_some() { "\r" } else { "" };
            output::note(format!("{text}{end}"));
        };
        if !attached.writer {
            say(&format!(
                "{rank}'s console is in use by another; you see it read-only"
            ));
        }
        if raw.is_some() {
            say(&format!(
                "attached to {rank} on {node}; leave with Ctrl-] or Ctrl-C three times"
            ));
        }
        out.write_all(&first)?;
        out.flush()?;
        let mut keys = LeaveKeys::default();
        let typed = raw.is_some();
        let pump = Pump {
            link,
            input: stdin.as_fd(),
            lossy: typed,
            output: out,
            alarm: Some(signals.fd().as_fd()),
        };
        let mut filter = |bytes: &[u8]| {
            let (mut pass, leave) = if typed {
                keys.take(bytes, Instant::now())
            } else {
                (bytes.to_vec(), false)
            };
            if !attached.writer {
                pass.clear();
            }
            (pass, leave)
        };
        let end = pump.run(&mut filter).map_err(marked)?;
        drop(raw);
        if typed {
            // The guest's cursor may stand anywhere in its line.
            writeln!(io::stderr()).ok();
        }
        end
    };
    match end {
        End::Closed => output::note(format!("{rank}'s console is closed")),
        End::Left => output::note(format!("left {rank}'s console")),
        End::Alarm => match signals.pending() {
            Some(Signal::SIGINT) | None => {}
            Some(signal) => bail!("ended by {signal}"),
        },
    }
    Ok(())
}
