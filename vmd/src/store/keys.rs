//! The keys of the state store: `/muster/v1/...`, all in one place.

use muster_types::ids::JobId;

const ROOT: &str = "/muster/v1";

/// Prefix of all clusters.
#[must_use]
pub fn clusters() -> String {
    format!("{ROOT}/clusters/")
}

/// Prefix of everything about one cluster.
#[must_use]
pub fn cluster_prefix(job: JobId) -> String {
    format!("{ROOT}/clusters/{job}/")
}

/// The cluster record: written once, by the job's first node.
#[must_use]
pub fn record(job: JobId) -> String {
    format!("{ROOT}/clusters/{job}/record")
}

/// A node's status in a cluster: written by that node only.
#[must_use]
pub fn node_status(job: JobId, node: &str) -> String {
    format!("{ROOT}/clusters/{job}/nodes/{node}")
}

/// Prefix of a user's clusters.
#[must_use]
pub fn users(uid: u32) -> String {
    format!("{ROOT}/users/{uid}/")
}

/// A user's cluster, for listing them without reading all.
#[must_use]
pub fn user_index(uid: u32, job: JobId) -> String {
    format!("{ROOT}/users/{uid}/{job}")
}

/// Prefix of all nodes.
#[must_use]
pub fn nodes() -> String {
    format!("{ROOT}/nodes/")
}

/// There while a node's vmd lives: on its lease.
#[must_use]
pub fn node_alive(node: &str) -> String {
    format!("{ROOT}/nodes/{node}/alive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_jobs_keys_are_not_anothers() {
        let prefix = cluster_prefix(JobId(1));
        assert!(record(JobId(1)).starts_with(&prefix));
        assert!(!record(JobId(12)).starts_with(&prefix));
        assert!(node_status(JobId(1), "n1").starts_with(&prefix));
        assert!(!user_index(15, JobId(1)).starts_with(&users(1)));
        assert!(node_alive("n1").starts_with(&nodes()));
    }
}
