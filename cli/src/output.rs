//! Standard output and standard error.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// Nobody reads the output any more.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
struct Closed;

/// Standard output, buffered.
#[derive(Debug)]
pub(crate) struct Output(BufWriter<Stdout>);

impl Output {
    pub(crate) fn stdout() -> Self {
        Self(BufWriter::new(io::stdout()))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(marked)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(marked)
    }
}

/// Tells a broken pipe of standard output from one of a socket.
pub(crate) fn marked(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::BrokenPipe {
        io::Error::other(Closed)
    } else {
        e
    }
}

/// Whether an error only says that nobody reads the output any more.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|e| {
        e.downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .is_some_and(|inner| inner.is::<Closed>())
    })
}

/// Writes a line to standard error; there is nobody to tell when that fails.
pub(crate) fn note(line: impl Display) {
    drop(writeln!(io::stderr().lock(), "muster: {line}"));
}

/// Writes an error: one line, then what caused it.
pub(crate) fn error(error: &anyhow::Error) {
    let mut stderr = io::stderr().lock();
    drop(writeln!(stderr, "{}", rendered(error)));
}

fn rendered(error: &anyhow::Error) -> String {
    let mut text = format!("muster: {error}");
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let line = cause.to_string();
        // Some libraries repeat their source in their own words.
        if !last.contains(&line) {
            text += &format!("\n  because: {line}");
        }
        last = line;
    }
    text
}

/// Whether standard error is a terminal: only there is progress shown.
pub(crate) fn is_interactive() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn an_error_is_a_line_and_its_causes() {
        let error = Err::<(), _>(io::Error::from(io::ErrorKind::NotFound))
            .context("open /x")
            .context("read the log")
            .unwrap_err();
        assert_eq!(
            rendered(&error),
            "muster: read the log\n  because: open /x\n  because: entity not found"
        );
    }

    #[test]
    fn only_our_own_broken_pipe_counts() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_closed(&anyhow::Error::from(marked(pipe()))));
        assert!(!is_closed(&anyhow::Error::from(pipe())));
    }
}
