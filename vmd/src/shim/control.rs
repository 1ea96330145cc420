//! The control socket: what a user does with the VMs of this node (`io.muster.Shim`).
//!
//! It belongs to the user and is mode 0600; the peer's uid is checked all the same.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use muster_types::api::{Empty, Method};
use muster_types::ids::Rank;
use muster_types::shim_api::{self, Attached, ConsoleLog, IDL, INTERFACE, List, Stop, Vms};
use muster_types::varlink::{Call, Reply};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, warn};

use super::board::Board;
use super::console::{Console, Reader, Writer};
use super::vm::Wish;
use crate::chain::chain;
use crate::wire::{self, Connection};

/// Connections at once; more are turned away.
const MOST_CONNECTIONS: usize = 128;

/// The longest time that a user may give a VM to power down.
const LONGEST_STOP: Duration = Duration::from_secs(24 * 60 * 60);

/// The control socket cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("{call} control socket {path}")]
pub struct ControlError {
    call: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// How the shim reaches a VM.
#[derive(Debug)]
pub struct VmHandle {
    /// Its console.
    pub console: Arc<Console>,
    /// Its task.
    pub wishes: mpsc::Sender<Wish>,
}

/// What the control socket answers from.
#[derive(Debug)]
pub struct Control {
    board: Arc<Board>,
    vms: BTreeMap<Rank, VmHandle>,
    stop_timeout: Duration,
}

/// A control that listens.
#[derive(Debug)]
pub struct Listening {
    control: Arc<Control>,
    listener: UnixListener,
}

/// A refused call: name on the wire, and a message that is fit to be shown.
#[derive(Debug, PartialEq, Eq)]
struct Refused(&'static str, String);

/// What a call leads to.
enum Answer {
    Reply(Reply),
    /// The connection becomes a console.
    Session(Reply, Reader, Option<Writer>),
    /// The connection becomes a log.
    Log(Reply, Vec<u8>, Reader, bool),
}

impl Control {
    /// A control of no VMs yet.
    #[must_use]
    pub fn new(board: Arc<Board>, stop_timeout_ms: u64) -> Self {
        Self {
            board,
            vms: BTreeMap::new(),
            stop_timeout: Duration::from_millis(stop_timeout_ms),
        }
    }

    /// Adds a VM.
    pub fn add(&mut self, rank: Rank, handle: VmHandle) {
        self.vms.insert(rank, handle);
    }

    /// Listens at `path`; a socket of an earlier shim is replaced.
    ///
    /// # Errors
    /// The directory is missing or not the user's.
    pub fn bind(self, path: &Path) -> Result<Listening, ControlError> {
        let failed = |call| {
            move |source| ControlError {
                call,
                path: path.to_path_buf(),
                source,
            }
        };
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("remove old")(e)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed("bind"))?;
        // Its directory is the user's alone, so that nobody slips in before.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(failed("set the mode of"))?;
        Ok(Listening {
            control: Arc::new(self),
            listener,
        })
    }

    fn vm(&self, rank: Rank) -> Result<&VmHandle, Refused> {
        self.vms.get(&rank).ok_or_else(|| no_vm(rank))
    }

    async fn answer(&self, call: &Call) -> Result<Answer, Refused> {
        if let Some(reply) = wire::introspection(call, INTERFACE, IDL) {
            return Ok(Answer::Reply(reply));
        }
        match call.method.as_str() {
            List::NAME => {
                let vms = self.board.vms();
                success(&Vms { vms }).map(Answer::Reply)
            }
            Stop::NAME => {
                self.stop(parse(call)?).await?;
                success(&Empty {}).map(Answer::Reply)
            }
            shim_api::Console::NAME => {
                let shim_api::Console { rank, write } = parse(call)?;
                upgraded(call)?;
                let console = &self.vm(rank)?.console;
                let writer = if write { console.writer() } else { None };
                let attached = Attached {
                    writer: writer.is_some(),
                };
                Ok(Answer::Session(
                    success(&attached)?,
                    console.reader(),
                    writer,
                ))
            }
            ConsoleLog::NAME => {
                let ConsoleLog { rank, follow } = parse(call)?;
                upgraded(call)?;
                let logged = self.vm(rank)?.console.logged().await;
                let (bytes, reader) = logged.map_err(|e| Refused("Internal", chain(&e)))?;
                Ok(Answer::Log(success(&Empty {})?, bytes, reader, follow))
            }
            other => Ok(Answer::Reply(wire::failure(
                "org.varlink.service",
                "MethodNotFound",
                &format!("no method {other}"),
            ))),
        }
    }

    async fn stop(&self, stop: Stop) -> Result<(), Refused> {
        let limit = stop.timeout_ms.map(Duration::from_millis);
        let limit = limit.unwrap_or(self.stop_timeout).min(LONGEST_STOP);
        let wish = if stop.force {
            Wish::End
        } else {
            Wish::PowerDown(limit)
        };
        // All are known before the first is stopped. A VM that never began is over.
        let known = self.board.vms();
        if let Some(rank) = stop
            .ranks
            .iter()
            .find(|r| !known.iter().any(|v| v.rank == **r))
        {
            return Err(no_vm(*rank));
        }
        for vm in stop.ranks.iter().filter_map(|rank| self.vms.get(rank)) {
            if vm.wishes.send(wish).await.is_err() {
                debug!("a VM whose task is gone has nothing left to stop");
            }
        }
        self.board.over(&stop.ranks).await;
        Ok(())
    }
}

fn no_vm(rank: Rank) -> Refused {
    Refused("NoSuchVm", format!("{rank} is not on this node"))
}

fn upgraded(call: &Call) -> Result<(), Refused> {
    if call.upgrade {
        Ok(())
    } else {
        let what = format!("{} is called with 'upgrade'", call.method);
        Err(Refused("InvalidCall", what))
    }
}

fn parse<T: DeserializeOwned>(call: &Call) -> Result<T, Refused> {
    serde_json::from_value(call.parameters.clone())
        .map_err(|e| Refused("InvalidCall", format!("{}: {e}", call.method)))
}

fn success<T: Serialize>(value: &T) -> Result<Reply, Refused> {
    wire::success(value).map_err(|e| Refused("Internal", e.to_string()))
}

impl Listening {
    /// Answers for ever.
    pub async fn serve(self) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(e) => {
                    // Out of descriptors, most likely: connections that end give some back.
                    warn!(error = %e, "accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let own = nix::unistd::geteuid().as_raw();
            let allowed = wire::peer(&stream).is_ok_and(|p| p.uid == own || p.uid == 0);
            let place = Arc::clone(&places).try_acquire_owned();
            if let (true, Ok(place)) = (allowed, place) {
                let control = Arc::clone(&self.control);
                tokio::spawn(async move {
                    talk(&control, stream).await;
                    drop(place);
                });
            }
        }
    }
}

/// Serves one connection until it ends or becomes a stream of bytes.
async fn talk(control: &Control, stream: UnixStream) {
    let mut connection = Connection::accepted(stream, "the user".to_owned());
    loop {
        let call = match connection.receive::<Call>().await {
            Ok(Some(call)) => call,
            Ok(None) => return,
            Err(e) => {
                let reply = wire::failure(INTERFACE, "InvalidCall", &chain(&e));
                drop(connection.send(&reply).await);
                return;
            }
        };
        debug!(call.method, "call");
        // A wish stands, also when nobody waits for its end any more.
        let answer = tokio::select! {
            answer = control.answer(&call) => answer,
            () = connection.hung_up() => return,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(Refused(name, message)) => Answer::Reply(wire::failure(INTERFACE, name, &message)),
        };
        let (Answer::Reply(reply) | Answer::Session(reply, ..) | Answer::Log(reply, ..)) = &answer;
        let sent = call.oneway || connection.send(reply).await.is_ok();
        match answer {
            _ if !sent => return,
            Answer::Reply(_) => {}
            Answer::Session(_, reader, writer) => {
                let (stream, early) = connection.into_raw();
                return session(stream, early, reader, writer).await;
            }
            Answer::Log(_, bytes, reader, follow) => {
                let (stream, _) = connection.into_raw();
                return send_log(stream, &bytes, reader, follow).await;
            }
        }
    }
}

/// A console on a connection, until the user closes it or the console is closed.
async fn session(stream: UnixStream, early: Vec<u8>, mut reader: Reader, writer: Option<Writer>) {
    let (mut from_user, mut to_user) = stream.into_split();
    let output = async {
        while let Some(bytes) = reader.next().await {
            if to_user.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let input = async {
        let mut bytes = early;
        let mut chunk = [0_u8; 4096];
        loop {
            if let Some(writer) = &writer
                && !bytes.is_empty()
                && !writer.send(&bytes).await
            {
                // The guest is gone; its last words are still on their way.
                std::future::pending::<()>().await;
            }
            match from_user.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(n) => bytes = chunk[..n].to_vec(),
            }
        }
    };
    tokio::select! {
        () = output => {}
        () = input => {}
    }
}

/// A log on a connection: what is there, and if wanted what comes, until the console is closed.
async fn send_log(mut stream: UnixStream, bytes: &[u8], mut reader: Reader, follow: bool) {
    if stream.write_all(bytes).await.is_err() {
        return;
    }
    // What the log's own reader has not written yet.
    while let Some(bytes) = reader.ready() {
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
    if follow {
        session(stream, Vec::new(), reader, None).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::board::tests::vms;
    use muster_types::client::{CallError, Client};
    use muster_types::state::VmPhase;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream as StdUnixStream;

    /// A control of one VM, its guest's end of the console, and where the VM's wishes arrive.
    struct Bench {
        _dir: tempfile::TempDir,
        socket: PathBuf,
        board: Arc<Board>,
        guest: UnixStream,
        wishes: mpsc::Receiver<Wish>,
    }

    fn bench() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("ctl.sock");
        let board = Arc::new(Board::new(&vms(1)));
        let (console, input) = Console::new(dir.path().join("console.log"));
        let (guest, ours) = UnixStream::pair().unwrap();
        let (wish, wishes) = mpsc::channel(1);
        let mut control = Control::new(Arc::clone(&board), 1000);
        let handle = VmHandle {
            console: Arc::clone(&console),
            wishes: wish,
        };
        control.add(Rank(0), handle);
        tokio::spawn(control.bind(&socket).unwrap().serve());
        tokio::spawn(Arc::clone(&console).write_log(1024));
        tokio::spawn(async move { console.pump(ours, input).await });
        Bench {
            _dir: dir,
            socket,
            board,
            guest,
            wishes,
        }
    }

    fn connect(socket: &Path) -> Client<StdUnixStream> {
        let stream = StdUnixStream::connect(socket).unwrap();
        let limit = Some(Duration::from_secs(5));
        stream.set_read_timeout(limit).unwrap();
        Client::new(stream)
    }

    async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
        tokio::task::spawn_blocking(f).await.unwrap()
    }

    #[tokio::test]
    async fn vms_are_listed_and_stopped() {
        let mut bench = bench();
        let mode = std::fs::metadata(&bench.socket).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let socket = bench.socket.clone();
        let user = tokio::spawn(blocking(move || {
            let mut client = connect(&socket);
            let vms = client.call(&List {}).unwrap().vms;
            assert_eq!((vms.len(), vms[0].phase), (1, VmPhase::Pending));
            let stop = |ranks| Stop {
                ranks,
                force: false,
                timeout_ms: None,
            };
            let e = client.call(&stop(vec![Rank(0), Rank(7)])).unwrap_err();
            assert!(matches!(e, CallError::Api(e) if e.to_string().contains("vm7")));
            client.call(&stop(vec![Rank(0)])).unwrap();
        }));
        let wish = bench.wishes.recv().await.unwrap();
        assert_eq!(wish, Wish::PowerDown(Duration::from_secs(1)));
        assert!(!user.is_finished());
        bench.board.update(Rank(0), |v| v.phase = VmPhase::Stopped);
        user.await.unwrap();
    }

    #[tokio::test]
    async fn one_writes_and_all_read() {
        let mut bench = bench();
        bench.guest.write_all(b"login: ").await.unwrap();
        let attach = |write| {
            let socket = bench.socket.clone();
            blocking(move || {
                let call = shim_api::Console {
                    rank: Rank(0),
                    write,
                };
                let (attached, mut stream, mut bytes) = connect(&socket).upgrade(&call).unwrap();
                let mut rest = vec![0; 7 - bytes.len()];
                stream.read_exact(&mut rest).unwrap();
                bytes.extend(rest);
                assert_eq!(bytes, b"login: ");
                (attached.writer, stream)
            })
        };
        let (first, mut stream) = attach(true).await;
        let (second, other) = attach(true).await;
        let (third, _reader) = attach(false).await;
        assert_eq!((first, second, third), (true, false, false));
        (&other).write_all(b"ignored").unwrap();
        stream.write_all(b"root\n").unwrap();
        let mut typed = [0; 5];
        bench.guest.read_exact(&mut typed).await.unwrap();
        assert_eq!(&typed, b"root\n");

        // The console ends with QEMU.
        drop(bench.guest);
        let rest = blocking(move || {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            rest
        });
        assert_eq!(rest.await, b"");
    }

    #[tokio::test]
    async fn the_log_is_what_was_and_what_comes() {
        let mut bench = bench();
        let text = "0123456789abcdef".repeat(90);
        bench.guest.write_all(text.as_bytes()).await.unwrap();
        let log = |follow| {
            let socket = bench.socket.clone();
            blocking(move || {
                let call = ConsoleLog {
                    rank: Rank(0),
                    follow,
                };
                let (_, mut stream, mut bytes) = connect(&socket).upgrade(&call).unwrap();
                stream.read_to_end(&mut bytes).unwrap();
                String::from_utf8(bytes).unwrap()
            })
        };
        assert_eq!(log(false).await, text);
        let follower = tokio::spawn(log(true));
        bench.guest.write_all(b"more").await.unwrap();
        drop(bench.guest);
        assert_eq!(follower.await.unwrap(), format!("{text}more"));
    }

    #[tokio::test]
    async fn a_console_is_only_given_to_who_takes_bytes() {
        let bench = bench();
        let socket = bench.socket.clone();
        blocking(move || {
            let call = shim_api::Console {
                rank: Rank(0),
                write: true,
            };
            let e = connect(&socket).call(&call).unwrap_err();
            assert!(e.to_string().contains("upgrade"), "{e}");
            let call = ConsoleLog {
                rank: Rank(9),
                follow: false,
            };
            let e = connect(&socket).upgrade(&call).unwrap_err();
            assert!(e.to_string().contains("vm9 is not on this node"), "{e}");
        })
        .await;
    }
}
