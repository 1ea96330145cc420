//! `policy.yaml`: files in, values or mistakes out, a directory of `testdata` for each case. `UPDATE=1`
//! rewrites what is expected.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its data and may fail"
)]

use std::path::{Path, PathBuf};

use muster_templates::policy::Policy;
use muster_templates::source::{Source, Tree};

fn cases(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let all = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path());
    let mut cases: Vec<_> = all.filter(|c| c.join("policy.yaml").exists()).collect();
    cases.sort();
    cases
}

fn parse(case: &Path) -> Result<Policy, String> {
    let source = Source {
        path: "/etc/muster/policy.yaml".into(),
        text: std::fs::read_to_string(case.join("policy.yaml")).unwrap(),
        tree: Tree::System,
    };
    Policy::parse(Some(&source)).map_err(|e| e.to_string())
}

/// The cases whose outcome is another than expected.
fn compare(cases: &[(PathBuf, String)]) {
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    for (case, outcome) in cases {
        let expected = case.join("expected");
        if update {
            std::fs::write(&expected, outcome).unwrap();
        } else if std::fs::read_to_string(&expected).ok().as_ref() != Some(outcome) {
            wrong.push(format!("{}:\n{outcome}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "UPDATE=1 rewrites:\n{}", wrong.join("\n"));
}

#[test]
fn good_files() {
    let outcome = |case: PathBuf| {
        let policy = parse(&case).unwrap();
        (case, format!("{policy:#?}\n"))
    };
    let cases: Vec<_> = cases("testdata").into_iter().map(outcome).collect();
    assert!(cases.len() >= 3);
    compare(&cases);
}

#[test]
fn wrong_files() {
    let outcome = |case: PathBuf| {
        let mistakes = parse(&case).unwrap_err();
        (case, format!("{mistakes}\n"))
    };
    let cases: Vec<_> = cases("testdata/wrong").into_iter().map(outcome).collect();
    assert!(cases.len() >= 20);
    compare(&cases);
}
