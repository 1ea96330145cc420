//! Runs programs: captured or shown, with input, within a deadline, and with errors that say what was run and what it said.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(10);
/// After a program has ended its output is read this long at most: a child of its own may hold the pipe open.
const DRAIN: Duration = Duration::from_secs(2);
/// Lines of stderr that an error carries.
const ERROR_LINES: usize = 12;

/// A program with its arguments, about to be run.
#[derive(Debug)]
pub struct Cmd {
    command: Command,
    stdin: Option<Vec<u8>>,
    deadline: Option<Duration>,
}

/// What a program that ended left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit status; 128 + N when signal N killed the program, as shells count.
    pub status: i32,
    /// Standard output; invalid UTF-8 is replaced.
    pub stdout: String,
    /// Standard error; invalid UTF-8 is replaced.
    pub stderr: String,
    /// How long it ran.
    pub elapsed: Duration,
}

impl Output {
    /// Whether the exit status is 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.status == 0
    }
}

impl Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "status {}\n--- stdout\n{}\n--- stderr\n{}",
            self.status,
            self.stdout.trim_end(),
            self.stderr.trim_end()
        )
    }
}

impl Cmd {
    /// Runs `program`, found through PATH.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            command: Command::new(program),
            stdin: None,
            deadline: None,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable of the program's environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes a variable from the program's environment.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    /// The directory it runs in.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// What it reads; nothing when not set.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// How long it may run; it is killed afterwards. Without this it may run for ever.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Runs it with its output captured and returns whatever status it ends with.
    ///
    /// # Errors
    /// It cannot be started, or has not ended in time.
    pub fn output(mut self) -> Result<Output> {
        let start = Instant::now();
        self.command.stdin(if self.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("run {self}"))?;
        if let (Some(bytes), Some(mut pipe)) = (self.stdin.take(), child.stdin.take()) {
            // A program may end without reading its input; that is its own affair.
            thread::spawn(move || pipe.write_all(&bytes).ok());
        }
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        let status = wait(&mut child, self.deadline, start);
        let finish = |pipe: Option<mpsc::Receiver<Vec<u8>>>| pipe.map(gather).unwrap_or_default();
        let (stdout, stderr) = (finish(stdout), finish(stderr));
        match status.with_context(|| format!("wait for {self}"))? {
            Some(status) => Ok(Output {
                status: code(status),
                stdout,
                stderr,
                elapsed: start.elapsed(),
            }),
            None => bail!(
                "{self} did not end within {} s{}{}",
                self.deadline.unwrap_or_default().as_secs(),
                tail("stdout", &stdout),
                tail("stderr", &stderr)
            ),
        }
    }

    /// Runs it with its output captured; a status other than 0 is an error.
    ///
    /// # Errors
    /// As [`Cmd::output`], and when the program fails.
    pub fn run(self) -> Result<Output> {
        let name = self.to_string();
        let output = self.output()?;
        if !output.ok() {
            bail!(
                "{name}: exit status {}{}{}",
                output.status,
                tail("stdout", &output.stdout),
                tail("stderr", &output.stderr)
            );
        }
        Ok(output)
    }

    /// Runs it with this process's own output and, where no input is set, its terminal. Returns the status.
    ///
    /// # Errors
    /// It cannot be started, or has not ended in time.
    pub fn show(mut self) -> Result<i32> {
        let start = Instant::now();
        if self.stdin.is_some() {
            self.command.stdin(Stdio::piped());
        }
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("run {self}"))?;
        if let (Some(bytes), Some(mut pipe)) = (self.stdin.take(), child.stdin.take()) {
            thread::spawn(move || pipe.write_all(&bytes).ok());
        }
        match wait(&mut child, self.deadline, start).with_context(|| format!("wait for {self}"))? {
            Some(status) => Ok(code(status)),
            None => bail!(
                "{self} did not end within {} s",
                self.deadline.unwrap_or_default().as_secs()
            ),
        }
    }

    /// As [`Cmd::show`]; a status other than 0 is an error.
    ///
    /// # Errors
    /// As [`Cmd::show`], and when the program fails.
    pub fn show_ok(self) -> Result<()> {
        let name = self.to_string();
        match self.show()? {
            0 => Ok(()),
            status => bail!("{name}: exit status {status}"),
        }
    }

    /// Hands over the underlying command, for what only `std` can do with it.
    #[must_use]
    pub fn into_std(self) -> Command {
        self.command
    }
}

