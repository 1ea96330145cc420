//! A vmd from start to end: configuration, state store, what an earlier vmd left, the socket, signals.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use muster_config::Trees;
use muster_templates::batch::{AuthType, BatchConfig, OnFailure, Protocol, State};
use muster_types::ids::NodeName;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::chain::chain;
use crate::cluster::Context;
use crate::host::directory;
use crate::host::slurm::Commands;
use crate::journal::Journal;
use crate::registry::Registry;
use crate::rpc::{self, Service};
use crate::settings::Settings;
use crate::store::{self, EtcdConfig, StoreConfig, keys};

/// How long the VMs may take from the nodes being prepared to running.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(120);

/// How often vmd asks Slurm after jobs without a living shim.
const ORPHANS_EVERY: Duration = Duration::from_secs(30);

/// How soon it asks again after one that is completing.
const ENDING_EVERY: Duration = Duration::from_secs(3);

/// The command line of vmd.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only answer questions.
    pub gateway: bool,
    /// This node's name in Slurm; none: the host's name up to its first dot.
    pub node_name: Option<String>,
    /// Directory of the configuration; none: the usual search.
    pub conf_dir: Option<PathBuf>,
    /// Directory of runtime state.
    pub run_dir: PathBuf,
    /// Directory of persistent state.
    pub state_dir: PathBuf,
    /// Directory of Slurm's commands; none: `PATH`.
    pub slurm_bin: Option<PathBuf>,
    /// The shim's program.
    pub shim: PathBuf,
}

/// Runs until SIGTERM or SIGINT. VMs go on after it.
///
/// # Errors
/// The configuration is wrong, or a directory or the socket cannot be used. A state store that does
/// not answer is no error: it is tried for ever.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let node = node_name(options.node_name.as_deref())?;
    let trees = trees(&options);
    let batch = muster_config::batch(&trees)?;
    let settings = settings(&options, &batch);
    if !options.gateway {
        directory::ensure_own(&settings.scratch_dir, 0o711)?;
        directory::ensure_own(&settings.vm_dir(), 0o711)?;
        directory::ensure_own(&settings.jobs_dir(), 0o700)?;
    }
    directory::ensure_own(&settings.run_dir, 0o755)?;
    if let Err(e) = muster_config::policy(&trees).map_err(|e| chain(&e))
        && !options.gateway
    {
        tracing::warn!("jobs with VMs fail here until this is put right: {e}");
    }
    let (config, store_name) = store_config(&options, &batch)?;
    let store = store::open(&config).await.context("open the state store")?;
    let context = Arc::new(Context {
        journal: Journal::new(settings.jobs_dir()),
        slurm: Arc::new(Commands {
            bin_dir: options.slurm_bin.clone(),
            shim: options.shim.clone(),
            proc_root: settings.proc_root.clone(),
        }),
        store: Arc::clone(&store),
        settings,
        trees,
    });
    let registry = Arc::new(Registry::new(Arc::clone(&context)));
    let listener = rpc::bind(&context.settings.run_dir.join("vmd.sock")).await?;
    let announcement = if options.gateway {
        None
    } else {
        let leftovers = registry.adopt()?;
        let (sweeper, own) = (Arc::clone(&registry), node.clone());
        tokio::spawn(async move { sweeper.sweep(&own, leftovers).await });
        let about = json!({ "version": env!("CARGO_PKG_VERSION") }).to_string();
        let key = keys::node_alive(node.as_str());
        Some(store.announce(&key, about.as_bytes()).await?)
    };
    info!(%node, gateway = options.gateway, store = store_name, "vmd is ready");
    let service = Service::new(Arc::clone(&registry), options.gateway, store_name);
    let mut terminate = signal(SignalKind::terminate()).context("handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("handle SIGINT")?;
    tokio::select! {
        () = service.serve(listener) => {}
        () = look_for_orphans(&registry), if !options.gateway => {}
        _ = terminate.recv() => info!("SIGTERM: vmd ends, VMs go on"),
        _ = interrupt.recv() => info!("SIGINT: vmd ends, VMs go on"),
    }
    if let Some(announcement) = announcement {
        announcement.withdraw().await;
    }
    Ok(())
}

async fn look_for_orphans(registry: &Registry) {
    let mut ticks = tokio::time::interval(ORPHANS_EVERY);
    loop {
        ticks.tick().await;
        if registry.release_orphans().await {
            ticks.reset_after(ENDING_EVERY);
        }
    }
}

fn node_name(given: Option<&str>) -> anyhow::Result<NodeName> {
    let host = nix::unistd::gethostname().context("read the host's name")?;
    let host = host.to_string_lossy();
    let name = given.unwrap_or_else(|| host.split('.').next().unwrap_or_default());
    NodeName::new(name).context("--node-name")
}

fn trees(options: &Options) -> Trees {
    let mut trees = Trees::from_env(&|name| std::env::var_os(name), None);
    if let Some(dir) = &options.conf_dir {
        trees.system.clone_from(dir);
    }
    trees.user = None;
    trees
}

fn settings(options: &Options, batch: &BatchConfig) -> Settings {
    let uid_of = |name: &String| match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Some(user.uid.as_raw()),
        _ => {
            tracing::warn!(name, "operators: no such user");
            None
        }
    };
    Settings {
        run_dir: options.run_dir.clone(),
        scratch_dir: PathBuf::from(&batch.scratch_dir),
        proc_root: "/proc".into(),
        memory_overhead_mib: batch.vm_memory_overhead.mib,
        memory_overhead_permille: batch.vm_memory_overhead.permille,
        stop_timeout: batch.stop_timeout,
        prepare_timeout: batch.prepare_timeout,
        launch_timeout: LAUNCH_TIMEOUT,
        cancel_on_failure: batch.on_failure == OnFailure::Cancel,
        operators: batch.operators.iter().filter_map(uid_of).collect(),
    }
}

fn store_config(
    options: &Options,
    batch: &BatchConfig,
) -> anyhow::Result<(StoreConfig, &'static str)> {
    if batch.state == State::Embedded {
        let dir = &options.state_dir;
        if options.gateway {
            bail!("a gateway needs 'state: etcd': an embedded store belongs to one vmd");
        }
        directory::ensure_own(dir, 0o711)?;
        let path = dir.join("state.redb");
        return Ok((StoreConfig::Embedded { path }, "embedded"));
    }
    let scheme = match batch.etcd_protocol {
        Protocol::Http => "http",
        Protocol::Https => "https",
    };
    let port = batch.etcd_client_port;
    let endpoints = batch
        .etcd_servers
        .iter()
        .map(|server| format!("{scheme}://{server}:{port}"))
        .collect();
    let login = match batch.etcd_auth_type {
        AuthType::None => None,
        AuthType::Password => {
            let path = &batch.etcd_password_file;
            let read = || format!("read etcd-password-file {path}");
            let meta = std::fs::metadata(path).with_context(read)?;
            if meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
                bail!("etcd-password-file {path} must be root's alone: chown root, chmod 600");
            }
            let password = std::fs::read_to_string(path).with_context(read)?;
            Some(("root".to_owned(), password.trim_end().to_owned()))
        }
    };
    let etcd = EtcdConfig {
        endpoints,
        ca_cert: batch.etcd_ca_cert.clone().map(PathBuf::from),
        client_cert: batch.etcd_client_cert.clone().map(PathBuf::from),
        client_key: batch.etcd_client_key.clone().map(PathBuf::from),
        login,
    };
    Ok((StoreConfig::Etcd(etcd), "etcd"))
}
