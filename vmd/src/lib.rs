//! The two halves of Muster's node daemon: `vmd`, which does what only root can do, and `vmd-shim`,
//! which runs a node's VMs as the job's user inside the job's cgroup.

pub mod chain;
pub mod cluster;
pub mod daemon;
pub mod host;
pub mod journal;
pub mod plan;
pub mod policy;
pub mod query;
pub mod registry;
pub mod rpc;
pub mod settings;
pub mod shim;
pub mod store;
pub mod wire;
