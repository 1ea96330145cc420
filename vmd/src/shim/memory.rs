//! How much memory the job has on this node: the limit of the shim's own cgroup and of every cgroup
//! above it, as Slurm set them (`ConstrainRAMSpace`).
//!
//! Paths come from `/proc/self/cgroup` and `/proc/self/mountinfo` (cgroups(7), proc(5)), so that
//! version 1, version 2, containers and every Slurm release's names work.

use std::io;
use std::path::{Path, PathBuf};

use muster_types::ids::Mib;

/// Files of the kernel; tests have their own.
#[derive(Debug, Clone)]
pub struct Roots {
    /// `/`: what mount points are below.
    pub root: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            root: "/".into(),
            proc: "/proc".into(),
        }
    }
}

/// Why the memory of the job is not known.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// A file of the kernel cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It says something unexpected.
    #[error("{path}: {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

/// The job's memory on this node. Where nothing limits it, the node's memory is shared by CPUs.
///
/// # Errors
/// A file of the kernel cannot be read or makes no sense.
pub fn available(roots: &Roots) -> Result<Mib, LimitError> {
    let groups = read(&roots.proc.join("self/cgroup"))?;
    let mounts = read(&roots.proc.join("self/mountinfo"))?;
    let mut least: Option<u64> = None;
    for (top, dir, file) in memory_groups(&groups, &mounts) {
        let top = below(&roots.root, &top);
        let mut dir = below(&roots.root, &dir);
        // From the own cgroup up to the mount point: the tightest limit counts.
        while dir.starts_with(&top) {
            let limit = std::fs::read_to_string(dir.join(file)).ok();
            if let Some(bytes) = limit.and_then(|t| t.trim().parse::<u64>().ok()) {
                least = Some(least.map_or(bytes, |l| l.min(bytes)));
            }
            if !dir.pop() {
                break;
            }
        }
    }
    let node = share_of_node(roots)?;
    // Version 1 writes "no limit" as a number larger than any memory.
    let limit = least.filter(|l| *l < node.whole);
    Ok(Mib(limit.unwrap_or(node.share) / MIB))
}

const MIB: u64 = 1024 * 1024;

/// The memory cgroups of the process: mount point, directory, name of the file with the limit.
fn memory_groups(groups: &str, mounts: &str) -> Vec<(PathBuf, PathBuf, &'static str)> {
    let mut found = Vec::new();
    for line in groups.lines() {
        // hierarchy-ID:controller-list:cgroup-path
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (kind, file) = if controllers.split(',').any(|c| c == "memory") {
            ("cgroup", "memory.limit_in_bytes")
        } else if id == "0" && controllers.is_empty() {
            ("cgroup2", "memory.max")
        } else {
            continue;
        };
        let mount = mounts
            .lines()
            .filter_map(Mount::parse)
            .find(|m| m.kind == kind && (kind == "cgroup2" || m.has_memory));
        if let Some(mount) = mount {
            let inside = path.strip_prefix(mount.root.trim_end_matches('/'));
            let inside = inside.unwrap_or(path).trim_start_matches('/');
            let dir = mount.point.join(inside);
            found.push((mount.point, dir, file));
        }
    }
    found
}

/// A line of mountinfo.
struct Mount<'a> {
    root: &'a str,
    point: PathBuf,
    kind: &'a str,
    has_memory: bool,
}

impl<'a> Mount<'a> {
    /// `36 35 98:0 /root /point options [fields] - type source super-options`
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        Some(Self {
            root: left.next()?,
            point: PathBuf::from(left.next()?.replace("\\040", " ")),
            kind: right.next()?,
            has_memory: right.nth(1)?.split(',').any(|o| o == "memory"),
        })
    }
}

struct Node {
    /// Bytes of memory.
    whole: u64,
    /// Bytes that belong to the CPUs that the process may use.
    share: u64,
}

