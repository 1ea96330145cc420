//! `cargo xtask test`: all tests, by kind; and `cargo xtask ci`.

use std::fmt::{self, Display};

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};

use crate::artifacts::{Artifacts, Profile};
use crate::boot;
use crate::cache::Cache;
use crate::docker;
use crate::fuzz;
use crate::guests::Guest;
use crate::lab::{EtcdAuth, Lab, Options, State};
use crate::load;
use crate::packages;
use crate::progress::Progress;
use crate::suite::Suite;
use crate::workspace::cargo;

/// A kind of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `cargo test --workspace`: what needs no Slurm.
    Unit,
    /// The plugin in each release of Slurm, without a cluster.
    Load,
    /// The shim with the QEMU of each suite, without a cluster.
    Boot,
    /// What users do, in the lab.
    Lab,
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Unit => "unit",
            Kind::Load => "load",
            Kind::Boot => "boot",
            Kind::Lab => "lab",
        })
    }
}

/// Which tests to run.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// Only this kind (default: all).
    #[arg(long, value_enum)]
    pub only: Option<Kind>,
    /// Only on this suite (default: all).
    #[arg(long, value_enum)]
    pub suite: Option<Suite>,
    /// Only tests whose name contains this.
    #[arg(long)]
    pub filter: Option<String>,
    /// Leave the lab up after a failure, and end there.
    #[arg(long)]
    pub keep: bool,
}

/// The labs in which the lab's tests run.
#[must_use]
pub fn configurations() -> Vec<Options> {
    let lab = |suite, nodes, state| Options {
        suite,
        nodes,
        state,
        etcd_auth: EtcdAuth::Cert,
        guests: Guest::ALL.to_vec(),
        release: false,
        without_vmd: false,
    };
    vec![
        lab(Suite::Trixie, 2, State::Etcd),
        lab(Suite::Trixie, 1, State::Embedded),
        lab(Suite::Bookworm, 2, State::Etcd),
        lab(Suite::Sid, 2, State::Etcd),
    ]
}

/// Runs the tests. All kinds run even if one fails; the failures are listed at the end.
///
/// # Errors
/// A test fails, or what it needs cannot be had.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<()> {
    packages::ensure(progress)?;
    let wanted = |kind| arguments.only.is_none_or(|only| only == kind);
    let mut failures = Vec::new();
    if wanted(Kind::Unit) {
        note(
            unit(arguments, progress),
            Kind::Unit,
            progress,
            &mut failures,
        );
    }
    if [Kind::Load, Kind::Boot, Kind::Lab].into_iter().any(wanted) {
        packages::require_root("testing in containers")?;
        let cache = Cache::open()?;
        let _claim = cache.claim_lab(progress)?;
        docker::ensure(&cache, progress)?;
        if wanted(Kind::Load) {
            note(
                load(arguments, &cache, progress),
                Kind::Load,
                progress,
                &mut failures,
            );
        }
        if wanted(Kind::Boot) {
            note(
                boot(arguments, &cache, progress),
                Kind::Boot,
                progress,
                &mut failures,
            );
        }
        if wanted(Kind::Lab) {
            for options in configurations()
                .iter()
                .filter(|options| arguments.suite.is_none_or(|suite| suite == options.suite))
            {
                let result = lab(options, arguments, &cache, progress);
                let failed = result.is_err();
                note(
                    result,
                    format_args!("lab: {options}"),
                    progress,
                    &mut failures,
                );
                if failed && arguments.keep {
                    bail!("{}\nthe lab is left up", failures.join("\n"));
                }
            }
            let down = Lab::down(&cache, progress).map(drop);
            note(down, "taking the lab down", progress, &mut failures);
        }
        docker::stop_if_ours(&cache, progress)?;
    }
    if failures.is_empty() {
        progress.say("all tests passed");
        return Ok(());
    }
    Err(anyhow!("failed: {}", failures.join("; ")))
}

fn note(result: Result<()>, name: impl Display, progress: &Progress, failures: &mut Vec<String>) {
    match result {
        Ok(()) => progress.say(format_args!("passed: {name}")),
        Err(error) => {
            progress.say(format_args!("FAILED: {name}: {error:#}"));
            failures.push(name.to_string());
        }
    }
}

fn unit(arguments: &Arguments, progress: &Progress) -> Result<()> {
    progress.say("cargo test --workspace");
    cargo(["test", "--quiet", "--workspace"])
        .args(arguments.filter.iter())
        // Installed by now: a test that finds none fails.
        .env("MUSTER_REQUIRE", "etcd")
        .env_remove("MUSTER_LAB")
        .show_ok()
}

fn suites(arguments: &Arguments) -> Vec<Suite> {
    Suite::ALL
        .into_iter()
        .filter(|suite| arguments.suite.is_none_or(|only| only == *suite))
        .collect()
}

fn boot(arguments: &Arguments, cache: &Cache, progress: &Progress) -> Result<()> {
    let program = boot::build()?;
    suites(arguments)
        .into_iter()
        .try_for_each(|suite| boot::test(suite, &program, cache, progress))
}

fn load(arguments: &Arguments, cache: &Cache, progress: &Progress) -> Result<()> {
    let suites = suites(arguments);
    let artifacts = Artifacts::build(Profile::Dev, &suites, cache, progress)?;
    for suite in suites {
        load::test(suite, &artifacts, cache, progress)?;
    }
    Ok(())
}

fn lab(options: &Options, arguments: &Arguments, cache: &Cache, progress: &Progress) -> Result<()> {
    let lab = Lab::up(options, cache, progress)?;
    progress.say("cargo test --package muster-tests --test lab");
    let result = cargo([
        "test",
        "--quiet",
        "--package",
        "muster-tests",
        "--test",
        "lab",
        "--",
    ])
    .args(arguments.filter.iter())
    .arg("--test-threads=1")
    .env("MUSTER_LAB", "1")
    .show_ok();
    if result.is_err() {
        progress.say(lab.logs(40)?);
    }
    result
}

/// All that is checked before a change is taken: format, lints, fuzzing, tests.
///
/// # Errors
/// A check fails.
pub fn ci(progress: &Progress) -> Result<()> {
    packages::ensure(progress)?;
    progress.stage("cargo fmt --check", || {
        cargo(["fmt", "--all", "--check"]).show_ok()?;
        cargo(["fmt", "--check", "--manifest-path", fuzz::MANIFEST]).show_ok()
    })?;
    progress.stage("cargo clippy", || {
        cargo([
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
        .show_ok()
    })?;
    // Always the same inputs: a change that broke nothing does not fail by chance.
    let fuzzing = fuzz::Arguments {
        seed: Some(1),
        ..fuzz::Arguments::default()
    };
    progress.stage("cargo xtask fuzz", || fuzz::run(&fuzzing, progress))?;
    let arguments = Arguments {
        only: None,
        suite: None,
        filter: None,
        keep: false,
    };
    run(&arguments, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_and_store_is_tested() {
        let all = configurations();
        for suite in Suite::ALL {
            assert!(all.iter().any(|options| options.suite == suite
                && options.state == State::Etcd
                && options.nodes == 2));
        }
        assert!(all.iter().any(|options| options.state == State::Embedded));
    }
}
