//! `cargo xtask fuzz`: the parsers of bytes that users, guests and other programs write, against inputs that libFuzzer makes.
//!
//! The targets are in `tests/fuzz`, a workspace of its own in cargo-fuzz's layout. They are built with the project's toolchain: the flags below let
//! the compiler count the edges that an input reaches, which is what guides libFuzzer. Corpora grow in `target/fuzz` from run to run.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};

use crate::command::{Cmd, Output};
use crate::packages;
use crate::progress::Progress;
use crate::workspace::{cargo, root, target};

/// What makes the compiler count edges and trace comparisons, as cargo-fuzz has it. Release builds of the targets have assertions and checks of overflow
/// by their profile.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

/// The workspace of the targets, in the source tree.
pub const MANIFEST: &str = "tests/fuzz/Cargo.toml";

/// How many targets run at once.
const JOBS: usize = 2;

/// The longest input in bytes.
const MAX_LEN: u32 = 4096;

/// How long one input may take, in seconds.
const TIMEOUT: u32 = 10;

/// What a target runs longer than asked: reading its corpus, and its last input.
const SPARE: Duration = Duration::from_secs(120);

/// A parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Target {
    /// Templates of the site and of the user.
    Templates,
    /// Networks and resource sets.
    Networks,
    /// The cluster definition.
    Definition,
    /// A whole submission.
    Submission,
    /// The policy, held against a forged request.
    Policy,
    /// The request of a job, which its user can forge.
    Request,
    /// Image repositories and the batch file.
    Site,
    /// Slurm's lists of hosts and CPU counts.
    Hostlist,
    /// Messages on Muster's sockets.
    Varlink,
    /// What QEMU says.
    Qmp,
    /// A meta file of an image repository.
    ImageMeta,
}

impl Target {
    /// All, those that run longest first.
    pub const ALL: [Target; 11] = [
        Target::Templates,
        Target::Networks,
        Target::Request,
        Target::Definition,
        Target::Submission,
        Target::Policy,
        Target::Site,
        Target::Hostlist,
        Target::Varlink,
        Target::Qmp,
        Target::ImageMeta,
    ];

    /// How long it runs where nothing else is asked, in seconds: longer for what users write in many ways.
    #[must_use]
    pub fn seconds(self) -> u32 {
        match self {
            Target::Templates | Target::Networks | Target::Request | Target::Definition => 60,
            _ => 20,
        }
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Target::Templates => "templates",
            Target::Networks => "networks",
            Target::Definition => "definition",
            Target::Submission => "submission",
            Target::Policy => "policy",
            Target::Request => "request",
            Target::Site => "site",
            Target::Hostlist => "hostlist",
            Target::Varlink => "varlink",
            Target::Qmp => "qmp",
            Target::ImageMeta => "image_meta",
        })
    }
}

/// What is fuzzed for how long.
#[derive(Debug, Clone, Default, Args)]
pub struct Arguments {
    /// Seconds for each target (default: 60 or 20).
    #[arg(long)]
    pub seconds: Option<u32>,
    /// Only this target; may be given again (default: all).
    #[arg(long = "target", value_enum)]
    pub targets: Vec<Target>,
    /// Where libFuzzer's random numbers begin: the same inputs are made again (default: anywhere).
    #[arg(long)]
    pub seed: Option<u32>,
}

/// Builds the targets and runs them, two at a time. All run even if one finds something.
///
/// # Errors
/// The targets do not build, or one finds an input that breaks what it promises.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<()> {
    packages::ensure(progress)?;
    let programs = progress.stage("building the fuzz targets", build)?;
    let dictionary = dictionary(&programs)?;
    let scratch = scratch()?;
    let chosen = |target: &Target| match arguments.targets.as_slice() {
        [] => true,
        only => only.contains(target),
    };
    let queue: Mutex<VecDeque<Target>> =
        Mutex::new(Target::ALL.into_iter().filter(chosen).collect());
    let findings = Mutex::new(Vec::new());
    let next = || {
        queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    };
    let work = || {
        while let Some(target) = next() {
            let run = Run {
                target,
                seconds: arguments.seconds.unwrap_or(target.seconds()),
                seed: arguments.seed,
                programs: &programs,
                dictionary: &dictionary,
                scratch: scratch.path(),
            };
            match run.run() {
                Ok(done) => progress.print(format_args!("{target}: {done}")),
                Err(error) => {
                    progress.print(format_args!("{target}: FAILED: {error:#}"));
                    let mut findings = findings.lock().unwrap_or_else(PoisonError::into_inner);
                    findings.push(target.to_string());
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(work);
        }
    });
    let findings = findings
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    match findings.as_slice() {
        [] => Ok(()),
        some => Err(anyhow!("fuzzing failed: {}", some.join(", "))),
    }
}

