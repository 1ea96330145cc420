//! QEMU as a child process of the shim: in its cgroup, and gone when it is gone.
#![expect(unsafe_code, reason = "what a child does before it runs QEMU")]

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tracing::debug;

/// Lines of QEMU's stderr that are kept, the last ones.
const STDERR_LINES: usize = 20;

/// Bytes of such a line that are kept.
const STDERR_LINE_BYTES: usize = 400;

/// How long the rest of QEMU's stderr is waited for after its end: another process may hold it.
const STDERR_REST: Duration = Duration::from_millis(200);

/// QEMU cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("start {program}")]
pub struct SpawnError {
    /// The program.
    program: String,
    /// What the kernel said.
    source: io::Error,
}

/// A QEMU that runs.
#[derive(Debug)]
pub struct Qemu {
    child: Child,
    pid: u32,
    stderr: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
}

impl Qemu {
    /// Starts a program with descriptors that it inherits under their own numbers. Must be called on
    /// the thread that lives as long as the shim: the kernel kills the child when it ends.
    ///
    /// SIGTERM, SIGINT and SIGHUP are blocked in QEMU: Slurm sends them to every process of a step,
    /// and what becomes of the VM then is the shim's to decide.
    ///
    /// # Errors
    /// The program is missing, or the kernel has no room.
    pub fn start(
        program: &OsStr,
        arguments: &[String],
        inherited: &[&StdUnixStream],
    ) -> Result<Self, SpawnError> {
        let descriptors: Vec<RawFd> = inherited.iter().map(|s| s.as_raw_fd()).collect();
        let parent = nix::unistd::getpid();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let prepare = move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The shim may have ended before that.
            if nix::unistd::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            let mut blocked = SigSet::empty();
            blocked.add(Signal::SIGTERM);
            blocked.add(Signal::SIGINT);
            blocked.add(Signal::SIGHUP);
            blocked.thread_block()?;
            descriptors.iter().try_for_each(|fd| inherit(*fd))
        };
        // SAFETY: between fork and exec the closure makes system calls only; it neither allocates nor
        // takes a lock, and touches nothing but its own copies of the numbers.
        unsafe { command.pre_exec(prepare) };
        let failed = |source| SpawnError {
            program: program.to_string_lossy().into_owned(),
            source,
        };
        let mut child = command.spawn().map_err(failed)?;
        let pid = child.id().unwrap_or_default();
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let pipe = child.stderr.take();
        let kept = Arc::clone(&stderr);
        let reader = tokio::spawn(async move {
            if let Some(pipe) = pipe {
                collect(pipe, &kept).await;
            }
        });
        Ok(Self {
            child,
            pid,
            stderr,
            reader,
        })
    }

    /// Its process id, also after its end.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end. May be dropped while it waits.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        // It fails when the process has ended, which is what is wanted.
        drop(self.child.start_kill());
    }

    /// The last lines of its stderr, after its end.
    pub async fn last_words(&mut self) -> Vec<String> {
        if !self.reader.is_finished() {
            drop(tokio::time::timeout(STDERR_REST, &mut self.reader).await);
        }
        let lines = self.stderr.lock().unwrap_or_else(|e| e.into_inner());
        lines.iter().cloned().collect()
    }
}

/// Lets a descriptor stay open over exec.
fn inherit(fd: RawFd) -> io::Result<()> {
    // SAFETY: F_SETFD takes an integer; the number is of an open socket that the child has a copy of.
    let result = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Keeps the last lines of a pipe until its end; long lines are cut.
async fn collect(pipe: ChildStderr, kept: &Mutex<VecDeque<String>>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        let byte = pipe.read_u8().await;
        match byte {
            Ok(b'\n') | Err(_) => {
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                line.clear();
                if !text.is_empty() {
                    debug!(text, "qemu");
                    let mut lines = kept.lock().unwrap_or_else(|e| e.into_inner());
                    if lines.len() == STDERR_LINES {
                        lines.pop_front();
                    }
                    lines.push_back(text);
                }
            }
            Ok(b) if line.len() < STDERR_LINE_BYTES => line.push(b),
            Ok(_) => {}
        }
        if byte.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;

    fn shell(script: &str, inherited: &[&StdUnixStream]) -> Qemu {
        let arguments = ["-c".to_owned(), script.to_owned()];
        Qemu::start("/bin/sh".as_ref(), &arguments, inherited).unwrap()
    }

    #[tokio::test]
    async fn sockets_are_inherited_by_number() {
        let (mut ours, theirs) = StdUnixStream::pair().unwrap();
        let script = format!("test -S /proc/self/fd/{}", theirs.as_raw_fd());
        let mut child = shell(&script, &[&theirs]);
        assert!(child.wait().await.unwrap().success());
        let mut child = shell(&script, &[]);
        assert!(!child.wait().await.unwrap().success());
        // The last owner is gone with the child.
        drop(theirs);
        ours.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0);
    }

    #[tokio::test]
    async fn last_words_are_the_last_lines() {
        let script = "i=0; while [ $i -lt 50 ]; do echo line $i >&2; i=$((i+1)); done; printf end >&2; exit 3";
        let mut child = shell(script, &[]);
        let status = child.wait().await.unwrap();
        assert_eq!(status.code(), Some(3));
        let words = child.last_words().await;
        assert_eq!(words.len(), STDERR_LINES);
        assert_eq!((words[0].as_str(), words[19].as_str()), ("line 31", "end"));
    }

    #[tokio::test]
    async fn terminate_is_the_shims_to_handle_and_kill_is_not() {
        let mut child = shell("kill -TERM $$; exit 7", &[]);
        assert_eq!(child.wait().await.unwrap().code(), Some(7));
        let mut child = shell("exec sleep 60", &[]);
        child.kill();
        assert_eq!(child.wait().await.unwrap().signal(), Some(9));
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let e = Qemu::start("/nonexistent/qemu".as_ref(), &[], &[]).unwrap_err();
        assert_eq!(e.to_string(), "start /nonexistent/qemu");
    }
}
