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
                    let mut own: Vec<RepoSpec> = Vec::new();
                    for (i, item) in items.iter().enumerate() {
                        let path = format!("repos[{i}]");
                        let repo = repo(&mut reader, item, &path);
                        let Some(repo) = repo else { continue };
                        if own.iter().any(|o| o.name == repo.name) {
                            let message = format!("there is a repository '{}' already", repo.name);
                            reader.error(item.at, &path, message);
                        }
                        own.push(repo);
                    }
                    // A later file's repository of the same name is hidden by the earlier one.
                    own.retain(|r| repos.iter().all(|o| o.name != r.name));
                    repos.append(&mut own);
                }
                ("repos", Value::Null) => {}
                ("repos", other) => {
                    let found = other.describe();
                    let message = format!("must be a list of repositories, found {found}");
                    reader.error(node.at, "repos", message);
                }
                ("cache", _) => reader.unsupported_key(key, "cache", word),
                _ => reader.unknown_key(key, word, word, &["repos"]),
            }
        }
        errors.append(&mut reader.into_errors());
    }
    if errors.is_empty() {
        Ok(repos)
    } else {
        Err(ConfigErrors(errors))
    }
}

fn repo(reader: &mut Reader<'_>, node: &tree::Node, path: &str) -> Option<RepoSpec> {
    let (mut name, mut directory) = (None, None);
    let map = reader.map(node, path);
    for (word, key, value) in &map {
        let path = tree::join(path, word);
        match *word {
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
    for wanted in ["name", "path"] {
        if matches!(node.value, Value::Map(_)) && map.iter().all(|(word, ..)| *word != wanted) {
            let message = format!("key '{wanted}' is missing: a repository has 'name' and 'path'");
            reader.error(node.at, path, message);
        }
    }
    Some(RepoSpec {
        name: name?,
        path: directory?,
    })
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
        for part in [
            "repos.yaml:2:10: repos[0].name: 'a/b' is no name",
            "repos[1]: key 'name' is missing",
            "repos[1].nam: unknown key (did you mean 'name'?)",
            "repo: unknown key (did you mean 'repos'?)",
        ] {
            assert!(e.contains(part), "{part} in {e}");
        }
    }
}
