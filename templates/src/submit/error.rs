//! What is wrong with a submission.

use std::fmt;

use muster_types::request::RequestError;

use crate::catalog::CatalogError;
use crate::definition::DefinitionError;
use crate::error::ConfigError;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// In the definition.
    #[error("--vm: {0}")]
    Definition(#[from] DefinitionError),
    /// A name that is neither a template nor an image.
    #[error("--vm: no template '{name}'{hint}{unsearched}")]
    NoTemplate {
        /// The name.
        name: String,
        /// The nearest template or image, or where to find all.
        hint: String,
        /// The repositories that could not be searched for an image of that name, or nothing.
        unsearched: String,
    },
    /// An item that is neither `TEMPLATE[:COUNT]` nor an image.
    #[error("--vm: item '{item}': {why}")]
    Item {
        /// The item.
        item: String,
        /// What it must be.
        why: String,
    },
    /// An image that is named in the definition cannot be found.
    #[error("--vm: {0}")]
    NoSuchImage(CatalogError),
    /// Something that a template's key holds.
    #[error("--vm: {0}")]
    Template(ConfigError),
    /// A template's key that this release does not act on.
    #[error("--vm: {0}")]
    NotYet(ConfigError),
    /// Another option.
    #[error("{option}: {why}")]
    Option {
        /// The option.
        option: &'static str,
        /// What it must be.
        why: String,
    },
    /// More VMs than a network has addresses for.
    #[error("--vm: network '{network}' has addresses for {most} VMs, the cluster has {vms} on it")]
    Room {
        /// The network.
        network: String,
        /// VMs that fit.
        most: u64,
        /// VMs of the cluster that are on it.
        vms: u64,
    },
    /// The request cannot travel or be acted on.
    #[error("--vm: {0}")]
    Request(#[from] RequestError),
}

/// All mistakes of a submission, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitErrors(pub Vec<SubmitError>);

impl fmt::Display for SubmitErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for SubmitErrors {}
