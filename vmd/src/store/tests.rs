//! One suite for both back ends; etcd is the real program on a port of its own.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;

/// A real etcd in a directory of its own; ended when dropped.
struct Server {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn spawn(dir: &Path, port: u16, peer: u16) -> Child {
    let url = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{peer}");
    Command::new("etcd")
        .args(["--data-dir", &dir.display().to_string()])
        .args([
            "--listen-client-urls",
            &url,
            "--advertise-client-urls",
            &url,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd, of Debian's package etcd-server, is needed for this test")
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = spawn(dir.path(), port, free_port());
        Self { child, port, dir }
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn again(&mut self) {
        self.child = spawn(self.dir.path(), self.port, free_port());
    }

    async fn store(&self) -> Arc<dyn StateStore> {
        let config = EtcdConfig {
            endpoints: vec![format!("http://127.0.0.1:{}", self.port)],
            ca_cert: None,
            client_cert: None,
            client_key: None,
            login: None,
        };
        let store = open(&StoreConfig::Etcd(config)).await.unwrap();
        until("etcd to answer", async || store.get("x").await.is_ok()).await;
        store
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..400 {
        ticks.tick().await;
        if is_so().await {
            return;
        }
    }
    panic!("waited for {what}");
}

fn put(key: &str, value: &str) -> Write {
    Write::Put {
        key: key.into(),
        value: value.into(),
    }
}

fn text(snapshot: &Snapshot) -> Vec<(String, String)> {
    let pair = |(k, v): (&String, &Arc<[u8]>)| (k.clone(), String::from_utf8_lossy(v).into());
    snapshot.entries.iter().map(pair).collect()
}

async fn contract(store: Arc<dyn StateStore>) {
    transactions(&*store).await;
    watches(&*store).await;
    mirrors(&store).await;
    writers(&store).await;
    let alive = store.announce("/n/alive", b"1").await.unwrap();
    until("the announcement", async || {
        store.get("/n/alive").await.unwrap().is_some()
    })
    .await;
    alive.withdraw().await;
    assert_eq!(store.get("/n/alive").await.unwrap(), None);
}

async fn transactions(store: &dyn StateStore) {
    assert_eq!(store.get("/t/a").await.unwrap(), None);
    let absent = [Guard::Absent("/t/a".into())];
    let first = store
        .apply(&absent, &[put("/t/a", "1"), put("/t/b", "2")])
        .await
        .unwrap();
    let entry = store.get("/t/a").await.unwrap().unwrap();
    assert_eq!((entry.value.as_slice(), entry.revision), (&b"1"[..], first));
    let e = store.apply(&absent, &[put("/t/b", "9")]).await.unwrap_err();
    assert!(matches!(e, StoreError::Conflict { key } if key == "/t/a"));
    let old = [Guard::Revision("/t/a".into(), first)];
    store.apply(&old, &[put("/t/a", "3")]).await.unwrap();
    assert!(store.apply(&old, &[put("/t/a", "4")]).await.is_err());
    store.apply(&[], &[put("/tt", "x")]).await.unwrap();
    let listing = store.list("/t/").await.unwrap();
    let pairs: Vec<_> = listing
        .entries
        .iter()
        .map(|e| (e.key.as_str(), e.value.as_slice()))
        .collect();
    assert_eq!(pairs, [("/t/a", &b"3"[..]), ("/t/b", &b"2"[..])]);
    let prefix = "/t/".to_owned();
    store
        .apply(&[], &[Write::DeletePrefix { prefix }])
        .await
        .unwrap();
    assert!(store.list("/t/").await.unwrap().entries.is_empty());
    assert!(
        store.get("/tt").await.unwrap().is_some(),
        "a longer name is another key"
    );
    let many: Vec<Write> = (0..129).map(|i| put(&format!("/m/{i}"), "")).collect();
    let e = store.apply(&[], &many).await.unwrap_err().to_string();
    assert!(e.contains("129 operations"), "{e}");
}

async fn watches(store: &dyn StateStore) {
    let from = store.list("/w/").await.unwrap().revision + 1;
    let mut watch = store.watch("/w/", from).await.unwrap();
    store
        .apply(&[], &[put("/x", "0"), put("/w/a", "1")])
        .await
        .unwrap();
    store
        .apply(&[], &[Write::Delete { key: "/w/a".into() }])
        .await
        .unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.next().await.unwrap());
    }
    assert_eq!(seen[0].value.as_deref(), Some(&b"1"[..]));
    assert_eq!((seen[1].key.as_str(), &seen[1].value), ("/w/a", &None));
}

async fn mirrors(store: &Arc<dyn StateStore>) {
    store.apply(&[], &[put("/r/a", "1")]).await.unwrap();
    let mut mirror = Mirror::start(Arc::clone(store), "/r/");
    while !mirror.borrow().synced {
        mirror.changed().await;
    }
    let kept = Arc::clone(&mirror.borrow().entries["/r/a"]);
    store.apply(&[], &[put("/r/b", "2")]).await.unwrap();
    while mirror.borrow().entries.len() < 2 {
        mirror.changed().await;
    }
    assert!(Arc::ptr_eq(&kept, &mirror.borrow().entries["/r/a"]));
    assert_eq!(text(&mirror.borrow())[1], ("/r/b".into(), "2".into()));
}

/// Of many who claim one key, one wins.
async fn writers(store: &Arc<dyn StateStore>) {
    let claims = (0..20).map(|i| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let guard = [Guard::Absent("/claim".into())];
            store.apply(&guard, &[put("/claim", &i.to_string())]).await
        })
    });
    let mut won = 0;
    for claim in claims.collect::<Vec<_>>() {
        match claim.await.unwrap() {
            Ok(_) => won += 1,
            Err(StoreError::Conflict { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn the_embedded_store_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = open(&StoreConfig::Embedded { path }).await.unwrap();
    contract(store).await;
}

#[tokio::test]
async fn the_embedded_store_is_there_again_without_announcements() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let config = StoreConfig::Embedded { path: path.clone() };
    let store = open(&config).await.unwrap();
    store.apply(&[], &[put("/k", "v")]).await.unwrap();
    let announcement = store.announce("/alive", b"").await.unwrap();
    assert!(open(&config).await.is_err(), "one process at a time");
    drop(announcement);
    drop(store);
    let mut store = open(&config).await;
    for _ in 0..50 {
        // The keeper of the announcement lets go of the file a moment later.
        if store.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        store = open(&config).await;
    }
    let store = store.unwrap();
    assert!(store.get("/k").await.unwrap().is_some());
    assert!(store.get("/alive").await.unwrap().is_none());
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn etcd_keeps_the_contract() {
    let server = Server::start();
    contract(server.store().await).await;
}

#[tokio::test]
async fn an_etcd_that_comes_back_is_used_again() {
    let mut server = Server::start();
    let store = server.store().await;
    store.apply(&[], &[put("/o/a", "1")]).await.unwrap();
    let _alive = store.announce("/o/alive", b"").await.unwrap();
    let mirror = Mirror::start(Arc::clone(&store), "/o/");
    until("two keys", async || mirror.borrow().entries.len() == 2).await;
    server.stop();
    until("the loss", async || mirror.borrow().store_error.is_some()).await;
    assert_eq!(
        mirror.borrow().entries.len(),
        2,
        "what was known stays known"
    );
    assert!(store.get("/o/a").await.is_err());
    server.again();
    until("etcd again", async || store.get("/o/a").await.is_ok()).await;
    store.apply(&[], &[put("/o/b", "2")]).await.unwrap();
    until("the mirror", async || {
        mirror.borrow().entries.contains_key("/o/b")
    })
    .await;
    assert_eq!(mirror.borrow().store_error, None);
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_a_passing_error() {
    let config = EtcdConfig {
        endpoints: vec![format!("http://127.0.0.1:{}", free_port())],
        ca_cert: None,
        client_cert: None,
        client_key: None,
        login: None,
    };
    let store = open(&StoreConfig::Etcd(config)).await.unwrap();
    let e = store.get("x").await.unwrap_err();
    assert!(e.to_string().contains("read at http://127.0.0.1"), "{e}");
}
