//! A VM's serial console: a ring buffer that QEMU's bytes go to, and everybody reads at their own pace.
//!
//! ```text
//! QEMU -> pump -> ring -> readers (sessions, the log), each with its own position
//!               <- the one writer
//! ```
//!
//! Nobody who reads can hold the guest or another reader up: who is too slow finds that the ring has
//! gone on, and is told how many bytes are lost.

pub mod log;
pub mod ring;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use self::log::{Log, LogError};
use self::ring::Ring;
use crate::chain::chain;

/// Bytes that the ring holds.
pub const RING_BYTES: usize = 64 * 1024;

/// The most bytes that a reader takes at once.
const PIECE_BYTES: usize = 16 * 1024;

/// Pieces of input that wait for the guest; then the writer waits.
const INPUT_PIECES: usize = 16;

/// A VM's console, from before its QEMU starts until the shim ends.
#[derive(Debug)]
pub struct Console {
    ring: Mutex<Ring>,
    /// Position behind the newest byte, and whether no more come.
    progress: watch::Sender<(u64, bool)>,
    input: mpsc::Sender<Vec<u8>>,
    has_writer: AtomicBool,
    log: Mutex<Option<Log>>,
    log_path: PathBuf,
}

/// The guest's side of the input.
#[derive(Debug)]
pub struct Input(mpsc::Receiver<Vec<u8>>);

impl Console {
    /// A console whose log is to be at `log_path`.
    #[must_use]
    pub fn new(log_path: PathBuf) -> (Arc<Self>, Input) {
        let (input, receiver) = mpsc::channel(INPUT_PIECES);
        let console = Self {
            ring: Mutex::new(Ring::new(RING_BYTES)),
            progress: watch::Sender::new((0, false)),
            input,
            has_writer: AtomicBool::new(false),
            log: Mutex::new(None),
            log_path,
        };
        (Arc::new(console), Input(receiver))
    }

    /// Where the log is.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log_path
    }

    /// Carries bytes between QEMU and the ring until QEMU closes its end.
    pub async fn pump(&self, stream: UnixStream, mut input: Input) {
        let (mut from_guest, mut to_guest) = stream.into_split();
        let output = async {
            let mut chunk = vec![0_u8; PIECE_BYTES];
            loop {
                match from_guest.read(&mut chunk).await {
                    Ok(0) | Err(_) => return,
                    Ok(n) => self.take(&chunk[..n]),
                }
            }
        };
        let typing = async {
            while let Some(bytes) = input.0.recv().await {
                if to_guest.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = output => {}
            () = typing => {}
        }
        self.close();
    }

    fn take(&self, bytes: &[u8]) {
        let end = {
            let mut ring = lock(&self.ring);
            ring.push(bytes);
            ring.end()
        };
        self.progress.send_modify(|p| p.0 = end);
    }

    /// No more bytes come: readers end when they have read what is there.
    pub fn close(&self) {
        self.progress.send_modify(|p| p.1 = true);
    }

    /// A reader that first gets what the ring still holds.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> Reader {
        let position = lock(&self.ring).start();
        self.reader_at(position)
    }

    fn reader_at(self: &Arc<Self>, position: u64) -> Reader {
        Reader {
            console: Arc::clone(self),
            progress: self.progress.subscribe(),
            position,
        }
    }

    /// The right to write, if nobody has it.
    #[must_use]
    pub fn writer(self: &Arc<Self>) -> Option<Writer> {
        let taken = self.has_writer.swap(true, Ordering::AcqRel);
        (!taken).then(|| Writer {
            console: Arc::clone(self),
        })
    }

    /// Writes the log until the console is closed, or until it cannot be written: then the reason.
    pub async fn write_log(self: Arc<Self>, limit: u64) -> Option<String> {
        let mut reader = self.reader();
        let create = Arc::clone(&self);
        let mut done = tokio::task::spawn_blocking(move || {
            *lock(&create.log) = Some(Log::create(&create.log_path, limit)?);
            Ok::<(), LogError>(())
        })
        .await;
        loop {
            match done {
                Ok(Ok(())) => {}
                Ok(Err(e)) => return Some(chain(&e)),
                Err(_) => return Some("the work was broken off".to_owned()),
            }
            let bytes = reader.next().await?;
            let position = reader.position;
            let console = Arc::clone(&self);
            done = tokio::task::spawn_blocking(move || match lock(&console.log).as_mut() {
                Some(log) => log.append(&bytes, position),
                None => Ok(()),
            })
            .await;
        }
    }

    /// What the log holds, and a reader of what comes behind it.
    ///
    /// # Errors
    /// A file cannot be read.
    pub async fn logged(self: &Arc<Self>) -> Result<(Vec<u8>, Reader), LogError> {
        let console = Arc::clone(self);
        let read = move || match lock(&console.log).as_ref() {
            Some(log) => log.contents(),
            None => Ok((Vec::new(), 0)),
        };
        let contents = tokio::task::spawn_blocking(read).await;
        // A read that was broken off has the shim's end as its cause.
        let (bytes, position) = contents.unwrap_or_else(|_| Ok((Vec::new(), 0)))?;
        Ok((bytes, self.reader_at(position)))
    }
}

