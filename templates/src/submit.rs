//! From `--vm=DEFINITION` to the request that is frozen in the job.

use std::collections::BTreeMap;

use muster_types::ids::shown;
use muster_types::image::{ImageRef, ImageUri};
use muster_types::request::{
    ClusterRequest, REQUEST_VERSION, RequestError, Submitter, TemplateSpec, VmGroup, Wait,
};

use crate::catalog::{Catalog, CatalogError};
use crate::definition::{self, DefinitionError};
use crate::expand::{self, ExpandError, Names};
use crate::library::{Library, ResolvedTemplate};
use crate::nearest::hint;

/// Why a submission is refused.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The definition.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A name that is neither a template nor an image.
    #[error("no template '{name}'{hint}; 'muster template list' shows all{unsearched}")]
    NoTemplate {
        /// The name.
        name: String,
        /// The nearest template or image, or nothing.
        hint: String,
        /// The repositories that could not be searched for an image of that name, or nothing.
        unsearched: String,
    },
    /// A template without an image.
    #[error("template '{0}' has no image: it can only be inherited from")]
    NoImage(String),
    /// A template's image cannot be found.
    #[error("template '{template}'")]
    Image {
        /// The template.
        template: String,
        /// Why.
        source: CatalogError,
    },
    /// An image that is named in the definition cannot be found.
    #[error(transparent)]
    NoSuchImage(CatalogError),
    /// A template's image path cannot be used.
    #[error("template '{template}': image '{path}': {why}")]
    File {
        /// The template.
        template: String,
        /// The path.
        path: String,
        /// Why.
        why: String,
    },
    /// A template's image has a bad name.
    #[error("template '{template}': image: {why}")]
    ImageName {
        /// The template.
        template: String,
        /// Why.
        why: String,
    },
    /// A `%{...}` in a template's image.
    #[error("template '{template}': image")]
    Expand {
        /// The template.
        template: String,
        /// Why.
        source: ExpandError,
    },
    /// The request is too large.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Resolves a definition. `readable` says of a file whether the user can read it, or why not.
///
/// # Errors
/// See [`SubmitError`].
pub fn resolve(
    definition: &str,
    submitter: Submitter,
    library: &Library,
    catalog: &Catalog,
    names: &Names<'_>,
    readable: &dyn Fn(&str) -> Result<(), String>,
) -> Result<ClusterRequest, SubmitError> {
    let items = definition::parse(definition)?;
    let mut templates = BTreeMap::new();
    for item in &items {
        if templates.contains_key(&item.name) {
            continue;
        }
        let spec = match library.get(&item.name) {
            Some(template) => TemplateSpec {
                image: Some(image(template, catalog, names, readable)?),
                accel: template.settings().accel.unwrap_or_default(),
                cpus: template.settings().cpus,
                memory: template.settings().memory,
                ..TemplateSpec::default()
            },
            None => TemplateSpec {
                image: Some(image_as_template(&item.name, library, catalog)?),
                ..TemplateSpec::default()
            },
        };
        templates.insert(item.name.clone(), spec);
    }
    let groups = items.into_iter().map(|item| VmGroup {
        template: item.name,
        count: item.count,
    });
    let request = ClusterRequest {
        version: REQUEST_VERSION,
        definition: definition.to_owned(),
        submitter,
        groups: groups.collect(),
        templates,
        resource_sets: BTreeMap::new(),
        networks: BTreeMap::new(),
        wait: Wait::default(),
        wait_timeout: None,
    };
    request.check_supported()?;
    request.to_json()?;
    Ok(request)
}

fn image(
    template: &ResolvedTemplate,
    catalog: &Catalog,
    names: &Names<'_>,
    readable: &dyn Fn(&str) -> Result<(), String>,
) -> Result<ImageRef, SubmitError> {
    let name = || template.name.clone();
    let written = template
        .settings()
        .image
        .as_deref()
        .ok_or_else(|| SubmitError::NoImage(name()))?;
    let path = expand::expand(written, names).map_err(|source| SubmitError::Expand {
        template: name(),
        source,
    })?;
    if !path.contains('/') {
        let uri = path
            .parse::<ImageUri>()
            .map_err(|e| SubmitError::ImageName {
                template: name(),
                why: e.to_string(),
            })?;
        return catalog.find(&uri).map_err(|source| SubmitError::Image {
            template: name(),
            source,
        });
    }
    let file = |why: String| SubmitError::File {
        template: name(),
        path: shown(&path),
        why,
    };
    if !path.starts_with('/') {
        return Err(file("a path must be absolute".into()));
    }
    readable(&path).map_err(file)?;
    Ok(ImageRef::File { path })
}

