//! The user's terminal in raw mode, the keys that leave a console, and signals as a descriptor.

use std::io::{self, IsTerminal, Stdin, stdin};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// Standard input in raw mode; as it was before on drop, whatever ends the program but SIGKILL.
#[derive(Debug)]
pub(crate) struct RawMode {
    terminal: Stdin,
    before: Termios,
}

impl RawMode {
    /// Raw mode if standard input is a terminal.
    pub(crate) fn enter() -> io::Result<Option<Self>> {
        let terminal = stdin();
        if !terminal.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&terminal, SetArg::TCSANOW, &raw)?;
        Ok(Some(Self { terminal, before }))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before).ok();
    }
}

/// SIGINT, SIGTERM and SIGHUP, taken as readable events from now on instead of ending the program.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals, in all threads started from here on, and for programs too: start those
    /// before.
    pub(crate) fn take() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&set, flags)?))
    }

    /// The descriptor, readable when a signal has come.
    pub(crate) fn fd(&self) -> &SignalFd {
        &self.0
    }

    /// A signal that has come.
    pub(crate) fn pending(&self) -> Option<Signal> {
        let info = self.0.read_signal().ok().flatten()?;
        let number = i32::try_from(info.ssi_signo).ok()?;
        Signal::try_from(number).ok()
    }
}

/// Finds the keys that leave a console in what is typed: Ctrl-], or Ctrl-C three times in a row
/// within a second.
#[derive(Debug, Default)]
pub(crate) struct LeaveKeys {
    interrupts: Vec<Instant>,
}

const CTRL_C: u8 = 0x03;
const CTRL_BRACKET: u8 = 0x1d;
const WITHIN: Duration = Duration::from_secs(1);

impl LeaveKeys {
    /// What to pass on of typed bytes, and whether the user leaves.
    pub(crate) fn take(&mut self, typed: &[u8], now: Instant) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len());
        for &byte in typed {
            match byte {
                CTRL_BRACKET => return (passed, true),
                CTRL_C => {
                    self.interrupts
                        .retain(|&t| now.saturating_duration_since(t) <= WITHIN);
                    self.interrupts.push(now);
                    if self.interrupts.len() >= 3 {
                        return (passed, true);
                    }
                }
                _ => self.interrupts.clear(),
            }
            passed.push(byte);
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bracket_leaves_at_once() {
        let (passed, leave) = LeaveKeys::default().take(b"ab\x1dcd", Instant::now());
        assert_eq!((passed.as_slice(), leave), (&b"ab"[..], true));
    }

    #[test]
    fn three_interrupts_in_a_second_leave_and_two_are_the_guests() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut keys = LeaveKeys::default();
        assert_eq!(keys.take(b"\x03", at(0)), (vec![3], false));
        assert_eq!(keys.take(b"\x03", at(300)), (vec![3], false));
        assert_eq!(keys.take(b"\x03", at(900)), (vec![], true));

        let mut keys = LeaveKeys::default();
        for ms in [0, 600, 1200, 1800, 2400] {
            assert_eq!(keys.take(b"\x03", at(ms)), (vec![3], false), "{ms}");
        }
        let mut keys = LeaveKeys::default();
        assert!(!keys.take(b"\x03x\x03y\x03", at(0)).1);
        assert!(keys.take(b"\x03\x03\x03", at(1)).1);
    }
}
