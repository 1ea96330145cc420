//! The process of a qemu-img: its output as it comes, its end, and the limits on both.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long a command may take that only looks at or makes metadata.
pub(crate) const SHORT: Duration = Duration::from_secs(60);

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

/// A qemu-img that came to its own end.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ended {
    pub(crate) fn failure(&self, args: &[OsString]) -> QemuImgError {
        QemuImgError::Failed {
            command: rendered(args),
            status: self.status,
            stderr: last_lines(&String::from_utf8_lossy(&self.stderr)),
        }
    }
}

/// Runs qemu-img and returns what it wrote; see [`collect`].
pub(crate) fn run(
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
pub(crate) fn collect(
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

/// Program and arguments as typed.
pub(crate) fn rendered(args: &[OsString]) -> String {
    let words = args.iter().map(|a| a.to_string_lossy());
    std::iter::once("qemu-img".into())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
