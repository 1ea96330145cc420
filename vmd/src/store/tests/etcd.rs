//! What is etcd's own: outages, lost data, compaction, certificates, passwords.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, Permission, PermissionType};

use super::super::*;
use super::server::{Server, answered, free_port, is_there};
use super::{contract, put, until};

#[tokio::test]
async fn etcd_keeps_the_contract() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    contract(server.store().await).await;
}

#[tokio::test]
async fn an_etcd_that_comes_back_is_used_again() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
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
    assert!(mirror.borrow().entries.contains_key("/o/alive"));
}

#[tokio::test]
async fn an_etcd_that_lost_its_data_is_told_again_who_is_alive() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    let store = server.store().await;
    for i in 0..20 {
        let value = i.to_string();
        store.apply(&[], &[put("/o/old", &value)]).await.unwrap();
    }
    let alive = store.announce("/o/alive", b"v1").await.unwrap();
    let mirror = Mirror::start(Arc::clone(&store), "/o/");
    until("two keys", async || mirror.borrow().entries.len() == 2).await;
    server.stop();
    server.wipe();
    server.again();
    until(
        "the lease to be made again",
        async || matches!(store.get("/o/alive").await, Ok(Some(entry)) if entry.value == b"v1"),
    )
    .await;
    until("the mirror", async || {
        let snapshot = mirror.borrow();
        snapshot.entries.keys().eq(["/o/alive"]) && snapshot.store_error.is_none()
    })
    .await;
    alive.withdraw().await;
    assert_eq!(store.get("/o/alive").await.unwrap(), None);
}

#[tokio::test]
async fn a_lease_that_was_lost_is_made_again() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.store().await;
    let _alive = store.announce("/o/alive", b"").await.unwrap();
    let is_alive = async || store.get("/o/alive").await.unwrap().is_some();
    until("the announcement", is_alive).await;
    let mut admin = server.admin(None).await;
    for lease in admin.leases().await.unwrap().leases() {
        admin.lease_revoke(lease.id()).await.unwrap();
    }
    assert!(!is_alive().await);
    until("the next keep-alive", is_alive).await;
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_a_passing_error() {
    for login in [None, Some(("root".to_owned(), "secret".to_owned()))] {
        let config = EtcdConfig {
            endpoints: vec![format!("http://127.0.0.1:{}", free_port())],
            ca_cert: None,
            client_cert: None,
            client_key: None,
            login,
        };
        let begin = Instant::now();
        let store = open(&StoreConfig::Etcd(config)).await.unwrap();
        let e = store.get("x").await.unwrap_err();
        assert!(e.to_string().contains("read at http://127.0.0.1"), "{e}");
        let alive = store.announce("/alive", b"").await.unwrap();
        alive.withdraw().await;
        assert!(begin.elapsed() < Duration::from_secs(15));
    }
}

#[tokio::test]
async fn an_etcd_that_says_nothing_is_not_waited_for() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = EtcdConfig {
        endpoints: vec![format!("http://{}", silent.local_addr().unwrap())],
        ca_cert: None,
        client_cert: None,
        client_key: None,
        login: Some(("root".into(), "secret".into())),
    };
    let begin = Instant::now();
    let store = open(&StoreConfig::Etcd(config)).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(4));
    let alive = store.announce("/alive", b"").await.unwrap();
    let e = store.get("x").await.unwrap_err().to_string();
    assert!(e.contains("read at http://127.0.0.1"), "{e}");
    assert!(e.ends_with("no answer within 5 s"), "{e}");
    alive.withdraw().await;
    assert!(begin.elapsed() < Duration::from_secs(16));
}

#[tokio::test]
async fn long_lists_and_long_watches_come_whole() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.store().await;
    let value = "x".repeat(20 << 10);
    let mut first = None;
    for part in 0..15 {
        let puts = (0..40).map(|i| put(&format!("/b/{part:02}/{i:02}"), &value));
        let at = store.apply(&[], &puts.collect::<Vec<_>>()).await.unwrap();
        first = first.or(Some(at));
    }
    // 12 MB, three times gRPC's usual limit.
    let listing = store.list("/b/").await.unwrap();
    assert_eq!(listing.entries.len(), 600);
    assert!(listing.entries.is_sorted_by(|a, b| a.key < b.key));
    let mut watch = store.watch("/b/", first.unwrap()).await.unwrap();
    let mut seen = 0;
    while seen < 600 {
        seen += watch.next().await.unwrap().len();
    }
    assert_eq!(seen, 600);
    let prefix = "/b/0".to_owned();
    let delete = [Write::DeletePrefix { prefix }];
    store.apply(&[], &delete).await.unwrap();
    assert_eq!(store.list("/b/").await.unwrap().entries.len(), 200);
}

