//! `/run/muster/vmd.sock`: accepts connections, tells callers apart by their credentials, and answers
//! `io.muster.Vmd`.
//!
//! Anyone may connect, so everything a peer can use up is bounded: connections in all and per user,
//! the size of a message, the length of a wait. A peer that hangs up ends its call.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_types::api::{
    ApiError, Cluster, Empty, GetCluster, GetStatus, IDL, INTERFACE, Launch, ListClusters, Method,
    RegisterJob, ReleaseJob, Report, VmdStatus, WaitCluster, Waited,
};
use muster_types::ids::JobId;
use muster_types::varlink::{Call, Reply};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::chain::chain;
use crate::cluster::{Handle, Published, ended, outcome};
use crate::host::cgroup;
use crate::host::process::ProcessId;
use crate::query;
use crate::registry::Registry;
use crate::store::{Mirror, keys};
use crate::wire::{self, Connection, Peer};

/// Connections in all. Each may hold a message of 256 KiB.
const MOST_CONNECTIONS: usize = 4096;

/// Connections of one user other than root: a task per CPU of a large node may wait at once.
const MOST_PER_USER: usize = 1024;

/// The pause after a connection that could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long a wait may take over its own limit to read the cluster once.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// The longest wait that a caller may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The service behind the socket.
#[derive(Debug)]
pub struct Service {
    registry: Arc<Registry>,
    gateway: bool,
    store_name: &'static str,
    connections: Mutex<BTreeMap<u32, usize>>,
}

/// The place of a connection among those that are allowed; given back when dropped.
#[derive(Debug)]
struct Place {
    service: Arc<Service>,
    uid: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.service.connections);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Binds the socket. One that nobody listens on any more is replaced.
///
/// # Errors
/// Another vmd listens there, or the directory does not allow it.
pub async fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    use anyhow::Context as _;
    use std::os::unix::fs::PermissionsExt;
    if UnixStream::connect(path).await.is_ok() {
        anyhow::bail!("another vmd listens on {}", path.display());
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_context(|| format!("remove the old socket {}", path.display()));
        }
        _ => {}
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("listen on {}", path.display()))?;
    // Everyone may connect; what they may do is decided by their credentials.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
        .with_context(|| format!("set the mode of {}", path.display()))?;
    Ok(listener)
}

