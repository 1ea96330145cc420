//! Facts about a job, from the environment that slurmd builds for a prolog or epilog.
//!
//! Nothing here can be set by the user: their variables reach the prolog with `SPANK_` before the
//! name (spank(8)).

use muster_types::api::JobFacts;
use muster_types::ids::{IdError, JobId, JobKey, NodeName};

use crate::account::Account;

/// Gives the value of a variable.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The prolog's environment lacks a fact or has a strange one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactError {
    /// None of these is set.
    #[error("{0} is not set in the environment of the prolog")]
    Missing(&'static str),
    /// It is set, to something else.
    #[error("{name}: '{value}' is no number")]
    Number {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// It is no id.
    #[error("{name}")]
    Id {
        /// The variable.
        name: &'static str,
        /// Why not.
        source: IdError,
    },
}

/// The run of the job.
///
/// # Errors
/// The job id is missing or no id, or the restart count is no number.
pub fn key(env: Env<'_>) -> Result<JobKey, FactError> {
    let job = required(env, &["SLURM_JOB_ID", "SLURM_JOBID"])?;
    let job: JobId = job.parse().map_err(|source| FactError::Id {
        name: "SLURM_JOB_ID",
        source,
    })?;
    // Slurm leaves the count out of the environment of a first run in some places.
    let restart = match given(env, "SLURM_JOB_RESTART_COUNT") {
        Some(value) => number("SLURM_JOB_RESTART_COUNT", value)?,
        None => 0,
    };
    Ok(JobKey { job, restart })
}

/// This node's name, for messages.
#[must_use]
pub fn node(env: Env<'_>) -> String {
    given(env, "SLURMD_NODENAME").unwrap_or_else(|| "this node".into())
}

/// All facts. The user database stands in for a group or user name that this release of Slurm does
/// not give.
///
/// # Errors
/// See [`FactError`].
pub fn job(env: Env<'_>, account: &dyn Fn(u32) -> Option<Account>) -> Result<JobFacts, FactError> {
    let uid = required(env, &["SLURM_JOB_UID", "SLURM_UID"])?;
    let uid = number("SLURM_JOB_UID", uid)?;
    let gid = match given(env, "SLURM_JOB_GID") {
        Some(gid) => number("SLURM_JOB_GID", gid)?,
        None => account(uid)
            .map(|a| a.gid)
            .ok_or(FactError::Missing("SLURM_JOB_GID"))?,
    };
    let user = given(env, "SLURM_JOB_USER")
        .or_else(|| account(uid).map(|a| a.name))
        .unwrap_or_else(|| uid.to_string());
    let node = required(env, &["SLURMD_NODENAME"])?;
    let node = NodeName::new(&node).map_err(|source| FactError::Id {
        name: "SLURMD_NODENAME",
        source,
    })?;
    Ok(JobFacts {
        key: key(env)?,
        uid,
        gid,
        user,
        node,
        nodelist: required(env, &["SLURM_JOB_NODELIST", "SLURM_NODELIST"])?,
        cpus_per_node: required(env, &["SLURM_JOB_CPUS_PER_NODE"])?,
        partition: required(env, &["SLURM_JOB_PARTITION"])?,
        account: given(env, "SLURM_JOB_ACCOUNT"),
        sluid: given(env, "SLURM_JOB_SLUID"),
    })
}

fn given(env: Env<'_>, name: &str) -> Option<String> {
    env(name).filter(|value| !value.is_empty())
}

fn required(env: Env<'_>, names: &[&'static str]) -> Result<String, FactError> {
    names
        .iter()
        .find_map(|name| given(env, name))
        .ok_or_else(|| FactError::Missing(names.first().copied().unwrap_or_default()))
}

