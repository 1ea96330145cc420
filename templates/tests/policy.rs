//! `policy.yaml`: files in, values or mistakes out, a directory of `testdata` for each case. `UPDATE=1`
//! rewrites what is expected.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its data and may fail"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use muster_templates::expand::Names;
use muster_templates::key::names;
use muster_templates::library::Library;
use muster_templates::policy::{Asker, KEYS, Own, Policy};
use muster_templates::source::{Source, Tree};
use muster_types::request::{self, REQUEST_VERSION};
use serde_json::{Value, json};

fn cases(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let all = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path());
    let mut cases: Vec<_> = all.filter(|c| c.join("policy.yaml").exists()).collect();
    cases.sort();
    cases
}

fn parse(case: &Path) -> Result<Policy, String> {
    let text = std::fs::read_to_string(case.join("policy.yaml")).unwrap();
    parse_text(text)
}

fn parse_text(text: String) -> Result<Policy, String> {
    let source = Source {
        path: "/etc/muster/policy.yaml".into(),
        text,
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

/// What the manual says that its first example refuses is what it refuses.
#[test]
fn the_manual() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policy.md");
    let manual = std::fs::read_to_string(path).unwrap();
    for key in names(KEYS) {
        assert!(manual.contains(&format!("\n| `{key}` |")), "{key}");
    }
    let mut lines = manual.lines().skip_while(|l| !l.starts_with("    "));
    let example: Vec<_> = lines
        .by_ref()
        .map_while(|l| l.strip_prefix("    "))
        .collect();
    let policy = parse_text(example.join("\n")).unwrap();
    let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let refused = |name: &str, count: u32, keys: &[(&str, Value)], asker: Asker<'_>| {
        let image = json!({ "file": { "path": "/i" } });
        let mut template = BTreeMap::from([("image", image)]);
        template.extend(keys.iter().cloned());
        let json = json!({
            "version": REQUEST_VERSION, "definition": "x", "submitter": "sbatch",
            "groups": [{ "template": name, "count": count }],
            "templates": { name: template }, "resource-sets": { "ib-cluster": [] },
        });
        let request = request::parse(&json.to_string()).unwrap();
        let site = Source {
            path: "templates.yaml".into(),
            text: "bench: {image: x}\n".into(),
            tree: Tree::System,
        };
        let names = Names {
            home: None,
            user: "alice",
            env: &|_| None,
        };
        let own = Own::by_site(&request, &Library::parse(&[site]).unwrap(), &names);
        let refusals = policy.judge(&request, &asker, &own);
        assert!(!refusals.is_empty());
        for refusal in refusals {
            assert!(
                manual.contains(&format!(": error: --vm: {refusal}\n")),
                "{refusal}"
            );
        }
    };
    let (groups, main) = (strings(&["users", "staff"]), strings(&["main"]));
    let asker = |account, partitions| Asker {
        user: "alice",
        groups: &groups,
        account,
        partitions,
    };
    let set = [("resource-set", json!("ib-cluster"))];
    refused("bench", 80, &set, asker(Some("teaching"), &[]));
    refused("bench", 8, &set, asker(Some("projx"), &main));
    let groups = strings(&["users"]);
    let asker = Asker {
        user: "alice",
        groups: &groups,
        account: None,
        partitions: &[],
    };
    let mine = [
        ("qemu-bin", json!("/home/alice/qemu")),
        ("custom-args", json!(["-device", "x"])),
    ];
    refused("mine", 1, &mine, asker);
}
