//! How long a start takes, from the prolog to the guest's CPU running, against QEMU by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{median, millis, ratio};
use crate::cache::Cache;
use crate::docker;
use crate::guests::Guest;
use crate::lab::{EtcdAuth, Lab, Options, State, User};
use crate::leaks;
use crate::progress::Progress;
use crate::suite::Suite;

/// Runs of each case; medians are shown.
const RUNS: usize = 10;

/// Longest run of one job.
const LONG: Duration = Duration::from_secs(120);

/// The stretches of a start, each up to the mark that ends it, and whose they are.
const STRETCHES: [(&str, &str); 7] = [
    ("recorded", "vmd: plan, journal, cluster record"),
    ("step-spawned", "vmd: srun started"),
    ("shim-connected", "Slurm: launch of the VM step"),
    ("launched", "vmd: launch plan given out"),
    ("overlays", "shim: overlays"),
    ("qemu-started", "shim: QEMU started"),
    ("running", "shim: guest continued"),
];

/// Measures and prints, in a lab of one node.
pub(super) fn run(progress: &Progress) -> Result<()> {
    let cache = Cache::open()?;
    let _claim = cache.claim_lab(progress)?;
    docker::ensure(&cache, progress)?;
    let options = Options {
        suite: Suite::Trixie,
        nodes: 1,
        state: State::Etcd,
        etcd_auth: EtcdAuth::Cert,
        guests: vec![Guest::Tiny],
        release: true,
        without_vmd: false,
    };
    let result = Lab::up(&options, &cache, progress).and_then(|lab| start(&lab, progress));
    let down = Lab::down(&cache, progress).and_then(|_| docker::stop_if_ours(&cache, progress));
    result?;
    down
}

fn start(lab: &Lab, progress: &Progress) -> Result<()> {
    install_bare()?;
    for vms in [1, 4] {
        let mut runs = Vec::new();
        let mut bare = Vec::new();
        for _ in 0..RUNS {
            // Interleaved: the machine's speed drifts.
            let (marks, alone) = one(lab, vms)?;
            runs.push(marks);
            bare.push(alone);
        }
        report(vms, &runs, &bare, progress)?;
    }
    leaks::check(lab, leaks::DEADLINE)
}

/// Puts this program on the node: it starts QEMU by itself there.
fn install_bare() -> Result<()> {
    let own = std::env::current_exe().context("find the own program")?;
    let target = format!("{}:/usr/local/bin/xtask", crate::lab::container("node1"));
    docker::docker(["cp"]).arg(own).arg(target).run().map(drop)
}

/// One job, then QEMU alone with the same arguments: the marks in microseconds since the prolog's call, and the time of the latter.
fn one(lab: &Lab, vms: u32) -> Result<(BTreeMap<String, u64>, u64)> {
    let script = format!(
        "salloc --quiet -n{vms} --vm=tiny:{vms} bash -c '
            muster wait --for running --timeout 60 >&2 && muster show --json > ~/show.json &&
            srun --overlap -n1 sh -c \"cp /var/lib/muster/scratch/$SLURM_JOB_ID.0/vm0/disk.qcow2 ~/bare.qcow2;
                cat /proc/\\$(pgrep -o -u alice qemu-system)/cmdline > ~/cmdline\"' && cat ~/show.json"
    );
    let output = lab.sh("ctl", User::Alice, &script, LONG)?;
    if !output.ok() {
        bail!("a job of the benchmark failed: {output}");
    }
    let shown: Value = serde_json::from_str(output.stdout.trim())
        .with_context(|| format!("read the output of muster show: {output}"))?;
    let timeline = shown["cluster"]["nodes"][0]["timeline"].clone();
    let marks: BTreeMap<String, u64> =
        serde_json::from_value(timeline).context("read the timeline of muster show")?;
    let begin = *marks.get("registered").context("no mark 'registered'")?;
    let since = marks
        .into_iter()
        .map(|(name, at)| (name, at.saturating_sub(begin)));
    leaks::check(lab, leaks::DEADLINE)?;
    let count = vms.to_string();
    let alone = lab.run(
        "node1",
        User::Alice,
        &[
            "/usr/local/bin/xtask",
            "bare-qemu",
            "--count",
            &count,
            "/home/alice/cmdline",
            "/home/alice/bare.qcow2",
        ],
        LONG,
    )?;
    let micros = alone.stdout.trim().parse();
    let micros = micros.with_context(|| format!("time QEMU alone: {alone}"))?;
    Ok((since.collect(), micros))
}

fn report(
    vms: u32,
    runs: &[BTreeMap<String, u64>],
    bare: &[u64],
    progress: &Progress,
) -> Result<()> {
    let at = |name: &str| -> Result<u64> {
        let times: Option<Vec<u64>> = runs.iter().map(|r| r.get(name).copied()).collect();
        Ok(median(times.with_context(|| {
            format!("a run lacks the mark '{name}'")
        })?))
    };
    let total = at("running")?;
    let alone = median(bare.to_vec());
    let mut lines = vec![format!(
        "start of {vms} VM(s) on one node, medians of {} runs, in milliseconds",
        runs.len()
    )];
    let mut before = "registered";
    let mut slurm = 0;
    for (mark, what) in STRETCHES {
        let stretch: Vec<u64> = runs
            .iter()
            .map(|r| {
                let end = r.get(mark).copied().unwrap_or(0);
                end.saturating_sub(r.get(before).copied().unwrap_or(0))
            })
            .collect();
        let stretch = median(stretch);
        if mark == "shim-connected" {
            slurm = stretch;
        }
        lines.push(format!("  {what:<38} {:>7}", millis(stretch)));
        before = mark;
    }
    let over = total.saturating_sub(alone);
    lines.push(format!(
        "  {:<38} {:>7}",
        "prolog's call to all guests running",
        millis(total)
    ));
    lines.push(format!(
        "  {:<38} {:>7}",
        "QEMU by itself, same arguments",
        millis(alone)
    ));
    lines.push(format!(
        "  {:<38} {:>7}",
        "over QEMU by itself",
        millis(over)
    ));
    lines.push(format!(
        "  {:<38} {:>7}",
        "  of which Slurm's step launch",
        millis(slurm)
    ));
    lines.push(format!(
        "  {:<38} {:>7}",
        "  of which vmd and shim",
        millis(over.saturating_sub(slurm))
    ));
    lines.push(format!(
        "  {:<38} {:>7.2}",
        "ratio to QEMU by itself",
        ratio(total, alone)
    ));
    for line in lines {
        progress.print(line);
    }
    Ok(())
}