impl Service {
    /// A service over the clusters of this node; a gateway has none and only answers questions.
    #[must_use]
    pub fn new(registry: Arc<Registry>, gateway: bool, store_name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            registry,
            gateway,
            store_name,
            connections: Mutex::default(),
        })
    }

    /// Accepts connections for ever.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(e) => {
                    // Out of descriptors, most likely: those that end give some back.
                    warn!(error = %e, "accept");
                    tokio::time::sleep_until(Instant::now() + ACCEPT_RETRY).await;
                    continue;
                }
            };
            let Ok(peer) = wire::peer(&stream) else {
                continue;
            };
            let connection = Connection::accepted(stream, format!("uid {}", peer.uid));
            let service = Arc::clone(&self);
            tokio::spawn(async move { service.talk(connection, peer).await });
        }
    }

    fn place(self: &Arc<Self>, uid: u32) -> Option<Place> {
        let mut counts = lock(&self.connections);
        let all: usize = counts.values().sum();
        let own = counts.entry(uid).or_default();
        if uid != 0 && (*own >= MOST_PER_USER || all >= MOST_CONNECTIONS) {
            return None;
        }
        *own += 1;
        Some(Place {
            service: Arc::clone(self),
            uid,
        })
    }

    async fn talk(self: Arc<Self>, mut connection: Connection, peer: Peer) {
        let Some(_place) = self.place(peer.uid) else {
            let reply = error(&ApiError::Busy("too many connections".into()));
            // The peer learns why before it is cut off, if it listens.
            drop(connection.send(&reply).await);
            return;
        };
        loop {
            let call = match connection.receive::<Call>().await {
                Ok(Some(call)) => call,
                Ok(None) => return,
                Err(e) => {
                    let reply = error(&ApiError::InvalidCall(chain(&e)));
                    drop(connection.send(&reply).await);
                    return;
                }
            };
            debug!(method = call.method, uid = peer.uid, "call");
            let reply = tokio::select! {
                reply = self.answer(&call, peer) => reply,
                () = connection.hung_up() => return,
            };
            if !call.oneway && connection.send(&reply).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, call: &Call, peer: Peer) -> Reply {
        if let Some(reply) = wire::introspection(call, INTERFACE, IDL) {
            return reply;
        }
        match call.method.as_str() {
            RegisterJob::NAME => reply(self.register(call, peer).await),
            ReleaseJob::NAME => reply(self.release(call, peer).await),
            Launch::NAME => reply(self.launch(call, peer).await),
            Report::NAME => reply(self.report(call, peer).await),
            WaitCluster::NAME => reply(self.wait(call, peer).await),
            ListClusters::NAME => reply(self.list(call, peer).await),
            GetCluster::NAME => reply(self.get(call, peer).await),
            GetStatus::NAME => reply(self.status().await),
            other => wire::failure(
                "org.varlink.service",
                "MethodNotFound",
                &format!("no method {other}"),
            ),
        }
    }

    async fn register(&self, call: &Call, peer: Peer) -> Result<Empty, ApiError> {
        self.root_on_a_node(peer)?;
        let RegisterJob { facts, request } = parse(call)?;
        let key = facts.key;
        // The task goes on if the prolog hangs up: a job is journalled wholly or not at all.
        let registry = Arc::clone(&self.registry);
        let task = tokio::spawn(async move { registry.register(facts, request).await });
        match task.await {
            Ok(Ok(())) => Ok(Empty {}),
            Ok(Err(e)) => Err(ApiError::Internal(format!("job {key}: {}", chain(&e)))),
            Err(e) => Err(ApiError::Internal(format!("job {key}: {e}"))),
        }
    }

    async fn release(
        &self,
        call: &Call,
        peer: Peer,
    ) -> Result<muster_types::api::Released, ApiError> {
        self.root_on_a_node(peer)?;
        let ReleaseJob { key } = parse(call)?;
        let registry = Arc::clone(&self.registry);
        let task = tokio::spawn(async move { registry.release(key).await });
        task.await
            .map_err(|e| ApiError::Internal(format!("release job {key}: {e}")))
    }

    fn root_on_a_node(&self, peer: Peer) -> Result<(), ApiError> {
        if peer.uid != nix::unistd::geteuid().as_raw() {
            return Err(ApiError::PermissionDenied("this call is root's".into()));
        }
        if self.gateway {
            let why = "this vmd is a gateway and runs no jobs: start vmd without --gateway";
            return Err(ApiError::InvalidCall(why.into()));
        }
        Ok(())
    }

    /// The cluster of a job, if the peer is its user and inside its cgroup.
    fn own_cluster(&self, job: JobId, peer: Peer) -> Result<(Handle, i32), ApiError> {
        let handle = self
            .registry
            .get(job)
            .filter(|h| h.uid() == peer.uid)
            .ok_or_else(|| no_such(job))?;
        let pid = peer.pid.ok_or_else(|| {
            ApiError::PermissionDenied("the kernel does not tell the caller's pid".into())
        })?;
        let settings = &self.registry.context().settings;
        let cgroups = cgroup::of_process(&settings.proc_root, pid).unwrap_or_default();
        if cgroup::is_in_job(&cgroups, job, handle.sluid()) {
            Ok((handle, pid))
        } else {
            debug!(cgroups, "not of the job");
            Err(ApiError::PermissionDenied(format!(
                "only a process of a step of job {job} may do this"
            )))
        }
    }

    async fn launch(
        &self,
        call: &Call,
        peer: Peer,
    ) -> Result<muster_types::api::LaunchPlan, ApiError> {
        let Launch { job, step } = parse(call)?;
        let (handle, pid) = self.own_cluster(job, peer)?;
        let settings = &self.registry.context().settings;
        let shim = ProcessId::of(&settings.proc_root, pid);
        let longest = settings.prepare_timeout + settings.launch_timeout;
        match tokio::time::timeout(longest, handle.launch(shim, step)).await {
            Ok(answer) => answer,
            Err(_) => Err(ApiError::ClusterFailed(format!(
                "this node was not prepared within {} s",
                longest.as_secs()
            ))),
        }
    }

    async fn report(&self, call: &Call, peer: Peer) -> Result<Empty, ApiError> {
        let report: Report = parse(call)?;
        let (handle, _) = self.own_cluster(report.job, peer)?;
        handle.report(report).await.map(|()| Empty {})
    }

    async fn wait(&self, call: &Call, peer: Peer) -> Result<Waited, ApiError> {
        let wait: WaitCluster = parse(call)?;
        let settings = &self.registry.context().settings;
        let timeout = Duration::from_millis(wait.timeout_ms).min(LONGEST_WAIT);
        let deadline = Instant::now() + timeout;
        if let Some(handle) = self.registry.get(wait.job) {
            if handle.uid() != peer.uid && !settings.sees_all(peer.uid) {
                return Err(no_such(wait.job));
            }
            return Ok(wait_published(&wait, handle.published(), deadline).await);
        }
        self.wait_remote(&wait, peer, deadline).await
    }

    /// Waits for a cluster that is not on this node.
    async fn wait_remote(
        &self,
        wait: &WaitCluster,
        peer: Peer,
        deadline: Instant,
    ) -> Result<Waited, ApiError> {
        let context = self.registry.context();
        let mut mirror = Mirror::start(Arc::clone(&context.store), &keys::cluster_prefix(wait.job));
        let mut last = Published::default();
        let first_look = Instant::now() + FIRST_LOOK;
        loop {
            let snapshot = mirror.borrow();
            if snapshot.synced {
                let view = query::assemble_all(wait.job, &snapshot.entries);
                let view =
                    view.filter(|v| v.uid == peer.uid || context.settings.sees_all(peer.uid));
                let gone = view.is_none();
                if gone && (wait.until != muster_types::api::Until::Stopped || last.view.is_none())
                {
                    return Err(no_such(wait.job));
                }
                if gone {
                    // It was there and its job is over now.
                    last.view = None;
                    last.failure = Some("the job is over".into());
                } else {
                    last.view = view;
                }
            }
            last.store_error.clone_from(&snapshot.store_error);
            if let Some(waited) = outcome(wait.until, &last) {
                return Ok(waited);
            }
            // What is waited for can only be named once it was read.
            let deadline = if last.view.is_none() {
                deadline.max(first_look)
            } else {
                deadline
            };
            if tokio::time::timeout_at(deadline, mirror.changed())
                .await
                .is_err()
            {
                return Ok(ended(wait.until, &last));
            }
        }
    }

    async fn list(&self, call: &Call, peer: Peer) -> Result<muster_types::api::Clusters, ApiError> {
        let ListClusters { uid } = parse(call)?;
        let context = self.registry.context();
        let all = context.settings.sees_all(peer.uid);
        let uid = match uid {
            Some(uid) if uid != peer.uid && !all => {
                return Err(ApiError::PermissionDenied(
                    "only root and operators see the clusters of others".into(),
                ));
            }
            None if !all => Some(peer.uid),
            other => other,
        };
        query::list(context, uid, &|key| self.registry.own_status(key)).await
    }

    async fn get(&self, call: &Call, peer: Peer) -> Result<Cluster, ApiError> {
        let GetCluster { job } = parse(call)?;
        let context = self.registry.context();
        let may_see = |uid: u32| uid == peer.uid || context.settings.sees_all(peer.uid);
        let local = || self.registry.get(job).filter(|h| may_see(h.uid()));
        let found = match query::get(context, job, &|key| self.registry.own_status(key)).await {
            // The job's own nodes know their cluster without the store: a console needs no etcd.
            Err(e @ ApiError::StoreUnavailable(_)) => {
                let view = local().and_then(|h| h.published().borrow().view.clone());
                Some(view.ok_or(e)?)
            }
            other => other?,
        };
        match found {
            Some(cluster) if may_see(cluster.uid) => Ok(Cluster { cluster }),
            Some(_) => Err(no_such(job)),
            // A job that was refused has no record, but its node knows why.
            None => match local() {
                Some(handle) => {
                    let failure = handle.published().borrow().failure.clone();
                    Err(ApiError::ClusterFailed(failure.unwrap_or_else(|| {
                        format!("the virtual cluster of job {job} is being set up")
                    })))
                }
                None => Err(no_such(job)),
            },
        }
    }

    async fn status(&self) -> Result<VmdStatus, ApiError> {
        let context = self.registry.context();
        let probe = context.store.get(&keys::node_alive("-")).await;
        Ok(VmdStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            gateway: self.gateway,
            store: self.store_name.to_owned(),
            store_error: probe.err().map(|e| chain(&e)),
            jobs: u32::try_from(self.registry.all().len()).unwrap_or(u32::MAX),
        })
    }
}

