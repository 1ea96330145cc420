//! `repos.yaml`: where image repositories are.

use muster_types::image::check_name;

use crate::error::ConfigErrors;
use crate::key::{File, Key, Shape, names};
use crate::source::Source;
use crate::tree::{self, Node, Reader, Value, join};

const KEYS: &[Key] = &[
    Key {
        name: "repos",
        shape: Shape::List(&Shape::Keys(REPO)),
        default: "none",
        about: "the repositories, the first of them first",
    },
    Key {
        name: "cache",
        shape: Shape::Keys(CACHE),
        default: "none",
        about: "where copies of images are kept",
    },
];

const REPO: &[Key] = &[
    Key {
        name: "name",
        shape: Shape::Text,
        default: "",
        about: "its name, as in `NAME:IMAGE`",
    },
    Key {
        name: "path",
        shape: Shape::Text,
        default: "",
        about: "its directory, the same on all nodes; `~` and `%{...}` are replaced",
    },
];

const CACHE: &[Key] = &[Key {
    name: "path",
    shape: Shape::Text,
    default: "",
    about: "the directory; `~` and `%{...}` are replaced",
}];

/// `repos.yaml`.
pub const FILE: File = File {
    name: "repos",
    about: "where images are",
    shape: Shape::Keys(KEYS),
};

/// A repository of images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSpec {
    /// Its name, as in `NAME:image`.
    pub name: String,
    /// Its directory as written; `%{...}` and `~` are not expanded yet.
    pub path: String,
}

/// What the files say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repos {
    /// The repositories, the first of them first.
    pub repos: Vec<RepoSpec>,
    /// Where copies of images are kept, as written.
    pub cache: Option<String>,
}

/// Parses the files in order of priority: the first repository that has an image is meant, and the
/// first cache.
///
/// # Errors
/// Every mistake in every file.
pub fn parse(sources: &[Source]) -> Result<Repos, ConfigErrors> {
    let mut all = Repos::default();
    let mut errors = Vec::new();
    for source in sources {
        let root = match tree::parse(source) {
            Ok(root) => root,
            Err(e) => {
                errors.push(e);
                continue;
            }
        };
        let mut reader = Reader::new(&source.path);
        file(&mut reader, &root, &mut all);
        errors.append(&mut reader.into_errors());
    }
    if errors.is_empty() {
        Ok(all)
    } else {
        Err(ConfigErrors(errors))
    }
}

fn file(reader: &mut Reader<'_>, root: &Node, all: &mut Repos) {
    for (word, key, node) in reader.map(root, "") {
        match word {
            "repos" => {
                let mut own: Vec<RepoSpec> = Vec::new();
                for (path, item) in reader.items(node, "repos", "repositories") {
                    let Some(repo) = repo(reader, item, &path) else {
                        continue;
                    };
                    if own.iter().any(|o| o.name == repo.name) {
                        let message = format!("there is a repository '{}' already", repo.name);
                        reader.error(item.at, &path, message);
                    }
                    own.push(repo);
                }
                // A later file's repository of the same name is hidden by the earlier one.
                own.retain(|r| all.repos.iter().all(|o| o.name != r.name));
                all.repos.append(&mut own);
            }
            "cache" => {
                let path = cache(reader, node);
                all.cache = all.cache.take().or(path);
            }
            _ => reader.unknown_key(key, &join("", word), word, &names(KEYS)),
        }
    }
}

fn cache(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    let mut path = None;
    let map = reader.map(node, "cache");
    for (word, key, value) in &map {
        let key_path = join("cache", word);
        match *word {
            "path" => path = directory(reader, value, &key_path),
            _ => reader.unknown_key(key, &key_path, word, &names(CACHE)),
        }
    }
    if map.is_empty() && matches!(node.value, Value::Map(_) | Value::Null) {
        let message =
            "key 'path' is missing: a cache has a directory, as in {path: /var/cache/muster}";
        reader.error(node.at, "cache", message.into());
    }
    path
}

fn repo(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<RepoSpec> {
    let (mut name, mut place) = (None, None);
    let map = reader.map(node, path);
    for (word, key, value) in &map {
        let path = join(path, word);
        match *word {
            "name" => {
                name = reader.text(value, &path);
                if let Some(Err(e)) = name.as_deref().map(check_name) {
                    reader.error(value.at, &path, e.to_string());
                }
            }
            "path" => place = directory(reader, value, &path),
            _ => reader.unknown_key(key, &path, word, &names(REPO)),
        }
    }
    for wanted in names(REPO) {
        if matches!(node.value, Value::Map(_)) && map.iter().all(|(word, ..)| *word != wanted) {
            let message = format!("key '{wanted}' is missing: a repository has 'name' and 'path'");
            reader.error(node.at, path, message);
        }
    }
    Some(RepoSpec {
        name: name?,
        path: place?,
    })
}

/// A path as written; what `%{...}` stands for is known to the reader of the files.
fn directory(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<String> {
    let path = reader.text(node, key)?;
    if path.is_empty() || path.contains('\0') {
        reader.wrong(
            node,
            key,
            "a directory such as /srv/muster/images or ~/images",
        );
        return None;
    }
    Some(path)
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
        let own_cache = source("cache: {path: ~/cache}\n");
        let site_cache = source("cache: {path: /var/cache}\n");
        let all = parse(&[own, own_cache, site, site_cache]).unwrap();
        assert_eq!(all.cache.as_deref(), Some("~/cache"));
        let names: Vec<_> = all
            .repos
            .iter()
            .map(|r| (r.name.as_str(), r.path.as_str()))
            .collect();
        assert_eq!(
            names,
            [("mine", "~/images"), ("lab", "/mine"), ("more", "/m")]
        );
        assert_eq!(parse(&[source("")]).unwrap(), Repos::default());
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
