//! The manual's pages about configuration files: their tables are those of the parsers, their examples
//! load, their mistakes are answered as they say. `UPDATE=1` rewrites the tables and the answers.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reads the manual and may fail"
)]

use std::path::{Path, PathBuf};

use muster_templates::error::ConfigErrors;
use muster_templates::key::{Key, Shape, table};
use muster_templates::networks::{self, Networks};
use muster_templates::sets::{self, ResourceSets};
use muster_templates::source::{Source, Tree};
use muster_templates::{batch, repos};

type Check = fn(&Source) -> Result<(), ConfigErrors>;

struct Page {
    name: &'static str,
    file: &'static str,
    check: Check,
    /// Heading and keys of each table.
    tables: Vec<(&'static str, &'static [Key])>,
}

fn keys(shape: &Shape) -> &'static [Key] {
    match shape {
        Shape::Keys(keys) => keys,
        Shape::Named(inner) | Shape::List(inner) => keys(inner),
        Shape::Either(shapes) => keys(shapes.last().unwrap()),
        _ => panic!("{shape:?} has no keys"),
    }
}

fn key(keys: &'static [Key], name: &str) -> &'static Key {
    keys.iter().find(|k| k.name == name).unwrap()
}

fn pages() -> Vec<Page> {
    let Shape::Named(Shape::Either(types)) = networks::FILE.shape else {
        panic!("networks.yaml has another shape")
    };
    let settings = |i: usize| keys(&key(keys(&types[i]), "settings").shape);
    let batch_keys = keys(&batch::FILE.shape);
    let repo_keys = keys(&repos::FILE.shape);
    vec![
        Page {
            name: "networks.md",
            file: "networks.yaml",
            check: |source| Networks::parse(std::slice::from_ref(source)).map(drop),
            tables: vec![
                ("## ethernet", settings(0)),
                (
                    "### reverse-nat",
                    keys(&key(settings(0), "reverse-nat").shape),
                ),
                ("## bridged", settings(1)),
                ("### vlans", keys(&key(settings(1), "vlans").shape)),
                ("## infiniband", settings(2)),
                ("## hostib", settings(3)),
                ("## genericpci", settings(4)),
            ],
        },
        Page {
            name: "resources.md",
            file: "resources.yaml",
            check: |source| {
                let page = std::fs::read_to_string(docs().join("networks.md")).unwrap();
                let networks = Source {
                    path: "/etc/muster/networks.yaml".into(),
                    text: blocks(&page, "## Example").remove(0),
                    tree: Tree::System,
                };
                let networks = Networks::parse(&[networks]).unwrap();
                ResourceSets::parse(std::slice::from_ref(source), &networks).map(drop)
            },
            tables: vec![("## Keys", keys(&sets::FILE.shape))],
        },
        Page {
            name: "batch.md",
            file: "batch.yaml",
            check: |source| batch::parse(Some(source)).map(drop),
            tables: vec![("## Keys", keys(&key(batch_keys, "settings").shape))],
        },
        Page {
            name: "repos.md",
            file: "repos.yaml",
            check: |source| repos::parse(std::slice::from_ref(source)).map(drop),
            tables: vec![
                ("## Keys", repo_keys),
                ("### repos", keys(&key(repo_keys, "repos").shape)),
                ("### cache", keys(&key(repo_keys, "cache").shape)),
            ],
        },
    ]
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The lines below a heading, up to the next heading.
fn section(page: &str, heading: &str) -> (usize, usize) {
    let begin = format!("{heading}\n");
    let at = page
        .find(&begin)
        .unwrap_or_else(|| panic!("no '{heading}'"));
    let from = at + begin.len();
    let to = page[from..]
        .find("\n#")
        .map_or(page.len(), |end| from + end + 1);
    (from, to)
}

/// The indented blocks of a section, without their indentation.
fn blocks(page: &str, heading: &str) -> Vec<String> {
    let (from, to) = section(page, heading);
    let mut blocks = vec![String::new()];
    for line in page[from..to].lines() {
        let last = blocks.last_mut().unwrap();
        match line.strip_prefix("    ") {
            Some(code) => *last += &format!("{code}\n"),
            None if line.is_empty() && !last.is_empty() => last.push('\n'),
            None if !last.is_empty() => blocks.push(String::new()),
            None => {}
        }
    }
    let trimmed = blocks.iter().map(|b| format!("{}\n", b.trim_end()));
    trimmed.filter(|b| b != "\n").collect()
}

/// One test, since both parts may rewrite a page.
#[test]
fn the_manual_is_right() {
    tables_are_those_of_the_parsers();
    examples_load_and_mistakes_are_told();
}

fn tables_are_those_of_the_parsers() {
    let mut wrong = Vec::new();
    for page in pages() {
        let path = docs().join(page.name);
        let mut text = std::fs::read_to_string(&path).unwrap();
        for (heading, keys) in page.tables {
            let (from, to) = section(&text, heading);
            let is = text[from..to].split_inclusive('\n');
            let is: String = is.filter(|l| l.starts_with('|')).collect();
            let wanted = table(keys);
            if is != wanted {
                wrong.push(format!("{} {heading}", page.name));
                let start = text[from..to].find(&is).filter(|_| !is.is_empty());
                let start = from + start.unwrap_or_else(|| panic!("no table in {heading}"));
                text.replace_range(start..start + is.len(), &wanted);
            }
        }
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, text).unwrap();
            wrong.clear();
        }
    }
    assert!(wrong.is_empty(), "UPDATE=1 rewrites: {wrong:?}");
}

fn examples_load_and_mistakes_are_told() {
    for page in pages() {
        let path = docs().join(page.name);
        let text = std::fs::read_to_string(&path).unwrap();
        let source = |text: &str| Source {
            path: format!("/etc/muster/{}", page.file),
            text: text.to_owned(),
            tree: Tree::System,
        };
        let example = blocks(&text, "## Example").remove(0);
        if let Err(e) = (page.check)(&source(&example)) {
            panic!("{}: {e}", page.name);
        }
        let mistakes = blocks(&text, "## Mistakes");
        let told = (page.check)(&source(&mistakes[0])).unwrap_err().to_string();
        if std::env::var_os("UPDATE").is_some() {
            let indent =
                |block: &str| -> String { block.lines().map(|l| format!("    {l}\n")).collect() };
            let text = text.replace(&indent(&mistakes[1]), &indent(&told));
            std::fs::write(&path, text).unwrap();
        } else {
            assert_eq!(mistakes[1], format!("{told}\n"), "{}", page.name);
        }
    }
}