async fn wait_published(
    wait: &WaitCluster,
    mut published: tokio::sync::watch::Receiver<Published>,
    deadline: Instant,
) -> Waited {
    loop {
        let now = published.borrow_and_update().clone();
        if let Some(waited) = outcome(wait.until, &now) {
            return waited;
        }
        match tokio::time::timeout_at(deadline, published.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                // The job was released; what it was is the last that is known of it.
                let over = Published {
                    view: None,
                    failure: Some("the job is over".into()),
                    ..now
                };
                return outcome(wait.until, &over).unwrap_or_else(|| ended(wait.until, &over));
            }
            Err(_) => return ended(wait.until, &now),
        }
    }
}

/// A stranger's cluster looks like none.
fn no_such(job: JobId) -> ApiError {
    ApiError::NoSuchCluster(format!(
        "job {job} has no virtual cluster here that you may see"
    ))
}

fn parse<T: DeserializeOwned>(call: &Call) -> Result<T, ApiError> {
    let parameters = match &call.parameters {
        serde_json::Value::Null => serde_json::json!({}),
        other => other.clone(),
    };
    serde_json::from_value(parameters)
        .map_err(|e| ApiError::InvalidCall(format!("{}: {e}", call.method)))
}

fn reply<T: Serialize>(result: Result<T, ApiError>) -> Reply {
    let made = result.and_then(|value| {
        wire::success(&value).map_err(|e| ApiError::Internal(format!("reply: {e}")))
    });
    match made {
        Ok(reply) => reply,
        Err(e) => {
            info!(error = %e, name = e.name(), "refused");
            error(&e)
        }
    }
}

fn error(e: &ApiError) -> Reply {
    wire::failure(INTERFACE, e.name(), &e.to_string())
}
