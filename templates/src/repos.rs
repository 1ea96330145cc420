//! `repos.yaml`: where image repositories are.

use muster_types::image::check_name;

use crate::error::ConfigErrors;
use crate::source::Source;
use crate::tree::{self, Reader, Value};

/// A repository of images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSpec {
    /// Its name, as in `NAME:image`.
    pub name: String,
    /// Its directory as written; `%{...}` and `~` are not expanded yet.
    pub path: String,
}

/// Parses the files in order of priority: the first repository that has an image is meant.
///
/// # Errors
/// Every mistake in every file.
pub fn parse(sources: &[Source]) -> Result<Vec<RepoSpec>, ConfigErrors> {
    let mut repos: Vec<RepoSpec> = Vec::new();
    let mut errors = Vec::new();
    for source in sources {
        let mut reader = Reader::new(&source.path);
        let root = match tree::parse(source) {
            Ok(root) => root,
            Err(e) => {
                errors.push(e);
                continue;
            }
        };
        for (word, key, node) in reader.map(&root, "") {
            match (word, &node.value) {
                ("repos", Value::List(items)) => {
                    for (i, item) in items.iter().enumerate() {
                        let repo = repo(&mut reader, item, &format!("repos[{i}]"));
                        // A later file's repository of the same name is hidden by the earlier one.
                        repos.extend(repo.filter(|r| repos.iter().all(|o| o.name != r.name)));
                    }
                }
                ("repos", Value::Null) => {}
                ("repos", other) => {
                    let found = other.describe();
                    let message = format!("must be a list of repositories, found {found}");
                    reader.error(node.at, "repos", message);
                }
                ("cache", _) => {
                    let message =
                        "this release of muster does not act on this key yet: take it out";
                    reader.error(key.at, "cache", message.into());
                }
                _ => reader.unknown_key(key, word, word, &["repos"]),
            }
        }
        errors.append(&mut reader.errors);
    }
    if errors.is_empty() {
        Ok(repos)
    } else {
        Err(ConfigErrors(errors))
    }
}

fn repo(reader: &mut Reader<'_>, node: &tree::Node, path: &str) -> Option<RepoSpec> {
    let (mut name, mut directory) = (None, None);
    for (word, key, value) in reader.map(node, path) {
        let path = format!("{path}.{word}");
        match word {
            "name" => {
                name = reader.text(value, &path);
                if let Some(Err(e)) = name.as_deref().map(check_name) {
                    reader.error(value.at, &path, e.to_string());
                }
            }
            "path" => directory = reader.text(value, &path),
            _ => reader.unknown_key(key, &path, word, &["name", "path"]),
        }
    }
    match (name, directory) {
        (Some(name), Some(path)) => Some(RepoSpec { name, path }),
        _ => {
            reader.error(node.at, path, "must have both 'name' and 'path'".into());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Tree;

    fn source(text: &str) -> Source {
        Source {
            path: "repos.yaml".into(),
            text: text.into(),
            tree: Tree::System,
        }
    }

    #[test]
    fn the_first_of_a_name_is_taken() {
        let own = source("repos:\n- {name: mine, path: ~/images}\n- {name: lab, path: /mine}\n");
        let site = source("repos:\n- name: lab\n  path: /srv/images\n- {name: more, path: /m}\n");
        let repos = parse(&[own, site]).unwrap();
        let names: Vec<_> = repos
            .iter()
            .map(|r| (r.name.as_str(), r.path.as_str()))
            .collect();
        assert_eq!(
            names,
            [("mine", "~/images"), ("lab", "/mine"), ("more", "/m")]
        );
        assert!(parse(&[source("")]).unwrap().is_empty());
    }

    #[test]
    fn mistakes_have_their_place() {
        let text = "repos:\n- {name: a/b, path: /x}\n- {nam: c, path: /y}\nrepo: []\n";
        let e = parse(&[source(text)]).unwrap_err().to_string();
        assert!(
            e.contains("repos.yaml:2:10: repos[0].name: 'a/b' is no name"),
            "{e}"
        );
        assert!(
            e.contains("repos[1].nam: unknown key (did you mean 'name'?)"),
            "{e}"
        );
        assert!(e.contains("repos[1]: must have both"), "{e}");
        assert!(
            e.contains("repo: unknown key (did you mean 'repos'?)"),
            "{e}"
        );
    }
}