fn number(name: &'static str, value: String) -> Result<u32, FactError> {
    value.parse().map_err(|_| FactError::Number { name, value })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The prolog's environment in Slurm 22.05, the poorest of the supported ones.
    pub(crate) const PROLOG_22_05: &[(&str, &str)] = &[
        ("SPANK__SLURM_SPANK_OPTION_muster_vm", "tiny:2"),
        ("SLURMD_NODENAME", "node1"),
        ("SLURM_JOB_ID", "7"),
        ("SLURM_JOB_UID", "1500"),
        ("SLURM_JOB_GID", "1501"),
        ("SLURM_JOB_USER", "alice"),
        ("SLURM_JOBID", "7"),
        ("SLURM_UID", "1500"),
        ("SLURM_NODELIST", "node[1-2]"),
        ("SLURM_JOB_CPUS_PER_NODE", "2(x2)"),
        ("SLURM_JOB_PARTITION", "main"),
        ("SLURM_JOB_RESTART_COUNT", "3"),
    ];

    fn facts(base: &[(&str, &str)], change: &[(&str, &str)]) -> Result<JobFacts, FactError> {
        let mut map: BTreeMap<&str, &str> = base.iter().copied().collect();
        map.extend(change.iter().copied());
        job(&|name| map.get(name).map(|v| (*v).to_owned()), &|_| {
            Some(Account {
                name: "from-db".into(),
                gid: 42,
                home: "/home/alice".into(),
            })
        })
    }

    #[test]
    fn the_oldest_release_is_enough() {
        let f = facts(PROLOG_22_05, &[]).unwrap();
        assert_eq!(f.key.to_string(), "7.3");
        assert_eq!((f.uid, f.gid, f.user.as_str()), (1500, 1501, "alice"));
        assert_eq!(
            (f.node.as_str(), f.nodelist.as_str()),
            ("node1", "node[1-2]")
        );
        assert_eq!(
            (f.cpus_per_node.as_str(), f.partition.as_str()),
            ("2(x2)", "main")
        );
        assert_eq!((f.account, f.sluid), (None, None));
    }

    #[test]
    fn later_releases_say_more() {
        let more = [
            ("SLURM_JOB_NODELIST", "node[1-3]"),
            ("SLURM_JOB_SLUID", "s769M8QCZ3MK00"),
            ("SLURM_JOB_ACCOUNT", "projx"),
        ];
        let f = facts(PROLOG_22_05, &more).unwrap();
        assert_eq!(f.nodelist, "node[1-3]");
        assert_eq!(f.sluid.as_deref(), Some("s769M8QCZ3MK00"));
        assert_eq!(f.account.as_deref(), Some("projx"));
    }

    #[test]
    fn what_slurm_leaves_out_comes_from_elsewhere() {
        let less = [
            ("SLURM_JOB_GID", ""),
            ("SLURM_JOB_USER", ""),
            ("SLURM_JOB_RESTART_COUNT", ""),
        ];
        let f = facts(PROLOG_22_05, &less).unwrap();
        assert_eq!((f.gid, f.user.as_str(), f.key.restart), (42, "from-db", 0));
    }

    #[test]
    fn a_missing_or_strange_fact_is_named() {
        for (name, value, part) in [
            ("SLURM_JOB_PARTITION", "", "SLURM_JOB_PARTITION is not set"),
            ("SLURM_JOB_UID", "alice", "SLURM_JOB_UID: 'alice'"),
            (
                "SLURM_JOB_RESTART_COUNT",
                "-1",
                "SLURM_JOB_RESTART_COUNT: '-1'",
            ),
            ("SLURMD_NODENAME", "a/b", "SLURMD_NODENAME"),
            ("SLURM_JOB_ID", "0", "SLURM_JOB_ID"),
        ] {
            let e = facts(PROLOG_22_05, &[(name, value)]).unwrap_err();
            assert!(e.to_string().starts_with(part), "{e}");
        }
        assert_eq!(
            facts(&[], &[]).unwrap_err(),
            FactError::Missing("SLURM_JOB_UID")
        );
    }
}
