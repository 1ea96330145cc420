//! A job step that carries bytes: `srun --overlap` with one task on one node.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use muster_types::ids::{JobId, NodeName};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Link;
use crate::context::Context;

/// How much of the step's standard error is kept, in bytes.
const MOST_STDERR: usize = 64 * 1024;

/// How long a step whose input has ended may take to end too.
const END: Duration = Duration::from_secs(3);

/// A running step. On drop it is given a moment to end by itself, then ended.
#[derive(Debug)]
pub(crate) struct Step {
    child: Child,
    stderr: Receiver<Vec<u8>>,
}

impl Step {
    /// Starts this program with the arguments `tail` on a node of a job; the link is its standard
    /// input and output.
    pub(crate) fn start(
        context: &Context,
        job: JobId,
        node: &NodeName,
        tail: &[String],
    ) -> anyhow::Result<(Self, Link)> {
        let arguments = arguments(job, node, &context.program, tail);
        let mut command = Command::new(&context.srun);
        command
            .args(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at the terminal is for us to act on: srun would ask for a second one.
            .process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_slurms) {
                command.env_remove(name);
            }
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("start {} to reach node {node}", context.srun.display()))?;
        let (sender, stderr) = channel();
        if let Some(mut from) = child.stderr.take() {
            std::thread::spawn(move || {
                let mut kept = 0;
                let mut chunk = [0_u8; 4096];
                while let Ok(n) = from.read(&mut chunk) {
                    if n == 0 {
                        return;
                    }
                    if kept < MOST_STDERR && sender.send(chunk[..n].to_vec()).is_ok() {
                        kept += n;
                    }
                }
            });
        }
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or_else(|| anyhow!("srun has no pipes"))?;
        Ok((Self { child, stderr }, Link::pipes(to, from)))
    }

    /// Why the step failed, when it did: in its own words if it left any.
    pub(crate) fn verdict(mut self) -> Option<String> {
        let status = self.wait(END);
        if status.is_some_and(|s| s.success()) {
            return None;
        }
        // To its end, which comes with the process's, unless a child of it holds it open.
        let mut pieces = Vec::new();
        while let Ok(piece) = self.stderr.recv_timeout(Duration::from_millis(500)) {
            pieces.extend(piece);
        }
        let said = telling(&String::from_utf8_lossy(&pieces));
        match (said.is_empty(), status) {
            (false, _) => Some(said),
            (true, Some(status)) => Some(format!("srun ended with {status}")),
            (true, None) => None,
        }
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if self.wait(Duration::from_secs(1)).is_some() {
            return;
        }
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // srun ends its step when it is asked to end.
            kill(Pid::from_raw(pid), Signal::SIGTERM).ok();
        }
        if self.wait(END).is_none() {
            drop(self.child.kill());
            self.wait(END);
        }
    }
}

/// srun's arguments.
///
/// `--unbuffered` passes output on as it comes, without a wait for the end of a line; Slurm runs the
/// task on a pseudo terminal then whose output processing is off, so no byte is changed. `--vm=none`
/// keeps the plugin from making the step wait for VMs.
fn arguments(job: JobId, node: &NodeName, program: &Path, tail: &[String]) -> Vec<String> {
    let mut arguments = vec![format!("--jobid={job}")];
    arguments.extend(["--overlap", "--nodes=1", "--ntasks=1"].map(str::to_owned));
    arguments.push(format!("--nodelist={node}"));
    arguments.extend(
        [
            "--mem=0",
            "--cpu-bind=none",
            "--mpi=none",
            "--export=NONE",
            "--chdir=/",
            "--job-name=muster",
            "--vm=none",
            "--quiet",
            "--unbuffered",
        ]
        .map(str::to_owned),
    );
    arguments.push(program.display().to_string());
    arguments.extend_from_slice(tail);
    arguments
}

/// Whether a variable comes from Slurm and would change what the step asks for.
fn is_slurms(name: &str) -> bool {
    const PREFIXES: [&str; 6] = ["SLURM_", "SLURMD_", "SPANK_", "SBATCH_", "SALLOC_", "SRUN_"];
    name != "SLURM_CONF" && PREFIXES.iter().any(|p| name.starts_with(p))
}

