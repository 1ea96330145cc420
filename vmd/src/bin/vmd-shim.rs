//! `vmd-shim`: runs one node's VMs of a job. Started by Slurm, as the task of a job's VM step.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use muster_vmd::chain::chain;
use muster_vmd::shim::{self, ShimError, Task};
use tracing_subscriber::EnvFilter;

/// How long work on other threads may go on after the end: a qemu-img that is not wanted any more.
const REST: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    match start() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            // Nobody is left to tell when stderr is closed.
            drop(writeln!(std::io::stderr(), "vmd-shim: {}", chain(&*e)));
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<bool, Box<dyn std::error::Error>> {
    let task = Task::from_env(|name| std::env::var(name).ok())?;
    // One thread: QEMU is killed by the kernel when the thread that started it ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result: Result<bool, ShimError> = runtime.block_on(shim::run(task));
    runtime.shutdown_timeout(REST);
    Ok(result?)
}
