//! Networks of a virtual cluster: which addresses its VMs have, and what each node must do for them.
//!
//! The numbering is the one that pcocc sites know, so that guests and scripts written for it go on
//! working: VM number *n* on a network (from 0, in rank order) has the MAC address `mac-prefix` and
//! *n* + `mac-start-offset` in hexadecimal, and the address `int-network` + *n* + 1; the gateway is
//! the last address of the range less one, the DHCP and DNS service the last less two.
//!
//! [`of_request`] makes the networks of a job, [`addresses`] the addresses of one network's VMs,
//! [`plan`] the steps of one node. Everything is computed, nothing is done: the crate does no I/O,
//! and every node of a job computes the same.

#![forbid(unsafe_code)]

mod addresses;
mod addressing;
pub mod blocks;
mod check;
mod cluster;
mod dnsmasq;
mod firewall;
pub mod flow;
pub mod names;
mod plan;
mod private;
pub mod step;
mod switch;

pub use addresses::{Addresses, Addresses6, MIN_PREFIX_LENGTH6};
pub use addressing::{VmAddress, VmIp, addresses};
pub use check::{NetworkError, TUNNEL_OVERHEAD};
pub use cluster::{
    Attachment, BridgeKind, ClusterNetwork, HostPort, JobFacts, LocalFacts, MAX_VNI, MIN_VNI,
    NodeFacts, of_request,
};
pub use firewall::host::{Link, Rules, base as host_table};
pub use plan::{NodePlan, WantedPort, plan, wanted_ports};
pub use switch::{FIRST_VM, GATEWAY, TUNNEL};
