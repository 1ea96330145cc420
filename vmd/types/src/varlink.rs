//! The varlink wire format (<https://varlink.org/Protocol>): JSON objects, each ended by a NUL byte.
//!
//! Messages from peers that are not trusted are read through [`Frames`], which bounds their size.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The largest message in bytes that either side takes.
///
/// A request of 96 KiB doubles at most when its quotes are escaped; a cluster of 4096 VMs shown with
/// all details is the largest answer.
pub const MAX_CALL_BYTES: usize = 256 * 1024;

/// The largest reply in bytes that a client takes.
pub const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// A call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Interface and method, `io.muster.Vmd.RegisterJob`.
    pub method: String,
    /// The method's parameters, an object.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub parameters: Value,
    /// The caller takes several replies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The caller takes no reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oneway: bool,
    /// After the reply the connection carries raw bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upgrade: bool,
}

/// A reply; an error has a name and its parameters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Result, or the error's parameters.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub parameters: Value,
    /// More replies follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// Qualified name of the error, `io.muster.Vmd.NoSuchCluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A message that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Over the limit before its end.
    #[error("message larger than {0} bytes")]
    TooLarge(usize),
    /// Not JSON of the expected shape.
    #[error("message does not parse: {0}")]
    Json(String),
}

/// Cuts a byte stream into messages and bounds what it keeps.
#[derive(Debug)]
pub struct Frames {
    buffer: Vec<u8>,
    most: usize,
}

impl Frames {
    /// A reader of messages of at most `most` bytes each.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            buffer: Vec::new(),
            most,
        }
    }

    /// Takes bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, if one has arrived.
    ///
    /// # Errors
    /// The message at the head is larger than the limit, or not JSON of this shape.
    pub fn take<T: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(end) = self.buffer.iter().position(|&b| b == 0) else {
            if self.buffer.len() > self.most {
                return Err(FrameError::TooLarge(self.most));
            }
            return Ok(None);
        };
        if end > self.most {
            return Err(FrameError::TooLarge(self.most));
        }
        let parsed = serde_json::from_slice(&self.buffer[..end])
            .map_err(|e| FrameError::Json(e.to_string()));
        self.buffer.drain(..=end);
        parsed.map(Some)
    }

    /// The bytes behind the last message, for a connection that was upgraded.
    #[must_use]
    pub fn into_rest(self) -> Vec<u8> {
        self.buffer
    }
}

/// Renders a message with its NUL byte.
///
/// # Errors
/// The value has no JSON form (a map with keys that are no text).
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = serde_json::to_vec(message).map_err(|e| FrameError::Json(e.to_string()))?;
    bytes.push(0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_cut_at_nul() {
        let call = Call {
            method: "a.b".into(),
            parameters: serde_json::json!({"x": 1}),
            more: false,
            oneway: false,
            upgrade: true,
        };
        let bytes = encode(&call).unwrap();
        let mut frames = Frames::new(100);
        frames.push(&bytes[..5]);
        assert_eq!(frames.take::<Call>().unwrap(), None);
        frames.push(&bytes[5..]);
        frames.push(b"raw");
        assert_eq!(frames.take::<Call>().unwrap(), Some(call));
        assert_eq!(frames.into_rest(), b"raw");
    }

    #[test]
    fn size_is_bounded_with_and_without_an_end() {
        let mut frames = Frames::new(10);
        frames.push(&[b' '; 11]);
        assert_eq!(frames.take::<Call>(), Err(FrameError::TooLarge(10)));
        frames.push(&[0]);
        assert_eq!(frames.take::<Call>(), Err(FrameError::TooLarge(10)));
    }

    #[test]
    fn a_bad_message_does_not_stay_in_the_way() {
        let mut frames = Frames::new(100);
        frames.push(b"nonsense\0{\"method\":\"m\"}\0");
        assert!(frames.take::<Call>().is_err());
        assert_eq!(frames.take::<Call>().unwrap().unwrap().method, "m");
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut frames = Frames::new(100);
            frames.push(&bytes);
            for _ in 0..4 {
                if matches!(frames.take::<Call>(), Ok(None)) { break; }
            }
        }
    }
}