/// `target/fuzz`: programs, corpora and findings.
fn base() -> PathBuf {
    target().join("fuzz")
}

/// Builds all targets; returns the directory of the programs.
fn build() -> Result<PathBuf> {
    let version = Cmd::new("rustc").arg("-vV").dir(root()).run()?.stdout;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("no line 'host: ' in the output of rustc -vV")?;
    let base = base();
    // With --target the flags leave build scripts and procedural macros alone.
    cargo(["build", "--quiet", "--release", "--bins", "--target", host])
        .arg("--manifest-path")
        .arg(root().join(MANIFEST))
        .arg("--target-dir")
        .arg(&base)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))
        .show_ok()?;
    Ok(base.join(host).join("release"))
}

/// Writes the words of the configuration files where libFuzzer can read them.
fn dictionary(programs: &Path) -> Result<PathBuf> {
    let words = Cmd::new(programs.join("dictionary")).run()?.stdout;
    let path = base().join("dictionary");
    fs::write(&path, words).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// A directory for targets that read files, in memory where there is such a place.
fn scratch() -> Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("muster-fuzz-");
    let memory = builder.tempdir_in("/dev/shm");
    memory
        .or_else(|_| builder.tempdir())
        .context("make a scratch directory")
}

/// One run of one target.
#[derive(Debug)]
struct Run<'a> {
    target: Target,
    seconds: u32,
    seed: Option<u32>,
    programs: &'a Path,
    dictionary: &'a Path,
    scratch: &'a Path,
}

/// What a run that found nothing did.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    executions: u64,
    /// Edges that the corpus reached, at the run's begin and end.
    coverage: (u64, u64),
}

impl Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (begin, end) = self.coverage;
        let executions = self.executions;
        write!(
            f,
            "{executions} executions, coverage {begin} -> {end}, nothing found"
        )
    }
}

impl Run<'_> {
    fn run(&self) -> Result<Done> {
        let name = self.target.to_string();
        let program = self.programs.join(&name);
        let corpus = base().join("corpus").join(&name);
        let findings = base().join("findings").join(&name);
        for directory in [&corpus, &findings] {
            fs::create_dir_all(directory)
                .with_context(|| format!("create {}", directory.display()))?;
        }
        let output = Cmd::new(&program)
            .arg(&corpus)
            .arg(root().join("tests/fuzz/seeds").join(&name))
            .arg(format!("-dict={}", self.dictionary.display()))
            .arg(format!("-max_total_time={}", self.seconds))
            .arg(format!("-timeout={TIMEOUT}"))
            .arg("-rss_limit_mb=2048")
            .arg(format!("-max_len={MAX_LEN}"))
            .arg(format!("-seed={}", self.seed.unwrap_or(0)))
            .arg("-print_final_stats=1")
            // A prefix, so that it ends in a slash.
            .arg(format!("-artifact_prefix={}/", findings.display()))
            .env("TMPDIR", self.scratch)
            .env("RUST_BACKTRACE", "0")
            .deadline(Duration::from_secs(self.seconds.into()) + SPARE)
            .output()?;
        judge(&output, &program)
    }
}

