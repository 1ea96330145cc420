//! Guest images: made by the recipes in `tests/guests`, kept in the cache under the fingerprint of their recipe.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, fingerprint_of_trees};
use crate::command::Cmd;
use crate::docker::docker;
use crate::images;
use crate::packages;
use crate::progress::Progress;
use crate::workspace;

const BUILD_DEADLINE: Duration = Duration::from_secs(900);

/// A guest image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Guest {
    /// A kernel and a busybox initramfs: up in seconds even when emulated.
    Tiny,
    /// Debian 13 with systemd and cloud-init.
    Debian13,
}

impl Guest {
    /// All guest images.
    pub const ALL: [Guest; 2] = [Guest::Tiny, Guest::Debian13];

    /// The name of the recipe's directory, of the image and of the lab's template.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Guest::Tiny => "tiny",
            Guest::Debian13 => "debian13",
        }
    }

    /// The image, a qcow2 file in the cache; made first if its recipe changed.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn build(self, cache: &Cache, progress: &Progress) -> Result<PathBuf> {
        let recipes = workspace::root().join("tests/guests");
        let key = fingerprint_of_trees([
            recipes.join("builder"),
            recipes.join("disk.sh"),
            recipes.join(self.name()),
        ])?;
        cache.entry(&format!("guests/{}-{key}.qcow2", self.name()), |made| {
            let builder = images::guest_builder(cache, progress)?;
            progress.stage(
                format_args!("making the guest image {}", self.name()),
                || self.make(&builder, &recipes, made, progress),
            )
        })
    }

    fn make(self, builder: &str, recipes: &Path, made: &Path, progress: &Progress) -> Result<()> {
        let directory = made.parent().context("the cache has no parent directory")?;
        let script = format!("/recipes/{}/build.sh", self.name());
        let mut run = docker(["run", "--rm", "-v"])
            .arg(format!("{}:/recipes:ro", recipes.display()))
            .arg("-v")
            .arg(format!("{}:/out", directory.display()))
            .args([builder, script.as_str()]);
        if self == Guest::Debian13 {
            progress.stage("guest root with mmdebstrap", || {
                debian_root(
                    &recipes.join("debian13/packages"),
                    &directory.join("root.tar"),
                )
            })?;
            run = run.arg("/out/root.tar");
        }
        run.arg("/out/entry").deadline(BUILD_DEADLINE).run()?;
        fs::set_permissions(made, Permissions::from_mode(0o644))
            .with_context(|| format!("make {} readable", made.display()))
    }
}

/// A Debian 13 with the packages that `list` names, one on a line, as the archive `tar`.
fn debian_root(list: &Path, tar: &Path) -> Result<()> {
    packages::require_root("making a guest image")?;
    let names = fs::read_to_string(list).with_context(|| format!("read {}", list.display()))?;
    let names: Vec<&str> = names.split_whitespace().collect();
    Cmd::new("mmdebstrap")
        .args([
            "--quiet",
            "--variant=apt",
            "--aptopt=APT::Install-Recommends \"false\"",
        ])
        .args(
            ["doc", "man", "locale"]
                .map(|kind| format!("--dpkgopt=path-exclude=/usr/share/{kind}/*")),
        )
        .arg(format!("--include={}", names.join(",")))
        .arg("trixie")
        .arg(tar)
        .deadline(BUILD_DEADLINE)
        .run()
        .map(drop)
}
