//! Calls to the local vmd.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use muster_types::api::{ApiError, GetCluster, ListClusters, Method, Until, WaitCluster, Waited};
use muster_types::client::{CallError, Client};
use muster_types::ids::JobId;
use muster_types::state::ClusterView;

use crate::context::Context;
use crate::exit::NoSuch;
use crate::{socket, time};

/// How long an answer may take that waits for nothing but the state store.
const ANSWER: Duration = Duration::from_secs(20);

/// The local vmd; each call has a connection of its own.
#[derive(Debug)]
pub(crate) struct Vmd {
    socket: PathBuf,
}

impl Vmd {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            socket: context.vmd_socket.clone(),
        }
    }

    /// The clusters of a user, or all that the caller may see.
    pub(crate) fn clusters(&self, uid: Option<u32>) -> anyhow::Result<Vec<ClusterView>> {
        Ok(self.call(&ListClusters { uid }, ANSWER)?.clusters)
    }

    /// The cluster of a job.
    pub(crate) fn cluster(&self, job: JobId) -> anyhow::Result<ClusterView> {
        Ok(self.call(&GetCluster { job }, ANSWER)?.cluster)
    }

    /// Waits for a cluster, on the server.
    pub(crate) fn wait(
        &self,
        job: JobId,
        until: Until,
        timeout: Duration,
    ) -> anyhow::Result<Waited> {
        let call = WaitCluster {
            job,
            until,
            timeout_ms: time::millis(timeout),
        };
        self.call(&call, timeout + ANSWER)
    }

    fn call<M: Method>(&self, parameters: &M, limit: Duration) -> anyhow::Result<M::Reply> {
        let at = self.socket.display();
        let stream = socket::dial(&self.socket).map_err(|e| {
            anyhow!("cannot reach vmd at {at}: {e} (is the vmd service running on this host?)")
        })?;
        stream
            .set_read_timeout(Some(limit))
            .context("set a time limit on vmd's socket")?;
        match Client::new(stream).call(parameters) {
            Ok(reply) => Ok(reply),
            Err(CallError::Api(ApiError::NoSuchCluster(message))) => Err(NoSuch(message).into()),
            Err(CallError::Api(e)) => Err(e.into()),
            Err(CallError::Io { method, source }) if is_timeout(&source) => Err(anyhow!(
                "vmd at {at} did not answer {method} within {} s",
                limit.as_secs()
            )),
            Err(CallError::Io { method, source })
                if source.kind() == io::ErrorKind::UnexpectedEof =>
            {
                Err(anyhow!("vmd at {at} closed the connection during {method}"))
            }
            Err(e) => Err(anyhow::Error::from(e).context(format!("ask vmd at {at}"))),
        }
    }
}

/// Whether a socket's time limit ran out.
pub(crate) fn is_timeout(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
