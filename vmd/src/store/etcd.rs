//! The etcd back end (v3 API).
//!
//! The connection is made lazily and again after a loss; every request has a deadline. A login is
//! made before the first request that can be made, and again when etcd no longer knows the token.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, EventType, GetOptions,
    Identity, KvClient, LeaseClient, TlsOptions, Txn, TxnOp, TxnOpResponse, WatchOptions,
    WatchResponse, WatchStream,
};
use tokio::sync::{OnceCell, mpsc};
use tokio::time::timeout;
use tracing::warn;

use super::lease::Keeper;
use super::{
    Announcement, Change, Entry, Guard, Listing, StateStore, StoreError, Watch, Write, check,
    prefix_end,
};
use crate::chain::chain;

/// The deadline of one request.
const REQUEST: Duration = Duration::from_secs(5);

/// The deadline of connecting to one endpoint.
const CONNECT: Duration = Duration::from_secs(2);

/// Keys of one page of a list.
const PAGE: i64 = 256;

/// The largest answer that is taken, as etcd's own client has it; gRPC's default is 4 MiB.
const ANSWER_BYTES: usize = i32::MAX.unsigned_abs() as usize;

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
    login: Option<(String, String)>,
    /// Set once a login was taken; shared by all clones.
    logged_in: Arc<OnceCell<()>>,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// Makes a client. An etcd that does not answer is no error; a login waits for it 2 s and is
    /// then made with the first request that can be made.
    ///
    /// # Errors
    /// A certificate or key cannot be read, an endpoint is no URL, or etcd refuses the login.
    pub async fn open(config: &EtcdConfig) -> Result<Self, StoreError> {
        let name = config.endpoints.join(",");
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            .with_keep_alive_while_idle(true)
            .with_tcp_keepalive(Duration::from_secs(30))
            // A member that is cut off from the others must not leave a watch silent.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if config.ca_cert.is_some() || config.client_cert.is_some() {
            options = options.with_tls(tls(config)?);
        }
        let client = match Client::connect(&config.endpoints, Some(options)).await {
            Ok(client) => client,
            Err(source) => {
                return Err(StoreError::Etcd {
                    operation: "connect",
                    store: name,
                    words: words(&source),
                });
            }
        };
        let store = Self {
            client,
            name,
            login: config.login.clone(),
            logged_in: Arc::default(),
        };
        match timeout(CONNECT, store.log_in()).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) if is_passing(&e) => {
                warn!(
                    etcd = store.name,
                    error = words(&e),
                    "etcd does not answer yet"
                );
            }
            Ok(Err(source)) => {
                return Err(StoreError::Etcd {
                    operation: "log in",
                    store: store.name,
                    words: words(&source),
                });
            }
            Err(_) => warn!(etcd = store.name, "etcd does not answer yet"),
        }
        Ok(store)
    }

    async fn log_in(&self) -> Result<(), etcd_client::Error> {
        let Some(login) = &self.login else {
            return Ok(());
        };
        let log_in = async || {
            // All clones of a client share its token.
            self.client.clone().update_user(Some(login.clone())).await
        };
        self.logged_in.get_or_try_init(log_in).await?;
        Ok(())
    }

    /// Makes a request, logged in, within the deadline.
    pub(super) async fn within<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, StoreError> {
        let request = async {
            self.log_in().await?;
            let answer = request.await;
            if matches!(&answer, Err(e) if is_outdated(e)) {
                self.client.refresh_token().await?;
            }
            answer
        };
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

    pub(super) fn keys(&self) -> KvClient {
        let keys = self.client.kv_client();
        keys.max_decoding_message_size(ANSWER_BYTES)
    }

    pub(super) fn leases(&self) -> LeaseClient {
        self.client.lease_client()
    }
}

