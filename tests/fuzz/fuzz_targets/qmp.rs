//! What QEMU says, which may hold a guest's words: however it arrives in pieces, the same is read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_qemu::qmp::{Lines, Message, MessageError};

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(piece).max(1)));
    for message in whole.iter().flatten() {
        if let Message::Event(event) = message {
            assert_eq!(event.shutdown().is_some(), event.name == "SHUTDOWN");
        }
    }
});

/// All messages of a stream that arrives in pieces of `size` bytes.
fn read(bytes: &[u8], size: usize) -> Vec<Result<Message, MessageError>> {
    let mut lines = Lines::default();
    let mut read = Vec::new();
    for piece in bytes.chunks(size) {
        lines.push(piece);
        while let Some(message) = lines.take().transpose() {
            assert_ne!(message, Err(MessageError::TooLarge));
            read.push(message);
        }
    }
    read
}
