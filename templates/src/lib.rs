//! The site's and the user's configuration as values: templates, cluster definitions, image
//! repositories and the batch file are parsed, resolved and checked here. Reading files is the
//! caller's (`muster-config`).
//!
//! ```text
//!   Source (text of a file) -> tree::Node (positions kept) -> typed values or *all* errors of the file
//!   Library (templates, inheritance resolved) + definition + Catalog (images) -> ClusterRequest
//! ```

#![forbid(unsafe_code)]

pub mod batch;
pub mod catalog;
pub mod definition;
pub mod error;
pub mod expand;
pub mod key;
pub mod library;
pub mod nearest;
pub mod networks;
pub mod policy;
pub mod repos;
pub mod sets;
pub mod source;
pub mod submit;
pub mod template;
mod tree;
