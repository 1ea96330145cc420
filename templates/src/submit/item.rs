//! An item of the definition that names no template: an image of a repository, or a mistake.

use muster_types::ids::shown;
use muster_types::image::{ImageRef, ImageUri};

use super::{Site, SubmitError};
use crate::catalog::CatalogError;
use crate::nearest::hint;

/// An image of a repository serves as a template with defaults.
pub(super) fn image_as_template(name: &str, site: &Site<'_>) -> Result<ImageRef, SubmitError> {
    let item = |why: String| SubmitError::Item {
        item: shown(name),
        why,
    };
    if let Some(why) = misread(name, site) {
        return Err(item(why));
    }
    let uri = match name.parse::<ImageUri>() {
        Ok(uri) => uri,
        Err(e) if name.contains([':', '@']) => return Err(item(e.to_string())),
        Err(_) => return Err(no_template(name, site)),
    };
    site.catalog.find(&uri).map_err(|source| match source {
        // Who writes a repository or a revision means an image, unless it is a template and a word.
        CatalogError::NoRepository { ref hint, .. } if hint.is_empty() => item(format!(
            "{source}; a number of VMs is written in digits: TEMPLATE:COUNT"
        )),
        _ if uri.repo.is_some() || uri.revision.is_some() => SubmitError::NoSuchImage(source),
        _ => no_template(name, site),
    })
}

/// What was probably meant by something that can be neither a template nor an image.
fn misread(name: &str, site: &Site<'_>) -> Option<String> {
    let is_known = |name: &str| site.library.get(name).is_some() || site.catalog.has(name);
    if name == "none" {
        return Some("none means no virtual machines and stands alone: --vm=none".into());
    }
    if name.contains('/') {
        return Some(
            "a path is no template: name a template, and the path with --vm-image=PATH".into(),
        );
    }
    if name.contains([';', '+', '&']) {
        return Some("write a comma between two templates".into());
    }
    if let Some((first, count)) = name.split_once([' ', '=', '*'])
        && is_known(first)
    {
        let count = shown(count.trim_start());
        return Some(format!("write a colon before the count: {first}:{count}"));
    }
    let (first, rest) = name.split_once(':')?;
    let is_repo = site.catalog.repos.iter().any(|r| r.name == first);
    (!is_repo && is_known(first)).then(|| {
        format!(
            "'{}' is not a count for '{first}': write {first}:COUNT, a number from 1 to 4096",
            shown(rest)
        )
    })
}

fn no_template(name: &str, site: &Site<'_>) -> SubmitError {
    let images = site.catalog.repos.iter().flat_map(|r| r.images.keys());
    let known = site.library.names().chain(images.map(String::as_str));
    let near = hint(name, known);
    let (hint, unsearched) = match near.as_str() {
        "" => (
            "; 'muster template list' shows all".to_owned(),
            site.catalog.unsearched(),
        ),
        // It is a typing mistake, whatever the other repositories hold.
        _ => (near, String::new()),
    };
    SubmitError::NoTemplate {
        name: shown(name),
        hint,
        unsearched,
    }
}