/// The command line, as one would type it; long arguments are cut.
impl Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        let line: Vec<String> = words.map(quote).collect();
        f.write_str(&line.join(" "))
    }
}

/// `word` as a shell would need it to be typed, cut to 200 characters.
fn quote(word: &OsStr) -> String {
    let word: OsString = word.to_owned();
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(c);
    let cut: String = if text.chars().count() > 200 {
        text.chars().take(200).chain("...".chars()).collect()
    } else {
        text.into_owned()
    };
    if !cut.is_empty() && cut.chars().all(plain) {
        cut
    } else {
        format!("'{}'", cut.replace('\'', r"'\''"))
    }
}

/// The words of a command as a line that a shell reads back as the same words.
#[must_use]
pub fn shell_line<S: AsRef<str>>(words: &[S]) -> String {
    words
        .iter()
        .map(|word| {
            let word = word.as_ref();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
            if !word.is_empty() && word.chars().all(plain) {
                word.to_owned()
            } else {
                format!("'{}'", word.replace('\'', r"'\''"))
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Waits for the end of `child`; `None`, and the child killed, when the deadline passes first.
fn wait(
    child: &mut Child,
    deadline: Option<Duration>,
    start: Instant,
) -> Result<Option<ExitStatus>> {
    let Some(deadline) = deadline else {
        return Ok(Some(child.wait()?));
    };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Reads `pipe` to its end on a thread, piece by piece.
fn collect(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count) = pipe.read(&mut buffer) {
            if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

fn gather(pieces: mpsc::Receiver<Vec<u8>>) -> String {
    let end = Instant::now() + DRAIN;
    let mut bytes = Vec::new();
    while let Ok(piece) = pieces.recv_timeout(end.saturating_duration_since(Instant::now())) {
        bytes.extend(piece);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last lines of `text`, under its name; nothing when there are none.
fn tail(name: &str, text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let from = lines.len().saturating_sub(ERROR_LINES);
    format!("\n  {name}:\n    {}", lines[from..].join("\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_status_and_both_streams() {
        let output = Cmd::new("sh")
            .args(["-c", "echo out; echo err >&2; exit 3"])
            .output()
            .unwrap();
        assert_eq!(
            (
                output.status,
                output.stdout.as_str(),
                output.stderr.as_str()
            ),
            (3, "out\n", "err\n")
        );
    }

    #[test]
    fn feeds_input() {
        let big = vec![b'x'; 1 << 20];
        assert_eq!(
            Cmd::new("wc")
                .arg("-c")
                .stdin(big)
                .run()
                .unwrap()
                .stdout
                .trim(),
            "1048576"
        );
    }

    #[test]
    fn an_error_names_the_command_and_what_it_said() {
        let error = Cmd::new("sh")
            .args(["-c", "echo broken >&2; exit 4"])
            .run()
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("sh -c 'echo broken >&2; exit 4': exit status 4"),
            "{error}"
        );
        assert!(error.contains("broken"), "{error}");
    }

    #[test]
    fn a_deadline_ends_a_program_even_if_its_child_holds_the_pipe() {
        let start = Instant::now();
        let error = Cmd::new("sh")
            .args(["-c", "sleep 30 & sleep 30"])
            .deadline(Duration::from_millis(100))
            .output()
            .unwrap_err();
        assert!(error.to_string().contains("did not end within"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn killed_by_a_signal_counts_as_shells_do() {
        assert_eq!(
            Cmd::new("sh")
                .args(["-c", "kill -9 $$"])
                .output()
                .unwrap()
                .status,
            137
        );
    }

    #[test]
    fn words_survive_a_shell() {
        let words = ["a b", "it's", "", "$HOME", "plain"];
        let line = format!("printf '%s\\n' {}", shell_line(&words));
        assert_eq!(
            Cmd::new("sh").args(["-c", &line]).run().unwrap().stdout,
            "a b\nit's\n\n$HOME\nplain\n"
        );
    }
}
