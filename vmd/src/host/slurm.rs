//! Slurm's commands, as vmd uses them: the VM step started as the job's user, and the few calls to
//! the controller. None of them is on the start path but the step itself.
#![expect(unsafe_code, reason = "srun drops root in a pre_exec closure")]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use muster_types::ids::{JobId, JobKey};
use muster_types::step;
use nix::unistd::{Gid, Uid};
use tokio::process::Command;
use tokio::sync::oneshot;

use super::process::ProcessId;

/// How long a call to the controller may take; slurm.conf's `MessageTimeout` is 10 s by default.
const COMMAND_DEADLINE: Duration = Duration::from_secs(20);

/// The most that srun may write to its log, in bytes: it runs as the user, who could make it write.
const LOG_BYTES: u64 = 1 << 20;

/// What a VM step is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepCommand {
    /// The run of the job.
    pub key: JobKey,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The owner's name.
    pub user: String,
    /// Number of the job's nodes: each gets one shim.
    pub nodes: usize,
    /// Where srun's own messages go; the parent belongs to root.
    pub log: PathBuf,
}

/// A running srun of a VM step.
#[derive(Debug)]
pub struct Step {
    /// The srun process, leader of its own session.
    pub id: ProcessId,
    /// Resolves when srun has ended: its exit status, where it is known.
    pub ended: oneshot::Receiver<Option<String>>,
}

/// Whether a job still lives, as the controller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobLife {
    /// It runs, or is about to.
    Alive,
    /// It is completing: its epilogs are running or to come.
    Ending,
    /// It is over, or runs again under a higher restart count, or the controller does not know it.
    Gone,
}

/// A command of Slurm that failed.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// It could not be started.
    #[error("run {command}")]
    Spawn {
        /// The command line.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// It did not end in time.
    #[error("{command} did not end within {} s", COMMAND_DEADLINE.as_secs())]
    TimedOut {
        /// The command line.
        command: String,
    },
    /// It ended with an error.
    #[error("{command} ended with {status}: {stderr}")]
    Failed {
        /// The command line.
        command: String,
        /// Its status.
        status: String,
        /// Last lines of its stderr.
        stderr: String,
    },
    /// The job's user cannot be looked up.
    #[error("look up the groups of user {user}")]
    User {
        /// The user.
        user: String,
        /// Why.
        source: io::Error,
    },
}

/// Slurm, as far as vmd drives it.
#[async_trait]
pub trait Slurm: Send + Sync + fmt::Debug {
    /// Starts the VM step and returns at once.
    ///
    /// # Errors
    /// srun cannot be started; what happens to it later comes through [`Step::ended`].
    fn start_step(&self, command: &StepCommand) -> Result<Step, SlurmError>;

    /// Finds the srun of a VM step that an earlier vmd started.
    fn find_step(&self, command: &StepCommand, known: Option<ProcessId>) -> Option<Step>;

    /// Cancels a step of a job.
    async fn cancel_step(&self, job: JobId, step: u32) -> Result<(), SlurmError>;

    /// Cancels a job.
    async fn cancel_job(&self, job: JobId) -> Result<(), SlurmError>;

    /// Shows a text on the terminal of the salloc or srun that holds a job.
    async fn notify(&self, job: JobId, text: &str) -> Result<(), SlurmError>;

    /// Asks the controller whether a job still lives.
    async fn life(&self, key: JobKey) -> Result<JobLife, SlurmError>;
}

/// The real commands.
#[derive(Debug, Clone)]
pub struct Commands {
    /// Directory of srun, scancel and scontrol; none: they are looked up in `PATH`.
    pub bin_dir: Option<PathBuf>,
    /// The shim's program.
    pub shim: PathBuf,
    /// Root of the process file system.
    pub proc_root: PathBuf,
}

impl Commands {
    fn program(&self, name: &str) -> PathBuf {
        match &self.bin_dir {
            Some(dir) => dir.join(name),
            None => PathBuf::from(name),
        }
    }

    async fn run(&self, name: &str, args: &[&str]) -> Result<String, SlurmError> {
        let command = format!("{name} {}", args.join(" "));
        let child = Command::new(self.program(name))
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = match tokio::time::timeout(COMMAND_DEADLINE, child).await {
            Err(_) => return Err(SlurmError::TimedOut { command }),
            Ok(Err(source)) => return Err(SlurmError::Spawn { command, source }),
            Ok(Ok(output)) => output,
        };
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(SlurmError::Failed {
            command,
            status: output.status.to_string(),
            stderr: last_lines(&String::from_utf8_lossy(&output.stderr)),
        })
    }