/// Reads what libFuzzer said.
fn judge(output: &Output, program: &Path) -> Result<Done> {
    let said = &output.stderr;
    if !output.ok() {
        let lines: Vec<&str> = said.lines().collect();
        let panic = lines.iter().position(|line| line.contains(" panicked at "));
        let why = match panic.and_then(|at| lines.get(at..lines.len().min(at + 2))) {
            Some(panic) => panic.join(" "),
            None => lines
                .iter()
                .find(|line| line.contains("ERROR: "))
                .map_or_else(
                    || format!("exit status {}: {}", output.status, lines.join("\n")),
                    ToString::to_string,
                ),
        };
        let input = said.split("Test unit written to ").nth(1);
        match input.and_then(|rest| rest.lines().next()) {
            Some(input) => bail!("{why}\n  again: {} {input}", program.display()),
            None => bail!("{why}"),
        }
    }
    let mut coverage = said.lines().filter_map(|line| {
        let (_, rest) = line.split_once(" cov: ")?;
        rest.split_whitespace().next()?.parse().ok()
    });
    let begin = coverage.next();
    // Without it libFuzzer only guesses, and finds nothing.
    let begin = begin.context("no coverage is counted: the compiler's flags have no effect")?;
    let executions = said.split("stat::number_of_executed_units:").nth(1);
    let executions = executions.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    Ok(Done {
        executions: executions.context("libFuzzer says no number of executions")?,
        coverage: (begin, coverage.next_back().unwrap_or(begin)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: i32, stderr: &str) -> Output {
        Output {
            status,
            stdout: String::new(),
            stderr: stderr.to_owned(),
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn what_libfuzzer_says_is_understood() {
        let program = Path::new("target/fuzz/x/release/request");
        let log = "#3\tINITED cov: 250 ft: 253 corp: 2/1042b exec/s: 0 rss: 29Mb\n\
            #9\tNEW    cov: 784 ft: 2108 corp: 3/57Kb lim: 2061 exec/s: 0 rss: 29Mb\n\
            Done 1112916 runs in 9 second(s)\nstat::number_of_executed_units: 1112916\n";
        let done = judge(&said(0, log), program).unwrap();
        assert_eq!(
            done.to_string(),
            "1112916 executions, coverage 250 -> 784, nothing found"
        );
        let log = "INFO: Seed: 1\nthread '<unnamed>' (5) panicked at src/lib.rs:21:5:\nan empty message\n\
            ==6085== ERROR: libFuzzer: deadly signal\nartifact_prefix='/f/'; Test unit written to /f/crash-46\n";
        assert_eq!(
            judge(&said(77, log), program).unwrap_err().to_string(),
            "thread '<unnamed>' (5) panicked at src/lib.rs:21:5: an empty message\n  \
            again: target/fuzz/x/release/request /f/crash-46"
        );
        let log =
            "==9== ERROR: libFuzzer: timeout after 10 seconds\nTest unit written to /f/timeout-1\n";
        let error = judge(&said(70, log), program).unwrap_err().to_string();
        assert!(
            error.starts_with("==9== ERROR: libFuzzer: timeout"),
            "{error}"
        );
        let blind = "#3\tINITED exec/s: 0\nstat::number_of_executed_units: 5\n";
        let error = judge(&said(0, blind), program).unwrap_err().to_string();
        assert!(error.contains("no coverage is counted"), "{error}");
    }

    #[test]
    fn each_target_is_built_and_has_seeds() {
        let fuzz = root().join("tests/fuzz");
        let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
        for target in Target::ALL {
            assert!(
                manifest.contains(&format!("name = \"{target}\"\n")),
                "{target}"
            );
            assert!(fuzz.join(format!("fuzz_targets/{target}.rs")).is_file());
            let seeds = fs::read_dir(fuzz.join(format!("seeds/{target}"))).unwrap();
            assert!(seeds.count() > 0, "{target}");
            let value = target.to_possible_value().unwrap();
            assert_eq!(value.get_name(), target.to_string());
        }
        let built = manifest.matches("[[bin]]").count();
        assert_eq!(
            built,
            Target::ALL.len() + 1,
            "the targets and the dictionary"
        );
        assert_eq!(Target::value_variants().len(), Target::ALL.len());
    }

    /// Packages of a `Cargo.lock` with their versions.
    fn locked(path: &Path) -> Vec<(String, String)> {
        let text = fs::read_to_string(path).unwrap();
        let package = |part: &str| {
            let value = |key: &str| {
                let line = part.lines().find_map(|line| line.strip_prefix(key));
                line.map(|value| value.trim_matches('"').to_owned())
            };
            Some((value("name = ")?, value("version = ")?))
        };
        text.split("[[package]]").filter_map(package).collect()
    }

    #[test]
    fn what_is_fuzzed_is_what_is_shipped() {
        let shipped = locked(&root().join("Cargo.lock"));
        let fuzzed = locked(&root().join("tests/fuzz/Cargo.lock"));
        for (name, version) in fuzzed {
            let versions: Vec<_> = shipped.iter().filter(|(other, _)| *other == name).collect();
            assert!(
                versions.is_empty() || versions.iter().any(|(_, other)| *other == version),
                "{name} {version} is fuzzed, {versions:?} is shipped: cd tests/fuzz && cargo update {name} --precise VERSION"
            );
        }
    }
}
