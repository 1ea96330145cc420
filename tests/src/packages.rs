//! The Debian packages that building and testing Muster needs on the host: found out, listed, installed by root.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::command::Cmd;
use crate::progress::Progress;

/// A package, and what shows that there is no need to install it.
#[derive(Debug, Clone, Copy)]
struct Need {
    package: &'static str,
    /// A program that the package brings: where it is found, however it came, the package is not asked for.
    program: Option<&'static str>,
    why: &'static str,
}

const fn program(package: &'static str, program: &'static str, why: &'static str) -> Need {
    Need {
        package,
        program: Some(program),
        why,
    }
}

const fn package(package: &'static str, why: &'static str) -> Need {
    Need {
        package,
        program: None,
        why,
    }
}

/// Everything, with what it is for. QEMU itself is not here: VMs run in the lab's containers only.
const NEEDS: &[Need] = &[
    program("gcc", "cc", "linking"),
    package("libc6-dev", "linking"),
    program("g++", "c++", "building libFuzzer"),
    program("protobuf-compiler", "protoc", "building etcd-client"),
    package("libprotobuf-dev", "building etcd-client"),
    package("libclang-dev", "bindings to SPANK"),
    program("qemu-utils", "qemu-img", "tests of image repositories"),
    program("etcd-server", "etcd", "tests of the state store"),
    program("etcd-client", "etcdctl", "tests of the state store"),
    program("openssl", "openssl", "certificates for tests"),
    program("docker.io", "dockerd", "the lab"),
    program("iptables", "iptables", "the lab's network"),
    program("mmdebstrap", "mmdebstrap", "base images"),
    package("ca-certificates", "fetching packages"),
];

/// Installs what is missing; without root's rights says how to.
///
/// # Errors
/// Something is missing and cannot be installed.
pub fn ensure(progress: &Progress) -> Result<()> {
    let missing = missing()?;
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let command = format!(
        "apt-get install --no-install-recommends {}",
        names.join(" ")
    );
    if !nix::unistd::geteuid().is_root() {
        bail!("Debian packages are missing; install them as root:\n  {command}");
    }
    for need in &missing {
        progress.say(format_args!(
            "package {} is missing ({})",
            need.package, need.why
        ));
    }
    progress.stage("apt-get update", || apt(&["update", "-qq"]))?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(names.iter().copied());
    if has_separate_docker_cli() && names.contains(&"docker.io") {
        arguments.push("docker-cli");
    }
    progress.stage(&command, || apt(&arguments))
}

fn apt(arguments: &[&str]) -> Result<()> {
    Cmd::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()
        .map(drop)
}

/// The needs that this host does not meet.
fn missing() -> Result<Vec<Need>> {
    if !on_path("dpkg-query") {
        bail!(
            "this is no Debian system (no dpkg-query); install by hand what corresponds to: {}",
            {
                NEEDS
                    .iter()
                    .map(|need| need.package)
                    .collect::<Vec<_>>()
                    .join(" ")
            }
        );
    }
    let mut missing = Vec::new();
    for need in NEEDS {
        let met = match need.program {
            Some(program) => on_path(program),
            None => installed(need.package)?,
        };
        if !met {
            missing.push(*need);
        }
    }
    Ok(missing)
}

fn installed(package: &str) -> Result<bool> {
    let output = Cmd::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}\n", package])
        .output()?;
    Ok(output.ok() && output.stdout.lines().any(|line| line == "installed"))
}

/// Whether `program` is in a directory of PATH or where root's programs are.
#[must_use]
pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path)
        .chain(extra)
        .any(|directory: PathBuf| directory.join(program).is_file())
}

/// From Debian 13 on, the `docker` command has a package of its own.
fn has_separate_docker_cli() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_ID="))
        .is_some_and(|version| {
            version
                .trim_matches('"')
                .parse::<u32>()
                .is_ok_and(|version| version >= 13)
        })
}

/// Refuses to go on without root's rights: containers with networks and cgroups of their own need them.
///
/// # Errors
/// This process does not run as root.
pub fn require_root(task: &str) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        Ok(())
    } else {
        bail!("{task} needs root's rights: it runs containers that manage cgroups")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("no-such-program-of-any-package"));
    }

    #[test]
    fn each_package_is_listed_once() {
        let mut names: Vec<&str> = NEEDS.iter().map(|need| need.package).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NEEDS.len());
    }
}