/// A store whose history is compacted between the first list and the first watch.
#[derive(Debug)]
struct Compacting {
    store: Arc<dyn StateStore>,
    admin: Mutex<Option<Admin>>,
}

struct Admin(Client);

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admin")
    }
}

#[async_trait]
impl StateStore for Compacting {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.store.list(prefix).await
    }

    async fn apply(&self, guards: &[Guard], writes: &[Write]) -> Result<i64, StoreError> {
        self.store.apply(guards, writes).await
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        let admin = self.admin.lock().unwrap().take();
        if let Some(Admin(mut admin)) = admin {
            for value in ["2", "3"] {
                self.apply(&[], &[put("/c/a", value)]).await?;
            }
            admin.compact(from + 1, None).await.unwrap();
        }
        self.store.watch(prefix, from).await
    }

    async fn announce(&self, key: &str, value: &[u8]) -> Result<Announcement, StoreError> {
        self.store.announce(key, value).await
    }
}

#[tokio::test]
async fn what_was_compacted_is_listed_again() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.store().await;
    let first = store.apply(&[], &[put("/c/a", "1")]).await.unwrap();
    let compacting = Arc::new(Compacting {
        store: Arc::clone(&store),
        admin: Mutex::new(Some(Admin(server.admin(None).await))),
    });
    let mirror = Mirror::start(compacting, "/c/");
    until("the last value", async || {
        let snapshot = mirror.borrow();
        snapshot.entries.get("/c/a").is_some_and(|v| **v == *b"3") && snapshot.store_error.is_none()
    })
    .await;
    store.apply(&[], &[put("/c/b", "4")]).await.unwrap();
    until("the next change", async || {
        mirror.borrow().entries.len() == 2
    })
    .await;
    let mut watch = store.watch("/c/", first).await.unwrap();
    let e = watch.next().await.unwrap_err();
    assert!(
        matches!(e, StoreError::Compacted(at) if at == first),
        "{e:?}"
    );
}

/// Makes an authority, and a certificate of it for each name.
fn certificates(dir: &Path, names: &[&str]) {
    let openssl = |arguments: &str| {
        let status = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(dir)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "openssl {arguments}");
    };
    let extensions = "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n";
    std::fs::write(dir.join("extensions"), extensions).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!(
        "req -x509 {key} -keyout ca-key.pem -out ca.pem -days 2 -subj /CN=authority"
    ));
    for name in names {
        openssl(&format!(
            "req {key} -keyout {name}-key.pem -out {name}.csr -subj /CN={name}"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile extensions -out {name}.pem"
        ));
    }
}

#[tokio::test]
async fn a_client_certificate_is_who_vmd_is() {
    if !is_there("openssl", "version") {
        return;
    }
    let server = Server::start_with("https", |dir| {
        certificates(dir, &["server", "muster"]);
        let file = |name: &str| dir.join(name).display().to_string();
        let arguments = [
            ["--cert-file".into(), file("server.pem")],
            ["--key-file".into(), file("server-key.pem")],
            ["--trusted-ca-file".into(), file("ca.pem")],
        ];
        let mut arguments = arguments.concat();
        arguments.push("--client-cert-auth".into());
        arguments
    });
    let Some(server) = server else {
        return;
    };
    let stranger = EtcdConfig {
        ca_cert: Some(server.path("ca.pem")),
        ..server.config()
    };
    let known = EtcdConfig {
        client_cert: Some(server.path("muster.pem")),
        client_key: Some(server.path("muster-key.pem")),
        ..stranger.clone()
    };
    let store = answered(&StoreConfig::Etcd(known.clone())).await;
    contract(store).await;

    let store = open(&StoreConfig::Etcd(stranger)).await.unwrap();
    let e = store.get("/x").await.unwrap_err().to_string();
    assert!(e.contains("read at https://127.0.0.1"), "{e}");

    let lost = EtcdConfig {
        client_key: Some(server.path("lost.pem")),
        ..known.clone()
    };
    let e = open(&StoreConfig::Etcd(lost)).await.unwrap_err();
    assert!(e.to_string().contains("lost.pem"), "{e}");

    std::fs::create_dir(server.path("other")).unwrap();
    certificates(&server.path("other"), &[]);
    let impostor = EtcdConfig {
        ca_cert: Some(server.path("other/ca.pem")),
        ..known
    };
    let store = open(&StoreConfig::Etcd(impostor)).await.unwrap();
    assert!(
        store.get("/x").await.is_err(),
        "a server of another authority"
    );
}

