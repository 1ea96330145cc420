//! The way to a VM's shim: its control socket where that is on this host, else an `srun --overlap` on
//! the VM's node whose standard input and output stand for the socket.
//!
//! Slurm authenticates the user on the other node; nothing of ours listens there.

mod link;
mod pump;
mod step;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use muster_types::api::Method;
use muster_types::client::{CallError, Client};
use muster_types::ids::{JobId, NodeName, Rank};
use muster_types::shim_api::{self, List};

use crate::context::Context;
use crate::socket;
use crate::vmd::is_timeout;

pub(crate) use link::Link;
pub(crate) use pump::{End, Pump};
pub(crate) use step::Step;

/// How long a shim may take for an answer that waits for nothing, the start of a step included.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);

/// A connection to the shim of a node.
#[derive(Debug)]
pub(crate) struct Connection {
    // Dropped first: the step ends by itself when its input does.
    link: Link,
    step: Option<Step>,
    node: NodeName,
}

/// A connection that carries raw bytes.
#[derive(Debug)]
pub(crate) struct Session {
    /// The bytes.
    pub(crate) link: Link,
    /// Those that came with the reply.
    pub(crate) first: Vec<u8>,
    /// Holds the step that the bytes go through; none on this host.
    pub(crate) step: Option<Step>,
}

/// Connects to the shim that runs a VM.
pub(crate) fn connect(
    context: &Context,
    job: JobId,
    node: &NodeName,
    rank: Rank,
) -> anyhow::Result<Connection> {
    let path = socket_path(&context.run_dir, job);
    if let Some(link) = local(&path, rank) {
        return Ok(Connection {
            link,
            step: None,
            node: node.clone(),
        });
    }
    let tail = ["internal", "attach", "--run-dir", &context.run_dir, "--job"].map(str::to_owned);
    let mut tail = tail.to_vec();
    tail.push(job.to_string());
    let (step, link) = Step::start(context, job, node, &tail)?;
    Ok(Connection {
        link,
        step: Some(step),
        node: node.clone(),
    })
}

/// The control socket of a job's shim on this host.
pub(crate) fn socket_path(run_dir: &str, job: JobId) -> PathBuf {
    Path::new(&shim_api::run_dir(run_dir, job)).join(shim_api::SOCKET_NAME)
}

/// The control socket on this host, if its shim runs the VM. Names of nodes are not compared with the
/// host's: they need not be alike.
fn local(path: &Path, rank: Rank) -> Option<Link> {
    let asked = Link::socket(socket::dial(path).ok()?, Some(Duration::from_secs(5)));
    let vms = Client::new(asked).call(&List {}).ok()?.vms;
    let here = vms.iter().any(|v| v.rank == rank);
    let stream = socket::dial(path).ok()?;
    here.then(|| Link::socket(stream, None))
}

impl Connection {
    /// Calls a method.
    pub(crate) fn call<M: Method>(
        mut self,
        parameters: &M,
        limit: Duration,
    ) -> anyhow::Result<M::Reply> {
        self.link.set_limit(Some(limit));
        let done = Client::new(self.link).call(parameters);
        done.map_err(|e| explain(e, self.step, &self.node, limit))
    }

    /// Calls a method after which the connection carries raw bytes, without a time limit.
    pub(crate) fn upgrade<M: Method>(
        mut self,
        parameters: &M,
    ) -> anyhow::Result<(M::Reply, Session)> {
        self.link.set_limit(Some(ANSWER));
        match Client::new(self.link).upgrade(parameters) {
            Ok((reply, mut link, first)) => {
                link.set_limit(None);
                let session = Session {
                    link,
                    first,
                    step: self.step,
                };
                Ok((reply, session))
            }
            Err(e) => Err(explain(e, self.step, &self.node, ANSWER)),
        }
    }
}

/// What a failed call comes from: a step that ended says why on its standard error.
fn explain(
    error: CallError,
    step: Option<Step>,
    node: &NodeName,
    limit: Duration,
) -> anyhow::Error {
    let source = match error {
        CallError::Api(e) => return e.into(),
        CallError::Io { source, .. } => source,
        other @ CallError::Protocol { .. } => {
            return anyhow::Error::from(other).context(format!("talk to the shim on {node}"));
        }
    };
    let said = step.and_then(Step::verdict);
    if is_timeout(&source) {
        let late = anyhow!(
            "the shim on {node} did not answer within {} s",
            limit.as_secs()
        );
        return match said {
            Some(said) => anyhow!(said).context(late.to_string()),
            None => late,
        };
    }
    match said {
        Some(said) => anyhow!(said).context(format!("reach the shim on {node} through srun")),
        None if matches!(source.kind(), ErrorKind::UnexpectedEof) => {
            anyhow!("the shim on {node} closed the connection")
        }
        None => anyhow::Error::from(source).context(format!("talk to the shim on {node}")),
    }
}

/// A file on a VM's node, read as the user: here if it is here, else through a step.
pub(crate) fn read_file(
    context: &Context,
    job: JobId,
    node: &NodeName,
    path: &str,
    out: &mut dyn std::io::Write,
) -> anyhow::Result<()> {
    match std::fs::File::open(path) {
        Ok(mut file) => {
            let copied = std::io::copy(&mut file, out).map_err(crate::output::marked);
            copied.map(drop).with_context(|| format!("read {path}"))
        }
        Err(_) => {
            let tail = ["internal", "log", path].map(str::to_owned);
            let (step, mut link) = Step::start(context, job, node, &tail)?;
            link.set_limit(Some(ANSWER));
            let copied = std::io::copy(&mut link, out).map_err(crate::output::marked);
            drop(link);
            if let Some(said) = step.verdict() {
                return Err(anyhow!(said)).with_context(|| format!("read {path} on {node}"));
            }
            copied
                .map(drop)
                .with_context(|| format!("read {path} on {node}"))
        }
    }
}
