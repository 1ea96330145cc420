//! The docker daemon: the one that runs, or one that is started for as long as it is needed.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::cache::Cache;
use crate::command::Cmd;
use crate::progress::Progress;
use crate::wait::{Look, wait_for};

/// Pid of the daemon that [`ensure`] started, in the cache directory.
const PID_FILE: &str = "dockerd.pid";
const LOG_FILE: &str = "dockerd.log";

/// `docker ARGS...`, to be run.
pub fn docker<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Cmd {
    Cmd::new("docker").args(args)
}

/// Makes sure that a docker daemon answers: starts the service where systemd runs, else a daemon of our own.
///
/// # Errors
/// None answers in time.
pub fn ensure(cache: &Cache, progress: &Progress) -> Result<()> {
    if answers()? {
        return Ok(());
    }
    let log = cache.path(LOG_FILE);
    if std::path::Path::new("/run/systemd/system").is_dir() {
        progress.say("starting docker.service");
        Cmd::new("systemctl")
            .args(["start", "docker.service"])
            .deadline(Duration::from_secs(60))
            .run()?;
    } else {
        progress.say(format_args!(
            "no docker daemon answers; starting dockerd (log: {})",
            log.display()
        ));
        let output = File::create(&log).with_context(|| format!("make {}", log.display()))?;
        let mut command = Command::new("dockerd");
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let child = command.spawn().context("run dockerd")?;
        fs::write(cache.path(PID_FILE), child.id().to_string())
            .context("remember the pid of dockerd")?;
    }
    wait_for(
        "the docker daemon to answer `docker info`",
        Duration::from_secs(60),
        || {
            Ok(if answers()? {
                Look::Ready(())
            } else {
                Look::NotYet(format!("no answer; see {}", log.display()))
            })
        },
    )
}

fn answers() -> Result<bool> {
    Ok(docker(["info"])
        .deadline(Duration::from_secs(30))
        .output()?
        .ok())
}

/// Stops the daemon that an earlier [`ensure`] started, if it did, unless containers run that are not the lab's.
///
/// # Errors
/// It does not end in time.
pub fn stop_if_ours(cache: &Cache, progress: &Progress) -> Result<()> {
    let pid_file = cache.path(PID_FILE);
    let Ok(text) = fs::read_to_string(&pid_file) else {
        return Ok(());
    };
    let pid: i32 = text
        .trim()
        .parse()
        .with_context(|| format!("read {}", pid_file.display()))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim() == "dockerd" {
        if answers()? && !docker(["ps", "-q"]).run()?.stdout.trim().is_empty() {
            progress.say("dockerd is left running: there are containers");
            return Ok(());
        }
        progress.say("stopping dockerd, which was started for this");
        let pid = Pid::from_raw(pid);
        kill(pid, Signal::SIGTERM).with_context(|| format!("stop dockerd, process {pid}"))?;
        wait_for("dockerd to end", Duration::from_secs(30), || {
            // It is a child of this process if this process started it, and must be reaped then.
            waitpid(pid, Some(WaitPidFlag::WNOHANG)).ok();
            Ok(if kill(pid, None) == Err(Errno::ESRCH) {
                Look::Ready(())
            } else {
                Look::NotYet("it runs".into())
            })
        })?;
    }
    fs::remove_file(&pid_file).with_context(|| format!("remove {}", pid_file.display()))
}

/// Whether the image `tag` is there.
///
/// # Errors
/// docker cannot be run.
pub fn has_image(tag: &str) -> Result<bool> {
    Ok(docker(["image", "inspect", tag]).output()?.ok())
}
