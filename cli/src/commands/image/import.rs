//! `muster image import`.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use muster_images::{DiskFormat, Import, Progress, Repository, Stage, import};
use muster_templates::repos::RepoSpec;
use muster_types::ids::shown;
use muster_types::image::ImageUri;

use crate::context::Context;
use crate::exit::Usage;
use crate::terminal::Signals;
use crate::{output, render};

/// Import a disk file as an image, or as the next revision of one
///
/// A qcow2 file that stands alone is copied as it is, anything else is converted to qcow2.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Format of the disk file: qcow2, raw, qed, vdi, vpc or vmdk [default: by its content]
    #[arg(short = 't', long, value_name = "FORMAT")]
    format: Option<DiskFormat>,
    /// The disk file
    #[arg(value_name = "FILE")]
    first: String,
    /// The image: [REPO:]NAME; without REPO in the first repository
    #[arg(value_name = "IMAGE")]
    second: String,
    /// pcocc's command line has the image's type before the other two.
    #[arg(hide = true)]
    third: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let (source, image) = operands(&args.first, &args.second, args.third.as_deref())?;
    let uri: ImageUri = image.parse().map_err(|e| Usage(format!("{e}")))?;
    if uri.revision.is_some() {
        let text = format!("'{uri}': an import makes the next revision; give no '@'");
        return Err(Usage(text).into());
    }
    let spec = repository(context.repos()?, uri.repo.as_deref())?;
    let doing = || format!("import {} as {}:{}", source.display(), spec.name, uri.name);
    let repository = Repository::open_or_create(Path::new(&spec.path)).with_context(doing)?;
    // Ctrl-C must leave no half of a file behind.
    let signals = Signals::take().context("take signals")?;
    let what = Import {
        source: source.clone(),
        format: args.format,
        name: uri.name.clone(),
    };
    let mut bar = Bar::new();
    let imported = import(&repository, &what, &mut |progress| {
        bar.show(progress);
        match signals.pending() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    bar.done();
    let imported = imported.with_context(doing)?;
    writeln!(
        out,
        "{}:{}@{}: {}, a disk of {}",
        spec.name,
        uri.name,
        imported.revision,
        render::size(imported.layer_bytes),
        render::size(imported.virtual_size_bytes)
    )?;
    Ok(())
}

/// File and image; three words begin with the image's type.
fn operands<'a>(
    first: &'a str,
    second: &'a str,
    third: Option<&'a str>,
) -> Result<(PathBuf, &'a str), Usage> {
    match third {
        None => Ok((first.into(), second)),
        Some(image) if first == "vm" => Ok((second.into(), image)),
        Some(_) => Err(Usage(format!(
            "'{}' is no type of image that can be imported: give vm, or nothing",
            shown(first)
        ))),
    }
}

fn repository(specs: Vec<RepoSpec>, name: Option<&str>) -> anyhow::Result<RepoSpec> {
    let names: Vec<String> = specs.iter().map(|s| s.name.clone()).collect();
    let mut fitting = specs
        .into_iter()
        .filter(|s| name.is_none_or(|n| s.name == n));
    match (fitting.next(), name) {
        (Some(spec), _) => Ok(spec),
        (None, Some(name)) if !names.is_empty() => Err(Usage(format!(
            "no repository '{name}'; repos.yaml has {}",
            names.join(", ")
        ))
        .into()),
        (None, _) => Err(Usage(
            "no image repository is configured: add one to ~/.muster/repos.yaml".to_owned(),
        )
        .into()),
    }
}

/// A bar on a terminal, a line for each stage elsewhere.
struct Bar {
    bar: Option<ProgressBar>,
    stage: Option<Stage>,
}

impl Bar {
    fn new() -> Self {
        Self {
            bar: output::is_interactive().then(|| ProgressBar::new(0)),
            stage: None,
        }
    }

    fn show(&mut self, progress: Progress) {
        let name = match progress.stage {
            Stage::Copy => "copying",
            Stage::Convert => "converting",
            Stage::Digest => "computing digest",
        };
        let begins = self.stage != Some(progress.stage);
        self.stage = Some(progress.stage);
        let Some(bar) = &self.bar else {
            if begins {
                let size = render::size(progress.total_bytes);
                output::note(format!("{name}: {size}"));
            }
            return;
        };
        if begins {
            bar.reset();
            let template =
                "{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(name);
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
    }

    fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_command_lines_are_understood() {
        let expected = (PathBuf::from("a.img"), "r:a");
        assert_eq!(operands("a.img", "r:a", None).unwrap(), expected);
        assert_eq!(operands("vm", "a.img", Some("r:a")).unwrap(), expected);
        let error = operands("ctr", "a.img", Some("a")).unwrap_err().to_string();
        assert!(error.contains("'ctr'"));
    }

    #[test]
    fn the_first_repository_is_the_default() {
        let specs = || {
            ["user", "global"]
                .map(|name| RepoSpec {
                    name: name.into(),
                    path: format!("/{name}"),
                })
                .to_vec()
        };
        assert_eq!(repository(specs(), None).unwrap().name, "user");
        assert_eq!(repository(specs(), Some("global")).unwrap().path, "/global");
        let error = repository(specs(), Some("x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no repository 'x'; repos.yaml has user, global"
        );
        let none = repository(Vec::new(), None).unwrap_err().to_string();
        assert!(none.contains("~/.muster/repos.yaml"));
    }
}
