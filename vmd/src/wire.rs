//! Varlink over Unix sockets for tokio: the server side of vmd's and the shim's sockets, and the
//! client side that the shim uses towards vmd.
//!
//! zlink's server takes one call at a time and buffers up to 100 MB for a peer; calls here may wait
//! for minutes and peers are not trusted, so the framing is our own ([`muster_types::varlink`]).

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use muster_types::api::{ApiError, Method};
use muster_types::varlink::{
    self, Call, FrameError, Frames, MAX_CALL_BYTES, MAX_REPLY_BYTES, Reply,
};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// How often a peer that has sent its last byte is looked after.
const CLOSED_EVERY: Duration = Duration::from_secs(1);

/// Who is at the other end of a socket (`SO_PEERCRED`, unix(7)): fixed when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Effective user id.
    pub uid: u32,
    /// Process id; the process may be gone by now.
    pub pid: Option<i32>,
}

/// A failed exchange.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The socket failed.
    #[error("socket to {peer}")]
    Io {
        /// The other side.
        peer: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The other side ended the connection in the middle.
    #[error("{peer} closed the connection")]
    Closed {
        /// The other side.
        peer: String,
    },
    /// Its bytes make no sense.
    #[error("message from {peer}")]
    Frame {
        /// The other side.
        peer: String,
        /// What is wrong with them.
        source: FrameError,
    },
    /// It answered with an error.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// A connected socket that carries varlink messages.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    frames: Frames,
    name: String,
}

impl Connection {
    /// The server's end of an accepted connection.
    #[must_use]
    pub fn accepted(stream: UnixStream, name: String) -> Self {
        Self {
            stream,
            frames: Frames::new(MAX_CALL_BYTES),
            name,
        }
    }

    /// Connects to a service.
    ///
    /// # Errors
    /// Nobody listens at `path`, or it may not be used.
    pub async fn connect(path: &Path) -> Result<Self, WireError> {
        let name = path.display().to_string();
        match UnixStream::connect(path).await {
            Ok(stream) => Ok(Self {
                stream,
                frames: Frames::new(MAX_REPLY_BYTES),
                name,
            }),
            Err(source) => Err(WireError::Io { peer: name, source }),
        }
    }

    /// The next message; `None` when the other side is done.
    ///
    /// # Errors
    /// The socket failed, or the message is too large or makes no sense.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, WireError> {
        let mut chunk = [0_u8; 16 * 1024];
        loop {
            let message = self.frames.take().map_err(|source| self.frame(source))?;
            if message.is_some() {
                return Ok(message);
            }
            match self.stream.read(&mut chunk).await {
                Ok(0) => return Ok(None),
                Ok(n) => self.frames.push(&chunk[..n]),
                Err(source) => return Err(self.io(source)),
            }
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), WireError> {
        let bytes = varlink::encode(message).map_err(|source| self.frame(source))?;
        match self.stream.write_all(&bytes).await {
            Ok(()) => Ok(()),
            Err(source) => Err(self.io(source)),
        }
    }

    /// Calls a method and waits for its reply; the deadline is the caller's.
    ///
    /// # Errors
    /// The exchange failed, or the service answered with an error.
    pub async fn call<M: Method>(&mut self, parameters: &M) -> Result<M::Reply, WireError> {
        let parameters = serde_json::to_value(parameters).map_err(|e| self.json(&e))?;
        self.send(&Call {
            method: M::NAME.to_owned(),
            parameters,
            more: false,
            oneway: false,
            upgrade: false,
        })
        .await?;
        let Some(reply) = self.receive::<Reply>().await? else {
            return Err(WireError::Closed {
                peer: self.name.clone(),
            });
        };
        if let Some(name) = reply.error {
            let message = reply.parameters["message"].as_str().unwrap_or_default();
            return Err(ApiError::from_wire(&name, message.to_owned()).into());
        }
        let parameters = match reply.parameters {
            Value::Null => json!({}),
            other => other,
        };
        serde_json::from_value(parameters).map_err(|e| self.json(&e))
    }

