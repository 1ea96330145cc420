//! What a hook has to say: lines for the user or the log, and whether it fails.

use std::error::Error;

/// The end of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Shown as errors (`slurm_error`), one line each.
    pub errors: Vec<String>,
    /// Shown to the user without being called an error, one line each.
    pub notes: Vec<String>,
    /// Whether the hook returns failure to Slurm.
    pub failed: bool,
}

impl Verdict {
    /// Nothing to say.
    #[must_use]
    pub fn good() -> Self {
        Self::default()
    }

    /// A failure; each line of the text begins with `prefix`.
    #[must_use]
    pub fn failure(prefix: &str, text: &str) -> Self {
        Self {
            failed: true,
            ..Self::logged(prefix, text)
        }
    }

    /// Something went wrong that is not to fail the hook.
    #[must_use]
    pub fn logged(prefix: &str, text: &str) -> Self {
        Self {
            errors: lines(prefix, text),
            ..Self::default()
        }
    }

    /// Adds an error's lines.
    pub fn log(&mut self, prefix: &str, text: &str) {
        self.errors.extend(lines(prefix, text));
    }
}

fn lines(prefix: &str, text: &str) -> Vec<String> {
    text.lines()
        .filter(|l| !l.trim().is_empty())
        .map(|l| format!("{prefix}{l}"))
        .collect()
}

/// An error and its sources in one text; a source that an error already ends with is not repeated.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_prefix() {
        let v = Verdict::failure("--vm: ", "a\n\nb\n");
        assert_eq!(v.errors, ["--vm: a", "--vm: b"]);
        assert!(v.failed);
    }
}
