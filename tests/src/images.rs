//! Docker images: Debian's base, made from packages, and what is built on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cache::{Cache, fingerprint};
use crate::command::Cmd;
use crate::docker::{docker, has_image};
use crate::progress::Progress;
use crate::suite::Suite;
use crate::workspace;

/// A package mirror that does not answer must not hold a build for ever.
const BUILD_DEADLINE: Duration = Duration::from_secs(900);

/// Makes sure of the image `debian:<suite>`. No image registry is asked: it is made from the suite's packages.
fn base(suite: Suite, cache: &Cache, progress: &Progress) -> Result<String> {
    let tag = format!("debian:{suite}");
    if has_image(&tag)? {
        return Ok(tag);
    }
    progress.stage(
        format_args!("making the base image {tag} with mmdebstrap"),
        || {
            let work = tempfile::Builder::new()
                .prefix(".base-")
                .tempdir_in(cache.path(""))
                .context("make a temporary directory")?;
            let tar = work.path().join("base.tar");
            Cmd::new("mmdebstrap")
                .args(["--quiet", "--variant=minbase", "--include=ca-certificates"])
                // The Release file of an archive's snapshot can be past its date.
                .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
                .arg(suite.name())
                .arg(&tar)
                .deadline(BUILD_DEADLINE)
                .run()?;
            docker(["import"]).arg(&tar).arg(&tag).run()
        },
    )?;
    Ok(tag)
}

/// Builds `dockerfile` (which says `ARG SUITE` if it is built for several) as `name:<suite>-<fingerprint>`, unless it is there.
fn build(
    name: &str,
    dockerfile: &Path,
    suite: Suite,
    cache: &Cache,
    progress: &Progress,
) -> Result<String> {
    let text = fs::read(dockerfile).with_context(|| format!("read {}", dockerfile.display()))?;
    let tag = format!("{name}:{suite}-{}", fingerprint([&text]));
    if has_image(&tag)? {
        return Ok(tag);
    }
    base(suite, cache, progress)?;
    progress.stage(format_args!("building the image {tag}"), || {
        // The Dockerfile on stdin: no build context is sent.
        docker([
            "build",
            "--quiet",
            "--build-arg",
            &format!("SUITE={suite}"),
            "--tag",
            &tag,
            "-",
        ])
        .stdin(text)
        .deadline(BUILD_DEADLINE)
        .run()
    })?;
    Ok(tag)
}

/// The lab's image for `suite`: Slurm, etcd, QEMU and the rest, as Debian packages them. Returns its tag.
///
/// # Errors
/// It cannot be built.
pub fn lab(suite: Suite, cache: &Cache, progress: &Progress) -> Result<String> {
    build(
        "muster-lab",
        &workspace::root().join("tests/lab/Dockerfile"),
        suite,
        cache,
        progress,
    )
}

/// The image with the tools with which guest images are made. Returns its tag.
///
/// # Errors
/// It cannot be built.
pub fn guest_builder(cache: &Cache, progress: &Progress) -> Result<String> {
    build(
        "muster-guests",
        &workspace::root().join("tests/guests/builder/Dockerfile"),
        Suite::Trixie,
        cache,
        progress,
    )
}

/// The headers of `suite`'s Slurm, copied out of the lab's image `tag`: a directory that holds `slurm/spank.h`.
///
/// # Errors
/// They cannot be copied.
pub fn slurm_headers(tag: &str, cache: &Cache) -> Result<PathBuf> {
    let name = format!(
        "slurm-headers/{}",
        tag.rsplit_once(':').map_or(tag, |(_, version)| version)
    );
    cache.entry(&name, |made| {
        fs::create_dir(made).with_context(|| format!("make {}", made.display()))?;
        let volume = format!("{}:/out", made.display());
        docker([
            "run",
            "--rm",
            "-v",
            &volume,
            tag,
            "cp",
            "-r",
            "/usr/include/slurm",
            "/out/",
        ])
        .deadline(Duration::from_secs(120))
        .run()
        .map(drop)
    })
}
