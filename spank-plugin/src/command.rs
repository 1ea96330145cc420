//! Commands of Slurm, run by a hook that must not wait for them without end.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(20);

/// A command that did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It did not run.
    #[error("run {command}")]
    Run {
        /// Program and arguments.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// It failed.
    #[error("{command}: {status}")]
    Status {
        /// Program and arguments.
        command: String,
        /// How.
        status: ExitStatus,
    },
    /// It was ended at the deadline.
    #[error("{command}: not done in time, ended")]
    Late {
        /// Program and arguments.
        command: String,
    },
}

/// Runs a command until the deadline. Its environment is `SLURM_CONF` alone (the prolog has no PATH,
/// and what is in the rest of its environment is none of the command's business); it prints nothing.
///
/// # Errors
/// See [`CommandError`].
pub fn run(program: &Path, arguments: &[&str], deadline: Instant) -> Result<(), CommandError> {
    let mut text = program.display().to_string();
    for argument in arguments {
        text.push_str(&format!(" {argument:?}"));
    }
    let run_error = |source| CommandError::Run {
        command: text.clone(),
        source,
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(conf) = std::env::var_os("SLURM_CONF") {
        command.env("SLURM_CONF", conf);
    }
    let mut child = command.spawn().map_err(run_error)?;
    loop {
        if let Some(status) = child.try_wait().map_err(run_error)? {
            return if status.success() {
                Ok(())
            } else {
                Err(CommandError::Status {
                    command: text,
                    status,
                })
            };
        }
        if Instant::now() >= deadline {
            child.kill().map_err(run_error)?;
            child.wait().map_err(run_error)?;
            return Err(CommandError::Late { command: text });
        }
        sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, ms: u64) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_millis(ms);
        run(Path::new("/bin/sh"), &["-c", script], deadline).map_err(|e| e.to_string())
    }

    #[test]
    fn commands_end_in_one_of_four_ways() {
        assert_eq!(sh("exit 0", 5000), Ok(()));
        assert_eq!(
            sh("exit 3", 5000).unwrap_err(),
            "/bin/sh \"-c\" \"exit 3\": exit status: 3"
        );
        let start = Instant::now();
        assert!(
            sh("exec sleep 30", 100)
                .unwrap_err()
                .contains("not done in time")
        );
        assert!(start.elapsed() < Duration::from_secs(10));
        let e = run(Path::new("/nonexistent/x"), &[], Instant::now()).unwrap_err();
        assert_eq!(e.to_string(), "run /nonexistent/x");
    }

    #[test]
    fn the_environment_is_not_passed_on() {
        assert_eq!(sh("test -z \"$CARGO_MANIFEST_DIR\"", 5000), Ok(()));
    }
}
