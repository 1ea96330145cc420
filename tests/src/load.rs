//! Loading the plugin into each release of Slurm, without a cluster: in a container of the lab's image where no daemon runs.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::artifacts::Artifacts;
use crate::cache::Cache;
use crate::docker::docker;
use crate::images;
use crate::progress::Progress;
use crate::suite::Suite;

const SCRIPT: &str = include_str!("../lab/load.sh");
const DEADLINE: Duration = Duration::from_secs(120);

/// Loads `suite`'s plugin into the commands and the step daemon of `suite`'s Slurm.
///
/// # Errors
/// One of them does not load it, or it does not behave there.
pub fn test(suite: Suite, artifacts: &Artifacts, cache: &Cache, progress: &Progress) -> Result<()> {
    let image = images::lab(suite, cache, progress)?;
    let plugin = artifacts
        .plugins
        .get(&suite)
        .with_context(|| format!("no plugin was built for {suite}"))?;
    let directory = plugin.parent().context("the plugin is in no directory")?;
    let volume = format!("{}:/plugin:ro", directory.display());
    let output = docker([
        "run",
        "--rm",
        "--interactive",
        "--network=none",
        "--volume",
        &volume,
        &image,
        "bash",
        "-s",
    ])
    .stdin(SCRIPT)
    .deadline(DEADLINE)
    .run()?;
    for line in output.stdout.lines() {
        progress.say(format_args!("{suite}: {line}"));
    }
    Ok(())
}
