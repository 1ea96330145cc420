//! What a task tells the person who started it: one line per thing done or waited for, with the seconds since its start.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Result;

/// Writes progress lines to stderr; stdout belongs to the commands that a task runs.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    start: Instant,
}

impl Progress {
    /// Time zero is now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// One line, stamped with the seconds since the start.
    pub fn say(&self, line: impl Display) {
        let seconds = self.start.elapsed().as_secs_f64();
        // Nobody to tell when stderr is closed; the task goes on.
        writeln!(io::stderr().lock(), "[{seconds:6.1} s] {line}").ok();
    }

    /// A result, on stdout.
    pub fn print(&self, line: impl Display) {
        // As above.
        writeln!(io::stdout().lock(), "{line}").ok();
    }

    /// Says what begins, does it, and says how long it took.
    ///
    /// # Errors
    /// Those of `work`, with the name of the stage.
    pub fn stage<T>(&self, name: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.say(format_args!("{name} ..."));
        let start = Instant::now();
        let value = work().map_err(|error| error.context(name.to_string()))?;
        self.say(format_args!(
            "{name}: done in {:.1} s",
            start.elapsed().as_secs_f64()
        ));
        Ok(value)
    }

    /// Time since the start of the task.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
