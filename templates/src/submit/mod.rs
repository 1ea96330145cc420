//! From `--vm=DEFINITION` and its companions to the request that is frozen in the job.

mod error;
mod freeze;
mod item;
mod overrides;
mod user_data;

use std::collections::BTreeMap;

use muster_types::ids::shown;
use muster_types::request::{ClusterRequest, REQUEST_VERSION, Submitter, TemplateSpec, VmGroup};

use crate::catalog::Catalog;
use crate::definition::{self, Item};
use crate::expand::Names;
use crate::library::Library;
use crate::nearest::hint;
use crate::networks::{self, Networks};
use crate::sets::ResourceSets;
use crate::source::Tree;

pub use error::{SubmitError, SubmitErrors};
use freeze::Freezer;
use item::image_as_template;
use overrides::Overrides;
pub use overrides::{Options, waiting};
pub use user_data::check_user_data;

/// What the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish<'a> {
    /// The definition.
    pub definition: &'a str,
    /// The command.
    pub submitter: Submitter,
    /// The options beside `--vm`.
    pub options: &'a Options,
}

/// What there is.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// The templates.
    pub library: &'a Library,
    /// The resource sets.
    pub sets: &'a ResourceSets,
    /// The networks.
    pub networks: &'a Networks,
    /// The images.
    pub catalog: &'a Catalog,
}

/// A file of user-data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFile {
    /// Its text; none if it is no UTF-8 or large.
    pub text: Option<String>,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// The user's files, looked at as the user. An error is the reason in words.
pub trait Files {
    /// Whether a file can be read.
    ///
    /// # Errors
    /// It cannot.
    fn readable(&self, path: &str) -> Result<(), String>;

    /// Whether a directory can be entered.
    ///
    /// # Errors
    /// It cannot, or is none.
    fn directory(&self, path: &str) -> Result<(), String>;

    /// Reads a file of user-data.
    ///
    /// # Errors
    /// It cannot be read, or is too large for a guest.
    fn read(&self, path: &str) -> Result<UserFile, String>;
}

/// A submission that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// What is frozen in the job.
    pub request: ClusterRequest,
    /// The templates of it that the user has defined.
    pub own_templates: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Resolves a definition.
///
/// # Errors
/// All that is wrong.
pub fn resolve(
    wish: &Wish<'_>,
    site: &Site<'_>,
    names: &Names<'_>,
    files: &dyn Files,
) -> Result<Submission, SubmitErrors> {
    let (items, mistakes) = definition::read(wish.definition);
    let mut errors: Vec<_> = mistakes.into_iter().map(SubmitError::from).collect();
    let all: Vec<&str> = items.iter().map(|i| i.name.as_str()).collect();
    // Without items, every template that an option names would be told to be missing.
    let overrides = match all.is_empty() {
        false => overrides::read(wish.options, &all, site.library, &mut errors),
        true => Overrides::default(),
    };
    let mut freezer = Freezer {
        site,
        names,
        files,
        overrides: &overrides,
        errors,
        warnings: Vec::new(),
    };
    let mut templates = BTreeMap::new();
    let mut own_templates = Vec::new();
    for item in &items {
        if templates.contains_key(&item.name) {
            continue;
        }
        let spec = match site.library.get(&item.name) {
            Some(template) => {
                if template.tree == Tree::User {
                    own_templates.push(template.name.clone());
                }
                freezer.template(template)
            }
            None => match image_as_template(&item.name, site) {
                Ok(image) => freezer.image_item(&item.name, image),
                Err(e) => {
                    freezer.errors.push(e);
                    TemplateSpec::default()
                }
            },
        };
        templates.insert(item.name.clone(), spec);
    }
    let Freezer {
        mut errors,
        mut warnings,
        ..
    } = freezer;
    let request = request(wish, site, items, templates);
    errors.extend(crowded(&request));
    not_yet(&request, site.library, &overrides, &mut errors);
    if errors.is_empty() {
        errors.extend(request.to_json().err().map(SubmitError::from));
    }
    if !errors.is_empty() {
        return Err(SubmitErrors(errors));
    }
    for network in request.networks.keys() {
        warnings.push(format!(
            "network '{network}' is not set up by this release of muster: the VMs start without it"
        ));
    }
    Ok(Submission {
        request,
        own_templates,
        warnings,
    })
}

/// Puts the request together: the templates, and the sets and networks that they need.
fn request(
    wish: &Wish<'_>,
    site: &Site<'_>,
    items: Vec<Item>,
    templates: BTreeMap<String, TemplateSpec>,
) -> ClusterRequest {
    let mut resource_sets = BTreeMap::new();
    let mut networks = BTreeMap::new();
    for name in templates.values().filter_map(|t| t.resource_set.as_ref()) {
        let Some(set) = site.sets.get(name) else {
            continue;
        };
        for network in &set.networks {
            if let Some(found) = site.networks.get(network) {
                networks.insert(network.clone(), found.spec.clone());
            }
        }
        resource_sets.insert(name.clone(), set.networks.clone());
    }
    let groups = items.into_iter().map(|item| VmGroup {
        template: item.name,
        count: item.count,
    });
    ClusterRequest {
        version: REQUEST_VERSION,
        definition: wish.definition.to_owned(),
        submitter: wish.submitter,
        groups: groups.collect(),
        templates,
        resource_sets,
        networks,
    }
}

/// The keys that this release does not act on, told where they are set.
fn not_yet(
    request: &ClusterRequest,
    library: &Library,
    overrides: &Overrides,
    errors: &mut Vec<SubmitError>,
) {
    for (name, spec) in &request.templates {
        for key in spec.not_yet() {
            let message = format!("key '{key}' is not supported by this release of muster");
            let template = library.get(name);
            let error = match (overrides.option_for(key), template) {
                (None, Some(template)) => SubmitError::NotYet(template.mistake(key, message)),
                (option, _) => SubmitError::Option {
                    option: option.unwrap_or("--vm"),
                    why: message,
                },
            };
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
    }
}

/// The networks that have too few addresses.
fn crowded(request: &ClusterRequest) -> Vec<SubmitError> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for group in &request.groups {
        let set = request.templates.get(&group.template);
        let set = set.and_then(|t| t.resource_set.as_ref());
        let networks = set.and_then(|s| request.resource_sets.get(s));
        for network in networks.into_iter().flatten() {
            *counts.entry(network).or_default() += u64::from(group.count);
        }
    }
    let crowded = |(network, vms): (&str, u64)| {
        let most = networks::room(request.networks.get(network)?);
        (vms > most).then(|| SubmitError::Room {
            network: network.to_owned(),
            most,
            vms,
        })
    };
    counts.into_iter().filter_map(crowded).collect()
}

/// The message for a resource set that does not exist.
pub(crate) fn no_set(name: &str, sets: &ResourceSets) -> String {
    let all: Vec<&str> = sets.iter().map(|s| s.name.as_str()).collect();
    let near = hint(name, all.iter().copied());
    let known = match all.as_slice() {
        [] => "resources.yaml defines none".to_owned(),
        all => format!("resources.yaml has {}", all.join(", ")),
    };
    format!("no resource set '{}'{near}; {known}", shown(name))
}

#[cfg(test)]
mod tests;
