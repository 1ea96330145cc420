//! What the parts of Muster say to each other: ids and units, the frozen request of a job, the
//! records in the state store, and the messages on the local sockets.
//!
//! Everything here is a value. The crate opens no file or socket, reads no environment variable and
//! has no async code, so that the plugin, the daemon, the shim and the command can all use it.

#![forbid(unsafe_code)]

pub mod api;
pub mod client;
pub mod hostlist;
pub mod ids;
pub mod image;
pub mod mac;
pub mod network;
pub mod placement;
pub mod request;
pub mod shim_api;
pub mod state;
pub mod step;
pub mod subnet;
pub mod template;
pub mod varlink;
mod words;