/// Whether the token is of a time before the users or roles were changed: the client does not get a
/// new one by itself then. The next request has it.
fn is_outdated(e: &etcd_client::Error) -> bool {
    matches!(e, etcd_client::Error::GRpcStatus(status)
        if status.message() == "etcdserver: revision of auth store is old")
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
        let mut keys = self.keys();
        let answer = self.within("read", keys.get(key, None)).await?;
        Ok(answer.kvs().first().map(entry))
    }

    async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        let mut keys = self.keys();
        let mut from = prefix_start(prefix);
        let mut listing = Listing {
            entries: Vec::new(),
            revision: 0,
        };
        loop {
            // All pages are of the first one's revision.
            let options = GetOptions::new()
                .with_range(prefix_end(prefix))
                .with_limit(PAGE)
                .with_revision(listing.revision);
            let page = self.within("list", keys.get(from, Some(options))).await?;
            if listing.revision == 0 {
                listing.revision = revision(page.header());
            }
            listing.entries.extend(page.kvs().iter().map(entry));
            match page.kvs().last() {
                Some(last) if page.more() => {
                    from = last.key().to_vec();
                    from.push(0);
                }
                _ => return Ok(listing),
            }
        }
    }

    async fn apply(&self, guards: &[Guard], writes: &[Write]) -> Result<i64, StoreError> {
        check(guards, writes)?;
        let compares = guards.iter().map(|guard| match guard {
            Guard::Absent(key) => Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
            Guard::Revision(key, at) => Compare::mod_revision(key.as_str(), CompareOp::Equal, *at),
        });
        let operations = writes.iter().map(|write| match write {
            Write::Put { key, value } => TxnOp::put(key.as_str(), value.as_slice(), None),
            Write::Delete { key } => TxnOp::delete(key.as_str(), None),
            Write::DeletePrefix { prefix } => {
                let options = DeleteOptions::new().with_range(prefix_end(prefix));
                TxnOp::delete(prefix_start(prefix), Some(options))
            }
        });
        // Otherwise the guarded keys are read, to tell which one it was.
        let reads = guards.iter().map(|guard| {
            let options = GetOptions::new().with_keys_only();
            TxnOp::get(guard.key(), Some(options))
        });
        let txn = Txn::new()
            .when(compares.collect::<Vec<_>>())
            .and_then(operations.collect::<Vec<_>>())
            .or_else(reads.collect::<Vec<_>>());
        let mut keys = self.keys();
        let answer = self.within("write", keys.txn(txn)).await?;
        if answer.succeeded() {
            return Ok(revision(answer.header()));
        }
        Err(conflict(guards, &answer.op_responses()))
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        let watches = self.client.watch_client();
        let mut watches = watches.max_decoding_message_size(ANSWER_BYTES);
        let options = WatchOptions::new()
            .with_range(prefix_end(prefix))
            .with_start_revision(from);
        let stream = self
            .within("watch", watches.watch(prefix_start(prefix), Some(options)))
            .await?;
        let (changes, receiver) = mpsc::channel(64);
        let feed = Feed {
            stream,
            from,
            store: self.name.clone(),
        };
        tokio::spawn(feed.run(changes));
        Ok(Watch::new(receiver))
    }

    async fn announce(&self, key: &str, value: &[u8]) -> Result<Announcement, StoreError> {
        let (withdraw, asked) = mpsc::channel(1);
        let keeper = Keeper {
            store: self.clone(),
            key: key.to_owned(),
            value: value.to_vec(),
        };
        tokio::spawn(keeper.run(asked));
        Ok(Announcement::new(withdraw))
    }
}

/// Takes a watch's answers to whoever reads them.
struct Feed {
    stream: WatchStream,
    from: i64,
    store: String,
}

impl Feed {
    /// Runs until the watch ends or nobody reads it any more.
    async fn run(mut self, changes: mpsc::Sender<Result<Vec<Change>, StoreError>>) {
        loop {
            let batch = tokio::select! {
                message = self.stream.message() => match message {
                    Ok(Some(answer)) => self.batch(&answer),
                    Ok(None) => Err(StoreError::Ended),
                    Err(source) => Err(StoreError::Etcd {
                        operation: "watch",
                        store: self.store.clone(),
                        words: words(&source),
                    }),
                },
                () = changes.closed() => return,
            };
            let over = batch.is_err();
            // That the watch was made is an answer without changes.
            if matches!(&batch, Ok(batch) if batch.is_empty()) {
                continue;
            }
            if changes.send(batch).await.is_err() || over {
                return;
            }
        }
    }

    fn batch(&self, answer: &WatchResponse) -> Result<Vec<Change>, StoreError> {
        if !answer.canceled() {
            return Ok(answer.events().iter().filter_map(change).collect());
        }
        if answer.compact_revision() > 0 {
            return Err(StoreError::Compacted(self.from));
        }
        Err(StoreError::Canceled {
            store: self.store.clone(),
            reason: answer.cancel_reason().to_owned(),
        })
    }
}

/// The first guard that does not hold, by what was read after the transaction was refused.
fn conflict(guards: &[Guard], reads: &[TxnOpResponse]) -> StoreError {
    let revisions = reads.iter().map(|read| match read {
        TxnOpResponse::Get(get) => get.kvs().first().map(etcd_client::KeyValue::mod_revision),
        _ => None,
    });
    let failed = guards.iter().zip(revisions).find(|(g, at)| !g.holds(*at));
    let guard = failed.map(|(guard, _)| guard).or(guards.first());
    StoreError::Conflict {
        key: guard.map(Guard::key).unwrap_or_default().to_owned(),
    }
}

fn revision(header: Option<&etcd_client::ResponseHeader>) -> i64 {
    header.map_or(0, etcd_client::ResponseHeader::revision)
}

/// The first key of a prefix; etcd takes no empty key.
fn prefix_start(prefix: &str) -> Vec<u8> {
    if prefix.is_empty() {
        return vec![0];
    }
    prefix.as_bytes().to_vec()
}

fn change(event: &etcd_client::Event) -> Option<Change> {
    let kv = event.kv()?;
    Some(Change {
        key: String::from_utf8_lossy(kv.key()).into_owned(),
        value: (event.event_type() == EventType::Put).then(|| kv.value().to_vec()),
        revision: kv.mod_revision(),
    })
}
