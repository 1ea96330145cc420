//! What a command knows of its process: who runs it, where the sockets are, in which job.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use muster_config::Trees;
use muster_templates::expand::Names;
use muster_templates::repos::RepoSpec;
use muster_types::{api, shim_api};
use nix::unistd::{Uid, User, getuid};

/// The environment of a command, read once.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// Where vmd listens.
    pub(crate) vmd_socket: PathBuf,
    /// vmd's run directory, on every node.
    pub(crate) run_dir: String,
    /// `SLURM_JOB_ID`, as it stands there.
    pub(crate) slurm_job: Option<String>,
    /// The caller.
    pub(crate) uid: u32,
    /// The caller's name.
    pub(crate) user: String,
    /// The caller's home directory.
    pub(crate) home: Option<PathBuf>,
    /// Slurm's `srun`.
    pub(crate) srun: PathBuf,
    /// This program, to be started on other nodes.
    pub(crate) program: PathBuf,
    /// Time at the start, in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
}

impl Context {
    /// The context of this process.
    pub(crate) fn from_process() -> Self {
        let uid = getuid();
        // One who is in no user database (a container, a broken LDAP) still has an environment.
        let entry = User::from_uid(uid).ok().flatten();
        let given = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let text = |name: &str| given(name).and_then(|v| v.into_string().ok());
        Self {
            vmd_socket: given("MUSTER_VMD_SOCKET").map_or_else(|| api::SOCKET.into(), Into::into),
            run_dir: text("MUSTER_RUN_DIR").unwrap_or_else(|| shim_api::RUN_DIR.into()),
            slurm_job: text("SLURM_JOB_ID"),
            uid: uid.as_raw(),
            user: name(entry.as_ref(), uid),
            home: entry
                .map(|e| e.dir)
                .or_else(|| given("HOME").map(Into::into)),
            srun: "srun".into(),
            program: std::env::current_exe().unwrap_or_else(|_| "muster".into()),
            now_ms: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .ok()
                .and_then(|d| u64::try_from(d.as_millis()).ok())
                .unwrap_or(0),
        }
    }

    /// Where the configuration is.
    pub(crate) fn trees(&self) -> Trees {
        let env = |name: &str| -> Option<OsString> { std::env::var_os(name) };
        Trees::from_env(&env, self.home.as_deref())
    }

    /// Calls `f` with what `%{...}` in paths stands for.
    pub(crate) fn with_names<T>(&self, f: impl FnOnce(&Names<'_>) -> T) -> T {
        let env = |name: &str| std::env::var(name).ok();
        f(&Names {
            home: self.home.as_deref().and_then(|h| h.to_str()),
            user: &self.user,
            env: &env,
        })
    }

    /// The image repositories, in order of priority.
    pub(crate) fn repos(&self) -> anyhow::Result<Vec<RepoSpec>> {
        Ok(self.with_names(|names| muster_config::repos(&self.trees(), names))?)
    }
}

fn name(entry: Option<&User>, uid: Uid) -> String {
    entry.map_or_else(|| uid.to_string(), |e| e.name.clone())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::Context;

    /// A context whose sockets are in a directory.
    pub(crate) fn context(dir: &Path) -> Context {
        Context {
            vmd_socket: dir.join("vmd.sock"),
            run_dir: dir.join("run").display().to_string(),
            slurm_job: None,
            uid: 1500,
            user: "alice".into(),
            home: None,
            srun: dir.join("no-srun"),
            program: "/usr/bin/muster".into(),
            now_ms: crate::render::samples::NOW_MS,
        }
    }
}
