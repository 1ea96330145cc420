//! A connection to the node's vmd on which no operation outlasts a deadline.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use muster_types::api::Method;
use muster_types::client::{CallError, Client};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt::SendTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// Pause between two tries to connect.
const RETRY: Duration = Duration::from_millis(100);

/// Why vmd did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum VmdError {
    /// No connection.
    #[error("connect to {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the last try ended with.
        source: io::Error,
    },
    /// Connected, but no result.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl VmdError {
    /// Whether vmd itself answered, if only with an error.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Call(CallError::Api(_)))
    }

    /// Whether another try could go better: vmd is gone, as in a restart. Not after a deadline.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Connect { source, .. } => may_come_back(source),
            Self::Call(CallError::Io { source, .. }) => source.kind() != io::ErrorKind::TimedOut,
            Self::Call(_) => false,
        }
    }
}

/// Calls a method over a connection of its own. A vmd that does not listen is waited for as long as
/// `patience`, so that its restart is not felt.
///
/// # Errors
/// See [`VmdError`].
pub fn call<M: Method>(
    path: &Path,
    method: &M,
    patience: Duration,
    deadline: Instant,
) -> Result<M::Reply, VmdError> {
    let stream = reach(path, patience, deadline).map_err(|source| VmdError::Connect {
        path: path.to_owned(),
        source,
    })?;
    Ok(Client::new(Timed { stream, deadline }).call(method)?)
}

fn reach(path: &Path, patience: Duration, deadline: Instant) -> io::Result<UnixStream> {
    let give_up = deadline.min(Instant::now() + patience);
    loop {
        match open(path, deadline) {
            Ok(stream) => return Ok(stream),
            Err(e) if may_come_back(&e) && Instant::now() + RETRY < give_up => sleep(RETRY),
            Err(e) => return Err(e),
        }
    }
}

/// No socket, or nobody behind it.
fn may_come_back(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Connects. A listener whose queue is full blocks connect(2) without end unless the socket has a
/// send timeout (unix(7)), which `UnixStream::connect` cannot set before.
fn open(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let fd = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let left = i64::try_from(left(deadline)?.as_millis()).unwrap_or(i64::MAX);
    setsockopt(&fd, SendTimeout, &TimeVal::milliseconds(left.max(1)))?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)
        .map_err(|e| named(io::Error::from(e), "nobody takes the connection"))?;
    Ok(UnixStream::from(fd))
}

/// A stream whose reads and writes end at a deadline.
#[derive(Debug)]
struct Timed {
    stream: UnixStream,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(buf).map_err(|e| named(e, NO_ANSWER))
    }
}

impl Write for Timed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.deadline)?))?;
        self.stream.write(buf).map_err(|e| named(e, NO_ANSWER))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

const NO_ANSWER: &str = "no answer in time";

/// The time left, more than zero: zero would mean no limit to the socket.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left < Duration::from_millis(1) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, NO_ANSWER));
    }
    Ok(left)
}

/// A socket's time limit shows as `EAGAIN`, which says nothing to a reader.
fn named(e: io::Error, what: &'static str) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock {
        io::Error::new(io::ErrorKind::TimedOut, what)
    } else {
        e
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::verdict::chain;
    use muster_types::api::{GetStatus, ReleaseJob};
    use muster_types::ids::{JobId, JobKey};
    use std::os::unix::net::UnixListener;
    use std::thread;

    pub(crate) const KEY: JobKey = JobKey {
        job: JobId(7),
        restart: 0,
    };

    /// A vmd that gives one answer per connection and returns what it was asked.
    pub(crate) fn fake(
        path: &Path,
        answers: &'static [&'static str],
    ) -> thread::JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut peer, _) = listener.accept().unwrap();
                let (mut got, mut chunk) = (Vec::new(), [0; 4096]);
                while !got.ends_with(b"\0") {
                    let n = peer.read(&mut chunk).unwrap();
                    assert!(n > 0);
                    got.extend_from_slice(&chunk[..n]);
                }
                asked.push(String::from_utf8(got).unwrap());
                peer.write_all(answer.as_bytes()).unwrap();
            }
            asked
        })
    }

    fn within(ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(ms)
    }

    #[test]
    fn a_call_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let vmd = fake(&path, &["{\"parameters\":{\"problems\":[]}}\0"]);
        let reply = call(
            &path,
            &ReleaseJob { key: KEY },
            Duration::ZERO,
            within(2000),
        )
        .unwrap();
        assert!(reply.problems.is_empty());
        assert!(vmd.join().unwrap()[0].contains("io.muster.Vmd.ReleaseJob"));
    }

    #[test]
    fn nobody_there_is_named_with_the_socket() {
        let path = Path::new("/nonexistent/vmd.sock");
        let e = call(path, &GetStatus {}, Duration::ZERO, within(2000)).unwrap_err();
        assert!(e.is_lost() && !e.is_answer());
        assert_eq!(
            chain(&e),
            "connect to /nonexistent/vmd.sock: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn a_restart_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let late = path.clone();
        let vmd = thread::spawn(move || {
            thread::sleep(Duration::from_millis(250));
            fake(&late, &["{}\0"]).join().unwrap()
        });
        let done = call(
            &path,
            &muster_types::api::RegisterJob {
                facts: crate::prolog::tests::facts(),
                request: None,
            },
            Duration::from_secs(5),
            within(5000),
        );
        assert!(done.is_ok(), "{done:?}");
        vmd.join().unwrap();
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let start = Instant::now();
        let e = call(&path, &GetStatus {}, Duration::from_secs(9), within(300)).unwrap_err();
        assert!(chain(&e).ends_with("no answer in time"), "{}", chain(&e));
        assert!(start.elapsed() < Duration::from_secs(3));
        drop(listener);
    }

    #[test]
    fn a_full_queue_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        // std listens with a queue of 128 on Linux; more than that are never accepted here.
        let mut held = Vec::new();
        let start = Instant::now();
        while let Ok(stream) = open(&path, within(200)) {
            held.push(stream);
            assert!(held.len() < 10_000 && start.elapsed() < Duration::from_secs(20));
        }
        let e = open(&path, within(200)).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        drop(listener);
    }
}