    fn adopt(&self, id: ProcessId) -> Option<Step> {
        let end = super::process::ended(id, &self.proc_root).ok()?;
        let (tx, ended) = oneshot::channel();
        tokio::spawn(async move {
            end.await;
            // The receiver is gone when its cluster was released meanwhile.
            drop(tx.send(None));
        });
        Some(Step { id, ended })
    }
}

#[async_trait]
impl Slurm for Commands {
    fn start_step(&self, step: &StepCommand) -> Result<Step, SlurmError> {
        let args = step::arguments(step.key.job, step.nodes, self.shim.display());
        let shown = || format!("srun {}", args.join(" "));
        let spawn = |source| SlurmError::Spawn {
            command: shown(),
            source,
        };
        let log = std::fs::File::create(&step.log).map_err(spawn)?;
        let user = nix::unistd::User::from_uid(Uid::from_raw(step.uid));
        let lookup = |e: nix::errno::Errno| SlurmError::User {
            user: step.user.clone(),
            source: e.into(),
        };
        let user = user.map_err(lookup)?;
        let name = user.as_ref().map_or(step.user.as_str(), |u| &u.name);
        let home = user.as_ref().map_or(Path::new("/"), |u| &u.dir);
        let gid = Gid::from_raw(step.gid);
        let groups = std::ffi::CString::new(name)
            .map_err(|_| nix::errno::Errno::EINVAL)
            .and_then(|name| nix::unistd::getgrouplist(&name, gid))
            .map_err(lookup)?;
        let mut command = Command::new(self.program("srun"));
        command
            .args(&args)
            .current_dir("/")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("USER", name)
            .env("LOGNAME", name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        if let Some(conf) = std::env::var_os("SLURM_CONF") {
            command.env("SLURM_CONF", conf);
        }
        let uid = Uid::from_raw(step.uid);
        let drop_root = move || -> io::Result<()> {
            nix::unistd::setsid()?;
            let limit = nix::sys::resource::Resource::RLIMIT_FSIZE;
            nix::sys::resource::setrlimit(limit, LOG_BYTES, LOG_BYTES)?;
            if nix::unistd::geteuid().is_root() {
                nix::unistd::setgroups(&groups)?;
                nix::unistd::setgid(gid)?;
                nix::unistd::setuid(uid)?;
            }
            Ok(())
        };
        // SAFETY: the closure only makes system calls; its group list was built before the fork, so
        // that nothing is allocated and no lock is taken in the child.
        unsafe { command.pre_exec(drop_root) };
        let mut child = command.spawn().map_err(spawn)?;
        let pid = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .ok_or_else(|| spawn(io::Error::other("srun has no pid")))?;
        // A child that was not waited for keeps its pid, so this is the right process.
        let id = ProcessId::of(&self.proc_root, pid)
            .ok_or_else(|| spawn(io::Error::other("srun is not in /proc")))?;
        let (tx, ended) = oneshot::channel();
        tokio::spawn(async move {
            let status = child.wait().await.ok().map(|s| s.to_string());
            drop(tx.send(status));
        });
        Ok(Step { id, ended })
    }

    fn find_step(&self, step: &StepCommand, known: Option<ProcessId>) -> Option<Step> {
        let wanted = step::arguments(step.key.job, step.nodes, self.shim.display());
        let is_ours = |args: &[&str]| args.len() > 1 && args[1..].iter().eq(wanted.iter());
        let id = match known {
            Some(id) => id.is_alive(&self.proc_root).then_some(id),
            None => super::process::find(&self.proc_root, step.uid, &is_ours),
        }?;
        self.adopt(id)
    }

    async fn cancel_step(&self, job: JobId, step: u32) -> Result<(), SlurmError> {
        self.run("scancel", &[&format!("{job}.{step}")])
            .await
            .map(drop)
    }

    async fn cancel_job(&self, job: JobId) -> Result<(), SlurmError> {
        self.run("scancel", &[&job.to_string()]).await.map(drop)
    }

    async fn notify(&self, job: JobId, text: &str) -> Result<(), SlurmError> {
        self.run("scontrol", &["notify", &job.to_string(), text])
            .await
            .map(drop)
    }

    async fn life(&self, key: JobKey) -> Result<JobLife, SlurmError> {
        let job = key.job.to_string();
        match self
            .run("scontrol", &["show", "job", &job, "--oneliner"])
            .await
        {
            Ok(text) => Ok(life_of(&text, key.restart)),
            Err(SlurmError::Failed { stderr, .. }) if stderr.contains("Invalid job id") => {
                Ok(JobLife::Gone)
            }
            Err(e) => Err(e),
        }
    }
}

/// Reads `JobState=` and `Restarts=` of `scontrol show job --oneliner` (scontrol(1)).
fn life_of(text: &str, restart: u32) -> JobLife {
    let field = |name: &str| {
        text.split_ascii_whitespace()
            .find_map(|w| w.strip_prefix(name)?.strip_prefix('='))
    };
    let restarts = field("Restarts").and_then(|r| r.parse::<u32>().ok());
    if restarts.is_some_and(|r| r > restart) {
        return JobLife::Gone;
    }
    match field("JobState").unwrap_or_default() {
        "RUNNING" | "CONFIGURING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT" => {
            JobLife::Alive
        }
        "COMPLETING" => JobLife::Ending,
        _ => JobLife::Gone,
    }
}

/// The last 16 KiB of a log, which a user's process may have made as long as it liked.
#[must_use]
pub fn log_tail(path: &Path) -> String {
    use std::io::{Read, Seek, SeekFrom};
    const TAIL: u64 = 16 * 1024;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The end of a text in one line, at most 400 characters, control characters replaced.
#[must_use]
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let tail = lines[lines.len().saturating_sub(4)..].join("; ");
    let skip = tail.chars().count().saturating_sub(400);
    tail.chars()
        .skip(skip)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controllers_words_for_a_life() {
        let job = |state: &str, restarts: u32| {
            format!(
                "JobId=7 JobName=x UserId=a(1) JobState={state} Reason=None Restarts={restarts} BatchFlag=0"
            )
        };
        assert_eq!(life_of(&job("RUNNING", 0), 0), JobLife::Alive);
        assert_eq!(life_of(&job("COMPLETING", 0), 0), JobLife::Ending);
        assert_eq!(life_of(&job("CANCELLED", 0), 0), JobLife::Gone);
        assert_eq!(life_of(&job("PENDING", 1), 0), JobLife::Gone);
        assert_eq!(life_of(&job("RUNNING", 1), 0), JobLife::Gone);
        assert_eq!(life_of("", 0), JobLife::Gone);
    }

    #[test]
    fn messages_are_one_line() {
        assert_eq!(last_lines("a\n\nb\tc\n"), "a; b c");
        assert_eq!(last_lines(&"x".repeat(500)).len(), 400);
    }

    fn commands(dir: &Path) -> Commands {
        Commands {
            bin_dir: Some(dir.to_owned()),
            shim: "/shim".into(),
            proc_root: "/proc".into(),
        }
    }

    /// Programs in place of Slurm's: the step's process handling is what is tested here.
    fn program(dir: &Path, name: &str, body: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[tokio::test]
    async fn a_step_is_started_found_again_and_its_end_seen() {
        let dir = tempfile::tempdir().unwrap();
        program(
            dir.path(),
            "srun",
            "echo >&2 \"no such job\"; sleep 0.2; exit 3",
        );
        let slurm = commands(dir.path());
        let command = StepCommand {
            key: "7.0".parse().unwrap(),
            uid: nix::unistd::getuid().as_raw(),
            gid: nix::unistd::getgid().as_raw(),
            user: "nobody-of-that-name".into(),
            nodes: 1,
            log: dir.path().join("log"),
        };
        let step = slurm.start_step(&command).unwrap();
        let again = slurm.find_step(&command, Some(step.id)).unwrap();
        assert_eq!(again.id, step.id);
        assert!(step.ended.await.unwrap().unwrap().contains('3'));
        assert_eq!(again.ended.await.unwrap(), None);
        assert!(slurm.find_step(&command, Some(step.id)).is_none());
        assert_eq!(
            std::fs::read_to_string(&command.log).unwrap(),
            "no such job\n"
        );
    }

    #[tokio::test]
    async fn a_failed_command_says_what_it_said() {
        let dir = tempfile::tempdir().unwrap();
        program(
            dir.path(),
            "scontrol",
            "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
        );
        program(dir.path(), "scancel", "echo nope >&2; exit 1");
        let slurm = commands(dir.path());
        let life = slurm.life("7.0".parse().unwrap()).await.unwrap();
        assert_eq!(life, JobLife::Gone);
        let e = slurm.cancel_job(JobId(7)).await.unwrap_err().to_string();
        assert!(e.contains("scancel 7") && e.contains("nope"), "{e}");
    }
}