fn share_of_node(roots: &Roots) -> Result<Node, LimitError> {
    let path = roots.proc.join("meminfo");
    let text = read(&path)?;
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let total = total.and_then(|t| t.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let whole = total.ok_or(LimitError::Content {
        path,
        what: "no line 'MemTotal: ... kB'",
    })? * 1024;
    let cpus = read(&roots.proc.join("cpuinfo"))?;
    let all = cpus.lines().filter(|l| l.starts_with("processor")).count();
    let all = u64::try_from(all).unwrap_or(u64::MAX).max(1);
    let path = roots.proc.join("self/status");
    let status = read(&path)?;
    let mask = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed:"));
    let allowed = mask.map(|m| {
        m.chars()
            .filter_map(|c| c.to_digit(16))
            .map(u32::count_ones)
    });
    let allowed: u32 = allowed
        .ok_or(LimitError::Content {
            path,
            what: "no line 'Cpus_allowed:'",
        })?
        .sum();
    Ok(Node {
        whole,
        share: whole / all * u64::from(allowed).min(all),
    })
}

/// An absolute path below another root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn read(path: &Path) -> Result<String, LimitError> {
    std::fs::read_to_string(path).map_err(|source| LimitError::Read {
        path: path.to_path_buf(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMIT: &str = "9223372036854771712\n";

    /// A node of 8 GiB and 4 CPUs, of which the process may use 2.
    fn node(groups: &str, mounts: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        let mut all = vec![
            ("proc/self/cgroup", groups),
            ("proc/self/mountinfo", mounts),
            (
                "proc/self/status",
                "Name:\tx\nCpus_allowed:\t00000000,00000005\n",
            ),
            (
                "proc/meminfo",
                "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
            ),
            (
                "proc/cpuinfo",
                "processor : 0\nprocessor : 1\nprocessor : 2\nprocessor : 3\n",
            ),
        ];
        all.extend(files);
        for (path, text) in all {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = dir.path().to_path_buf();
        (dir, Roots { root, proc })
    }

    #[test]
    fn version_1_with_the_limit_at_the_job() {
        let (_dir, roots) = node(
            "11:cpuset:/slurm_n1/uid_7/job_3/step_0\n9:memory:/slurm_n1/uid_7/job_3/step_0/task_0\n1:name=systemd:/\n",
            "30 25 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n31 25 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n",
            &[
                (
                    "sys/fs/cgroup/memory/slurm_n1/uid_7/job_3/step_0/task_0/memory.limit_in_bytes",
                    NO_LIMIT,
                ),
                (
                    "sys/fs/cgroup/memory/slurm_n1/uid_7/job_3/step_0/memory.limit_in_bytes",
                    "1048576000\n",
                ),
                (
                    "sys/fs/cgroup/memory/slurm_n1/uid_7/job_3/memory.limit_in_bytes",
                    "524288000\n",
                ),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT),
            ],
        );
        assert_eq!(available(&roots).unwrap(), Mib(500));
    }

    #[test]
    fn version_1_in_a_container() {
        let (_dir, roots) = node(
            "9:memory:/docker/abc/slurm/job_3\n",
            "31 25 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            &[(
                "sys/fs/cgroup/memory/slurm/job_3/memory.limit_in_bytes",
                "524288000\n",
            )],
        );
        assert_eq!(available(&roots).unwrap(), Mib(500));
    }

    #[test]
    fn version_2() {
        let (_dir, roots) = node(
            "0::/system.slice/slurmstepd.scope/job_3/step_0/user/task_0\n",
            "31 25 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            &[
                (
                    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_3/step_0/user/task_0/memory.max",
                    "max\n",
                ),
                (
                    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_3/memory.max",
                    "2097152000\n",
                ),
            ],
        );
        assert_eq!(available(&roots).unwrap(), Mib(2000));
    }

    #[test]
    fn without_a_limit_the_cpus_decide() {
        let (_dir, roots) = node(
            "9:memory:/slurm/job_3\n0::/\n",
            "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            &[(
                "sys/fs/cgroup/memory/slurm/job_3/memory.limit_in_bytes",
                NO_LIMIT,
            )],
        );
        assert_eq!(available(&roots).unwrap(), Mib(4096));
        let (_dir, roots) = node("0::/x\n", "", &[]);
        assert_eq!(available(&roots).unwrap(), Mib(4096));
    }

    #[test]
    fn this_machine_has_an_answer() {
        assert!(available(&Roots::default()).unwrap() > Mib(0));
    }
}
