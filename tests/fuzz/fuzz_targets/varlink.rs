//! Messages on Muster's sockets: however they arrive in pieces, the same messages are read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_types::varlink::{Call, FrameError, Frames, Reply, encode};

/// Small, so that the limit is met.
const MOST: usize = 512;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(piece).max(1)));
    for message in whole.iter().flatten() {
        let encoded = encode(message).expect("a message that was read");
        assert_eq!(read(&encoded, encoded.len())[..1], [Ok(message.clone())]);
    }
    let mut replies = Frames::new(MOST);
    replies.push(bytes);
    // Each message is a reply or a mistake; the loop ends with the bytes.
    while let Ok(Some(_)) | Err(FrameError::Json(_)) = replies.take::<Reply>() {}
});

/// All calls of a stream that arrives in pieces of `size` bytes.
fn read(bytes: &[u8], size: usize) -> Vec<Result<Call, FrameError>> {
    let mut frames = Frames::new(MOST);
    let mut read = Vec::new();
    for piece in bytes.chunks(size) {
        frames.push(piece);
        loop {
            match frames.take() {
                Ok(Some(call)) => read.push(Ok(call)),
                Ok(None) => break,
                Err(FrameError::TooLarge(most)) => {
                    read.push(Err(FrameError::TooLarge(most)));
                    return read;
                }
                Err(error) => read.push(Err(error)),
            }
        }
    }
    assert!(frames.into_rest().len() <= MOST);
    read
}