/// The lines that say why: without srun's own about the end of its task.
fn telling(stderr: &str) -> String {
    let noise = |line: &str| {
        line.starts_with("srun: error:")
            && (line.contains(": Exited with exit code") || line.contains(": Terminated"))
            || line.contains("Terminating StepId=")
            || line.contains("Terminating job step")
    };
    let mut text = String::new();
    for line in stderr.lines().map(str::trim) {
        if line.is_empty() || noise(line) {
            continue;
        }
        let (glue, words) = match line.strip_prefix("because: ") {
            Some(cause) => (": ", cause),
            None => ("; ", line.strip_prefix("muster: ").unwrap_or(line)),
        };
        if !text.is_empty() {
            text += glue;
        }
        text += words;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    fn node() -> NodeName {
        NodeName::new("node2").unwrap()
    }

    /// A context whose srun is a script.
    fn scripted(dir: &Path, body: &str) -> Context {
        let srun = dir.join("srun");
        std::fs::write(&srun, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&srun, std::fs::Permissions::from_mode(0o755)).unwrap();
        Context {
            srun,
            ..crate::context::tests::context(dir)
        }
    }

    fn start(context: &Context) -> (Step, Link) {
        // Another test's fork may hold the script open for writing for a moment (ETXTBSY).
        for _ in 0..100 {
            match Step::start(context, JobId(7), &node(), &["tail".to_owned()]) {
                Ok(started) => return started,
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("the script does not start");
    }

    #[test]
    fn arguments_are_complete() {
        let all = arguments(
            JobId(7),
            &node(),
            Path::new("/usr/bin/muster"),
            &["x".into()],
        );
        assert_eq!(
            all.join(" "),
            "--jobid=7 --overlap --nodes=1 --ntasks=1 --nodelist=node2 --mem=0 --cpu-bind=none \
             --mpi=none --export=NONE --chdir=/ --job-name=muster --vm=none --quiet --unbuffered \
             /usr/bin/muster x"
        );
    }

    #[test]
    fn slurms_variables_do_not_reach_the_step() {
        for name in [
            "SLURM_JOB_ID",
            "SLURM_MEM_PER_CPU",
            "SPANK_X",
            "SBATCH_X",
            "SLURMD_NODENAME",
        ] {
            assert!(is_slurms(name), "{name}");
        }
        assert!(!is_slurms("SLURM_CONF") && !is_slurms("PATH"));
    }

    #[test]
    fn bytes_go_both_ways_and_the_step_ends_with_its_input() {
        let dir = tempfile::tempdir().unwrap();
        let (mut step, mut link) = start(&scripted(dir.path(), "exec cat"));
        let bytes: Vec<u8> = (0..=255).collect();
        link.write_all(&bytes).unwrap();
        let mut back = vec![0; 256];
        link.read_exact(&mut back).unwrap();
        assert_eq!(back, bytes);
        drop(link);
        assert!(step.wait(END).unwrap().success());
        assert_eq!(step.verdict(), None);
    }

    #[test]
    fn a_step_that_fails_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let script = "echo 'muster: cannot reach it' >&2
            echo '  because: No such file' >&2
            echo 'srun: error: node2: task 0: Exited with exit code 1' >&2
            exit 1";
        let (step, link) = start(&scripted(dir.path(), script));
        drop(link);
        assert_eq!(step.verdict().unwrap(), "cannot reach it: No such file");
        let (step, link) = start(&scripted(dir.path(), "exit 3"));
        drop(link);
        assert_eq!(step.verdict().unwrap(), "srun ended with exit status: 3");
    }

    #[test]
    fn a_step_that_hangs_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (step, link) = start(&scripted(dir.path(), "exec sleep 600"));
        let pid = Pid::from_raw(i32::try_from(step.child.id()).unwrap());
        drop(link);
        drop(step);
        assert!(kill(pid, None).is_err(), "it still runs");
    }
}
