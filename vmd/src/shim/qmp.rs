//! A connection to a QEMU's monitor, with a deadline for every command.
//!
//! One task owns it, the VM's. Events that arrive while a command waits for its reply are kept for
//! [`Monitor::event`]; replies that come after their command was given up are dropped.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use muster_qemu::qmp::{self, Event, Lines, Message, MessageError};
use qapi_qmp::QmpCommand;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tracing::{debug, trace};

/// The most events that are kept while a command waits; the oldest that is no SHUTDOWN goes first.
const MOST_EVENTS: usize = 256;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// The socket failed.
    #[error("QMP socket")]
    Io(#[source] io::Error),
    /// QEMU closed it.
    #[error("QEMU closed its QMP socket")]
    Closed,
    /// QEMU's bytes make no sense.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// QEMU refuses the command.
    #[error("QMP {command}: {description}")]
    Refused {
        /// The command.
        command: &'static str,
        /// QEMU's words.
        description: String,
    },
    /// Nothing came in time.
    #[error("QMP {what}: no answer within {} ms", .limit.as_millis())]
    Late {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
}

/// The monitor of a QEMU.
#[derive(Debug)]
pub struct Monitor {
    stream: UnixStream,
    lines: Lines,
    events: VecDeque<Event>,
    next_id: u64,
}

impl Monitor {
    /// Wraps a connected socket.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            lines: Lines::default(),
            events: VecDeque::new(),
            next_id: 0,
        }
    }

    /// Waits for QEMU's greeting and leaves the mode in which it takes nothing but capabilities.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn greet(&mut self, limit: Duration) -> Result<(), QmpError> {
        let greeting = async {
            while self.message().await? != Message::Greeting {}
            Ok::<(), QmpError>(())
        };
        match timeout(limit, greeting).await {
            Ok(done) => done?,
            Err(_) => {
                return Err(QmpError::Late {
                    what: "greeting",
                    limit,
                });
            }
        }
        let command = qapi_qmp::qmp_capabilities { enable: None };
        self.execute(&command, limit).await.map(|_| ())
    }

    /// Runs a command and returns what it returned, as it came.
    ///
    /// # Errors
    /// See [`QmpError`]. After one that is neither `Refused` nor `Late` the monitor is of no more use.
    pub async fn execute<C: QmpCommand>(
        &mut self,
        command: &C,
        limit: Duration,
    ) -> Result<Value, QmpError> {
        let id = self.next_id;
        self.next_id += 1;
        let line = qmp::encode(id, command)?;
        let exchange = async {
            self.stream.write_all(&line).await.map_err(QmpError::Io)?;
            self.reply(id, C::NAME).await
        };
        match timeout(limit, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(QmpError::Late {
                what: C::NAME,
                limit,
            }),
        }
    }

    async fn reply(&mut self, id: u64, command: &'static str) -> Result<Value, QmpError> {
        loop {
            match self.message().await? {
                Message::Return { id: Some(i), value } if i == id => return Ok(value),
                // An error without an id: QEMU could not even read the command.
                Message::Error {
                    id: i, description, ..
                } if i.is_none_or(|i| i == id) => {
                    return Err(QmpError::Refused {
                        command,
                        description,
                    });
                }
                Message::Event(event) => self.keep(event),
                other => debug!(?other, "late or unknown"),
            }
        }
    }

    /// The next event. May be dropped while it waits; nothing is lost.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn event(&mut self) -> Result<Event, QmpError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            match self.message().await? {
                Message::Event(event) => return Ok(event),
                other => debug!(?other, "late or unknown"),
            }
        }
    }

    fn keep(&mut self, event: Event) {
        if self.events.len() >= MOST_EVENTS {
            let oldest = self.events.iter().position(|e| e.name != "SHUTDOWN");
            self.events.remove(oldest.unwrap_or(0));
        }
        self.events.push_back(event);
    }

    async fn message(&mut self) -> Result<Message, QmpError> {
        let mut chunk = [0_u8; 8 * 1024];
        loop {
            if let Some(message) = self.lines.take()? {
                trace!(?message);
                return Ok(message);
            }
            match self.stream.read(&mut chunk).await {
                Ok(0) => return Err(QmpError::Closed),
                Ok(n) => self.lines.push(&chunk[..n]),
                // QEMU died with a command unread.
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(QmpError::Closed);
                }
                Err(e) => return Err(QmpError::Io(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);
    const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}"#;

    fn pair() -> (Monitor, UnixStream) {
        let (ours, peer) = UnixStream::pair().unwrap();
        (Monitor::new(ours), peer)
    }

    /// Reads commands, a line each, and answers each with the lines of the script, `$` being its id.
    async fn play(mut peer: UnixStream, script: &[&str]) -> UnixStream {
        let mut buffer = Vec::new();
        for answer in script {
            while !buffer.contains(&b'\n') {
                let mut chunk = [0; 1024];
                let n = peer.read(&mut chunk).await.unwrap();
                assert!(n > 0);
                buffer.extend_from_slice(&chunk[..n]);
            }
            let end = buffer.iter().position(|b| *b == b'\n').unwrap();
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let command: Value = serde_json::from_slice(&line).unwrap();
            let text = answer.replace('$', &command["id"].to_string());
            peer.write_all(text.as_bytes()).await.unwrap();
        }
        peer
    }

    #[tokio::test]
    async fn greeting_commands_and_events_in_between() {
        let (mut monitor, mut peer) = pair();
        let script = [
            "{\"return\": {}, \"id\": $}\n",
            "{\"event\": \"RESUME\"}\n{\"event\": \"FROM_THE_FUTURE\", \"data\": 1}\n{\"return\": {\"running\": true}, \"id\": $}\n",
        ];
        let qemu = tokio::spawn(async move {
            peer.write_all(format!("{GREETING}\r\n").as_bytes())
                .await
                .unwrap();
            play(peer, &script).await
        });
        monitor.greet(SOON).await.unwrap();
        let status = monitor.execute(&qapi_qmp::query_status {}, SOON).await;
        assert_eq!(status.unwrap()["running"], true);
        assert_eq!(monitor.event().await.unwrap().name, "RESUME");
        assert_eq!(monitor.event().await.unwrap().name, "FROM_THE_FUTURE");
        drop(qemu.await.unwrap());
        assert!(matches!(monitor.event().await, Err(QmpError::Closed)));
    }

    #[tokio::test]
    async fn a_late_reply_is_not_taken_for_the_next_one() {
        let (mut monitor, peer) = pair();
        let qemu = tokio::spawn(play(
            peer,
            &[
                "",
                "{\"return\": \"late\", \"id\": 0}\n{\"return\": \"mine\", \"id\": $}\n",
            ],
        ));
        let short = Duration::from_millis(20);
        let e = monitor.execute(&qapi_qmp::cont {}, short).await;
        assert!(matches!(e, Err(QmpError::Late { what: "cont", .. })));
        let value = monitor.execute(&qapi_qmp::cont {}, SOON).await;
        assert_eq!(value.unwrap(), "mine");
        qemu.await.unwrap();
    }

    #[tokio::test]
    async fn refusals_nonsense_and_death_are_told_apart() {
        let (mut monitor, peer) = pair();
        let qemu = tokio::spawn(play(
            peer,
            &[
                "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}, \"id\": $}\n",
                "\u{1}\u{2}nonsense\n",
            ],
        ));
        let e = monitor.execute(&qapi_qmp::cont {}, SOON).await;
        assert!(matches!(e, Err(QmpError::Refused { description, .. }) if description == "no"));
        let e = monitor.execute(&qapi_qmp::cont {}, SOON).await;
        assert!(matches!(e, Err(QmpError::Message(_))));
        drop(qemu.await.unwrap());
        let e = monitor.execute(&qapi_qmp::cont {}, SOON).await;
        assert!(matches!(e, Err(QmpError::Closed | QmpError::Io(_))));
    }

    #[tokio::test]
    async fn a_flood_of_events_keeps_the_shutdown() {
        let (mut monitor, peer) = pair();
        let mut flood = String::from("{\"event\": \"SHUTDOWN\"}\n");
        for _ in 0..MOST_EVENTS * 2 {
            flood.push_str("{\"event\": \"RESET\"}\n");
        }
        flood.push_str("{\"return\": {}, \"id\": $}\n");
        let qemu = tokio::spawn(async move { play(peer, &[&flood]).await });
        monitor.execute(&qapi_qmp::cont {}, SOON).await.unwrap();
        assert_eq!(monitor.events.len(), MOST_EVENTS);
        assert_eq!(monitor.event().await.unwrap().name, "SHUTDOWN");
        qemu.await.unwrap();
    }
}
