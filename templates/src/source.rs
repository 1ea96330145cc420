//! The text of a configuration file and where it came from.

/// Which tree of configuration files a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tree {
    /// The site's, `/etc/muster`.
    System,
    /// The user's, `~/.muster`.
    User,
}

/// A configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its path, for messages.
    pub path: String,
    /// Its content.
    pub text: String,
    /// Its tree.
    pub tree: Tree,
}

/// The largest configuration file in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;
