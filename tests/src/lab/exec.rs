//! Commands on the hosts of the lab.

use std::io::{IsTerminal, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::container;
use crate::command::{Cmd, Output};
use crate::docker::docker;
use crate::wait::{Look, wait_for};

/// What GNU timeout ends with when it had to stop the command.
const TIMED_OUT: i32 = 124;
/// docker gets this much longer than the command it runs.
const GRACE: Duration = Duration::from_secs(20);

/// Who runs a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum User {
    /// The administrator.
    Root,
    /// A user, uid 1500.
    Alice,
    /// Another user, uid 1501.
    Bob,
}

impl User {
    /// The login name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            User::Root => "root",
            User::Alice => "alice",
            User::Bob => "bob",
        }
    }

    fn home(self) -> &'static str {
        match self {
            User::Root => "/root",
            User::Alice => "/home/alice",
            User::Bob => "/home/bob",
        }
    }
}

/// `docker exec` with `flags`, as `user`, with the environment of a login.
fn exec(host: &str, user: User, flags: &[&str]) -> Cmd {
    let (name, home) = (user.name(), user.home());
    docker(["exec"])
        .args(flags)
        .args([
            "--user",
            name,
            "--workdir",
            home,
            "--env",
            &format!("HOME={home}"),
            "--env",
            &format!("USER={name}"),
        ])
        .args([
            "--env",
            &format!("LOGNAME={name}"),
            "--env",
            "LANG=C.UTF-8",
            "--env",
        ])
        .arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .arg(container(host))
}

pub(super) fn run(
    host: &str,
    user: User,
    argv: &[&str],
    stdin: Option<&str>,
    deadline: Duration,
) -> Result<Output> {
    let flags: &[&str] = if stdin.is_some() { &["-i"] } else { &[] };
    // The client of docker can be killed, the command in the container not through it: timeout does that there.
    let mut command = exec(host, user, flags)
        .args([
            "timeout",
            "--kill-after=5",
            &deadline.as_secs_f64().to_string(),
        ])
        .args(argv);
    if let Some(text) = stdin {
        command = command.stdin(text);
    }
    let output = command.deadline(deadline + GRACE).output()?;
    if output.status == TIMED_OUT && output.elapsed >= deadline {
        bail!(
            "on {host}, as {}: {argv:?} did not end within {} s: {output}",
            user.name(),
            deadline.as_secs_f64()
        );
    }
    Ok(output)
}

pub(super) fn interactive(host: &str, user: User, argv: &[String]) -> Result<i32> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let flags: &[&str] = if terminal { &["-i", "-t"] } else { &["-i"] };
    exec(host, user, flags).args(argv).show()
}

/// A command that runs on a host beside the test.
#[derive(Debug)]
pub struct Background {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    host: String,
    name: String,
    /// In the container: holds the command's pid.
    pid_file: String,
    start: Instant,
}

impl Background {
    pub(super) fn start(host: &str, user: User, argv: &[&str]) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let pid_file = format!("/tmp/.background-{}-{number}", std::process::id());
        let command = exec(host, user, &["-i"])
            .args(["bash", "-c", r#"echo $$ > "$0"; exec "$@""#, &pid_file])
            .args(argv);
        let name = format!("{argv:?} on {host} as {}", user.name());
        let mut child = command
            .into_std()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(collect).unwrap_or_default();
        let stderr = child.stderr.take().map(collect).unwrap_or_default();
        Ok(Self {
            child,
            stdin,
            stdout,
            stderr,
            host: host.to_owned(),
            name,
            pid_file,
            start: Instant::now(),
        })
    }

    /// What it wrote to stdout so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        text(&self.stdout)
    }

    /// What it wrote to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        text(&self.stderr)
    }

    /// Gives it something to read.
    ///
    /// # Errors
    /// It has ended, or its input was closed.
    pub fn write(&mut self, input: &str) -> Result<()> {
        let Some(pipe) = &mut self.stdin else {
            bail!("the input of {} is closed", self.name)
        };
        pipe.write_all(input.as_bytes())
            .with_context(|| format!("write to {}", self.name))
    }

    /// Ends its input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until `needle` is in its output, on either stream.
    ///
    /// # Errors
    /// It ends without, or the deadline passes.
    pub fn expect(&mut self, needle: &str, deadline: Duration) -> Result<()> {
        let what = format!("{needle:?} in the output of {}", self.name);
        wait_for(&what, deadline, || {
            // Asked first: what a command says just before its end counts.
            let ended = self.child.try_wait()?;
            let (stdout, stderr) = (self.stdout(), self.stderr());
            if stdout.contains(needle) || stderr.contains(needle) {
                return Ok(Look::Ready(()));
            }
            if let Some(status) = ended {
                bail!(
                    "{} ended with {status} before {needle:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}",
                    self.name
                );
            }
            Ok(Look::NotYet(format!(
                "\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
            )))
        })
    }

    /// Sends a signal (`TERM`, `KILL`, `INT`, ...) to the command itself.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let script = format!("kill -{signal} $(cat {})", self.pid_file);
        exec(&self.host, User::Root, &[])
            .args(["sh", "-c", &script])
            .run()
            .map(drop)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end in time; it is killed then.
    pub fn wait(mut self, deadline: Duration) -> Result<Output> {
        self.close_stdin();
        let what = format!("the end of {}", self.name);
        let status = wait_for(&what, deadline, || {
            Ok(match self.child.try_wait()? {
                Some(status) => Look::Ready(status),
                None => Look::NotYet(format!(
                    "\n--- stdout\n{}\n--- stderr\n{}",
                    self.stdout(),
                    self.stderr()
                )),
            })
        })?;
        // The readers see the end of the pipes a moment after that of the client.
        thread::sleep(Duration::from_millis(100));
        Ok(Output {
            status: status.code().unwrap_or(-1),
            stdout: self.stdout(),
            stderr: self.stderr(),
            elapsed: self.start.elapsed(),
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // Best effort on the way out: the leak check finds what survives.
        self.signal("KILL").ok();
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> Arc<Mutex<Vec<u8>>> {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let filled = Arc::clone(&bytes);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count) = pipe.read(&mut buffer) {
            if count == 0 {
                break;
            }
            filled
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(&buffer[..count]);
        }
    });
    bytes
}

fn text(bytes: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}
