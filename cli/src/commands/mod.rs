//! The subcommands, one file each: its arguments and what it does.

pub(crate) mod config;
pub(crate) mod console;
pub(crate) mod image;
pub(crate) mod internal;
pub(crate) mod network;
pub(crate) mod plan;
pub(crate) mod ps;
pub(crate) mod show;
pub(crate) mod stop;
pub(crate) mod template;
pub(crate) mod wait;

use std::io::Write;

use anyhow::Context as _;
use serde::Serialize;

/// The version of what `--json` prints; it changes when a reader would have to.
const JSON_VERSION: u32 = 1;

/// Prints a value with the version of its form beside its own keys.
fn print_json(out: &mut dyn Write, value: &impl Serialize) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Envelope<'a, T> {
        version: u32,
        #[serde(flatten)]
        value: &'a T,
    }
    let envelope = Envelope {
        version: JSON_VERSION,
        value,
    };
    let text = serde_json::to_string_pretty(&envelope).context("render as JSON")?;
    writeln!(out, "{text}")?;
    Ok(())
}

#[cfg(test)]
mod tests;