/// An image of a repository serves as a template with defaults.
fn image_as_template(
    name: &str,
    library: &Library,
    catalog: &Catalog,
) -> Result<ImageRef, SubmitError> {
    let Ok(uri) = name.parse::<ImageUri>() else {
        return Err(no_template(name, library, catalog));
    };
    catalog.find(&uri).map_err(|source| {
        // Who writes a repository or a revision means an image.
        if uri.repo.is_some() || uri.revision.is_some() {
            SubmitError::NoSuchImage(source)
        } else {
            no_template(name, library, catalog)
        }
    })
}

fn no_template(name: &str, library: &Library, catalog: &Catalog) -> SubmitError {
    let images = catalog.repos.iter().flat_map(|r| r.images.keys());
    let known = library.names().chain(images.map(String::as_str));
    let hint = hint(name, known);
    let unsearched = match hint.as_str() {
        "" => catalog.unsearched(),
        // It is a typing mistake, whatever the other repositories hold.
        _ => String::new(),
    };
    SubmitError::NoTemplate {
        name: shown(name),
        hint,
        unsearched,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::RepoListing;
    use crate::source::{Source, Tree};
    use muster_types::request;
    use proptest::prelude::*;

    fn submit(definition: &str) -> Result<ClusterRequest, String> {
        let text = "debian13: {image: debian13, memory: 1G}\nbase: {}\nfile: {image: '%{homedir}/d.qcow2'}\n\
                    gone: {image: gone}\nrel: {image: a/b}\nclosed: {image: /no}\nodd: {image: '%{env:ODD}'}\n\
                    own: {image: '%{env:IMAGE}'}\nbad: {image: '%{nope}'}\n";
        let library = Library::parse(&[Source {
            path: "templates.yaml".into(),
            text: text.into(),
            tree: Tree::System,
        }])
        .unwrap();
        let images = [("debian13", 0), ("tiny", 3)];
        let mut catalog = Catalog {
            repos: vec![RepoListing {
                name: "lab".into(),
                path: "/srv".into(),
                images: images.map(|(n, r)| (n.to_owned(), [r].into())).into(),
                problem: None,
            }],
        };
        if definition.starts_with("unseen") {
            catalog.repos[0].problem = Some("/srv: permission denied".into());
        }
        let env = |name: &str| match name {
            "IMAGE" => Some("tiny@3".to_owned()),
            "ODD" => Some("a b".to_owned()),
            _ => None,
        };
        let names = Names {
            home: Some("/home/alice"),
            user: "alice",
            env: &env,
        };
        let readable = |path: &str| match path {
            "/no" => Err("permission denied".to_owned()),
            _ => Ok(()),
        };
        resolve(
            definition,
            Submitter::Sbatch,
            &library,
            &catalog,
            &names,
            &readable,
        )
        .map_err(|e| match std::error::Error::source(&e) {
            Some(source) => format!("{e}: {source}"),
            None => e.to_string(),
        })
    }

    #[test]
    fn a_definition_is_frozen() {
        let r = submit("debian13:3,tiny,file,own").unwrap();
        assert_eq!(request::parse(&r.to_json().unwrap()).unwrap(), r);
        assert_eq!(r.vm_count(), 6);
        let image = |name: &str| r.templates[name].image.as_ref().unwrap().to_string();
        assert_eq!(image("debian13"), "lab:debian13@0");
        assert_eq!(image("tiny"), "lab:tiny@3");
        assert_eq!(image("own"), "lab:tiny@3");
        assert_eq!(image("file"), "/home/alice/d.qcow2");
    }

    #[test]
    fn mistakes_cost_nothing_and_say_what_to_type() {
        let say = |d: &str| submit(d).unwrap_err();
        assert_eq!(
            say("debain13"),
            "no template 'debain13' (did you mean 'debian13'?); 'muster template list' shows all"
        );
        assert_eq!(
            say("debian13:0"),
            "item 1 'debian13:0': count must be 1..4096"
        );
        assert!(say("base").contains("template 'base' has no image"));
        assert!(say("gone").contains("template 'gone': no image 'gone' in repository 'lab'"));
        assert!(say("lab:tny").starts_with("no image 'lab:tny' (did you mean 'tiny'?)"));
        assert!(say("tny").starts_with("no template 'tny' (did you mean 'tiny'?)"));
        assert_eq!(
            say("unseen"),
            "no template 'unseen'; 'muster template list' shows all; repository 'lab' was not searched (/srv: permission denied)"
        );
        assert_eq!(
            say("bad"),
            "template 'bad': image: %{nope}: no such name; known are env:VAR, homedir, user"
        );
        assert!(say("rel").contains("must be absolute"));
        assert!(say("closed").contains("image '/no': permission denied"));
        assert!(say("odd").contains("'a b' is no name"));
        assert!(say("tpl:abc").contains("no repository 'tpl'"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a-z0-9:,@./ %{}~-]{0,40}") {
            drop(submit(&text));
        }
    }
}
