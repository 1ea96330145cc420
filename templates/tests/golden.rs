//! Files in, values or mistakes out: a directory of `testdata` for each case. `UPDATE=1` rewrites
//! what is expected.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its data and may fail"
)]

use std::fmt::Write;
use std::path::Path;

use muster_templates::library::Library;
use muster_templates::source::{Source, Tree};
use muster_templates::{batch, repos};

fn source(case: &Path, name: &str, shown: &str, tree: Tree) -> Option<Source> {
    let text = std::fs::read_to_string(case.join(name)).ok()?;
    Some(Source {
        path: shown.to_owned(),
        text,
        tree,
    })
}

/// What comes of the files of a case, as lines.
fn outcome(case: &Path) -> String {
    let mut out = String::new();
    if let Some(file) = source(case, "batch.yaml", "/etc/muster/batch.yaml", Tree::System) {
        match batch::parse(Some(&file)) {
            Ok(config) => writeln!(out, "{config:#?}").unwrap(),
            Err(e) => writeln!(out, "{e}").unwrap(),
        }
    } else if let Some(file) = source(case, "repos.yaml", "/etc/muster/repos.yaml", Tree::System) {
        match repos::parse(&[file]) {
            Ok(repos) => writeln!(out, "{repos:#?}").unwrap(),
            Err(e) => writeln!(out, "{e}").unwrap(),
        }
    } else {
        let site = "/etc/muster/templates.yaml";
        let own = "/home/alice/.muster/templates.yaml";
        let sources: Vec<_> = source(case, "templates.yaml", site, Tree::System)
            .into_iter()
            .chain(source(case, "user.yaml", own, Tree::User))
            .collect();
        assert!(!sources.is_empty(), "{}: no input", case.display());
        match Library::parse(&sources) {
            Ok(library) => library
                .iter()
                .for_each(|template| writeln!(out, "{template:#?}").unwrap()),
            Err(e) => writeln!(out, "{e}").unwrap(),
        }
    }
    out
}

#[test]
fn cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in std::fs::read_dir(&root).unwrap() {
        let case = case.unwrap().path();
        // `policy.rs` has these.
        if case.join("policy.yaml").exists() || case.ends_with("wrong") {
            continue;
        }
        let expected = case.join("expected");
        let outcome = outcome(&case);
        count += 1;
        if update {
            std::fs::write(&expected, outcome).unwrap();
        } else if std::fs::read_to_string(&expected).ok().as_deref() != Some(&outcome) {
            wrong.push(format!("{}:\n{outcome}", case.display()));
        }
    }
    assert!(count > 5, "only {count} cases in {}", root.display());
    assert!(wrong.is_empty(), "UPDATE=1 rewrites:\n{}", wrong.join("\n"));
}
