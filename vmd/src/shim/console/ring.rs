//! The last bytes of a stream, each with its position in the whole stream.

use std::collections::VecDeque;

/// A ring buffer of bytes.
#[derive(Debug)]
pub struct Ring {
    bytes: VecDeque<u8>,
    capacity: usize,
    end: u64,
}

/// A piece of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Bytes between the wanted position and this piece that are no longer held.
    pub skipped: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Position behind them.
    pub end: u64,
}

impl Ring {
    /// An empty one that holds up to `capacity` bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            bytes: VecDeque::with_capacity(capacity),
            capacity,
            end: 0,
        }
    }

    /// Position of the oldest byte held.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.end - as_u64(self.bytes.len())
    }

    /// Position behind the newest byte: how many there ever were.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Appends; the oldest bytes make room.
    pub fn push(&mut self, bytes: &[u8]) {
        self.end += as_u64(bytes.len());
        let bytes = &bytes[bytes.len().saturating_sub(self.capacity)..];
        let over = (self.bytes.len() + bytes.len()).saturating_sub(self.capacity);
        self.bytes.drain(..over);
        self.bytes.extend(bytes);
    }

    /// Up to `most` bytes from `position` on, or from the oldest that is held.
    #[must_use]
    pub fn read(&self, position: u64, most: usize) -> Piece {
        let from = position.clamp(self.start(), self.end);
        let skip = usize::try_from(from - self.start()).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = self.bytes.iter().skip(skip).take(most).copied().collect();
        Piece {
            skipped: from.saturating_sub(position),
            end: from + as_u64(bytes.len()),
            bytes,
        }
    }
}

fn as_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_oldest_bytes_make_room() {
        let mut ring = Ring::new(4);
        ring.push(b"abc");
        ring.push(b"def");
        assert_eq!((ring.start(), ring.end()), (2, 6));
        let piece = ring.read(0, 100);
        assert_eq!(
            (piece.skipped, piece.bytes.as_slice(), piece.end),
            (2, b"cdef".as_slice(), 6)
        );
        assert_eq!(ring.read(4, 1).bytes, b"e");
        assert_eq!(ring.read(6, 9).bytes, b"");
        ring.push(b"0123456789");
        assert_eq!(ring.read(0, 100).bytes, b"6789");
    }

    proptest! {
        #[test]
        fn it_is_the_tail_of_the_stream(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 0..20), from in 0_u64..100, most in 0_usize..20) {
            let mut ring = Ring::new(8);
            let mut all = Vec::new();
            for piece in &pieces {
                ring.push(piece);
                all.extend_from_slice(piece);
            }
            let piece = ring.read(from, most);
            let end = usize::try_from(piece.end).unwrap();
            prop_assert_eq!(&all[end - piece.bytes.len()..end], piece.bytes.as_slice());
            prop_assert!(piece.bytes.len() <= most.min(8));
        }
    }
}
