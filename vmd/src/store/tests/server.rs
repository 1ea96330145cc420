//! A real etcd for one test, on loopback ports and in a directory of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};

use super::super::*;

/// Ended when dropped.
pub(super) struct Server {
    child: Child,
    scheme: &'static str,
    port: u16,
    arguments: Vec<String>,
    dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Whether a program is there; if not and tests must have etcd, that is a failure.
pub(super) fn is_there(program: &str, version: &str) -> bool {
    let quiet = Command::new(program)
        .arg(version)
        .stdout(Stdio::null())
        .status();
    if quiet.is_ok_and(|status| status.success()) {
        return true;
    }
    let required = std::env::var("MUSTER_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|what| what == "etcd"),
        "{program} is needed (Debian's packages etcd-server and openssl)"
    );
    eprintln!("skipped: no {program} on this machine");
    false
}

impl Server {
    /// An etcd without TLS; none where it is not installed.
    pub(super) fn start(arguments: &[&str]) -> Option<Self> {
        Self::start_with("http", |_| {
            arguments.iter().map(ToString::to_string).collect()
        })
    }

    /// An etcd with certificates, which `prepare` makes in its directory.
    pub(super) fn start_with(
        scheme: &'static str,
        prepare: impl FnOnce(&Path) -> Vec<String>,
    ) -> Option<Self> {
        if !is_there("etcd", "--version") {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let arguments = prepare(dir.path());
        let port = free_port();
        Some(Self {
            child: spawn(dir.path(), scheme, port, &arguments),
            scheme,
            port,
            arguments,
            dir,
        })
    }

    /// Kills it; what it stored stays.
    pub(super) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port.
    pub(super) fn again(&mut self) {
        self.child = spawn(self.dir.path(), self.scheme, self.port, &self.arguments);
    }

    /// Removes all that it stored.
    pub(super) fn wipe(&self) {
        std::fs::remove_dir_all(self.dir.path().join("data")).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn config(&self) -> EtcdConfig {
        EtcdConfig {
            endpoints: vec![format!("{}://127.0.0.1:{}", self.scheme, self.port)],
            ca_cert: None,
            client_cert: None,
            client_key: None,
            login: None,
        }
    }

    /// A store that has been answered.
    pub(super) async fn store(&self) -> Arc<dyn StateStore> {
        answered(&StoreConfig::Etcd(self.config())).await
    }

    /// The admin's client.
    pub(super) async fn admin(&self, login: Option<(&str, &str)>) -> Client {
        let options = login.map(|(user, password)| {
            ConnectOptions::new()
                .with_user(user, password)
                .with_auto_token_refresh(true)
        });
        Client::connect(&self.config().endpoints, options)
            .await
            .unwrap()
    }
}

/// Opens a store and waits until it answers.
pub(super) async fn answered(config: &StoreConfig) -> Arc<dyn StateStore> {
    let store = open(config).await.unwrap();
    let mut last = String::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..600 {
        ticks.tick().await;
        match store.get("/muster/v1/x").await {
            Ok(_) => return store,
            Err(e) => last = e.to_string(),
        }
    }
    panic!("waited for etcd to answer: {last}");
}

fn spawn(dir: &Path, scheme: &str, port: u16, arguments: &[String]) -> Child {
    let url = format!("{scheme}://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", free_port());
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .unwrap();
    Command::new("etcd")
        .args(["--data-dir", &dir.join("data").display().to_string()])
        .args(["--listen-client-urls", &url])
        .args(["--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &peer])
        .args(["--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
