//! `muster config schema`.

use std::io::Write;

use anyhow::Context as _;
use muster_templates::key::File;
use muster_templates::{batch, networks, policy, repos, sets, template};

use crate::exit::Usage;

/// The files that have a schema.
const FILES: [File; 6] = [
    template::FILE,
    networks::FILE,
    sets::FILE,
    repos::FILE,
    batch::FILE,
    policy::FILE,
];

/// Print the JSON Schema of a configuration file, for editors
///
/// Editors that speak to a YAML language server check and complete a file by it, for example with the
/// line "# yaml-language-server: $schema=/etc/muster/templates.schema.json" at its top.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// templates, networks, resources, repos, batch or policy
    file: String,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let name = args.file.strip_suffix(".yaml").unwrap_or(&args.file);
    let Some(file) = FILES.iter().find(|f| f.name == name) else {
        let names = FILES.map(|f| f.name);
        let near = muster_templates::nearest::hint(name, names);
        return Err(Usage(format!(
            "no file '{name}'{near}; there are {}",
            names.join(", ")
        ))
        .into());
    };
    let text = serde_json::to_string_pretty(&file.schema()).context("render as JSON")?;
    Ok(writeln!(out, "{text}")?)
}