    /// Returns when the other side has closed the connection while it waits for a reply. Bytes that
    /// it sends meanwhile stay unread; one that only says that it will send no more is still there.
    pub async fn hung_up(&self) {
        let mut byte = [0_u8; 1];
        loop {
            if self.stream.readable().await.is_err() {
                return;
            }
            match peek(&self.stream, &mut byte) {
                Ok(0) => return self.fully_closed().await,
                // A pipelined call: its reply goes to a live peer.
                Ok(_) => std::future::pending::<()>().await,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// After the peer's last byte: returns when its socket is closed. The end of its sending keeps
    /// the socket readable for ever, so that the kernel is asked instead of waited for.
    async fn fully_closed(&self) {
        let mut ticks = tokio::time::interval(CLOSED_EVERY);
        loop {
            ticks.tick().await;
            let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
            let asked = nix::poll::poll(&mut fds, PollTimeout::ZERO);
            let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
            if asked.is_err() || fds[0].revents().is_some_and(|r| r.intersects(gone)) {
                return;
            }
        }
    }

    /// The bare socket and the bytes that came behind the last message, after an upgrade.
    #[must_use]
    pub fn into_raw(self) -> (UnixStream, Vec<u8>) {
        (self.stream, self.frames.into_rest())
    }

    fn io(&self, source: io::Error) -> WireError {
        WireError::Io {
            peer: self.name.clone(),
            source,
        }
    }

    fn frame(&self, source: FrameError) -> WireError {
        WireError::Frame {
            peer: self.name.clone(),
            source,
        }
    }

    fn json(&self, e: &serde_json::Error) -> WireError {
        self.frame(FrameError::Json(e.to_string()))
    }
}

/// Looks at the first waiting byte without taking it; `Ok(0)` at the end of the stream.
fn peek(stream: &UnixStream, byte: &mut [u8; 1]) -> io::Result<usize> {
    use std::os::fd::AsRawFd;
    stream.try_io(tokio::io::Interest::READABLE, || {
        nix::sys::socket::recv(
            stream.as_raw_fd(),
            byte,
            nix::sys::socket::MsgFlags::MSG_PEEK | nix::sys::socket::MsgFlags::MSG_DONTWAIT,
        )
        .map_err(io::Error::from)
    })
}

/// The peer of an accepted connection.
///
/// # Errors
/// The kernel does not tell.
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let cred = stream.peer_cred()?;
    Ok(Peer {
        uid: cred.uid(),
        pid: cred.pid(),
    })
}

/// A good reply.
///
/// # Errors
/// The value has no JSON form.
pub fn success<T: Serialize>(value: &T) -> Result<Reply, serde_json::Error> {
    Ok(Reply {
        parameters: serde_json::to_value(value)?,
        ..Reply::default()
    })
}

/// An error reply: `<interface>.<name>` with a message that is fit to be shown.
#[must_use]
pub fn failure(interface: &str, name: &str, message: &str) -> Reply {
    Reply {
        parameters: json!({ "message": message }),
        continues: false,
        error: Some(format!("{interface}.{name}")),
    }
}

/// Answers the calls that every varlink service knows (`org.varlink.service`), and calls of unknown
/// interfaces. `None`: the call is one of `interface`.
#[must_use]
pub fn introspection(call: &Call, interface: &str, idl: &str) -> Option<Reply> {
    const SERVICE: &str = "org.varlink.service";
    let error = |name: &str, parameters: Value| Reply {
        parameters,
        continues: false,
        error: Some(format!("{SERVICE}.{name}")),
    };
    let (prefix, method) = call.method.rsplit_once('.').unwrap_or(("", &call.method));
    if prefix == interface {
        return None;
    }
    if prefix != SERVICE {
        return Some(error("InterfaceNotFound", json!({ "interface": prefix })));
    }
    let parameters = match method {
        "GetInfo" => json!({
            "vendor": "Muster", "product": interface, "version": env!("CARGO_PKG_VERSION"),
            "url": "", "interfaces": [SERVICE, interface],
        }),
        "GetInterfaceDescription" => match call.parameters["interface"].as_str() {
            Some(name) if name == interface => json!({ "description": idl }),
            Some(name) if name == SERVICE => json!({ "description": SERVICE_IDL }),
            other => {
                let asked = json!({ "interface": other.unwrap_or_default() });
                return Some(error("InterfaceNotFound", asked));
            }
        },
        _ => return Some(error("MethodNotFound", json!({ "method": call.method }))),
    };
    Some(Reply {
        parameters,
        ..Reply::default()
    })
}

/// The interface that the varlink protocol requires of every service.
const SERVICE_IDL: &str = "interface org.varlink.service

method GetInfo() -> (vendor: string, product: string, version: string, url: string, interfaces: []string)
method GetInterfaceDescription(interface: string) -> (description: string)

error InterfaceNotFound (interface: string)
error MethodNotFound (method: string)
error MethodNotImplemented (method: string)
error InvalidParameter (parameter: string)
";

#[cfg(test)]
mod tests {
    use super::*;
    use muster_types::api::{GetStatus, INTERFACE, VmdStatus};

    fn pair() -> (Connection, Connection) {
        let (a, b) = UnixStream::pair().unwrap();
        (
            Connection::accepted(a, "a".into()),
            Connection::accepted(b, "b".into()),
        )
    }

    #[tokio::test]
    async fn a_call_meets_its_reply() {
        let (mut client, mut server) = pair();
        let status = VmdStatus {
            version: "1".into(),
            gateway: false,
            store: "etcd".into(),
            store_error: None,
            jobs: 0,
        };
        let reply = status.clone();
        let serve = tokio::spawn(async move {
            let call: Call = server.receive().await.unwrap().unwrap();
            assert_eq!(call.method, GetStatus::NAME);
            server.send(&success(&reply).unwrap()).await.unwrap();
            server.receive::<Call>().await.unwrap()
        });
        assert_eq!(client.call(&GetStatus {}).await.unwrap(), status);
        drop(client);
        assert_eq!(serve.await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_peer_that_hangs_up_is_noticed() {
        let (client, server) = pair();
        drop(client);
        server.hung_up().await;
        let (mut client, server) = pair();
        client.send(&"pipelined").await.unwrap();
        let soon = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, server.hung_up()).await.is_err());
    }

    #[tokio::test]
    async fn a_peer_that_sends_no_more_still_gets_its_reply() {
        use tokio::io::AsyncWriteExt;
        let (client, server) = pair();
        let (mut stream, _) = client.into_raw();
        stream.shutdown().await.unwrap();
        let soon = Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, server.hung_up()).await.is_err());
        drop(stream);
        server.hung_up().await;
    }

