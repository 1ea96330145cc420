//! Carries bytes between a terminal and a console until one side ends.
//!
//! Everything goes through one poll(2), so that a guest that does not read its console cannot keep
//! the user from leaving it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Link;

/// The most bytes kept for a guest that does not take them.
const MOST_PENDING: usize = 64 * 1024;

/// How a pump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The console closed.
    Closed,
    /// The user left.
    Left,
    /// `alarm` became readable.
    Alarm,
}

/// What a pump does with the user's bytes: what to pass on, and whether the user leaves.
pub(crate) type Filter<'a> = dyn FnMut(&[u8]) -> (Vec<u8>, bool) + 'a;

/// The parts of a pump.
pub(crate) struct Pump<'a> {
    /// The console.
    pub(crate) link: Link,
    /// The user's bytes; their end does not end the pump.
    pub(crate) input: BorrowedFd<'a>,
    /// Whether bytes that find no room may be lost: at a terminal, where leaving must always work;
    /// others wait.
    pub(crate) lossy: bool,
    /// Where the console's bytes go.
    pub(crate) output: &'a mut dyn Write,
    /// Becomes readable when the pump must end.
    pub(crate) alarm: Option<BorrowedFd<'a>>,
}

impl Pump<'_> {
    /// Runs until one side ends.
    pub(crate) fn run(mut self, filter: &mut Filter<'_>) -> io::Result<End> {
        self.link.set_nonblocking()?;
        let mut pending: VecDeque<u8> = VecDeque::new();
        let mut input_open = true;
        loop {
            let listen = input_open && (self.lossy || pending.len() < MOST_PENDING);
            let ready = self.wait(listen, !pending.is_empty())?;
            if ready.alarm {
                return Ok(End::Alarm);
            }
            if ready.console && !self.read_console()? {
                return Ok(End::Closed);
            }
            if ready.input {
                let mut chunk = [0_u8; 4096];
                match nix::unistd::read(self.input, &mut chunk) {
                    Ok(0) | Err(Errno::EIO) => input_open = false,
                    Ok(n) => {
                        let (bytes, leave) = filter(&chunk[..n]);
                        let room = MOST_PENDING.saturating_sub(pending.len());
                        let most = if self.lossy { room } else { bytes.len() };
                        pending.extend(bytes.iter().take(most));
                        if leave {
                            // What was typed before still goes, if the guest takes it.
                            self.write_console(&mut pending)?;
                            return Ok(End::Left);
                        }
                    }
                    Err(Errno::EINTR | Errno::EAGAIN) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            if !self.write_console(&mut pending)? {
                return Ok(End::Closed);
            }
        }
    }

    /// Waits until something can be done.
    fn wait(&self, listen: bool, write: bool) -> io::Result<Ready> {
        // Only what is waited for is listed: poll(2) reports errors of all it is given, at once.
        let mut fds = vec![PollFd::new(self.link.read_fd(), PollFlags::POLLIN)];
        if write {
            fds.push(PollFd::new(self.link.write_fd(), PollFlags::POLLOUT));
        }
        if listen {
            fds.push(PollFd::new(self.input, PollFlags::POLLIN));
        }
        if let Some(alarm) = self.alarm {
            fds.push(PollFd::new(alarm, PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let any =
            |fd: Option<&PollFd<'_>>| fd.and_then(PollFd::revents).is_some_and(|r| !r.is_empty());
        Ok(Ready {
            console: any(fds.first()),
            input: listen && any(fds.get(1 + usize::from(write))),
            alarm: self.alarm.is_some() && any(fds.last()),
        })
    }

    /// Passes on what the console has; `false` at its end.
    fn read_console(&mut self) -> io::Result<bool> {
        let mut chunk = [0_u8; 16 * 1024];
        match self.link.read(&mut chunk) {
            Ok(0) => Ok(false),
            Ok(n) => {
                let written = self.output.write_all(&chunk[..n]);
                written.and_then(|()| self.output.flush())?;
                Ok(true)
            }
            Err(e) if is_again(&e) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Gives the console what it takes; `false` when it takes nothing any more.
    fn write_console(&mut self, pending: &mut VecDeque<u8>) -> io::Result<bool> {
        let (front, _) = pending.as_slices();
        if front.is_empty() {
            return Ok(true);
        }
        match self.link.write(front) {
            Ok(n) => {
                pending.drain(..n);
                Ok(true)
            }
            Err(e) if is_again(&e) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// What poll(2) found.
struct Ready {
    console: bool,
    input: bool,
    alarm: bool,
}

fn is_again(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// Runs a pump between what a user types and a scripted console; returns its end and its output.
    fn pump(typed: &[u8], lossy: bool, console: impl FnOnce(UnixStream) + Send) -> (End, Vec<u8>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (input, mut keyboard) = UnixStream::pair().unwrap();
        let mut output = Vec::new();
        let end = std::thread::scope(|s| {
            s.spawn(|| console(theirs));
            s.spawn(move || {
                drop(keyboard.write_all(typed));
                keyboard.shutdown(std::net::Shutdown::Write).unwrap();
                // Held open until the pump hangs up.
                drop(keyboard.read(&mut [0; 1]));
            });
            let pump = Pump {
                link: Link::socket(ours, None),
                input: input.as_fd(),
                lossy,
                output: &mut output,
                alarm: None,
            };
            let end = pump
                .run(&mut |bytes| (bytes.to_vec(), bytes.contains(&0x1d)))
                .unwrap();
            drop(input);
            end
        });
        (end, output)
    }

    #[test]
    fn the_end_of_the_input_does_not_end_the_console() {
        let (end, output) = pump(b"hello", false, |mut console| {
            let mut heard = [0; 5];
            console.read_exact(&mut heard).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            console.write_all(&heard).unwrap();
            console.write_all(b" back").unwrap();
        });
        assert_eq!((end, output.as_slice()), (End::Closed, &b"hello back"[..]));
    }

    #[test]
    fn a_guest_that_does_not_read_does_not_hold_the_user() {
        let mut typed = vec![b'x'; 2 << 20];
        typed.push(0x1d);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let (end, _) = pump(&typed, true, move |console| {
            held.recv_timeout(Duration::from_millis(500)).ok();
            drop(console);
        });
        drop(hold);
        assert_eq!(end, End::Left);
    }

    #[test]
    fn piped_input_is_not_lost() {
        let typed = vec![b'y'; 1 << 20];
        let (end, output) = pump(&typed, false, |mut console| {
            let mut heard = vec![0; 1 << 20];
            console.read_exact(&mut heard).unwrap();
            assert!(heard.iter().all(|&b| b == b'y'));
            console.write_all(b"all").unwrap();
        });
        assert_eq!((end, output.as_slice()), (End::Closed, &b"all"[..]));
    }

    #[test]
    fn an_alarm_ends_it() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (input, _keyboard) = UnixStream::pair().unwrap();
        let (alarm, mut bell) = UnixStream::pair().unwrap();
        bell.write_all(b"!").unwrap();
        let pump = Pump {
            link: Link::socket(ours, None),
            input: input.as_fd(),
            lossy: true,
            output: &mut Vec::new(),
            alarm: Some(alarm.as_fd()),
        };
        assert_eq!(pump.run(&mut |b| (b.to_vec(), false)).unwrap(), End::Alarm);
    }
}
