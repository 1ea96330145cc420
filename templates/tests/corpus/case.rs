//! A case: a directory with the files of a site and a user.

use std::path::{Path, PathBuf};

use muster_templates::source::{Source, Tree};

/// A directory of `testdata`.
pub(crate) struct Case(pub(crate) PathBuf);

/// The cases of a directory of `testdata` whose name begins with `prefix`, sorted.
pub(crate) fn cases(dir: &str, prefix: &str) -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(dir);
    let entries = std::fs::read_dir(dir).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_dir() && name(path).starts_with(prefix));
    paths.sort();
    paths.into_iter().map(Case).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

impl Case {
    /// The case's name.
    pub(crate) fn name(&self) -> String {
        name(&self.0)
    }

    /// The text of a file, if it is there.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(name)).ok()
    }

    /// A file of the site.
    pub(crate) fn site(&self, name: &str) -> Option<Source> {
        Some(Source {
            path: format!("/etc/muster/{name}"),
            text: self.text(name)?,
            tree: Tree::System,
        })
    }

    /// The files of templates: the site's, then the user's from `user.yaml` and `user.d`, each with
    /// its drop-ins, in the order in which they are read.
    pub(crate) fn templates(&self) -> Vec<Source> {
        let trees = [
            (Tree::System, "/etc/muster", "templates"),
            (Tree::User, "/home/alice/.muster", "user"),
        ];
        let mut sources = Vec::new();
        for (tree, shown, name) in trees {
            let mut files = vec![(format!("{name}.yaml"), "templates.yaml".to_owned())];
            let drop_ins = self.entries(&format!("{name}.d"));
            files.extend(drop_ins.into_iter().map(|file| {
                let shown = format!("templates.d/{file}");
                (format!("{name}.d/{file}"), shown)
            }));
            for (file, as_shown) in files {
                sources.extend(self.text(&file).map(|text| Source {
                    path: format!("{shown}/{as_shown}"),
                    text,
                    tree,
                }));
            }
        }
        sources
    }

    /// The names in a directory of the case, sorted; none where it is not there.
    fn entries(&self, dir: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.0.join(dir)) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries.map(|e| name(&e.unwrap().path())).collect();
        names.sort();
        names
    }
}

/// Compares what came of the cases with what is expected of them.
pub(crate) fn compare(outcomes: impl IntoIterator<Item = (Case, String)>) {
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    for (case, outcome) in outcomes {
        let outcome = outcome + "\n";
        if update {
            std::fs::write(case.0.join("expected"), outcome).unwrap();
        } else if case.text("expected").as_ref() != Some(&outcome) {
            wrong.push(format!("{}:\n{outcome}", case.name()));
        }
    }
    assert!(wrong.is_empty(), "UPDATE=1 rewrites:\n{}", wrong.join("\n"));
}
