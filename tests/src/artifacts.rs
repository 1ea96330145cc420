//! What is installed in the lab, built from this source tree: the daemon, the shim, the command, and the plugin for each Slurm.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::{Cache, fingerprint};
use crate::images;
use crate::progress::Progress;
use crate::suite::Suite;
use crate::workspace::{cargo, target};

/// How cargo compiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Quick to build.
    Dev,
    /// Quick to run: for benchmarks.
    Release,
}

impl Profile {
    /// The profile for `--release` or its absence.
    #[must_use]
    pub fn of(release: bool) -> Self {
        if release {
            Profile::Release
        } else {
            Profile::Dev
        }
    }

    fn directory(self) -> PathBuf {
        target().join(match self {
            Profile::Dev => "debug",
            Profile::Release => "release",
        })
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Profile::Dev => &[],
            Profile::Release => &["--release"],
        }
    }
}

/// The programs, and the plugin by suite.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// Paths of `vmd`, `vmd-shim` and `muster`.
    pub programs: Vec<PathBuf>,
    /// Path of `spank_muster.so` for each suite asked for.
    pub plugins: BTreeMap<Suite, PathBuf>,
}

impl Artifacts {
    /// Builds everything for `suites`.
    ///
    /// # Errors
    /// Something does not compile, or an image for its headers cannot be made.
    pub fn build(
        profile: Profile,
        suites: &[Suite],
        cache: &Cache,
        progress: &Progress,
    ) -> Result<Self> {
        progress.stage("building vmd, vmd-shim and muster", || {
            cargo([
                "build",
                "--quiet",
                "-p",
                "muster-vmd",
                "-p",
                "muster",
                "--bins",
            ])
            .args(profile.flags())
            .show_ok()
        })?;
        let programs = ["vmd", "vmd-shim", "muster"]
            .map(|name| profile.directory().join(name))
            .to_vec();
        let mut plugins = BTreeMap::new();
        for &suite in suites {
            plugins.insert(suite, plugin(profile, suite, cache, progress)?);
        }
        Ok(Self { programs, plugins })
    }

    /// A name for the contents of all of it, as far as `suite` is concerned.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn fingerprint(&self, suite: Suite) -> Result<String> {
        let files = self.programs.iter().chain(self.plugins.get(&suite));
        let contents: Vec<Vec<u8>> = files
            .map(|path| fs::read(path).with_context(|| format!("read {}", path.display())))
            .collect::<Result<_>>()?;
        Ok(fingerprint(contents))
    }
}

/// Builds the plugin with the headers of `suite`'s Slurm and puts it aside: the next suite's takes its place in cargo's directory.
fn plugin(profile: Profile, suite: Suite, cache: &Cache, progress: &Progress) -> Result<PathBuf> {
    let image = images::lab(suite, cache, progress)?;
    let headers = images::slurm_headers(&image, cache)?;
    progress.stage(format_args!("building spank_muster.so for {suite}"), || {
        cargo(["build", "--quiet", "-p", "spank-muster", "--lib"])
            .args(profile.flags())
            .env("SLURM_INCLUDE_DIR", &headers)
            .show_ok()
    })?;
    let kept = target()
        .join("muster")
        .join(suite.name())
        .join("spank_muster.so");
    install(&profile.directory().join("libspank_muster.so"), &kept)?;
    Ok(kept)
}

/// Copies a file, its mode included, making the directories above; the destination appears complete or not at all.
///
/// # Errors
/// A file or directory cannot be read or made.
pub fn install(from: &Path, to: &Path) -> Result<()> {
    let directory = to
        .parent()
        .context("the destination has no parent directory")?;
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    let temporary = to.with_extension("new");
    fs::copy(from, &temporary)
        .with_context(|| format!("copy {} to {}", from.display(), temporary.display()))?;
    fs::rename(&temporary, to)
        .with_context(|| format!("rename {} to {}", temporary.display(), to.display()))
}
