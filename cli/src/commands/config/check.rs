//! `muster config check`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use muster_config::{Finding, Report, Severity};
use serde::Serialize;

use crate::context::Context;

/// Check every configuration file, and what the files say of one another
///
/// All mistakes are listed, each with its file, line and column. Images, user-data and other files
/// that templates name are looked at as the user who runs the command. Exit status 1 if there is an
/// error; warnings alone are none.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check this directory as the site's, and no user's [default: the site's and your own]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checked {
    files: Vec<String>,
    findings: Vec<Found>,
}

/// A finding as `--json` shows it.
#[derive(Serialize)]
struct Found {
    severity: &'static str,
    file: String,
    line: Option<u64>,
    column: Option<u64>,
    key: Option<String>,
    message: String,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut trees = context.trees();
    if let Some(dir) = &args.dir {
        if !dir.is_dir() {
            bail!("{}: no such directory", dir.display());
        }
        trees.system.clone_from(dir);
        trees.user = None;
    }
    let report = context.with_names(|names| muster_config::check(&trees, names));
    if args.json {
        let files = report.files.iter().map(|f| f.display().to_string());
        let checked = Checked {
            files: files.collect(),
            findings: report.findings.iter().map(found).collect(),
        };
        super::super::print_json(out, &checked)?;
    } else {
        print(&report, &trees, out)?;
    }
    match report.count(Severity::Error) {
        0 => Ok(()),
        1 => bail!("the configuration has an error"),
        n => bail!("the configuration has {n} errors"),
    }
}

fn print(report: &Report, trees: &muster_config::Trees, out: &mut dyn Write) -> anyhow::Result<()> {
    for finding in &report.findings {
        match finding.severity {
            Severity::Error => writeln!(out, "{}", finding.what)?,
            Severity::Warning => writeln!(out, "warning: {}", finding.what)?,
        }
    }
    let mut places = trees.system.display().to_string();
    if let Some(user) = &trees.user {
        places += &format!(" and {}", user.display());
    }
    let plural = |n: usize, what: &str| match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    };
    writeln!(
        out,
        "{} in {places}: {}, {}",
        plural(report.files.len(), "file"),
        plural(report.count(Severity::Error), "error"),
        plural(report.count(Severity::Warning), "warning"),
    )?;
    Ok(())
}

fn found(finding: &Finding) -> Found {
    let what = &finding.what;
    Found {
        severity: match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        file: what.file.clone(),
        line: what.at.map(|(line, _)| line),
        column: what.at.map(|(_, column)| column),
        key: Some(what.key.clone()).filter(|k| !k.is_empty()),
        message: what.message.clone(),
    }
}
