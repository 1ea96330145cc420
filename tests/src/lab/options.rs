//! What a lab is made of: the choices of `xtask lab up`.

use std::fmt::{self, Display};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::guests::Guest;
use crate::suite::Suite;

/// Where Muster keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// In an etcd on `ctl`.
    Etcd,
    /// In a file on the only node.
    Embedded,
}

/// How vmd proves to etcd who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EtcdAuth {
    /// By a client certificate.
    Cert,
    /// By user name and password, over TLS.
    Password,
    /// Not at all, over plain HTTP.
    None,
}

/// The choices, as given on the command line.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The Debian suite, and with it the release of Slurm.
    #[arg(long, value_enum, default_value_t = Suite::Trixie)]
    pub suite: Suite,
    /// How many nodes (default: 2; 1 with --state embedded).
    #[arg(long)]
    pub nodes: Option<u32>,
    /// Where Muster keeps its state.
    #[arg(long, value_enum, default_value_t = State::Etcd)]
    pub state: State,
    /// How vmd proves to etcd who it is.
    #[arg(long, value_enum, default_value_t = EtcdAuth::Cert)]
    pub etcd_auth: EtcdAuth,
    /// Guest images to make and import (default: all).
    #[arg(long, value_enum, value_delimiter = ',')]
    pub guest: Vec<Guest>,
    /// Install optimised programs instead of the quickly built ones.
    #[arg(long)]
    pub release: bool,
    /// Slurm alone: no vmd, no plugin, no images.
    #[arg(long)]
    pub without_vmd: bool,
}

/// The choices, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The Debian suite.
    pub suite: Suite,
    /// How many nodes: 1..=9.
    pub nodes: u32,
    /// Where Muster keeps its state.
    pub state: State,
    /// How vmd proves to etcd who it is.
    pub etcd_auth: EtcdAuth,
    /// Guest images that are imported.
    pub guests: Vec<Guest>,
    /// Whether the programs are optimised.
    pub release: bool,
    /// Whether Muster is left out.
    pub without_vmd: bool,
}

impl TryFrom<&Arguments> for Options {
    type Error = anyhow::Error;

    fn try_from(arguments: &Arguments) -> Result<Self> {
        let embedded = arguments.state == State::Embedded;
        let nodes = arguments.nodes.unwrap_or(if embedded { 1 } else { 2 });
        if embedded && nodes != 1 {
            bail!("--state embedded keeps the state of one node: --nodes must be 1, not {nodes}");
        }
        if !(1..=9).contains(&nodes) {
            bail!("--nodes must be 1 to 9, not {nodes}");
        }
        let guests = if arguments.guest.is_empty() {
            Guest::ALL.to_vec()
        } else {
            arguments.guest.clone()
        };
        Ok(Self {
            suite: arguments.suite,
            nodes,
            state: arguments.state,
            etcd_auth: arguments.etcd_auth,
            guests,
            release: arguments.release,
            without_vmd: arguments.without_vmd,
        })
    }
}

impl Options {
    /// The compute nodes' names.
    #[must_use]
    pub fn node_names(&self) -> Vec<String> {
        (1..=self.nodes)
            .map(|number| format!("node{number}"))
            .collect()
    }

    /// The host that runs slurmctld and that users log in on. With an embedded store it is the node itself.
    #[must_use]
    pub fn controller(&self) -> &'static str {
        match self.state {
            State::Etcd => "ctl",
            State::Embedded => "node1",
        }
    }

    /// All hosts: each is a container.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts = self.node_names();
        if self.state == State::Etcd {
            hosts.insert(0, "ctl".to_owned());
        }
        hosts
    }

    /// The host that `name` means: its own name, or `ctl` for the controller wherever it is.
    ///
    /// # Errors
    /// There is no such host.
    pub fn host(&self, name: &str) -> Result<String> {
        let name = if name == "ctl" {
            self.controller()
        } else {
            name
        };
        let hosts = self.hosts();
        if !hosts.iter().any(|host| host == name) {
            bail!(
                "no host '{name}' in the lab; there are: ctl, {}",
                self.node_names().join(", ")
            );
        }
        Ok(name.to_owned())
    }
}

impl Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = if self.nodes == 1 {
            "1 node".to_owned()
        } else {
            format!("{} nodes", self.nodes)
        };
        write!(f, "{}, {nodes}, ", self.suite)?;
        if self.without_vmd {
            return f.write_str("Slurm alone");
        }
        match (self.state, self.etcd_auth) {
            (State::Embedded, _) => f.write_str("embedded state")?,
            (State::Etcd, EtcdAuth::Cert) => f.write_str("etcd with client certificates")?,
            (State::Etcd, EtcdAuth::Password) => f.write_str("etcd with a password")?,
            (State::Etcd, EtcdAuth::None) => f.write_str("etcd without authentication")?,
        }
        if self.release {
            f.write_str(", release build")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn options(state: State) -> Options {
        let arguments = Arguments {
            suite: Suite::Trixie,
            nodes: None,
            state,
            etcd_auth: EtcdAuth::Cert,
            guest: Vec::new(),
            release: false,
            without_vmd: false,
        };
        Options::try_from(&arguments).unwrap()
    }

    #[test]
    fn embedded_is_one_host_that_is_also_ctl() {
        let options = options(State::Embedded);
        assert_eq!(options.hosts(), ["node1"]);
        assert_eq!(options.host("ctl").unwrap(), "node1");
    }

    #[test]
    fn etcd_has_a_controller_beside_its_nodes() {
        let options = options(State::Etcd);
        assert_eq!(options.hosts(), ["ctl", "node1", "node2"]);
        let error = options.host("node3").unwrap_err().to_string();
        assert_eq!(
            error,
            "no host 'node3' in the lab; there are: ctl, node1, node2"
        );
    }

    #[test]
    fn options_survive_a_label() {
        let options = options(State::Etcd);
        assert_eq!(
            serde_json::from_str::<Options>(&serde_json::to_string(&options).unwrap()).unwrap(),
            options
        );
    }
}
