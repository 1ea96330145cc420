//! The cluster request: what a submission asked for, resolved and frozen.
//!
//! The plugin makes it on the submit host, as the user; it travels as compact JSON in the job's
//! control environment (`SPANK_MUSTER_REQUEST` in the prolog). A user can forge it, so [`parse`]
//! limits its size and checks every value again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{MAX_VMS, shown};
use crate::network::NetworkSpec;
pub use crate::template::{Accel, MAX_VCPUS, TemplateSpec};

/// The request's size limit in bytes; Slurm carries the job's environment in its messages.
pub const MAX_REQUEST_BYTES: usize = 96 * 1024;

/// The version of the format that this program writes and reads.
pub const REQUEST_VERSION: u32 = 2;

/// Name of the job control variable; the prolog sees it with `SPANK_` before it.
pub const REQUEST_VARIABLE: &str = "MUSTER_REQUEST";

/// The most networks a VM may be on: each takes a slot of its PCI Express root.
pub const MAX_NETWORKS: usize = 8;

/// A virtual cluster as asked for at submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ClusterRequest {
    /// [`REQUEST_VERSION`].
    pub version: u32,
    /// The cluster definition as the user typed it, for display.
    pub definition: String,
    /// The command that submitted the job.
    pub submitter: Submitter,
    /// VMs in rank order: so many of this template, then the next group.
    pub groups: Vec<VmGroup>,
    /// The templates that the groups name.
    pub templates: BTreeMap<String, TemplateSpec>,
    /// The networks of each resource set that the templates name, in the order of the VMs' NICs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_sets: BTreeMap<String, Vec<String>>,
    /// The networks of those sets as the submit host has them. A node goes by its own definitions and
    /// refuses the job where they differ.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<String, NetworkSpec>,
}

/// `count` VMs of one template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct VmGroup {
    /// A key of [`ClusterRequest::templates`].
    pub template: String,
    /// How many, 1 to 4096.
    pub count: u32,
}

/// The Slurm command a job was submitted with: it decides how the user is told of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Submitter {
    /// An interactive allocation; told with `scontrol notify`.
    Salloc,
    /// A batch script; told in its `task_init`.
    Sbatch,
    /// A job step's command; told in its `task_init`.
    Srun,
}

/// Why a request is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Over [`MAX_REQUEST_BYTES`].
    #[error(
        "the request has {0} bytes, at most {MAX_REQUEST_BYTES} fit: use fewer or smaller templates"
    )]
    TooLarge(usize),
    /// Not JSON of this shape.
    #[error("the request does not parse: {0}")]
    Json(String),
    /// Of another version.
    #[error(
        "the request is of version {0}, this node reads version {REQUEST_VERSION}: the submit host and the node have different releases of muster"
    )]
    Version(u32),
    /// No VM, or too many.
    #[error("the request has {0} VMs, from 1 to {MAX_VMS} are possible")]
    Count(u64),
    /// A group of a template that the request lacks.
    #[error("the request names template '{0}' but does not hold it")]
    Template(String),
    /// A template of a resource set that the request lacks.
    #[error("the request names resource set '{0}' but does not hold it")]
    Set(String),
    /// A resource set of a network that the request lacks.
    #[error("the request names network '{network}' of resource set '{set}' but does not hold it")]
    Network {
        /// The set.
        set: String,
        /// The network.
        network: String,
    },
    /// A resource set of too many networks.
    #[error("resource set '{0}' has more than {MAX_NETWORKS} networks")]
    Networks(String),
    /// A key that this release does not act on.
    #[error("template '{template}': key '{key}' is not supported by this release of muster")]
    NotYet {
        /// The template.
        template: String,
        /// The key.
        key: &'static str,
    },
    /// A value outside its range.
    #[error("template '{template}': {what}")]
    Value {
        /// The template.
        template: String,
        /// Key, value and what is allowed.
        what: String,
    },
}

impl ClusterRequest {
    /// Number of VMs.
    #[must_use]
    pub fn vm_count(&self) -> u32 {
        self.groups
            .iter()
            .fold(0, |sum, g| sum.saturating_add(g.count))
    }

    /// Template name and template of each VM, in rank order.
    pub fn vms(&self) -> impl Iterator<Item = (&str, &TemplateSpec)> {
        self.groups
            .iter()
            .filter_map(|g| Some((g, self.templates.get(&g.template)?)))
            .flat_map(|(g, t)| (0..g.count).map(move |_| (g.template.as_str(), t)))
    }

    /// Refuses what this release knows but does not act on: a VM without its mounts or drives would
    /// look like one that has them.
    ///
    /// # Errors
    /// [`RequestError::NotYet`] for the first such key.
    pub fn check_supported(&self) -> Result<(), RequestError> {
        for (template, spec) in &self.templates {
            if let Some(key) = spec.not_yet().first() {
                let template = shown(template);
                return Err(RequestError::NotYet { template, key });
            }
        }
        Ok(())
    }

