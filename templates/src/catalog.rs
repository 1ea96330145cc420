//! Which images there are, by name only: what a submission checks a template's image against.

use std::collections::{BTreeMap, BTreeSet};

use muster_types::image::{ImageRef, ImageUri};

use crate::nearest::hint;

/// One repository's images.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepoListing {
    /// Name of the repository.
    pub name: String,
    /// Its directory, absolute.
    pub path: String,
    /// Images and their revisions.
    pub images: BTreeMap<String, BTreeSet<u32>>,
    /// Why it cannot be listed, if so.
    pub problem: Option<String>,
}

/// All repositories, in order of priority.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalog {
    /// The repositories.
    pub repos: Vec<RepoListing>,
}

/// An image that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// No repository of that name.
    #[error("image '{uri}': no repository '{repo}'{hint}; {known}")]
    NoRepository {
        /// The image as written.
        uri: String,
        /// The repository.
        repo: String,
        /// The nearest name, or nothing.
        hint: String,
        /// Which there are, as a clause.
        known: String,
    },
    /// No image of that name.
    #[error("no image '{uri}'{hint} in {searched}")]
    NoImage {
        /// The image as written.
        uri: String,
        /// The nearest name, or nothing.
        hint: String,
        /// Where it was looked for.
        searched: String,
    },
    /// The image has no such revision.
    #[error("image '{uri}': no such revision in repository '{repo}', which has {revisions}")]
    NoRevision {
        /// The image as written.
        uri: String,
        /// The repository.
        repo: String,
        /// Its revisions of the image.
        revisions: String,
    },
}

impl Catalog {
    /// Finds an image: in the first repository that has it, its highest revision, unless the name
    /// says otherwise.
    ///
    /// # Errors
    /// See [`CatalogError`].
    pub fn find(&self, uri: &ImageUri) -> Result<ImageRef, CatalogError> {
        let repos = || {
            self.repos
                .iter()
                .filter(|r| uri.repo.as_ref().is_none_or(|name| r.name == *name))
        };
        if let Some(repo) = &uri.repo
            && repos().next().is_none()
        {
            return Err(CatalogError::NoRepository {
                uri: uri.to_string(),
                repo: repo.clone(),
                hint: hint(repo, self.repos.iter().map(|r| r.name.as_str())),
                known: self.known(),
            });
        }
        let Some((repo, revisions)) = repos().find_map(|r| Some((r, r.images.get(&uri.name)?)))
        else {
            let names = repos().flat_map(|r| r.images.keys().map(String::as_str));
            return Err(CatalogError::NoImage {
                uri: uri.to_string(),
                hint: hint(&uri.name, names),
                searched: searched(repos()),
            });
        };
        let revision = match uri.revision {
            None => revisions.last().copied(),
            Some(revision) => revisions.get(&revision).copied(),
        };
        let revision = revision.ok_or_else(|| CatalogError::NoRevision {
            uri: uri.to_string(),
            repo: repo.name.clone(),
            revisions: revisions
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        Ok(ImageRef::Repository {
            repo: repo.name.clone(),
            path: repo.path.clone(),
            name: uri.name.clone(),
            revision,
        })
    }

    /// Whether any repository has an image of that name.
    pub(crate) fn has(&self, image: &str) -> bool {
        self.repos.iter().any(|r| r.images.contains_key(image))
    }

    fn known(&self) -> String {
        let names: Vec<_> = self.repos.iter().map(|r| r.name.as_str()).collect();
        match names.as_slice() {
            [] => "repos.yaml names none".to_owned(),
            names => format!("repositories are {}", names.join(", ")),
        }
    }

    /// The repositories that cannot be listed, as the end of a sentence; empty if there are none.
    pub(crate) fn unsearched(&self) -> String {
        let mut text = String::new();
        for repo in &self.repos {
            if let Some(problem) = &repo.problem {
                text.push_str(&format!(
                    "; repository '{}' was not searched ({problem})",
                    repo.name
                ));
            }
        }
        text
    }
}

fn searched<'a>(repos: impl Iterator<Item = &'a RepoListing>) -> String {
    let describe = |r: &RepoListing| match &r.problem {
        None => format!("repository '{}'", r.name),
        Some(problem) => format!("repository '{}' ({problem})", r.name),
    };
    let all: Vec<_> = repos.map(describe).collect();
    if all.is_empty() {
        "any repository: repos.yaml names none".into()
    } else {
        all.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let listing = |name: &str, images: &[(&str, &[u32])]| RepoListing {
            name: name.into(),
            path: format!("/{name}"),
            images: images
                .iter()
                .map(|(n, revs)| ((*n).to_owned(), revs.iter().copied().collect()))
                .collect(),
            problem: None,
        };
        let mut lost = listing("lost", &[]);
        lost.problem = Some("permission denied".into());
        Catalog {
            repos: vec![
                listing("mine", &[("tiny", &[0])]),
                listing("lab", &[("tiny", &[0, 2, 10]), ("debian13", &[1])]),
                lost,
            ],
        }
    }

    fn find(uri: &str) -> Result<String, String> {
        let found = catalog().find(&uri.parse().unwrap());
        found.map(|i| i.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn first_repository_and_highest_revision() {
        assert_eq!(find("tiny").unwrap(), "mine:tiny@0");
        assert_eq!(find("lab:tiny").unwrap(), "lab:tiny@10");
        assert_eq!(find("lab:tiny@2").unwrap(), "lab:tiny@2");
        assert_eq!(find("debian13").unwrap(), "lab:debian13@1");
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let e = find("debian12").unwrap_err();
        assert_eq!(
            e,
            "no image 'debian12' (did you mean 'debian13'?) in repository 'mine', repository 'lab', repository 'lost' (permission denied)"
        );
        assert!(find("lob:tiny").unwrap_err().contains(
            "no repository 'lob' (did you mean 'lab'?); repositories are mine, lab, lost"
        ));
        assert!(
            find("lab:tiny@7")
                .unwrap_err()
                .contains("which has 0, 2, 10")
        );
        let none = Catalog::default().find(&"x".parse().unwrap()).unwrap_err();
        assert!(none.to_string().contains("repos.yaml names none"));
    }
}
