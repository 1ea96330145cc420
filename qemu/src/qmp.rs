//! Messages of the QEMU Machine Protocol (QEMU's docs/interop/qmp-spec): a JSON object a line.
//!
//! Commands are those of `qapi-qmp`; replies and events are kept as raw values, because a newer QEMU
//! than the schema may say more. QEMU's words may hold a guest's, so that the size of a message is
//! limited.

use qapi_qmp::QmpCommand;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The largest message in bytes that is taken.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// A message from QEMU.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The first one of a connection.
    Greeting,
    /// A command went well.
    Return {
        /// The command's id.
        id: Option<u64>,
        /// What it returned.
        value: Value,
    },
    /// A command failed; without an id, QEMU could not read it.
    Error {
        /// The command's id.
        id: Option<u64>,
        /// QEMU's words.
        description: String,
    },
    /// Something happened.
    Event(Event),
}

/// An event, also one that this program does not know.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its name, `SHUTDOWN`.
    pub name: String,
    /// What it says.
    pub data: Value,
}

/// What a `SHUTDOWN` event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shutdown {
    /// The guest wanted it.
    pub guest: bool,
    /// Why, in QEMU's words (`guest-shutdown`, `host-qmp-quit`, `host-signal` ...).
    pub reason: String,
}

impl Event {
    /// What it says, if it is a `SHUTDOWN`.
    #[must_use]
    pub fn shutdown(&self) -> Option<Shutdown> {
        (self.name == "SHUTDOWN").then(|| Shutdown {
            guest: self.data["guest"].as_bool().unwrap_or(false),
            reason: self.data["reason"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

/// A message that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Over [`MAX_MESSAGE_BYTES`].
    #[error("QMP message larger than {MAX_MESSAGE_BYTES} bytes")]
    TooLarge,
    /// Not JSON, or of no known kind.
    #[error("QMP message does not parse: {0}")]
    Shape(String),
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "QMP")]
    greeting: Option<Value>,
    #[serde(default, rename = "return", deserialize_with = "present")]
    value: Option<Value>,
    error: Option<RawError>,
    event: Option<String>,
    #[serde(default)]
    data: Value,
    id: Option<Value>,
}

#[derive(Deserialize)]
struct RawError {
    #[serde(default)]
    desc: String,
}

/// `"return": null` is a reply, not the lack of one.
fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(d).map(Some)
}

/// Reads a line.
///
/// # Errors
/// It is no message of QMP.
pub fn parse(line: &[u8]) -> Result<Message, MessageError> {
    let raw: Raw = serde_json::from_slice(line).map_err(|e| MessageError::Shape(e.to_string()))?;
    let id = raw.id.as_ref().and_then(Value::as_u64);
    if let Some(value) = raw.value {
        Ok(Message::Return { id, value })
    } else if let Some(error) = raw.error {
        let description = error.desc;
        Ok(Message::Error { id, description })
    } else if let Some(name) = raw.event {
        let data = raw.data;
        Ok(Message::Event(Event { name, data }))
    } else if raw.greeting.is_some() {
        Ok(Message::Greeting)
    } else {
        Err(MessageError::Shape("of no known kind".to_owned()))
    }
}

/// Renders a command with its id, ended by a newline.
///
/// # Errors
/// Its arguments have no JSON form.
pub fn encode<C: QmpCommand>(id: u64, command: &C) -> Result<Vec<u8>, MessageError> {
    #[derive(Serialize)]
    struct Command<'a, C> {
        execute: &'static str,
        arguments: &'a C,
        id: u64,
    }
    let message = Command {
        execute: C::NAME,
        arguments: command,
        id,
    };
    let mut line = serde_json::to_vec(&message).map_err(|e| MessageError::Shape(e.to_string()))?;
    line.push(b'\n');
    Ok(line)
}

/// Cuts a byte stream into messages and bounds what it keeps.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// How much of the buffer is known to hold no end of line.
    searched: usize,
}

impl Lines {
    /// Takes bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, if one has arrived; empty lines are skipped. After an error the line is
    /// gone and the next one can be taken, unless it was too large.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn take(&mut self) -> Result<Option<Message>, MessageError> {
        loop {
            let Some(end) = self.buffer[self.searched..]
                .iter()
                .position(|&b| b == b'\n')
            else {
                self.searched = self.buffer.len();
                if self.buffer.len() > MAX_MESSAGE_BYTES {
                    return Err(MessageError::TooLarge);
                }
                return Ok(None);
            };
            let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
            self.searched = 0;
            if line.len() > MAX_MESSAGE_BYTES {
                return Err(MessageError::TooLarge);
            }
            if !line.trim_ascii().is_empty() {
                return parse(&line).map(Some);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_four_kinds_of_messages() {
        let greeting = br#"{"QMP": {"version": {"qemu": {"micro": 0, "minor": 1, "major": 11}, "package": ""}, "capabilities": ["oob", "new"]}}"#;
        assert_eq!(parse(greeting).unwrap(), Message::Greeting);
        assert_eq!(
            parse(br#"{"return": null, "id": 3}"#).unwrap(),
            Message::Return {
                id: Some(3),
                value: Value::Null
            }
        );
        assert_eq!(
            parse(br#"{"id": 4, "error": {"class": "GenericError", "desc": "no"}}"#).unwrap(),
            Message::Error {
                id: Some(4),
                description: "no".into()
            }
        );
        let Message::Event(event) = parse(
            br#"{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-shutdown"}}"#,
        )
        .unwrap() else {
            panic!("no event")
        };
        let expected = Shutdown {
            guest: true,
            reason: "guest-shutdown".into(),
        };
        assert_eq!(event.shutdown(), Some(expected));
    }

    #[test]
    fn an_unknown_event_is_kept() {
        let Message::Event(event) =
            parse(br#"{"event": "FROM_THE_FUTURE", "data": {"x": [1]}}"#).unwrap()
        else {
            panic!("no event")
        };
        assert_eq!(
            (event.name.as_str(), event.data["x"][0].as_u64()),
            ("FROM_THE_FUTURE", Some(1))
        );
        assert_eq!(event.shutdown(), None);
    }

    #[test]
    fn commands_carry_their_arguments_and_id() {
        let line = encode(7, &qapi_qmp::quit {}).unwrap();
        assert_eq!(line, b"{\"execute\":\"quit\",\"arguments\":{},\"id\":7}\n");
        let line = encode(0, &qapi_qmp::qmp_capabilities { enable: None }).unwrap();
        assert_eq!(
            line,
            b"{\"execute\":\"qmp_capabilities\",\"arguments\":{},\"id\":0}\n"
        );
    }

    #[test]
    fn lines_arrive_in_pieces_and_bad_ones_do_not_stay() {
        let mut lines = Lines::default();
        lines.push(b"\r\nnonsense\n{\"event\":");
        assert!(lines.take().is_err());
        assert_eq!(lines.take().unwrap(), None);
        lines.push(b"\"A\"}\r\n{\"event\":\"B\"}\n");
        for name in ["A", "B"] {
            assert!(matches!(lines.take().unwrap(), Some(Message::Event(e)) if e.name == name));
        }
        assert_eq!(lines.take().unwrap(), None);
    }

    #[test]
    fn size_is_bounded() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MAX_MESSAGE_BYTES + 1]);
        assert_eq!(lines.take(), Err(MessageError::TooLarge));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut lines = Lines::default();
            lines.push(&bytes);
            for _ in 0..300 {
                if matches!(lines.take(), Ok(None)) { break; }
            }
        }
    }
}
