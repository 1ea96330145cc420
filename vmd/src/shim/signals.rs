//! The signals that end a shim: SIGTERM from Slurm, SIGINT and SIGHUP from a terminal.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Caught from its creation on; nothing is lost between two waits.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
