//! Templates and submissions by cases in files: a directory of `testdata` for each, with what comes of
//! it in `expected`. `UPDATE=1` rewrites that.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its data and may fail"
)]

mod case;
mod manual;
mod pcocc;
mod properties;
mod submission;
mod tables;
mod wrong;
