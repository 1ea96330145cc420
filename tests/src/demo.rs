//! `cargo xtask demo`: from nothing to a virtual cluster on a Slurm of two nodes, and back to nothing.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::cache::Cache;
use crate::docker;
use crate::guests::Guest;
use crate::lab::{EtcdAuth, Lab, Options, State, User};
use crate::leaks;
use crate::packages;
use crate::progress::Progress;
use crate::suite::Suite;

/// What alice's allocation runs.
const SCRIPT: &str = include_str!("../lab/demo.sh");
/// For the whole allocation, in seconds.
const ALLOCATION: &str = "300";

/// Runs the demonstration.
///
/// # Errors
/// Something does not work as shown, or is left over.
pub fn run(progress: &Progress) -> Result<()> {
    packages::ensure(progress)?;
    let cache = Cache::open()?;
    let _claim = cache.claim_lab(progress)?;
    let options = Options {
        suite: Suite::Trixie,
        nodes: 2,
        state: State::Etcd,
        etcd_auth: EtcdAuth::Cert,
        guests: vec![Guest::Tiny],
        release: false,
        without_vmd: false,
    };
    let result = Lab::up(&options, &cache, progress).and_then(|lab| {
        let shown = show(&lab, progress);
        if shown.is_err() {
            progress.say(lab.logs(30)?);
        }
        shown
    });
    // Down in any case; what went wrong first is what is reported.
    let down = Lab::down(&cache, progress);
    let stopped = docker::stop_if_ours(&cache, progress);
    result?;
    down?;
    stopped?;
    progress.say("done: the virtual cluster ran, and nothing is left over");
    Ok(())
}

fn show(lab: &Lab, progress: &Progress) -> Result<()> {
    let written = lab.run_with_stdin(
        "ctl",
        User::Alice,
        &["sh", "-c", "cat > demo.sh && chmod +x demo.sh"],
        SCRIPT,
        Duration::from_secs(30),
    )?;
    if !written.ok() {
        bail!("write alice's script: {written}");
    }
    for (user, command) in [
        (User::Root, "muster image list"),
        (User::Alice, "muster template list"),
        (User::Alice, "sinfo"),
        (User::Alice, "salloc -N2 -n2 --vm=tiny:2 ./demo.sh"),
    ] {
        progress.say(format_args!("{}@ctl$ {command}", user.name()));
        let line = ["timeout", ALLOCATION, "bash", "-c", command].map(str::to_owned);
        let status = lab.interactive("ctl", user, &line)?;
        if status != 0 {
            bail!("{command}: exit status {status}");
        }
    }
    progress
        .say("the allocation has ended; looking for leftovers on both nodes, in etcd and in Slurm");
    leaks::check(lab, leaks::DEADLINE)?;
    progress.say("nothing is left over");
    Ok(())
}
