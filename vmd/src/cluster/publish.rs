//! What a cluster's task lets others see.

use muster_types::ids::NodeName;
use muster_types::state::{ClusterView, NodeStatus};

/// A cluster as seen from this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Published {
    /// The whole cluster, once its record is known.
    pub view: Option<ClusterView>,
    /// This node's own part, which the state store may not have yet.
    pub own: Option<(NodeName, NodeStatus)>,
    /// Why it failed on this node before there was a record.
    pub failure: Option<String>,
    /// What is waited for while there is no record.
    pub waiting: Option<String>,
    /// Whether the node's shim is alive.
    pub shim_alive: bool,
    /// Why the state store does not answer.
    pub store_error: Option<String>,
}
