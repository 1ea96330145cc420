//! Files in, values or mistakes out: a directory of `testdata` for each case. `UPDATE=1` rewrites
//! what is expected.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its data and may fail"
)]

use std::path::{Path, PathBuf};

use muster_templates::library::Library;
use muster_templates::networks::{Networks, to_yaml};
use muster_templates::sets::ResourceSets;
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

/// What comes of the files of a case, as lines: values with warnings, or mistakes.
fn outcome(case: &Path) -> Result<String, String> {
    let system = |name: &str| source(case, name, &format!("/etc/muster/{name}"), Tree::System);
    if let Some(file) = system("batch.yaml") {
        batch::parse(Some(&file))
            .map(|config| format!("{config:#?}\n"))
            .map_err(|e| e.to_string())
    } else if let Some(file) = system("repos.yaml") {
        repos::parse(&[file])
            .map(|repos| format!("{repos:#?}\n"))
            .map_err(|e| e.to_string())
    } else if let Some(file) = system("resources.yaml") {
        let networks = Networks::parse(system("networks.yaml").as_slice()).unwrap();
        let sets = ResourceSets::parse(&[file], &networks).map_err(|e| e.to_string())?;
        Ok(sets.iter().map(|set| format!("{set:#?}\n")).collect())
    } else if let Some(file) = system("networks.yaml") {
        let more = "/etc/muster/networks.d/more.yaml";
        let more = source(case, "more.yaml", more, Tree::System);
        let files: Vec<_> = std::iter::once(file).chain(more).collect();
        let networks = Networks::parse(&files).map_err(|e| e.to_string())?;
        let shown = networks
            .iter()
            .map(|n| format!("# {}\n{}", n.defined_at, to_yaml(n)));
        let warnings = networks.warnings().iter();
        Ok(shown
            .chain(warnings.map(|w| format!("warning: {w}\n")))
            .collect())
    } else {
        templates(case)
    }
}

fn templates(case: &Path) -> Result<String, String> {
    let site = "/etc/muster/templates.yaml";
    let own = "/home/alice/.muster/templates.yaml";
    let sources: Vec<_> = source(case, "templates.yaml", site, Tree::System)
        .into_iter()
        .chain(source(case, "user.yaml", own, Tree::User))
        .collect();
    assert!(!sources.is_empty(), "{}: no input", case.display());
    let library = Library::parse(&sources).map_err(|e| e.to_string())?;
    Ok(library.iter().map(|t| format!("{t:#?}\n")).collect())
}

/// The cases of a directory whose name begins with one of these words; others have tests of their own.
fn cases(dir: &Path, words: &[&str]) -> Vec<PathBuf> {
    let is_ours = |case: &PathBuf| {
        let name = case.file_name().unwrap().to_string_lossy();
        words
            .iter()
            .any(|word| name.split('-').next() == Some(*word))
    };
    let mut cases: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|case| case.unwrap().path())
        .filter(is_ours)
        .collect();
    cases.sort();
    cases
}

/// The cases whose outcome is another than expected.
fn compare(outcomes: impl Iterator<Item = (PathBuf, String)>) {
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    for (case, outcome) in outcomes {
        let expected = case.join("expected");
        if update {
            std::fs::write(&expected, outcome).unwrap();
        } else if std::fs::read_to_string(&expected).ok().as_ref() != Some(&outcome) {
            wrong.push(format!("{}:\n{outcome}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "UPDATE=1 rewrites:\n{}", wrong.join("\n"));
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

#[test]
fn good_and_mixed_files() {
    let cases = cases(
        &testdata(),
        &["batch", "networks", "repos", "sets", "templates"],
    );
    assert!(cases.len() > 15, "only {} cases", cases.len());
    compare(cases.into_iter().map(|case| {
        let outcome = outcome(&case).unwrap_or_else(|mistakes| mistakes + "\n");
        (case, outcome)
    }));
}

/// A directory for each mistake.
#[test]
fn wrong_files() {
    let cases = cases(
        &testdata().join("wrong"),
        &["batch", "networks", "repos", "sets"],
    );
    assert!(cases.len() >= 100, "only {} cases", cases.len());
    compare(cases.into_iter().map(|case| {
        let name = case.display().to_string();
        let mistakes = outcome(&case).expect_err(&name);
        (case, mistakes + "\n")
    }));
}
