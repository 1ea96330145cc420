//! Names of images: `[REPO:]NAME[@REV]` as users write them, and the frozen reference that a request
//! carries.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::shown;

/// What a user writes for an image of a repository.
///
/// Without a repository the first one that has the image is meant, without a revision the highest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageUri {
    /// Name of the repository, if given.
    pub repo: Option<String>,
    /// Name of the image.
    pub name: String,
    /// Revision, if given.
    pub revision: Option<u32>,
}

impl FromStr for ImageUri {
    type Err = ImageNameError;
    fn from_str(s: &str) -> Result<Self, ImageNameError> {
        let (repo, rest) = match s.split_once(':') {
            Some((repo, rest)) => (Some(repo), rest),
            None => (None, s),
        };
        let (name, revision) = match rest.rsplit_once('@') {
            Some((name, rev)) => {
                let rev = rev
                    .parse::<u32>()
                    .map_err(|_| ImageNameError::Revision(shown(s)))?;
                (name, Some(rev))
            }
            None => (rest, None),
        };
        if let Some(repo) = repo {
            check_name(repo)?;
        }
        check_name(name)?;
        Ok(Self {
            repo: repo.map(str::to_owned),
            name: name.to_owned(),
            revision,
        })
    }
}

impl fmt::Display for ImageUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(repo) = &self.repo {
            write!(f, "{repo}:")?;
        }
        f.write_str(&self.name)?;
        if let Some(rev) = self.revision {
            write!(f, "@{rev}")?;
        }
        Ok(())
    }
}

/// Checks a name of an image or a repository: 1 to 128 of `[A-Za-z0-9_.-]`, no leading dot.
///
/// # Errors
/// [`ImageNameError::Name`].
pub fn check_name(s: &str) -> Result<(), ImageNameError> {
    let ok = (1..=128).contains(&s.len())
        && !s.starts_with('.')
        && s.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if ok {
        Ok(())
    } else {
        Err(ImageNameError::Name(shown(s)))
    }
}

/// Splits the name of a meta file, `<name>@<rev>`; `None` for a stray file.
#[must_use]
pub fn parse_meta_file_name(file: &str) -> Option<(&str, u32)> {
    let (name, rev) = file.rsplit_once('@')?;
    check_name(name).ok()?;
    Some((name, rev.parse().ok()?))
}

/// A text that names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    /// Characters outside the allowed ones.
    #[error(
        "'{0}' is no name of an image or repository: 1 to 128 of A-Z a-z 0-9 _ . -, not starting with a dot; an image is [REPO:]NAME[@REVISION]"
    )]
    Name(String),
    /// The part behind `@` is no number.
    #[error("'{0}': the revision behind '@' is no number")]
    Revision(String),
}

/// The disk a VM boots from, resolved at submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ImageRef {
    /// A revision of an image in a repository.
    Repository {
        /// Name of the repository, for messages.
        repo: String,
        /// Directory of the repository, absolute. Opened as the user only.
        path: String,
        /// Name of the image.
        name: String,
        /// Revision.
        revision: u32,
    },
    /// A disk file of its own, absolute. Opened as the user only.
    File {
        /// The file.
        path: String,
    },
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository {
                repo,
                name,
                revision,
                ..
            } => write!(f, "{repo}:{name}@{revision}"),
            Self::File { path } => f.write_str(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_round_trip() {
        for s in ["tiny", "lab:tiny", "tiny@3", "lab:debian-13.1_x@0"] {
            assert_eq!(s.parse::<ImageUri>().unwrap().to_string(), s);
        }
    }

    #[test]
    fn bad_uris_are_refused() {
        for bad in [
            "", ":", "a:", ":b", "a@", "a@x", "a@-1", "../x", "a/b", ".hidden", "a:b:c", "a b",
            "@1",
        ] {
            assert!(bad.parse::<ImageUri>().is_err(), "{bad}");
        }
    }

    #[test]
    fn stray_files_are_no_meta_files() {
        assert_eq!(parse_meta_file_name("tiny@12"), Some(("tiny", 12)));
        for stray in ["tiny", "tiny@", ".x@1", "tiny@1.swp", "@1"] {
            assert_eq!(parse_meta_file_name(stray), None, "{stray}");
        }
    }
}