/// Root, and a user `muster` who may use the keys of muster; then turns authentication on.
async fn with_passwords(server: &Server) {
    server.store().await;
    let mut admin = server.admin(None).await;
    admin.user_add("root", "all", None).await.unwrap();
    admin.role_add("root").await.unwrap();
    admin.user_grant_role("root", "root").await.unwrap();
    admin.user_add("muster", "secret", None).await.unwrap();
    admin.role_add("muster").await.unwrap();
    let keys = Permission::new(PermissionType::Readwrite, "/muster/v1/").with_prefix();
    admin.role_grant_permission("muster", keys).await.unwrap();
    admin.user_grant_role("muster", "muster").await.unwrap();
    admin.auth_enable().await.unwrap();
}

fn login(server: &Server, password: &str) -> StoreConfig {
    StoreConfig::Etcd(EtcdConfig {
        login: Some(("muster".into(), password.into())),
        ..server.config()
    })
}

#[tokio::test]
async fn a_token_that_runs_out_breaks_neither_watch_nor_lease() {
    let Some(mut server) = Server::start(&["--auth-token-ttl", "1"]) else {
        return;
    };
    with_passwords(&server).await;
    let e = open(&login(&server, "wrong")).await.unwrap_err();
    assert!(e.to_string().contains("authentication failed"), "{e}");

    let store = answered(&login(&server, "secret")).await;
    let alive = store.announce("/muster/v1/alive", b"").await.unwrap();
    let mirror = Mirror::start(Arc::clone(&store), "/muster/v1/");
    until("the announcement", async || {
        mirror.borrow().entries.len() == 1
    })
    .await;
    let login_once = ConnectOptions::new().with_user("root", "all");
    let endpoints = server.config().endpoints;
    let mut once = Client::connect(endpoints, Some(login_once)).await.unwrap();
    once.get("/x", None).await.unwrap();
    // No request for longer than a token lives.
    let quiet = Instant::now() + Duration::from_secs(4);
    until("tokens to run out", async || Instant::now() > quiet).await;
    let e = once.get("/x", None).await.unwrap_err().to_string();
    assert!(e.contains("invalid auth token"), "{e}");
    let mut root = server.admin(Some(("root", "all"))).await;
    root.put("/muster/v1/a", "1", None).await.unwrap();
    until("the watch", async || mirror.borrow().entries.len() == 2).await;
    store.apply(&[], &[put("/muster/v1/b", "2")]).await.unwrap();
    until("the write", async || mirror.borrow().entries.len() == 3).await;
    assert_eq!(mirror.borrow().store_error, None);

    // A vmd that starts while etcd is away logs in when it is back; so does one that runs.
    server.stop();
    let late = open(&login(&server, "secret")).await.unwrap();
    assert!(late.get("/muster/v1/a").await.is_err());
    server.again();
    for store in [&store, &late] {
        until("etcd again", async || {
            store.get("/muster/v1/a").await.is_ok()
        })
        .await;
    }
    let key = "/muster/v1/c";
    late.apply(&[], &[put(key, "3")]).await.unwrap();
    until("the mirror", async || {
        mirror.borrow().entries.contains_key(key)
    })
    .await;

    let mut watch = store.watch("/other/", 1).await.unwrap();
    let e = watch.next().await.unwrap_err().to_string();
    assert!(e.contains("permission denied"), "{e}");
    alive.withdraw().await;
    assert_eq!(store.get("/muster/v1/alive").await.unwrap(), None);
}
