//! Where the source tree is, and how cargo is called on it.

use std::path::{Path, PathBuf};

use crate::command::Cmd;

/// The root of the source tree.
#[must_use]
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

/// Where cargo puts what it builds.
#[must_use]
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |directory| root().join(directory))
}

/// `cargo ARGS...` in the source tree, to be run: the cargo that runs this program, if one does.
pub fn cargo<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Cmd {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Cmd::new(program).args(args).dir(root())
}
