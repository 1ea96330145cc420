//! Runs `qemu-img` (qemu-img(1)).
//!
//! Paths are passed absolute: a name that starts with `/` is never taken for a protocol (`nbd:`) or a
//! `json:` description, whatever colons and commas it holds.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::ImageError;
use crate::format::DiskFormat;

/// How long a command may take that only looks at or makes metadata.
const SHORT: Duration = Duration::from_secs(60);

/// How long a conversion may stand still before it counts as stuck (a dead file server, say). It
/// reports each percent: at 20 MB/s one percent of 2 TB takes 17 minutes.
const STALL: Duration = Duration::from_secs(30 * 60);

/// How often the caller is asked whether to go on.
const TICK: Duration = Duration::from_millis(100);

/// How qemu-img failed.
#[derive(Debug, thiserror::Error)]
pub enum QemuImgError {
    /// It cannot be started.
    #[error("start qemu-img (Debian package qemu-utils)")]
    Start(#[source] io::Error),
    /// Its end cannot be awaited.
    #[error("wait for qemu-img")]
    Wait(#[source] io::Error),
    /// It ended with an error.
    #[error("{command} ({status}): {stderr}")]
    Failed {
        /// Program and arguments.
        command: String,
        /// Exit status.
        status: ExitStatus,
        /// The last lines it wrote.
        stderr: String,
    },
    /// It took too long and was ended.
    #[error("{command}: no progress for {} s", limit.as_secs())]
    Stuck {
        /// Program and arguments.
        command: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// Its answer makes no sense.
    #[error("{command}: its answer does not parse: {why}")]
    Answer {
        /// Program and arguments.
        command: String,
        /// What is wrong.
        why: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What `qemu-img info` says of a disk file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Info {
    /// Format, any that QEMU knows.
    pub(crate) format: String,
    /// Size of the disk in bytes.
    pub(crate) virtual_size: u64,
    #[serde(default)]
    backing_filename: Option<String>,
    #[serde(default)]
    encrypted: bool,
    #[serde(default)]
    dirty_flag: bool,
    #[serde(default)]
    format_specific: Option<FormatSpecific>,
}

#[derive(Debug, Clone, Deserialize)]
struct FormatSpecific {
    #[serde(default)]
    data: FormatData,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FormatData {
    #[serde(default)]
    corrupt: bool,
    #[serde(default)]
    data_file: Option<serde_json::Value>,
}

impl Info {
    /// Whether the file is a whole qcow2 image by itself that needs no repair.
    pub(crate) fn is_standalone_qcow2(&self) -> bool {
        let elsewhere = self.backing_filename.is_some()
            || self.specific().is_some_and(|d| d.data_file.is_some());
        self.format == DiskFormat::Qcow2.name() && !elsewhere && !self.dirty_flag
    }

    /// Why no VM can boot from it, if so.
    pub(crate) fn unusable(&self) -> Option<&'static str> {
        if self.encrypted {
            return Some("it is encrypted, which is not supported");
        }
        if self.specific().is_some_and(|d| d.corrupt) {
            return Some("it is marked corrupt; see qemu-img check -r");
        }
        None
    }

    fn specific(&self) -> Option<&FormatData> {
        self.format_specific.as_ref().map(|s| &s.data)
    }
}

/// Asks what a file is; without `format` by its content.
pub(crate) fn info(path: &Path, format: Option<DiskFormat>) -> Result<Info, ImageError> {
    let mut args: Vec<OsString> = ["info", "--output=json"].map(Into::into).into();
    if let Some(format) = format {
        args.extend(["-f", format.name()].map(Into::into));
    }
    args.push(path.into());
    run(&args, SHORT, &mut |_| ControlFlow::Continue(()))
        .and_then(|out| answer(&args, &out))
        .map_err(named("examine disk", path))
}

/// What `qemu-img check` says of the metadata of a disk file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Check {
    #[serde(default)]
    corruptions: u64,
    #[serde(default)]
    check_errors: u64,
}

/// Looks through the metadata of a qcow2; says what is wrong, if anything. Clusters
/// that are allocated and not used are not.
pub(crate) fn fault(path: &Path) -> Result<Option<String>, ImageError> {
    let mut args: Vec<OsString> = ["check", "--output=json", "-f", "qcow2"]
        .map(Into::into)
        .into();
    args.push(path.into());
    let ended = collect(&args, STALL, &mut |_| ControlFlow::Continue(()));
    let check: Check = ended
        .and_then(|ended| {
            // 2: corrupt, 3: leaked clusters; both with the figures.
            let with_figures = matches!(ended.status.code(), Some(0 | 2 | 3));
            if with_figures {
                answer(&args, &ended.stdout)
            } else {
                Err(ended.failure(&args))
            }
        })
        .map_err(named("check disk", path))?;
    let faults = check.corruptions + check.check_errors;
    Ok((faults > 0).then(|| {
        format!("qemu-img check finds {faults} faults in it: it is damaged or was cut short")
    }))
}

fn answer<T: DeserializeOwned>(args: &[OsString], out: &[u8]) -> Result<T, QemuImgError> {
    serde_json::from_slice(out).map_err(|e| QemuImgError::Answer {
        command: rendered(args),
        why: e.to_string(),
    })
}

/// Makes a qcow2 file at `target`, which exists and is empty, on top of `backing`.
pub(crate) fn create_overlay(
    target: &Path,
    backing: &Path,
    format: DiskFormat,
) -> Result<(), ImageError> {
    let mut args: Vec<OsString> = ["create", "-q", "-f", "qcow2", "-F", format.name(), "-b"]
        .map(Into::into)
        .into();
    args.push(backing.into());
    args.push(target.into());
    run(&args, SHORT, &mut |_| ControlFlow::Continue(()))
        .map(drop)
        .map_err(named("create overlay", target))
}

/// Converts a disk file to a qcow2 at `target`, which exists; `progress` is told the share done, 0 to
/// 1, and says whether to go on.
pub(crate) fn convert(
    source: &Path,
    format: DiskFormat,
    target: &Path,
    progress: &mut dyn FnMut(f64) -> ControlFlow<()>,
) -> Result<(), ImageError> {
    // -W: writes need not be in order; -m: so many of them at once.
    let mut args: Vec<OsString> = ["convert", "-p", "-W", "-m", "8", "-f", format.name()]
        .map(Into::into)
        .into();
    args.extend(["-O", "qcow2"].map(Into::into));
    args.push(source.into());
    args.push(target.into());
    let mut percents = Percents::default();
    let mut done = 0.0;
    let result = run(&args, STALL, &mut |bytes| {
        done = percents.push(bytes).unwrap_or(done);
        progress(done / 100.0)
    });
    match result {
        Err(QemuImgError::Interrupted) => Err(ImageError::Interrupted),
        other => other.map(drop).map_err(named("convert disk", source)),
    }
}

/// Reads the progress that qemu-img writes: `    (12.34/100%)\r`.
#[derive(Debug, Default)]
struct Percents {
    rest: String,
}

impl Percents {
    /// Takes output; returns the newest whole figure in it.
    fn push(&mut self, bytes: &[u8]) -> Option<f64> {
        self.rest.push_str(&String::from_utf8_lossy(bytes));
        let end = self.rest.rfind("/100%)")?;
        let start = self.rest[..end].rfind('(')? + 1;
        let value = self.rest[start..end].trim().parse().ok();
        self.rest.drain(..end + "/100%)".len());
        value.filter(|v| (0.0..=100.0).contains(v))
    }
}

fn named(doing: &'static str, path: &Path) -> impl FnOnce(QemuImgError) -> ImageError {
    move |source| ImageError::QemuImg {
        doing,
        path: path.to_owned(),
        source,
    }
}

fn rendered(args: &[OsString]) -> String {
    let words = args.iter().map(|a| a.to_string_lossy());
    std::iter::once("qemu-img".into())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A qemu-img that came to its own end.
struct Ended {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ended {
    fn failure(&self, args: &[OsString]) -> QemuImgError {
        QemuImgError::Failed {
            command: rendered(args),
            status: self.status,
            stderr: last_lines(&String::from_utf8_lossy(&self.stderr)),
        }
    }
}

/// Runs qemu-img and returns what it wrote; see [`collect`].
fn run(
    args: &[OsString],
    limit: Duration,
    go_on: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Vec<u8>, QemuImgError> {
    let ended = collect(args, limit, go_on)?;
    if ended.status.success() {
        Ok(ended.stdout)
    } else if go_on(&[]).is_break() {
        // Ctrl-C on a terminal reaches qemu-img as well.
        Err(QemuImgError::Interrupted)
    } else {
        Err(ended.failure(args))
    }
}

/// Runs qemu-img to its end. `go_on` is given each piece that it writes, and nothing from time to
/// time; when it breaks, or nothing was written for `limit`, the process is ended.
fn collect(
    args: &[OsString],
    limit: Duration,
    go_on: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Ended, QemuImgError> {
    let mut child = Command::new(OsStr::new("qemu-img"))
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(QemuImgError::Start)?;
    let (sender, output) = channel();
    let (errors_sender, errors) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || forward(stdout, &sender));
    }
    if let Some(stderr) = child.stderr.take() {
        std::thread::spawn(move || forward(stderr, &errors_sender));
    }
    let stdout = match follow(&output, limit, go_on) {
        Ok(stdout) => stdout,
        Err(end) => {
            reap(&mut child);
            return Err(match end {
                End::Interrupted => QemuImgError::Interrupted,
                End::Stuck => QemuImgError::Stuck {
                    command: rendered(args),
                    limit,
                },
            });
        }
    };
    // Its output is at its end, so it is about to exit.
    let Some(status) = wait(&mut child, SHORT)? else {
        reap(&mut child);
        return Err(QemuImgError::Stuck {
            command: rendered(args),
            limit: SHORT,
        });
    };
    Ok(Ended {
        status,
        stdout,
        stderr: errors.iter().flatten().collect(),
    })
}

enum End {
    Interrupted,
    Stuck,
}

fn follow(
    output: &Receiver<Vec<u8>>,
    limit: Duration,
    go_on: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Vec<u8>, End> {
    let mut written = Vec::new();
    let mut quiet_since = Instant::now();
    loop {
        let piece = match output.recv_timeout(TICK) {
            Ok(piece) => {
                quiet_since = Instant::now();
                piece
            }
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return Ok(written),
        };
        if go_on(&piece).is_break() {
            return Err(End::Interrupted);
        }
        if quiet_since.elapsed() > limit {
            return Err(End::Stuck);
        }
        written.extend(piece);
    }
}

fn forward(mut from: impl Read, to: &Sender<Vec<u8>>) {
    let mut chunk = [0_u8; 4096];
    while let Ok(n) = from.read(&mut chunk) {
        if n == 0 || to.send(chunk[..n].to_vec()).is_err() {
            return;
        }
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, QemuImgError> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().map_err(QemuImgError::Wait)? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends a child. One that hangs in the kernel is left to init after a moment.
fn reap(child: &mut Child) {
    drop(child.kill());
    drop(wait(child, Duration::from_secs(2)));
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let from = lines.len().saturating_sub(5);
    lines[from..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_in_any_pieces() {
        let mut p = Percents::default();
        assert_eq!(p.push(b"    (0.00/100%)\r    (12."), Some(0.0));
        assert_eq!(p.push(b"5"), None);
        assert_eq!(p.push(b"0/100%)\r    (99.00/100%)\r"), Some(99.0));
        assert_eq!(p.push(b"(900/100%)"), None);
        assert_eq!(p.push(b"nonsense"), None);
    }

    #[test]
    fn a_failure_carries_the_command_and_its_words() {
        let error = info(Path::new("/nonexistent,x:y.img"), None).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(error.to_string(), "examine disk /nonexistent,x:y.img");
        assert!(source.contains("qemu-img info --output=json"), "{source}");
        assert!(source.contains("No such file"), "{source}");
    }

    #[test]
    fn a_command_that_hangs_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let args: Vec<OsString> = vec!["info".into(), fifo.into()];
        let started = Instant::now();
        let limit = Duration::from_millis(300);
        let stuck = run(&args, limit, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(stuck, Err(QemuImgError::Stuck { .. })));
        let interrupted = run(&args, limit, &mut |_| ControlFlow::Break(()));
        assert!(matches!(interrupted, Err(QemuImgError::Interrupted)));
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
