//! The plugin's arguments in plugstack.conf (spank(8)): `socket=`, `on_node_fault=`, `slurm_bin=`.

use std::path::{Path, PathBuf};

/// What the administrator set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// Where the node's vmd listens.
    pub socket: PathBuf,
    /// What a node that cannot register a job does.
    pub on_node_fault: NodeFault,
    /// Directory of `scontrol` and `scancel`; unset: beside the running program.
    pub slurm_bin: Option<PathBuf>,
}

/// What becomes of a job and a node when the node's vmd does not take the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeFault {
    /// The job fails, the node stays in service.
    #[default]
    Fail,
    /// The prolog fails: Slurm drains the node and requeues the job.
    Drain,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(muster_types::api::SOCKET),
            on_node_fault: NodeFault::default(),
            slurm_bin: None,
        }
    }
}

/// An argument that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plugstack.conf: argument '{argument}' of the muster plugin: {allowed}")]
pub struct ArgumentError {
    argument: String,
    allowed: &'static str,
}

impl Arguments {
    /// Reads the arguments.
    ///
    /// # Errors
    /// One is unknown or has a bad value.
    pub fn parse(arguments: &[String]) -> Result<Self, ArgumentError> {
        let mut parsed = Self::default();
        for argument in arguments {
            let bad = |allowed| ArgumentError {
                argument: argument.clone(),
                allowed,
            };
            match argument.split_once('=') {
                Some(("socket", path)) => {
                    parsed.socket = absolute(path).ok_or(bad("the path must be absolute"))?;
                }
                Some(("slurm_bin", path)) => {
                    parsed.slurm_bin =
                        Some(absolute(path).ok_or(bad("the path must be absolute"))?);
                }
                Some(("on_node_fault", "fail")) => parsed.on_node_fault = NodeFault::Fail,
                Some(("on_node_fault", "drain")) => parsed.on_node_fault = NodeFault::Drain,
                Some(("on_node_fault", _)) => return Err(bad("allowed are fail and drain")),
                _ => {
                    return Err(bad(
                        "known are socket=PATH, on_node_fault=fail|drain, slurm_bin=DIR",
                    ));
                }
            }
        }
        Ok(parsed)
    }

    /// A command of Slurm as an absolute path: in `slurm_bin`, else in the `bin` directory beside
    /// that of the running program (`/usr/sbin/slurmstepd`), else in `/usr/bin`.
    #[must_use]
    pub fn slurm_command(&self, name: &str, program: Option<&Path>) -> PathBuf {
        if let Some(dir) = &self.slurm_bin {
            return dir.join(name);
        }
        let prefix = program.and_then(Path::parent).and_then(Path::parent);
        prefix
            .map(|p| p.join("bin").join(name))
            .filter(|path| path.is_file())
            .unwrap_or_else(|| Path::new("/usr/bin").join(name))
    }
}

fn absolute(path: &str) -> Option<PathBuf> {
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, String> {
        let owned: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        Arguments::parse(&owned).map_err(|e| e.to_string())
    }

    #[test]
    fn arguments_have_defaults() {
        let a = parse(&[]).unwrap();
        assert_eq!(a, Arguments::default());
        assert_eq!(a.socket, Path::new("/run/muster/vmd.sock"));
    }

    #[test]
    fn arguments_are_read() {
        let a = parse(&["socket=/x/y", "on_node_fault=drain", "slurm_bin=/opt/bin"]).unwrap();
        assert_eq!(a.socket, Path::new("/x/y"));
        assert_eq!(a.on_node_fault, NodeFault::Drain);
        assert_eq!(
            a.slurm_command("scancel", None),
            Path::new("/opt/bin/scancel")
        );
    }

    #[test]
    fn unknown_arguments_are_named() {
        for (bad, part) in [
            ("sockets=/x", "known are socket=PATH"),
            ("drain", "known are"),
            ("socket=run", "absolute"),
            ("on_node_fault=no", "fail and drain"),
        ] {
            let e = parse(&[bad]).unwrap_err();
            assert!(e.contains(bad) && e.contains(part), "{e}");
        }
    }

    #[test]
    fn slurm_commands_are_beside_the_program() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        std::fs::write(dir.path().join("bin/scontrol"), "").unwrap();
        let program = dir.path().join("sbin/slurmstepd");
        let a = Arguments::default();
        assert_eq!(
            a.slurm_command("scontrol", Some(&program)),
            dir.path().join("bin/scontrol")
        );
        assert_eq!(
            a.slurm_command("scancel", Some(&program)),
            Path::new("/usr/bin/scancel")
        );
    }
}
