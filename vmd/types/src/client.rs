//! A small blocking client of a varlink service, over any byte stream.
//!
//! The plugin and the command use it over a Unix socket that they opened and set time limits on; this
//! crate opens none itself.

use std::io::{self, Read, Write};

use crate::api::{ApiError, Method};
use crate::varlink::{self, Call, FrameError, Frames, Reply};

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The socket failed, or a time limit set on it ran out.
    #[error("call {method}")]
    Io {
        /// The method.
        method: &'static str,
        /// What the socket said.
        source: io::Error,
    },
    /// The other side's bytes make no sense.
    #[error("call {method}")]
    Protocol {
        /// The method.
        method: &'static str,
        /// What is wrong with them.
        source: FrameError,
    },
    /// The service's answer is an error.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// A call as it goes over the wire, with its NUL byte.
///
/// # Errors
/// The parameters have no JSON form.
pub fn encode_call<M: Method>(parameters: &M, upgrade: bool) -> Result<Vec<u8>, CallError> {
    let protocol = |source| CallError::Protocol {
        method: M::NAME,
        source,
    };
    let json = |e: serde_json::Error| protocol(FrameError::Json(e.to_string()));
    let call = Call {
        method: M::NAME.to_owned(),
        parameters: serde_json::to_value(parameters).map_err(json)?,
        more: false,
        oneway: false,
        upgrade,
    };
    varlink::encode(&call).map_err(protocol)
}

/// A connection to a varlink service.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    frames: Frames,
}

impl<S: Read + Write> Client<S> {
    /// Speaks varlink over a connected stream.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            frames: Frames::new(varlink::MAX_REPLY_BYTES),
        }
    }

    /// Calls a method and waits for its reply.
    ///
    /// # Errors
    /// See [`CallError`]. After any but [`CallError::Api`] the connection is of no more use.
    pub fn call<M: Method>(&mut self, parameters: &M) -> Result<M::Reply, CallError> {
        self.send(parameters, false)
    }

    /// Calls a method after which the connection carries raw bytes; returns the reply, the stream, and
    /// the bytes that came with the reply.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn upgrade<M: Method>(
        mut self,
        parameters: &M,
    ) -> Result<(M::Reply, S, Vec<u8>), CallError> {
        let reply = self.send(parameters, true)?;
        Ok((reply, self.stream, self.frames.into_rest()))
    }

    fn send<M: Method>(&mut self, parameters: &M, upgrade: bool) -> Result<M::Reply, CallError> {
        let io = |source| CallError::Io {
            method: M::NAME,
            source,
        };
        let protocol = |source| CallError::Protocol {
            method: M::NAME,
            source,
        };
        let json = |e: serde_json::Error| protocol(FrameError::Json(e.to_string()));
        let bytes = encode_call(parameters, upgrade)?;
        self.stream.write_all(&bytes).map_err(io)?;
        self.stream.flush().map_err(io)?;
        let reply = self.receive(io, protocol)?;
        if let Some(name) = reply.error {
            let message = reply.parameters.get("message").and_then(|m| m.as_str());
            return Err(ApiError::from_wire(&name, message.unwrap_or_default().to_owned()).into());
        }
        let parameters = match reply.parameters {
            serde_json::Value::Null => serde_json::Value::Object(serde_json::Map::new()),
            other => other,
        };
        serde_json::from_value(parameters).map_err(json)
    }

    fn receive(
        &mut self,
        io: impl Fn(io::Error) -> CallError,
        protocol: impl Fn(FrameError) -> CallError,
    ) -> Result<Reply, CallError> {
        let mut chunk = [0_u8; 16 * 1024];
        loop {
            if let Some(reply) = self.frames.take::<Reply>().map_err(&protocol)? {
                return Ok(reply);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => self.frames.push(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(io(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GetCluster, ReleaseJob, Released};
    use crate::ids::{JobId, JobKey};

    /// A peer that answers what it is given and keeps what it was sent.
    struct Script {
        answers: io::Cursor<Vec<u8>>,
        sent: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.answers.read(buf)
        }
    }

    impl Write for Script {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.sent.write(buf)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(answers: &[u8]) -> Client<Script> {
        Client::new(Script {
            answers: io::Cursor::new(answers.to_vec()),
            sent: Vec::new(),
        })
    }

    #[test]
    fn a_call_is_one_object_and_a_nul() {
        let mut c = client(b"{\"parameters\":{\"problems\":[\"x\"]}}\0");
        let key = JobKey {
            job: JobId(3),
            restart: 0,
        };
        assert_eq!(
            c.call(&ReleaseJob { key }).unwrap(),
            Released {
                problems: vec!["x".into()]
            }
        );
        let sent = String::from_utf8(c.stream.sent).unwrap();
        assert_eq!(
            sent,
            "{\"method\":\"io.muster.Vmd.ReleaseJob\",\"parameters\":{\"key\":{\"job\":3,\"restart\":0}}}\0"
        );
    }

    #[test]
    fn an_error_reply_becomes_an_error() {
        let mut c = client(b"{\"error\":\"io.muster.Vmd.NoSuchCluster\",\"parameters\":{\"message\":\"no cluster of job 9\"}}\0");
        let e = c.call(&GetCluster { job: JobId(9) }).unwrap_err();
        assert!(
            matches!(e, CallError::Api(ApiError::NoSuchCluster(m)) if m == "no cluster of job 9")
        );
    }

    #[test]
    fn a_dead_or_mad_peer_is_an_error() {
        let call = GetCluster { job: JobId(9) };
        assert!(matches!(client(b"").call(&call), Err(CallError::Io { .. })));
        assert!(matches!(
            client(b"\xff\0").call(&call),
            Err(CallError::Protocol { .. })
        ));
    }
}
