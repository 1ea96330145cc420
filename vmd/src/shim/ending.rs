//! What became of a VM, from how its QEMU ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use muster_qemu::qmp::Shutdown;
use muster_types::state::VmPhase;

/// What was asked of a VM before it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asked {
    /// Nothing.
    #[default]
    Nothing,
    /// To power down.
    PowerDown,
    /// To power down, and it did not in that time.
    TimedOut(Duration),
    /// To end at once.
    End,
    /// To end at once, with the whole VM step.
    StepEnd,
}

/// The phase and reason of a VM whose QEMU ran and ended.
#[must_use]
pub fn ending(
    status: ExitStatus,
    shutdown: Option<&Shutdown>,
    asked: Asked,
    stderr: &[String],
) -> (VmPhase, String) {
    let by_guest = shutdown.is_some_and(|s| s.guest);
    let reason = shutdown.map(|s| s.reason.as_str());
    let stopped = match asked {
        Asked::StepEnd => Some("ended with the VM step".to_owned()),
        Asked::End => Some("ended on request".to_owned()),
        Asked::TimedOut(limit) => Some(format!(
            "ended on request: the guest did not power down within {}",
            seconds(limit)
        )),
        Asked::PowerDown if status.success() => Some("powered down on request".to_owned()),
        Asked::Nothing | Asked::PowerDown => None,
    };
    if let Some(reason) = stopped {
        return (VmPhase::Stopped, reason);
    }
    if !status.success() {
        return (VmPhase::Failed, death(status, stderr));
    }
    match reason {
        Some("guest-panic") => (VmPhase::Failed, "the guest panicked".to_owned()),
        _ if by_guest => (VmPhase::Stopped, "powered off by the guest".to_owned()),
        Some(other) => (VmPhase::Stopped, format!("QEMU was ended ({other})")),
        None => (VmPhase::Stopped, "QEMU ended".to_owned()),
    }
}

/// Why a QEMU is gone that should not be, with its last words.
#[must_use]
pub fn death(status: ExitStatus, stderr: &[String]) -> String {
    let how = match (status.signal(), status.code()) {
        (Some(signal), _) => format!("QEMU killed by signal {signal}"),
        (None, Some(code)) => format!("QEMU exited with status {code}"),
        (None, None) => format!("QEMU ended: {status}"),
    };
    // Who gets SIGKILL has no last words; what is there was said before.
    if stderr.is_empty() || status.signal() == Some(libc::SIGKILL) {
        how
    } else {
        format!("{how}: {}", stderr.join(" / "))
    }
}

fn seconds(time: Duration) -> String {
    if time.subsec_millis() == 0 {
        format!("{} s", time.as_secs())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shutdown(guest: bool, reason: &str) -> Shutdown {
        Shutdown {
            guest,
            reason: reason.into(),
        }
    }

    #[test]
    fn ends_and_their_words() {
        let ok = ExitStatus::from_raw(0);
        let failed = ExitStatus::from_raw(1 << 8);
        let killed = ExitStatus::from_raw(9);
        let off = shutdown(true, "guest-shutdown");
        let quit = shutdown(false, "host-qmp-quit");
        let panic = shutdown(true, "guest-panic");
        let limit = Asked::TimedOut(Duration::from_millis(1500));
        use Asked::{End, Nothing, PowerDown, StepEnd};
        use VmPhase::{Failed, Stopped};
        let cases = [
            (ok, Some(&off), Nothing, Stopped, "powered off by the guest"),
            (
                ok,
                Some(&off),
                PowerDown,
                Stopped,
                "powered down on request",
            ),
            (ok, Some(&quit), End, Stopped, "ended on request"),
            (
                ok,
                Some(&quit),
                limit,
                Stopped,
                "ended on request: the guest did not power down within 1.5 s",
            ),
            (killed, None, StepEnd, Stopped, "ended with the VM step"),
            (
                ok,
                Some(&quit),
                Nothing,
                Stopped,
                "QEMU was ended (host-qmp-quit)",
            ),
            (ok, Some(&panic), Nothing, Failed, "the guest panicked"),
            (killed, None, Nothing, Failed, "QEMU killed by signal 9"),
            (killed, None, PowerDown, Failed, "QEMU killed by signal 9"),
            (failed, None, Nothing, Failed, "QEMU exited with status 1"),
            (ok, None, Nothing, Stopped, "QEMU ended"),
        ];
        for (status, event, asked, phase, words) in cases {
            let got = ending(status, event, asked, &[]);
            assert_eq!(got, (phase, words.to_owned()));
        }
    }

    #[test]
    fn last_words_are_kept() {
        let words = ["a".to_owned(), "b".to_owned()];
        let text = death(ExitStatus::from_raw(1 << 8), &words);
        assert_eq!(text, "QEMU exited with status 1: a / b");
        let text = death(ExitStatus::from_raw(9), &words);
        assert_eq!(text, "QEMU killed by signal 9");
    }
}
