//! The lab: Slurm in containers, with Muster installed as its packages would install it.
//!
//! `ctl` runs slurmctld, etcd and vmd as gateway, and is where users log in; `node1`.. run slurmd and vmd. With an embedded
//! state store the only node is `ctl` as well. The choices of a running lab are a label of its containers, so any process can
//! [attach](Lab::attach) to it. There is one lab at a time on a machine: slurmd names its control groups by node.

mod config;
mod exec;
mod faults;
mod options;
mod up;

use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use exec::{Background, User};
pub use options::{Arguments, EtcdAuth, Options, State};

use crate::cache::Cache;
use crate::command::Output;
use crate::docker::docker;
use crate::progress::Progress;

/// Marks what belongs to the lab; on containers its value is a [`Label`].
const LABEL: &str = "muster.lab";
/// The network, and the prefix of containers and volumes.
const NAME: &str = "muster-lab";
/// For the small things done to set up and look around.
const QUICK: Duration = Duration::from_secs(60);

/// What a lab's containers say of themselves.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Label {
    options: Options,
    /// Of all that was installed.
    fingerprint: String,
}

/// A running lab.
#[derive(Debug, Clone)]
pub struct Lab {
    options: Options,
}

impl Lab {
    /// The lab that runs on this machine.
    ///
    /// # Errors
    /// None runs, or only parts of one.
    pub fn attach() -> Result<Self> {
        let Some((label, running)) = find()? else {
            bail!("no lab is up; start one with: cargo xtask lab up")
        };
        for host in label.options.hosts() {
            if !running.contains(&container(&host)) {
                bail!(
                    "the lab is broken: host {host} does not run; take it down with: cargo xtask lab down"
                );
            }
        }
        Ok(Self {
            options: label.options,
        })
    }

    /// Brings up a lab with `options`, or finds that it is up. A lab with other options, or with other programs installed, is
    /// taken down first.
    ///
    /// # Errors
    /// Something cannot be built or started in time; what was started is left for inspection.
    pub fn up(options: &Options, cache: &Cache, progress: &Progress) -> Result<Self> {
        up::up(options, cache, progress)
    }

    /// Takes the lab down, whatever is left of it. Says whether there was one.
    ///
    /// # Errors
    /// Docker fails, or control groups cannot be removed.
    pub fn down(cache: &Cache, progress: &Progress) -> Result<bool> {
        up::down(cache, progress)
    }

    /// The choices it was brought up with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Runs a command on the host `on` (`ctl` or a node) as `user`, and kills it after `deadline`.
    ///
    /// # Errors
    /// There is no such host, docker fails, or the command does not end in time. A command that ends with an error is no error here.
    pub fn run(&self, on: &str, user: User, argv: &[&str], deadline: Duration) -> Result<Output> {
        exec::run(&self.options.host(on)?, user, argv, None, deadline)
    }

    /// As [`Lab::run`], with what the command reads.
    ///
    /// # Errors
    /// As [`Lab::run`].
    pub fn run_with_stdin(
        &self,
        on: &str,
        user: User,
        argv: &[&str],
        stdin: &str,
        deadline: Duration,
    ) -> Result<Output> {
        exec::run(&self.options.host(on)?, user, argv, Some(stdin), deadline)
    }

    /// Runs `script` with bash, as [`Lab::run`].
    ///
    /// # Errors
    /// As [`Lab::run`].
    pub fn sh(&self, on: &str, user: User, script: &str, deadline: Duration) -> Result<Output> {
        exec::run(
            &self.options.host(on)?,
            user,
            &["bash", "-c", script],
            None,
            deadline,
        )
    }

    /// Runs `script` with bash as root, within a minute; a status other than 0 is an error. For the harness itself.
    ///
    /// # Errors
    /// As [`Lab::run`], and when the script fails.
    pub fn root(&self, on: &str, script: &str) -> Result<String> {
        let output = self.sh(on, User::Root, script, QUICK)?;
        if !output.ok() {
            bail!("on {on}, as root: {script}: {output}");
        }
        Ok(output.stdout)
    }

    /// Starts a command that runs beside the test; it is killed when the returned value is dropped.
    ///
    /// # Errors
    /// There is no such host, or docker cannot be run.
    pub fn start(&self, on: &str, user: User, argv: &[&str]) -> Result<Background> {
        Background::start(&self.options.host(on)?, user, argv)
    }

    /// Runs a command with this process's own terminal or pipes, for as long as it takes; returns its status.
    ///
    /// # Errors
    /// There is no such host, or docker cannot be run.
    pub fn interactive(&self, on: &str, user: User, argv: &[String]) -> Result<i32> {
        exec::interactive(&self.options.host(on)?, user, argv)
    }

    /// `etcdctl ARGS`, run on `ctl` with what it needs to be let in; its output.
    ///
    /// # Errors
    /// etcdctl fails, or the lab has no etcd.
    pub fn etcdctl(&self, arguments: &str) -> Result<String> {
        if self.options.state != State::Etcd || self.options.without_vmd {
            bail!("the lab has no etcd: {}", self.options);
        }
        self.root(
            "ctl",
            &format!("{} {arguments}", config::etcdctl(self.options.etcd_auth)),
        )
    }
}

/// The container of a host.
#[must_use]
pub fn container(host: &str) -> String {
    format!("{NAME}-{host}")
}

/// The label of the lab that exists, if one does, and those of its containers that run.
fn find() -> Result<Option<(Label, Vec<String>)>> {
    let format = format!("{{{{.Names}}}}\t{{{{.State}}}}\t{{{{.Label \"{LABEL}\"}}}}");
    let list = docker([
        "ps",
        "-a",
        "--filter",
        &format!("label={LABEL}"),
        "--format",
        &format,
    ])
    .deadline(QUICK)
    .run()?
    .stdout;
    let mut label = None;
    let mut running = Vec::new();
    for line in list.lines() {
        let mut fields = line.splitn(3, '\t');
        let (Some(name), Some(state), Some(text)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if state == "running" {
            running.push(name.to_owned());
        }
        label = Some(
            serde_json::from_str::<Label>(text)
                .with_context(|| format!("read the label of container {name}"))?,
        );
    }
    Ok(label.map(|label| (label, running)))
}
