//! `vmd`: Muster's node daemon. Runs as root on every compute node, and with `--gateway` on login
//! nodes, where it only answers questions.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use muster_vmd::daemon::{self, Options};
use tracing_subscriber::EnvFilter;

/// The node daemon of Muster: sets up virtual clusters for Slurm jobs.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// Only answer questions about clusters (for login nodes); register no jobs
    #[arg(long)]
    gateway: bool,
    /// This node's name in Slurm [default: the host's name up to its first dot]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Directory of the configuration [default: $MUSTER_CONF_DIR, else /etc/muster, else /etc/pcocc]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,
    /// Directory of runtime state, on a tmpfs
    #[arg(long, value_name = "DIR", default_value = "/run/muster")]
    run_dir: PathBuf,
    /// Directory of persistent state (the embedded store)
    #[arg(long, value_name = "DIR", default_value = "/var/lib/muster")]
    state_dir: PathBuf,
    /// Directory of srun, scancel and scontrol [default: as found in $PATH]
    #[arg(long, value_name = "DIR")]
    slurm_bin: Option<PathBuf>,
    /// The shim's program
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/usr/libexec/muster/vmd-shim"
    )]
    shim: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let options = Options {
        gateway: arguments.gateway,
        node_name: arguments.node_name,
        conf_dir: arguments.conf_dir,
        run_dir: arguments.run_dir,
        state_dir: arguments.state_dir,
        slurm_bin: arguments.slurm_bin,
        shim: arguments.shim,
    };
    match daemon::run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!("vmd: {e:#}");
            ExitCode::FAILURE
        }
    }
}
