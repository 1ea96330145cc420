//! `muster internal`: what muster starts on other nodes through srun.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::path::PathBuf;

use anyhow::Context as _;
use muster_types::ids::JobId;

use crate::output::marked;
use crate::{shim, socket};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Connect standard input and output to a shim's control socket on this node
    Attach {
        /// vmd's run directory
        #[arg(long)]
        run_dir: String,
        /// The job
        #[arg(long)]
        job: JobId,
    },
    /// Print a file on this node
    Log {
        /// The file
        path: PathBuf,
    },
}

pub(crate) fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Attach { run_dir, job } => attach(run_dir, *job, out),
        Command::Log { path } => {
            let copied = File::open(path).and_then(|mut f| io::copy(&mut f, out));
            copied
                .map(drop)
                .with_context(|| format!("read {}", path.display()))
        }
    }
}

/// Carries bytes until either side ends. The end of the input is the end of all: it comes when the
/// user's muster ends, however it does.
fn attach(run_dir: &str, job: JobId, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = shim::socket_path(run_dir, job);
    let stream = socket::dial(&path).with_context(|| {
        format!(
            "connect to {} (do VMs of job {job} still run on this node?)",
            path.display()
        )
    })?;
    let mut to = stream.try_clone().context("duplicate the socket")?;
    std::thread::spawn(move || {
        // Whatever ended the copy, the other direction is told by the shutdown.
        drop(io::copy(&mut io::stdin().lock(), &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
    carry(stream, out).with_context(|| format!("carry bytes of {}", path.display()))
}

fn carry(mut from: impl Read, out: &mut dyn Write) -> io::Result<()> {
    let mut chunk = [0_u8; 16 * 1024];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                out.write_all(&chunk[..n]).map_err(marked)?;
                out.flush().map_err(marked)?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}
