//! A two-way byte stream: a socket, or the two pipes of a process.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A byte stream with a time limit on each read.
#[derive(Debug)]
pub(crate) struct Link {
    ends: Ends,
    limit: Option<Duration>,
}

#[derive(Debug)]
enum Ends {
    Socket(UnixStream),
    Pipes(ChildStdin, ChildStdout),
}

impl Link {
    pub(crate) fn socket(stream: UnixStream, limit: Option<Duration>) -> Self {
        Self {
            ends: Ends::Socket(stream),
            limit,
        }
    }

    pub(crate) fn pipes(to: ChildStdin, from: ChildStdout) -> Self {
        Self {
            ends: Ends::Pipes(to, from),
            limit: None,
        }
    }

    /// How long a read may wait; for ever without a limit.
    pub(crate) fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// Makes reads and writes return at once, for use with poll(2).
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        for fd in [self.read_fd(), self.write_fd()] {
            let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
            fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Ok(())
    }

    /// Where bytes come from.
    pub(crate) fn read_fd(&self) -> BorrowedFd<'_> {
        match &self.ends {
            Ends::Socket(stream) => stream.as_fd(),
            Ends::Pipes(_, from) => from.as_fd(),
        }
    }

    /// Where bytes go.
    pub(crate) fn write_fd(&self) -> BorrowedFd<'_> {
        match &self.ends {
            Ends::Socket(stream) => stream.as_fd(),
            Ends::Pipes(to, _) => to.as_fd(),
        }
    }
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(limit) = self.limit {
            let mut fds = [PollFd::new(self.read_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
            if poll(&mut fds, timeout)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        match &mut self.ends {
            Ends::Socket(stream) => stream.read(buffer),
            Ends::Pipes(_, from) => from.read(buffer),
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.ends {
            Ends::Socket(stream) => stream.write(bytes),
            Ends::Pipes(to, _) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.ends {
            Ends::Socket(stream) => stream.flush(),
            Ends::Pipes(to, _) => to.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_has_a_limit() {
        let (a, mut b) = UnixStream::pair().unwrap();
        let mut link = Link::socket(a, Some(Duration::from_millis(20)));
        let mut buffer = [0; 4];
        let late = link.read(&mut buffer).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        b.write_all(b"hi").unwrap();
        assert_eq!(link.read(&mut buffer).unwrap(), 2);
    }
}
