//! "Nothing left over": what must not exist in the lab once all jobs have ended.
//!
//! On each node: no process of a user or of a cluster's daemons, no file of a job in `/run/muster` or the scratch directory, no
//! control group of a job, no network device, name space, rule or port. In etcd: only what outlives jobs. In Slurm: no job, and
//! every node idle.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::lab::{Lab, State, User};
use crate::wait::{Look, wait_for};

const LEFTOVERS: &str = include_str!("../lab/leftovers.sh");
const LOOK: Duration = Duration::from_secs(60);
/// How long things may take to go once nothing holds them.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Keys that may be there without any job: nodes that are alive, and history.
const LASTING_KEYS: [&str; 2] = ["/muster/v1/nodes/", "/muster/v1/history/"];

/// Waits until nothing is left over.
///
/// # Errors
/// Something is, after `deadline`: the error lists it. Also when the lab cannot be looked at.
pub fn check(lab: &Lab, deadline: Duration) -> Result<()> {
    wait_for("the lab to be free of leftovers", deadline, || {
        let found = find(lab)?;
        Ok(if found.is_empty() {
            Look::Ready(())
        } else {
            Look::NotYet(format!("\n  {}", found.join("\n  ")))
        })
    })
}

/// What is left over now, one line each.
///
/// # Errors
/// The lab cannot be looked at.
pub fn find(lab: &Lab) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for node in lab.options().node_names() {
        let output = lab.run_with_stdin(&node, User::Root, &["bash", "-s"], LEFTOVERS, LOOK)?;
        if !output.ok() || !output.stderr.is_empty() {
            bail!("look for leftovers on {node}: {output}");
        }
        found.extend(output.stdout.lines().map(|line| format!("{node}: {line}")));
    }
    let queue = lab.root("ctl", "squeue --noheader --all --format='%i %T %R'")?;
    found.extend(queue.lines().map(|line| format!("slurm: job {line}")));
    let nodes = lab.root(
        "ctl",
        "sinfo --noheader --Node --partition=main --format='%N %T %E'",
    )?;
    found.extend(
        nodes
            .lines()
            .filter(|line| line.split_whitespace().nth(1) != Some("idle"))
            .map(|line| format!("slurm: node {line}")),
    );
    if lab.options().state == State::Etcd && !lab.options().without_vmd {
        let keys = lab.etcdctl("get --prefix --keys-only /muster/v1/")?;
        found.extend(left_keys(&keys).map(|key| format!("etcd: {key}")));
    }
    Ok(found)
}

/// The keys that belong to a job, of a list as etcdctl prints it.
fn left_keys(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|key| {
        !key.is_empty() && !LASTING_KEYS.iter().any(|lasting| key.starts_with(lasting))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_jobs_are_leftovers_and_those_of_nodes_are_not() {
        let list = "/muster/v1/clusters/7/record\n\n/muster/v1/nodes/node1/alive\n\n/muster/v1/users/1500/7\n\n";
        assert_eq!(
            left_keys(list).collect::<Vec<_>>(),
            ["/muster/v1/clusters/7/record", "/muster/v1/users/1500/7"]
        );
    }
}
