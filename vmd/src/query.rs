//! What users may see: clusters read from the state store and filtered by the caller.

use muster_types::api::{ApiError, Clusters};
use muster_types::ids::{JobId, JobKey, NodeName};
use muster_types::state::{self, ClusterRecord, ClusterView, NodeStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::chain::chain;
use crate::cluster::Context;
use crate::store::{Entry, StoreError, keys};

/// What this node says of a run itself. It is shown in place of what the store has: who was told that
/// the VMs run is not to read a moment later that they are starting.
pub type Own<'a> = &'a (dyn Fn(JobKey) -> Option<(NodeName, NodeStatus)> + Sync);

/// The clusters of one user, or all.
///
/// # Errors
/// The state store does not answer.
pub async fn list(context: &Context, uid: Option<u32>, own: Own<'_>) -> Result<Clusters, ApiError> {
    let store = &context.store;
    let mut views = Vec::new();
    if let Some(uid) = uid {
        let prefix = keys::users(uid);
        let index = store.list(&prefix).await.map_err(|e| unavailable(&e))?;
        for entry in index.entries {
            let job = entry.key.strip_prefix(&prefix).unwrap_or_default();
            if let Ok(job) = job.parse::<JobId>()
                && let Some(view) = get(context, job, own).await?
                && view.uid == uid
            {
                views.push(view);
            }
        }
    } else {
        let all = store.list(&keys::clusters()).await;
        let all = all.map_err(|e| unavailable(&e))?.entries;
        let records: Vec<ClusterRecord> = all
            .iter()
            .filter_map(|e| serde_json::from_slice(&e.value).ok())
            .collect();
        let alive = alive(context).await?;
        views.extend(records.iter().map(|r| assemble(r, &all, &alive, own)));
    }
    views.sort_by_key(|v| v.key);
    Ok(Clusters { clusters: views })
}

/// One cluster; `None` when there is none.
///
/// # Errors
/// The state store does not answer.
pub async fn get(
    context: &Context,
    job: JobId,
    own: Own<'_>,
) -> Result<Option<ClusterView>, ApiError> {
    let entries = context.store.list(&keys::cluster_prefix(job)).await;
    let entries = entries.map_err(|e| unavailable(&e))?.entries;
    let record_key = keys::record(job);
    let record = entries.iter().find(|e| e.key == record_key);
    let Some(record) = record.and_then(|e| serde_json::from_slice::<ClusterRecord>(&e.value).ok())
    else {
        return Ok(None);
    };
    let mut alive = BTreeSet::new();
    if record.nodes.len() > 16 {
        alive = self::alive(context).await?;
    } else {
        for node in &record.nodes {
            let key = keys::node_alive(node.as_str());
            if context
                .store
                .get(&key)
                .await
                .map_err(|e| unavailable(&e))?
                .is_some()
            {
                alive.insert(key);
            }
        }
    }
    Ok(Some(assemble(&record, &entries, &alive, own)))
}

/// Keys of the nodes whose vmd is alive.
async fn alive(context: &Context) -> Result<BTreeSet<String>, ApiError> {
    let nodes = context.store.list(&keys::nodes()).await;
    let nodes = nodes.map_err(|e| unavailable(&e))?.entries;
    Ok(nodes.into_iter().map(|e| e.key).collect())
}

fn assemble(
    record: &ClusterRecord,
    entries: &[Entry],
    alive: &BTreeSet<String>,
    own: Own<'_>,
) -> ClusterView {
    let own = own(record.key);
    let status = |node: &str| -> Option<NodeStatus> {
        if let Some((name, status)) = &own
            && name.as_str() == node
        {
            return Some(status.clone());
        }
        let key = keys::node_status(record.key.job, node);
        let entry = entries.iter().find(|e| e.key == key)?;
        serde_json::from_slice(&entry.value).ok()
    };
    let nodes = || record.nodes.iter().map(muster_types::ids::NodeName::as_str);
    let statuses: Vec<_> = nodes().map(status).collect();
    let alive: Vec<_> = nodes()
        .map(|n| alive.contains(&keys::node_alive(n)))
        .collect();
    state::view(record, &statuses, &alive)
}

/// A cluster from a mirror of its keys, every node taken as alive.
#[must_use]
pub fn assemble_all(job: JobId, entries: &BTreeMap<String, Arc<[u8]>>) -> Option<ClusterView> {
    let parse = |key: &str| entries.get(key).map(|bytes| bytes.to_vec());
    let record: ClusterRecord = serde_json::from_slice(&parse(&keys::record(job))?).ok()?;
    let statuses: Vec<Option<NodeStatus>> = record
        .nodes
        .iter()
        .map(|n| serde_json::from_slice(&parse(&keys::node_status(job, n.as_str()))?).ok())
        .collect();
    Some(state::view(
        &record,
        &statuses,
        &vec![true; record.nodes.len()],
    ))
}

fn unavailable(e: &StoreError) -> ApiError {
    ApiError::StoreUnavailable(format!("the state store does not answer: {}", chain(e)))
}
