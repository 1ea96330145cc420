//! The shim with the real QEMU of each suite, in a container of the lab's image where no daemon runs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cache::Cache;
use crate::docker::docker;
use crate::images;
use crate::progress::Progress;
use crate::suite::Suite;
use crate::workspace::{self, cargo};

const DEADLINE: Duration = Duration::from_secs(600);

/// Builds the test program of the shim.
///
/// # Errors
/// It does not compile, or cargo does not name it.
pub fn build() -> Result<PathBuf> {
    let output = cargo([
        "test",
        "--quiet",
        "--package",
        "muster-vmd",
        "--test",
        "shim",
    ])
    .args(["--no-run", "--message-format=json"])
    .deadline(DEADLINE)
    .run()?;
    let program = output.stdout.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "shim")
            .then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    program.context("cargo names no program for the tests of the shim")
}

/// Runs it with `suite`'s QEMU, as an ordinary user.
///
/// # Errors
/// A test fails, or the container cannot be started.
pub fn test(
    suite: Suite,
    program: &std::path::Path,
    cache: &Cache,
    progress: &Progress,
) -> Result<()> {
    let image = images::lab(suite, cache, progress)?;
    // The test data is found by the path that was compiled in.
    let mount = |path: PathBuf| format!("{0}:{0}:ro", path.display());
    progress.say(format_args!("{suite}: the tests of the shim, with QEMU"));
    docker([
        "run",
        "--rm",
        "--init",
        "--network=none",
        "--user=1500:1500",
    ])
    .args(["--env", "MUSTER_REQUIRE=qemu", "--env", "RUST_BACKTRACE=0"])
    .args(["--volume", &mount(workspace::root())])
    .args(["--volume", &mount(workspace::target())])
    .arg(image)
    .arg(program)
    .deadline(DEADLINE)
    .show_ok()
}
