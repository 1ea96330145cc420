//! Names and revisions of the images in repositories: one directory listing each, no file opened.

use std::path::Path;

use muster_templates::catalog::{Catalog, RepoListing};
use muster_templates::repos::RepoSpec;
use muster_types::image::parse_meta_file_name;

/// Lists repositories; one that cannot be listed says why and has no images.
#[must_use]
pub fn catalog(repos: &[RepoSpec]) -> Catalog {
    let listing = |spec: &RepoSpec| {
        let mut listing = RepoListing {
            name: spec.name.clone(),
            path: spec.path.clone(),
            ..RepoListing::default()
        };
        if !spec.path.starts_with('/') {
            listing.problem = Some(format!("'{}' is no absolute path", spec.path));
        } else if let Err(e) = read(Path::new(&spec.path), &mut listing) {
            listing.problem = Some(format!("{}: {e}", spec.path));
        }
        listing
    };
    Catalog {
        repos: repos.iter().map(listing).collect(),
    }
}

fn read(path: &Path, listing: &mut RepoListing) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path.join("meta"))? {
        let name = entry?.file_name();
        // A stray file is no image.
        if let Some((image, revision)) = name.to_str().and_then(parse_meta_file_name) {
            let revisions = listing.images.entry(image.to_owned()).or_default();
            revisions.insert(revision);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_listed_and_problems_told() {
        let root = tempfile::tempdir().unwrap();
        let meta = root.path().join("meta");
        std::fs::create_dir(&meta).unwrap();
        for name in ["tiny@0", "tiny@3", "debian@1", "stray", ".tmp@1"] {
            std::fs::write(meta.join(name), "").unwrap();
        }
        let spec = |name: &str, path: &str| RepoSpec {
            name: name.into(),
            path: path.into(),
        };
        let good = root.path().display().to_string();
        let catalog = catalog(&[
            spec("lab", &good),
            spec("gone", "/nowhere"),
            spec("rel", "x"),
        ]);
        assert_eq!(catalog.repos[0].images.len(), 2);
        assert_eq!(catalog.repos[0].images["tiny"].len(), 2);
        assert!(
            catalog.repos[1]
                .problem
                .as_ref()
                .unwrap()
                .contains("/nowhere")
        );
        assert!(
            catalog.repos[2]
                .problem
                .as_ref()
                .unwrap()
                .contains("absolute")
        );
    }
}
