//! The etcd back end (v3 API).
//!
//! The connection is made lazily and again after a loss; every request has a deadline. A vmd has one
//! lease, kept by the task behind its [`Announcement`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, EventType, GetOptions,
    Identity, PutOptions, TlsOptions, Txn, TxnOp, WatchOptions,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, timeout};
use tracing::{info, warn};

use super::{
    Announcement, Change, Entry, Guard, LEASE_SECONDS, Listing, StateStore, StoreError, Watch,
    Write, check_size, conflict, prefix_end,
};
use crate::chain::chain;

/// The deadline of one request.
const REQUEST: Duration = Duration::from_secs(5);

/// The deadline of connecting to one endpoint.
const CONNECT: Duration = Duration::from_secs(2);

/// How etcd is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// URLs, `https://host:2379`.
    pub endpoints: Vec<String>,
    /// The authority that signed the servers' certificates.
    pub ca_cert: Option<PathBuf>,
    /// This client's certificate.
    pub client_cert: Option<PathBuf>,
    /// Its key.
    pub client_key: Option<PathBuf>,
    /// User and password.
    pub login: Option<(String, String)>,
}

/// A client of an etcd cluster.
#[derive(Clone)]
pub struct Etcd {
    client: Client,
    name: String,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// Makes a client. Without a login no request is made yet, so that an etcd that is down is no
    /// error; with one, the first token is waited for as long as it takes.
    ///
    /// # Errors
    /// A certificate or key cannot be read, or an endpoint is no URL.
    pub async fn open(config: &EtcdConfig) -> Result<Self, StoreError> {
        let name = config.endpoints.join(",");
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            .with_keep_alive_while_idle(true)
            .with_tcp_keepalive(Duration::from_secs(30));
        if config.ca_cert.is_some() || config.client_cert.is_some() {
            options = options.with_tls(tls(config)?);
        }
        if let Some((user, password)) = &config.login {
            options = options
                .with_user(user, password)
                .with_auto_token_refresh(true);
        }
        let mut tries = tokio::time::interval(CONNECT);
        loop {
            tries.tick().await;
            match Client::connect(&config.endpoints, Some(options.clone())).await {
                Ok(client) => return Ok(Self { client, name }),
                Err(e) if config.login.is_some() && is_passing(&e) => {
                    warn!(error = chain(&e), "etcd does not answer, trying again");
                }
                Err(source) => {
                    return Err(StoreError::Etcd {
                        operation: "connect",
                        store: name,
                        words: words(&source),
                    });
                }
            }
        }
    }

    async fn within<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, StoreError> {
        match timeout(REQUEST, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(StoreError::Etcd {
                operation,
                store: self.name.clone(),
                words: words(&source),
            }),
            Err(_) => Err(StoreError::TimedOut {
                operation,
                store: self.name.clone(),
                seconds: REQUEST.as_secs(),
            }),
        }
    }
}

/// What etcd or the connection to it says, in one line: the message of the status and what caused it.
fn words(e: &etcd_client::Error) -> String {
    let etcd_client::Error::GRpcStatus(status) = e else {
        return chain(e);
    };
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(inner) = source {
        source = inner.source();
        // Only the innermost names the cause; those between say 'transport error'.
        if source.is_none() {
            text = format!("{text}: {inner}");
        }
    }
    text
}

/// Whether waiting may help: the server is away, rather than that it refuses.
fn is_passing(e: &etcd_client::Error) -> bool {
    match e {
        etcd_client::Error::TransportError(_) | etcd_client::Error::IoError(_) => true,
        // gRPC's codes: cancelled, unknown, deadline exceeded, unavailable.
        etcd_client::Error::GRpcStatus(status) => {
            matches!(i32::from(status.code()), 1 | 2 | 4 | 14)
        }
        _ => false,
    }
}

fn tls(config: &EtcdConfig) -> Result<TlsOptions, StoreError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| StoreError::File {
            path: path.to_owned(),
            source,
        })
    };
    let mut tls = TlsOptions::new();
    if let Some(ca) = &config.ca_cert {
        tls = tls.ca_certificate(Certificate::from_pem(read(ca)?));
    }
    if let (Some(cert), Some(key)) = (&config.client_cert, &config.client_key) {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(tls)
}

fn entry(kv: &etcd_client::KeyValue) -> Entry {
    Entry {
        key: String::from_utf8_lossy(kv.key()).into_owned(),
        value: kv.value().to_vec(),
        revision: kv.mod_revision(),
    }
}