    /// The request as it travels.
    ///
    /// # Errors
    /// It is larger than [`MAX_REQUEST_BYTES`].
    pub fn to_json(&self) -> Result<String, RequestError> {
        let text = serde_json::to_string(self).map_err(|e| RequestError::Json(e.to_string()))?;
        if text.len() > MAX_REQUEST_BYTES {
            return Err(RequestError::TooLarge(text.len()));
        }
        Ok(text)
    }
}

/// Reads a request that came from a user: size, shape and every value are checked.
///
/// # Errors
/// See [`RequestError`]; the text is safe to show.
pub fn parse(text: &str) -> Result<ClusterRequest, RequestError> {
    if text.len() > MAX_REQUEST_BYTES {
        return Err(RequestError::TooLarge(text.len()));
    }
    // The version is looked at first, so that another release is named as such.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let json = |e: serde_json::Error| RequestError::Json(shown(&e.to_string()));
    let versioned: Versioned = serde_json::from_str(text).map_err(json)?;
    if versioned.version != REQUEST_VERSION {
        return Err(RequestError::Version(versioned.version));
    }
    let request: ClusterRequest = serde_json::from_str(text).map_err(json)?;
    validate(&request)?;
    Ok(request)
}

fn validate(request: &ClusterRequest) -> Result<(), RequestError> {
    let count: u64 = request.groups.iter().map(|g| u64::from(g.count)).sum();
    if count == 0 || count > u64::from(MAX_VMS) || request.groups.iter().any(|g| g.count == 0) {
        return Err(RequestError::Count(count));
    }
    for group in &request.groups {
        if !request.templates.contains_key(&group.template) {
            return Err(RequestError::Template(shown(&group.template)));
        }
    }
    for (name, template) in &request.templates {
        let bad = |what: String| RequestError::Value {
            template: shown(name),
            what,
        };
        template.check().map_err(bad)?;
        let set = template.resource_set.as_ref();
        if let Some(set) = set.filter(|set| !request.resource_sets.contains_key(*set)) {
            return Err(RequestError::Set(shown(set)));
        }
    }
    for (set, networks) in &request.resource_sets {
        if networks.len() > MAX_NETWORKS {
            return Err(RequestError::Networks(shown(set)));
        }
        if let Some(lost) = networks.iter().find(|n| !request.networks.contains_key(*n)) {
            return Err(RequestError::Network {
                set: shown(set),
                network: shown(lost),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Mib;
    use crate::image::ImageRef;
    use proptest::prelude::*;

    pub(crate) fn sample() -> ClusterRequest {
        let image = ImageRef::Repository {
            repo: "lab".into(),
            path: "/srv/images".into(),
            name: "tiny".into(),
            revision: 0,
        };
        ClusterRequest {
            version: REQUEST_VERSION,
            definition: "tiny:2".into(),
            submitter: Submitter::Salloc,
            groups: vec![VmGroup {
                template: "tiny".into(),
                count: 2,
            }],
            templates: BTreeMap::from([(
                "tiny".into(),
                TemplateSpec {
                    image: Some(image),
                    accel: Accel::Tcg,
                    memory: Some(Mib(128)),
                    ..TemplateSpec::default()
                },
            )]),
            resource_sets: BTreeMap::new(),
            networks: BTreeMap::new(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let request = sample();
        assert_eq!(parse(&request.to_json().unwrap()).unwrap(), request);
        assert_eq!(request.vms().count(), 2);
    }

    #[test]
    fn forged_requests_are_refused() {
        let forge = |f: &dyn Fn(&mut ClusterRequest)| {
            let mut r = sample();
            f(&mut r);
            parse(&serde_json::to_string(&r).unwrap())
                .unwrap_err()
                .to_string()
        };
        assert!(forge(&|r| r.version = 9).contains("version 9"));
        assert!(forge(&|r| r.groups.clear()).contains("0 VMs"));
        assert!(forge(&|r| r.groups[0].count = 0).contains("0 VMs"));
        assert!(forge(&|r| r.groups[0].count = u32::MAX).contains("4294967295 VMs"));
        assert!(forge(&|r| r.groups[0].template = "x".into()).contains("'x'"));
        let tiny = |r: &mut ClusterRequest, f: &dyn Fn(&mut TemplateSpec)| {
            f(r.templates.get_mut("tiny").unwrap())
        };
        assert!(forge(&|r| tiny(r, &|t| t.cpus = Some(0))).contains("cpus: 0"));
        let set = |t: &mut TemplateSpec| t.resource_set = Some("s".into());
        assert!(forge(&|r| tiny(r, &set)).contains("resource set 's'"));
        let network = |r: &mut ClusterRequest| {
            r.resource_sets.insert("s".into(), vec!["n".into()]);
        };
        assert!(forge(&network).contains("network 'n' of resource set 's'"));
    }

    #[test]
    fn size_and_depth_are_limited() {
        assert!(matches!(
            parse(&" ".repeat(MAX_REQUEST_BYTES + 1)),
            Err(RequestError::TooLarge(_))
        ));
        assert!(matches!(
            parse(&"[".repeat(90_000)),
            Err(RequestError::Json(_))
        ));
        assert!(parse("{\"version\":2,\"x\":0}").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(s in ".{0,200}") {
            drop(parse(&s));
        }
    }
}
