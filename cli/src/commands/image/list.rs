//! `muster image list`.

use std::io::{self, Write};
use std::path::Path;

use anyhow::bail;
use muster_images::{ImageError, Listing, Repository, Revision};
use muster_templates::repos::RepoSpec;
use muster_types::ids::shown;
use serde::Serialize;

use crate::context::Context;
use crate::{output, render, time};

/// List images: the newest revision of each
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Those of one repository
    #[arg(short = 'R', long)]
    repo: Option<String>,
    /// All revisions
    #[arg(short, long)]
    all: bool,
    /// Print JSON: all revisions
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Images {
    images: Vec<Image>,
}

/// A revision as `--json` shows it.
#[derive(Serialize)]
struct Image {
    repo: String,
    name: String,
    revision: u32,
    kind: String,
    owner: String,
    /// Seconds since the Unix epoch.
    timestamp: f64,
    /// Size of the newest layer; null where that is missing.
    layer_bytes: Option<u64>,
    layers: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut specs = context.repos()?;
    if let Some(repo) = &args.repo {
        specs.retain(|s| s.name == *repo);
        if specs.is_empty() {
            bail!("no repository '{}' in repos.yaml", shown(repo));
        }
    }
    let mut images = Vec::new();
    for spec in &specs {
        let listing = listed(spec);
        for warning in &listing.warnings {
            output::note(format!("warning: repository '{}': {warning}", spec.name));
        }
        let newest_only = !args.all && !args.json;
        images.extend(chosen(&spec.name, listing, newest_only));
    }
    if args.json {
        return super::super::print_json(out, &Images { images });
    }
    let titles = [
        "NAME",
        "TYPE",
        "REVISION",
        "REPO",
        "OWNER",
        "SIZE",
        "DATE (UTC)",
    ];
    let text = render::table(&titles, images.iter().map(row).collect());
    Ok(out.write_all(text.as_bytes())?)
}

/// A repository that nobody has written to yet is an empty one; one that cannot be read does not hide
/// the others.
fn listed(spec: &RepoSpec) -> Listing {
    match Repository::open(Path::new(&spec.path)).and_then(|r| r.list()) {
        Ok(listing) => listing,
        Err(ImageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Listing::default()
        }
        Err(e) => {
            let source = std::error::Error::source(&e).map(|s| format!(": {s}"));
            Listing {
                warnings: vec![format!("{e}{}", source.unwrap_or_default())],
                ..Listing::default()
            }
        }
    }
}

fn chosen(repo: &str, listing: Listing, newest_only: bool) -> Vec<Image> {
    let mut images: Vec<Image> = Vec::new();
    // Revisions come sorted by name and number.
    for Revision { meta, layer_bytes } in listing.revisions {
        if newest_only && images.last().is_some_and(|i| i.name == meta.name) {
            images.pop();
        }
        images.push(Image {
            repo: repo.to_owned(),
            name: meta.name,
            revision: meta.revision,
            kind: meta.kind,
            owner: meta.owner,
            timestamp: meta.timestamp,
            layer_bytes,
            layers: meta.data_blobs,
        });
    }
    images
}

fn row(image: &Image) -> Vec<String> {
    vec![
        shown(&image.name),
        shown(&image.kind),
        image.revision.to_string(),
        image.repo.clone(),
        shown(&image.owner),
        image
            .layer_bytes
            .map_or_else(|| "missing".to_owned(), render::size),
        date(image.timestamp),
    ]
}

/// The moment, if it is one of this calendar's first ten thousand years.
fn date(timestamp: f64) -> String {
    let whole = format!("{:.0}", timestamp.trunc());
    match whole.parse::<u64>() {
        Ok(seconds) if seconds < 253_402_300_800 => time::utc(seconds),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_other_programs_do_not_break_the_list() {
        assert_eq!(date(1_796_089_594.9), "2026-12-01 01:46:34");
        for odd in [f64::NAN, f64::INFINITY, -5.0, 1e30] {
            assert_eq!(date(odd), "-");
        }
    }
}