/// Reads a console at its own pace.
#[derive(Debug)]
pub struct Reader {
    console: Arc<Console>,
    progress: watch::Receiver<(u64, bool)>,
    position: u64,
}

impl Reader {
    /// The next bytes; `None` when the console is closed and all is read. May be dropped while it
    /// waits.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let position = self.position;
        let news = self.progress.wait_for(|p| p.0 > position || p.1).await;
        drop(news);
        self.ready()
    }

    /// What is there now, without waiting.
    pub fn ready(&mut self) -> Option<Vec<u8>> {
        let piece = lock(&self.console.ring).read(self.position, PIECE_BYTES);
        self.position = piece.end;
        if piece.bytes.is_empty() {
            return None;
        }
        if piece.skipped == 0 {
            return Some(piece.bytes);
        }
        let note = format!("\r\n[muster: {} bytes skipped]\r\n", piece.skipped);
        Some([note.into_bytes(), piece.bytes].concat())
    }
}

/// The right to write to a console; given back when dropped.
#[derive(Debug)]
pub struct Writer {
    console: Arc<Console>,
}

impl Writer {
    /// Sends bytes to the guest; waits while the guest does not take them. Whether it ever will.
    pub async fn send(&self, bytes: &[u8]) -> bool {
        self.console.input.send(bytes.to_vec()).await.is_ok()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.console.has_writer.store(false, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(5);

    async fn read_all(mut reader: Reader) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = reader.next().await {
            all.extend(bytes);
        }
        all
    }

    #[tokio::test]
    async fn readers_see_what_was_and_what_comes() {
        let dir = tempfile::tempdir().unwrap();
        let (console, input) = Console::new(dir.path().join("console.log"));
        let (mut guest, ours) = UnixStream::pair().unwrap();
        let early = tokio::spawn(read_all(console.reader()));
        let log = tokio::spawn(Arc::clone(&console).write_log(log::FILE_BYTES));
        let pump = tokio::spawn({
            let console = Arc::clone(&console);
            async move { console.pump(ours, input).await }
        });
        guest.write_all(b"login: ").await.unwrap();
        let mut late = console.reader();
        assert_eq!(
            timeout(SOON, late.next()).await.unwrap().unwrap(),
            b"login: "
        );

        let writer = console.writer().unwrap();
        assert!(console.writer().is_none());
        assert!(writer.send(b"root\n").await);
        let mut typed = [0; 5];
        guest.read_exact(&mut typed).await.unwrap();
        assert_eq!(&typed, b"root\n");
        drop(writer);
        assert!(console.writer().is_some());

        guest.write_all(b"bye").await.unwrap();
        drop(guest);
        pump.await.unwrap();
        assert_eq!(timeout(SOON, early).await.unwrap().unwrap(), b"login: bye");
        assert_eq!(read_all(late).await, b"bye");
        assert_eq!(timeout(SOON, log).await.unwrap().unwrap(), None);
        let (logged, mut rest) = console.logged().await.unwrap();
        assert_eq!(
            (logged.as_slice(), rest.next().await),
            (b"login: bye".as_slice(), None)
        );
    }

    #[tokio::test]
    async fn a_slow_reader_loses_bytes_and_holds_nobody_up() {
        let (console, input) = Console::new("/nonexistent/log".into());
        let (mut guest, ours) = UnixStream::pair().unwrap();
        let mut slow = console.reader();
        let pump = tokio::spawn({
            let console = Arc::clone(&console);
            async move { console.pump(ours, input).await }
        });
        let flood = vec![b'x'; 4 * RING_BYTES];
        timeout(SOON, guest.write_all(&flood))
            .await
            .unwrap()
            .unwrap();
        drop(guest);
        pump.await.unwrap();
        let first = String::from_utf8(slow.next().await.unwrap()).unwrap();
        let lost = 3 * RING_BYTES;
        assert!(first.starts_with(&format!("\r\n[muster: {lost} bytes skipped]\r\nxxx")));
        let why = Arc::clone(&console)
            .write_log(log::FILE_BYTES)
            .await
            .unwrap();
        assert!(why.starts_with("create /nonexistent/log: "), "{why}");
    }
}
