//! Processes that may outlive vmd: named by pid and start time, waited for by pidfd.
#![expect(
    unsafe_code,
    reason = "pidfd_open(2) has no safe wrapper in nix or std"
)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid.
    pub pid: i32,
    /// Its start time in clock ticks since boot (`/proc/<pid>/stat`, field 22).
    pub start: u64,
}

impl ProcessId {
    /// The process that has this pid now; `None` when there is none.
    #[must_use]
    pub fn of(proc_root: &Path, pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(proc_root.join(pid.to_string()).join("stat")).ok()?;
        Some(Self {
            pid,
            start: start_time(&stat)?,
        })
    }

    /// Whether it still runs (a zombie does not).
    #[must_use]
    pub fn is_alive(self, proc_root: &Path) -> bool {
        let stat = proc_root.join(self.pid.to_string()).join("stat");
        let Ok(stat) = std::fs::read_to_string(stat) else {
            return false;
        };
        start_time(&stat) == Some(self.start) && state(&stat).is_some_and(|s| s != "Z" && s != "X")
    }

    /// Sends a signal to its process group, if it still runs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn signal_group(
        self,
        proc_root: &Path,
        signal: nix::sys::signal::Signal,
    ) -> io::Result<()> {
        if !self.is_alive(proc_root) {
            return Ok(());
        }
        match nix::sys::signal::killpg(nix::unistd::Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// A descriptor that becomes readable when the process ends (pidfd_open(2), Linux 5.3).
    ///
    /// # Errors
    /// The process is gone, or the kernel is older.
    pub fn watch(self, proc_root: &Path) -> io::Result<OwnedFd> {
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the call succeeded, so `fd` is an open descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // The pid may have been taken by another process before the descriptor was open.
        if self.is_alive(proc_root) {
            Ok(fd)
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    }
}

/// Resolves when a process has ended.
///
/// # Errors
/// It is gone already (`ESRCH`), or the kernel has no pidfds.
pub fn ended(id: ProcessId, proc_root: &Path) -> io::Result<impl Future<Output = ()> + use<>> {
    let fd = id.watch(proc_root)?;
    // SAFETY: the descriptor is owned by the AsyncFd from here on and closed only when that is dropped.
    let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
    Ok(async move {
        // The driver only fails when the runtime shuts down.
        drop(fd.readable().await);
    })
}

/// Finds a process of `uid` whose arguments satisfy `wanted`.
#[must_use]
pub fn find(proc_root: &Path, uid: u32, wanted: &dyn Fn(&[&str]) -> bool) -> Option<ProcessId> {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(proc_root).ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        if entry.metadata().map(|m| m.uid()).ok() != Some(uid) {
            continue;
        }
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let line = String::from_utf8_lossy(&line);
        let args: Vec<&str> = line.trim_end_matches('\0').split('\0').collect();
        if wanted(&args)
            && let Some(id) = ProcessId::of(proc_root, pid)
            && id.is_alive(proc_root)
        {
            return Some(id);
        }
    }
    None
}

/// Field 22 of proc_pid_stat(5). The command in field 2 may hold spaces and parentheses.
fn start_time(stat: &str) -> Option<u64> {
    stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

/// Field 3 of proc_pid_stat(5).
fn state(stat: &str) -> Option<&str> {
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn stat_lines_with_odd_names() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        assert_eq!(start_time(stat), Some(4711));
        assert_eq!(state(stat), Some("S"));
        assert_eq!(start_time("12 (a"), None);
    }

    #[test]
    fn a_process_is_found_watched_and_ended() {
        let proc_root = Path::new("/proc");
        // An echo proves that the program runs: its arguments are in /proc only then.
        let mut child = Command::new("cat")
            .args(["-u", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let mut echo = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut echo)
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let id = ProcessId::of(proc_root, pid).unwrap();
        assert!(id.is_alive(proc_root));
        let uid = nix::unistd::geteuid().as_raw();
        assert_eq!(find(proc_root, uid, &|a| a == ["cat", "-u", "-"]), Some(id));
        assert!(id.watch(proc_root).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!id.is_alive(proc_root));
        assert!(id.watch(proc_root).is_err());
        id.signal_group(proc_root, nix::sys::signal::Signal::SIGTERM)
            .unwrap();
    }
}