    #[tokio::test]
    async fn errors_keep_their_name_and_message() {
        let (mut client, mut server) = pair();
        tokio::spawn(async move {
            server.receive::<Call>().await.unwrap();
            let reply = failure(INTERFACE, "Busy", "too many calls");
            server.send(&reply).await.unwrap();
        });
        let e = client.call(&GetStatus {}).await.unwrap_err();
        assert!(matches!(e, WireError::Api(ApiError::Busy(m)) if m == "too many calls"));
    }

    #[test]
    fn the_service_describes_itself() {
        let call = |method: &str, parameters| Call {
            method: method.into(),
            parameters,
            more: false,
            oneway: false,
            upgrade: false,
        };
        let answer = |c: &Call| introspection(c, INTERFACE, "idl");
        assert!(answer(&call("io.muster.Vmd.GetStatus", Value::Null)).is_none());
        let info = answer(&call("org.varlink.service.GetInfo", Value::Null)).unwrap();
        assert_eq!(info.parameters["interfaces"][1], INTERFACE);
        let d = call(
            "org.varlink.service.GetInterfaceDescription",
            json!({ "interface": INTERFACE }),
        );
        assert_eq!(answer(&d).unwrap().parameters["description"], "idl");
        let unknown = answer(&call("a.b.C", Value::Null)).unwrap();
        assert_eq!(
            unknown.error.unwrap(),
            "org.varlink.service.InterfaceNotFound"
        );
    }
}