#[async_trait]
impl StateStore for Etcd {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let mut client = self.client.kv_client();
        let answer = self.within("read", client.get(key, None)).await?;
        Ok(answer.kvs().first().map(entry))
    }

    async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        let mut client = self.client.kv_client();
        let options = GetOptions::new().with_prefix();
        let answer = self
            .within("list", client.get(prefix, Some(options)))
            .await?;
        Ok(Listing {
            entries: answer.kvs().iter().map(entry).collect(),
            revision: answer
                .header()
                .map_or(0, etcd_client::ResponseHeader::revision),
        })
    }

    async fn apply(&self, guards: &[Guard], writes: &[Write]) -> Result<i64, StoreError> {
        check_size(guards, writes)?;
        let compares = guards.iter().map(|guard| match guard {
            Guard::Absent(key) => Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
            Guard::Revision(key, at) => Compare::mod_revision(key.as_str(), CompareOp::Equal, *at),
        });
        let operations = writes.iter().map(|write| match write {
            Write::Put { key, value } => TxnOp::put(key.as_str(), value.as_slice(), None),
            Write::Delete { key } => TxnOp::delete(key.as_str(), None),
            Write::DeletePrefix { prefix } => {
                let options = DeleteOptions::new().with_range(prefix_end(prefix));
                TxnOp::delete(prefix.as_str(), Some(options))
            }
        });
        let txn = Txn::new()
            .when(compares.collect::<Vec<_>>())
            .and_then(operations.collect::<Vec<_>>());
        let mut client = self.client.kv_client();
        let answer = self.within("write", client.txn(txn)).await?;
        if !answer.succeeded() {
            return Err(conflict(guards));
        }
        Ok(answer
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision))
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        let mut client = self.client.watch_client();
        let options = WatchOptions::new()
            .with_range(prefix_end(prefix))
            .with_start_revision(from);
        let mut stream = self
            .within("watch", client.watch(prefix, Some(options)))
            .await?;
        let (changes, receiver) = mpsc::channel(64);
        let name = self.name.clone();
        tokio::spawn(async move {
            loop {
                let message = tokio::select! {
                    message = stream.message() => message,
                    () = changes.closed() => return,
                };
                let batch = match message {
                    Ok(Some(answer)) if answer.canceled() => {
                        Err(if answer.compact_revision() > 0 {
                            StoreError::Compacted(from)
                        } else {
                            StoreError::Ended
                        })
                    }
                    Ok(Some(answer)) => Ok(answer.events().iter().filter_map(change).collect()),
                    Ok(None) => Err(StoreError::Ended),
                    Err(source) => Err(StoreError::Etcd {
                        operation: "watch",
                        store: name.clone(),
                        words: words(&source),
                    }),
                };
                let over = batch.is_err();
                if changes.send(batch).await.is_err() || over {
                    return;
                }
            }
        });
        Ok(Watch::new(receiver))
    }

    async fn announce(&self, key: &str, value: &[u8]) -> Result<Announcement, StoreError> {
        let (withdraw, asked) = mpsc::channel(1);
        let (store, key, value) = (self.clone(), key.to_owned(), value.to_vec());
        tokio::spawn(async move { store.keep_announced(&key, &value, asked).await });
        Ok(Announcement::new(withdraw))
    }
}

fn change(event: &etcd_client::Event) -> Option<Change> {
    let kv = event.kv()?;
    Some(Change {
        key: String::from_utf8_lossy(kv.key()).into_owned(),
        value: (event.event_type() == EventType::Put).then(|| kv.value().to_vec()),
        revision: kv.mod_revision(),
    })
}

impl Etcd {
    /// Keeps a key on a lease until it is withdrawn; makes a new lease when the old one ran out.
    async fn keep_announced(
        &self,
        key: &str,
        value: &[u8],
        mut asked: mpsc::Receiver<oneshot::Sender<()>>,
    ) {
        let third = Duration::from_secs(u64::try_from(LEASE_SECONDS).unwrap_or(30) / 3);
        let mut ticks = tokio::time::interval(third);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let retry = Duration::from_secs(2);
        let mut lease = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                done = asked.recv() => {
                    // No sender: the announcement was dropped, and the lease runs out.
                    let Some(done) = done else { return };
                    if let Some(id) = lease {
                        let mut client = self.client.lease_client();
                        if let Err(e) = self.within("revoke the lease", client.revoke(id)).await {
                            warn!(error = chain(&e), "lease not revoked");
                        }
                    }
                    done.send(()).ok();
                    return;
                }
            }
            let kept = match lease {
                Some(id) => self.keep_lease(id).await,
                None => Ok(false),
            };
            let made = match kept {
                Ok(true) => continue,
                Ok(false) => self.make_lease(key, value).await,
                Err(e) => Err(e),
            };
            match made {
                Ok(id) => {
                    info!(key, "announced");
                    lease = Some(id);
                }
                Err(e) => {
                    warn!(error = chain(&e), "not announced, trying again");
                    ticks.reset_after(retry);
                }
            }
        }
    }

    async fn make_lease(&self, key: &str, value: &[u8]) -> Result<i64, StoreError> {
        let mut leases = self.client.lease_client();
        let granted = self
            .within("grant a lease", leases.grant(LEASE_SECONDS, None))
            .await?;
        let options = PutOptions::new().with_lease(granted.id());
        let mut client = self.client.kv_client();
        self.within("announce", client.put(key, value, Some(options)))
            .await?;
        Ok(granted.id())
    }

    /// Whether the lease is still there after being kept.
    async fn keep_lease(&self, id: i64) -> Result<bool, StoreError> {
        let mut client = self.client.lease_client();
        self.within("keep the lease", async {
            let (mut keeper, mut answers) = client.keep_alive(id).await?;
            keeper.keep_alive().await?;
            let answer = answers.message().await?;
            Ok(answer.is_some_and(|a| a.ttl() > 0))
        })
        .await
    }
}
