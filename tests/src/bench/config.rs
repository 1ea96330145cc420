//! What a submission does with the configuration of a large site: 500 templates, five levels of inheritance, in the trees of the site and of the user.
//!
//! Each run is a process of its own, as salloc is: nothing is warm but the kernel's cache of files. The program is
//! `templates/files/examples/submission.rs`, which does what the plugin does.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{median, millis, quantile, ratio};
use crate::command::Cmd;
use crate::progress::Progress;
use crate::workspace::{cargo, target};

/// Runs; the one before them reads the files into the cache.
const RUNS: usize = 40;

/// What a submission may take for it, in microseconds.
const BUDGET: u64 = 20_000;

/// Templates in all.
const TEMPLATES: usize = 500;

/// Networks, each in a resource set of its own.
const NETWORKS: usize = 12;

/// Images of each of the two repositories.
const IMAGES: usize = 100;

/// What is submitted: two groups of templates of the fifth level, and an image.
const DEFINITION: &str = "user-98:16,user-42:4,image-7";

/// The numbers of those templates, which have only keys that this release acts on.
const SUBMITTED: [usize; 2] = [42, 98];

/// Measures and prints.
pub(super) fn run(progress: &Progress) -> Result<()> {
    let program = progress.stage("building the example 'submission'", build)?;
    let root = tempfile::tempdir().context("make a directory")?;
    write(root.path())?;
    let mut stages: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let (mut whole, mut bare) = (Vec::new(), Vec::new());
    for run in 0..=RUNS {
        // Interleaved: the machine's speed drifts.
        let (told, wall) = one(&program, &["etc", "home", DEFINITION], root.path())?;
        let (_, without) = one(&program, &[], root.path())?;
        if run == 0 {
            continue;
        }
        whole.push(wall);
        bare.push(without);
        for (stage, micros) in told {
            stages.entry(stage).or_default().push(micros);
        }
    }
    let line = |what: &str, values: &[u64]| {
        let (middle, most) = (median(values.to_vec()), quantile(values.to_vec(), 90));
        progress.print(format_args!(
            "  {what:<38} {:>7} {:>7}",
            millis(middle),
            millis(most)
        ));
    };
    progress.print(format_args!(
        "a submission with {TEMPLATES} templates of five levels, medians and 90 % of {RUNS} runs, in milliseconds"
    ));
    for (stage, values) in &stages {
        line(stage, values);
    }
    line("process in all", &whole);
    line("process that does nothing", &bare);
    let over = median(whole).saturating_sub(median(bare));
    progress.print(format_args!(
        "  {:<38} {:>7}  {:.2} of the budget of {} ms",
        "for the configuration",
        millis(over),
        ratio(over, BUDGET),
        BUDGET / 1000
    ));
    Ok(())
}

fn build() -> Result<PathBuf> {
    cargo([
        "build",
        "--quiet",
        "--release",
        "--package",
        "muster-config",
    ])
    .args(["--example", "submission"])
    .show_ok()?;
    Ok(target().join("release/examples/submission"))
}

/// One process: what it says of its stages, and how long it took from outside, all in microseconds.
fn one(program: &Path, arguments: &[&str], root: &Path) -> Result<(Vec<(String, u64)>, u64)> {
    let command = Cmd::new(program).args(arguments).dir(root);
    let name = command.to_string();
    let start = Instant::now();
    let output = command.into_std().output();
    let wall = micros(start.elapsed());
    let output = output.with_context(|| format!("run {name}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{name}: {}: {stderr}", output.status);
    }
    let stage = |line: &str| {
        let (micros, name) = line.split_once(' ')?;
        Some((name.to_owned(), micros.parse().ok()?))
    };
    Ok((stdout.lines().filter_map(stage).collect(), wall))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Writes the trees and the repositories below `root`.
fn write(root: &Path) -> Result<()> {
    let save = |path: PathBuf, text: &str| {
        let directory = path.parent().unwrap_or(root);
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("write {}", path.display()))
    };
    for (path, text) in templates().into_iter().chain(site(root)) {
        save(root.join(path), &text)?;
    }
    for repository in ["site", "own"] {
        for image in 0..IMAGES {
            save(
                root.join(format!("{repository}/meta/image-{image}@{}", image % 4)),
                "{}",
            )?;
        }
    }
    Ok(())
}

