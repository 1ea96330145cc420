//! What is wrong with a configuration, with its place.

use std::borrow::Cow;
use std::fmt;

/// One mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// Line and column, from 1; none where the whole file is meant.
    pub at: Option<(u64, u64)>,
    /// Path of the key, `tiny.memory`; empty at the top.
    pub key: String,
    /// What was found and what is allowed.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.file))?;
        if let Some((line, column)) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        f.write_str(": ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", one_line(&self.key))?;
        }
        f.write_str(&one_line(&self.message))
    }
}

/// Text that may hold a file's characters, as a terminal can show it: control characters are escaped.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// How many mistakes are shown; nobody reads more.
const MAX_SHOWN: usize = 100;

/// All mistakes that were found, in the order of files and lines; one per line when shown, the
/// first 100.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().take(MAX_SHOWN).enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        match self.0.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more mistakes"),
        }
    }
}

impl std::error::Error for ConfigErrors {}
