//! What of a request is the user's own: templates, and values of templates. The site's are not held
//! against the rules on `templates`, `qemu-bins` and `custom-args`.

use std::collections::BTreeSet;

use muster_types::request::ClusterRequest;
use muster_types::template::TemplateSpec;

use crate::expand::{self, Late, Names};
use crate::library::Library;
use crate::source::Tree;

/// The keys whose values are judged.
const JUDGED: [&str; 2] = ["qemu-bin", "custom-args"];

/// What is the user's own in a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Own {
    templates: BTreeSet<String>,
    values: BTreeSet<(String, &'static str)>,
}

impl Own {
    /// As the templates say from which the request was made.
    #[must_use]
    pub fn by_library(request: &ClusterRequest, library: &Library) -> Self {
        let mut own = Self::default();
        for name in request.templates.keys() {
            // A name that no template has is an image's.
            let Some(template) = library.get(name) else {
                continue;
            };
            if template.tree == Tree::User {
                own.templates.insert(name.clone());
            }
            for key in JUDGED {
                if template.origin(key).is_some_and(|o| o.tree == Tree::User) {
                    own.values.insert((name.clone(), key));
                }
            }
        }
        own
    }

    /// As a node sees it, which knows the site's templates alone and takes a user's word for nothing:
    /// a template is the site's if the site has one of its name or if it is no more than an image;
    /// a value is the site's if one of the site's templates has it. `names` are those of the user.
    #[must_use]
    pub fn by_site(request: &ClusterRequest, site: &Library, names: &Names<'_>) -> Self {
        let mut own = Self::default();
        for (name, template) in &request.templates {
            if site.get(name).is_none() && !is_image(template) {
                own.templates.insert(name.clone());
            }
            let program = template.qemu_bin.as_ref();
            if program.is_some_and(|program| !has_program(site, program, names)) {
                own.values.insert((name.clone(), "qemu-bin"));
            }
            let args = &template.custom_args;
            if !args.is_empty() && !has_args(site, args, names) {
                own.values.insert((name.clone(), "custom-args"));
            }
        }
        own
    }

    pub(super) fn has_template(&self, name: &str) -> bool {
        self.templates.contains(name)
    }

    pub(super) fn has_value(&self, template: &str, key: &'static str) -> bool {
        self.values.contains(&(template.to_owned(), key))
    }
}

/// Whether a template is what an image's name in a definition makes.
fn is_image(template: &TemplateSpec) -> bool {
    *template
        == TemplateSpec {
            image: template.image.clone(),
            resource_set: template.resource_set.clone(),
            ..TemplateSpec::default()
        }
}

/// Whether a text of the site is the user's, as written or with its `%{...}` replaced.
fn same(site: &str, users: &str, names: &Names<'_>) -> bool {
    let text = expand::expand(site, names, Late::Refused);
    site == users || text.is_ok_and(|text| text == users)
}

fn has_program(site: &Library, program: &str, names: &Names<'_>) -> bool {
    let mut programs = site.iter().filter_map(|t| t.settings().qemu_bin.as_deref());
    programs.any(|of_site| same(of_site, program, names))
}

fn has_args(site: &Library, args: &[String], names: &Names<'_>) -> bool {
    let mut lists = site
        .iter()
        .filter_map(|t| t.settings().custom_args.as_ref());
    lists.any(|of_site| {
        of_site.len() == args.len() && of_site.iter().zip(args).all(|(s, u)| same(s, u, names))
    })
}