/// Networks, resource sets, repositories and policy of the site, and a repository of the user.
fn site(root: &Path) -> Vec<(String, String)> {
    let (mut networks, mut sets) = (String::new(), String::new());
    for i in 0..NETWORKS {
        let network = format!(
            "net-{i}:\n  type: ethernet\n  settings:\n    dev-prefix: n{i}x\n    int-network: 10.{}.0.0/16\n    \
             ext-network: 10.{}.0.0/16\n    dns-server: 10.0.0.53\n    domain-name: net{i}.example.org\n    mtu: 1450\n",
            100 + i,
            200 + i
        );
        networks.push_str(&network);
        sets.push_str(&format!("set-{i}:\n  networks: [net-{i}]\n"));
    }
    sets.push_str("  default: true\n");
    let repository = |name: &str| {
        let path = root.join(name).display().to_string();
        format!("repos:\n  - name: {name}\n    path: {path}\n")
    };
    vec![
        ("etc/networks.yaml".into(), networks),
        ("etc/resources.yaml".into(), sets),
        ("etc/repos.yaml".into(), repository("site")),
        ("home/repos.yaml".into(), repository("own")),
        (
            "etc/policy.yaml".into(),
            "max-vms-per-job: 1024\ncustom-args: [-cdrom]\n".into(),
        ),
    ]
}

/// The files of templates with 100 templates each: every level inherits from the one above.
fn templates() -> Vec<(String, String)> {
    let mut files = vec![("etc/templates.yaml".to_owned(), String::new())];
    files.extend(
        ["10-system", "20-role", "30-project"]
            .map(|name| (format!("etc/templates.d/{name}.yaml"), String::new())),
    );
    files.push(("home/templates.yaml".to_owned(), String::new()));
    for (level, (_, text)) in files.iter_mut().enumerate() {
        for i in 0..TEMPLATES / 5 {
            template(text, level, i);
        }
    }
    files
}

/// The names of the levels.
const LEVELS: [&str; 5] = ["base", "system", "role", "project", "user"];

/// What the templates of a level set beside what all releases act on.
const KEYS: [&str; 5] = [
    "  machine-type: q35\n  disk-model: virtio-scsi\n  nic-model: virtio-net\n",
    "  # What all of this kind have in common.\n  disk-cache: unsafe\n  user-data:\n    packages: [vim, tmux, git]\n    timezone: Europe/Paris\n    \
     runcmd:\n      - [systemctl, enable, --now, service]\n",
    "  mount-points:\n    scratch: {path: /tmp, type: virtio-9p}\n    data:\n      path: /\n      readonly: true\n  ready: ssh\n  ready-timeout: 300\n",
    "  hostname: 'p-%{vm_rank}'\n  dns-aliases: [head, 'node%{vm_rank}']\n  disk-size: 40G\n  data-disks:\n    - {size: 10G, serial: data}\n",
    "  emulator-cores: 0\n",
];

/// A template with the keys that its level usually sets.
fn template(text: &mut String, level: usize, i: usize) {
    let name = LEVELS[level];
    let parent = level.checked_sub(1).map(|above| LEVELS[above]);
    let inherits = parent.map_or_else(String::new, |above| format!("  inherits: {above}-{i}\n"));
    let mut keys = String::new();
    if level == 0 {
        keys.push_str(&format!(
            "  image: site:image-{i}\n  resource-set: set-{}\n",
            i % NETWORKS
        ));
    } else if level == 1 {
        keys.push_str(&format!("  memory: {}G\n  cpus: 2\n", 1 + i % 8));
    } else if level == 4 {
        keys.push_str(&format!(
            "  memory: {}G\n  cpus: {}\n  accel: tcg\n",
            2 + i % 6,
            1 + i % 4
        ));
    }
    if !SUBMITTED.contains(&i) {
        keys.push_str(KEYS[level]);
    }
    // Writing to a text cannot fail.
    writeln!(
        text,
        "{name}-{i}:\n  description: \"Level {level}, number {i}: for the machines of group {}\"\n{inherits}{keys}",
        i % 10
    )
    .ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_templates_of_five_levels() {
        let files = templates();
        assert_eq!(files.len(), 5);
        let all: String = files.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(all.matches("  description: ").count(), TEMPLATES);
        assert_eq!(all.matches("  inherits: ").count(), TEMPLATES / 5 * 4);
        assert!(files[4].1.contains("user-99:\n") && files[3].1.contains("project-99:\n"));
    }
}
