//! Unix stream sockets with a time limit on connecting.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// How long a listener may leave a connection waiting (its queue is full: it hangs).
const CONNECT: Duration = Duration::from_secs(5);

/// Connects to a socket. The limit on sending bounds connect(2) too, see unix(7).
pub(crate) fn dial(path: &Path) -> io::Result<UnixStream> {
    let fd = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let limit = TimeVal::milliseconds(i64::try_from(CONNECT.as_millis()).unwrap_or(i64::MAX));
    setsockopt(&fd, sockopt::SendTimeout, &limit)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(fd))
}
