//! The manual's pages of templates and of the options say what the program does.

use std::collections::BTreeSet;
use std::path::Path;

use muster_templates::key::{Key, Shape, names};
use muster_templates::library::Library;
use muster_templates::source::{Source, Tree};
use muster_templates::submit::check_user_data;
use muster_templates::template::KEYS;
use muster_types::ids::Mib;
use muster_types::template::{
    DataDisk, DiskCache, DiskModel, Display, Drive, Firmware, Gpus, HugePages, Kernel, Mmp, Mount,
    MountType, Ready, TemplateSpec, UserData, Users,
};

use crate::case::cases;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::read_to_string(path.join(name)).unwrap()
}

/// The indented blocks of a page, each with the line of text before it.
fn blocks(page: &str) -> Vec<(String, String)> {
    let (mut blocks, mut before, mut block) = (Vec::new(), String::new(), String::new());
    for line in page.lines().chain(["end"]) {
        if let Some(text) = line.strip_prefix("    ") {
            block.push_str(text);
            block.push('\n');
        } else if line.is_empty() && !block.is_empty() {
            block.push('\n');
        } else if !line.is_empty() {
            if !block.is_empty() {
                let whole = std::mem::take(&mut block);
                blocks.push((before.clone(), whole.trim_end().to_owned() + "\n"));
            }
            line.clone_into(&mut before);
        }
    }
    blocks
}

/// The lines of a section, up to the next heading of its rank.
fn section<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| !line.starts_with("## ")).collect()
}

/// The tables below a shape.
fn tables(shape: &Shape) -> Vec<&'static [Key]> {
    match shape {
        Shape::Keys(keys) => {
            let below = keys.iter().flat_map(|key| tables(&key.shape));
            std::iter::once(*keys).chain(below).collect()
        }
        Shape::List(inner) | Shape::Named(inner) => tables(inner),
        Shape::Either(shapes) => shapes.iter().flat_map(tables).collect(),
        _ => Vec::new(),
    }
}

/// What a row has to say beside the default: each word, and the ends of a range.
fn words(shape: &Shape) -> Vec<String> {
    match shape {
        Shape::Words(words) => words.iter().map(|word| format!("`{word}`")).collect(),
        Shape::Number(from, to) => vec![format!("{from} to {to}")],
        Shape::Either(shapes) => shapes.iter().flat_map(words).collect(),
        Shape::Keys(keys) => keys.iter().map(|key| format!("`{}`", key.name)).collect(),
        Shape::Named(inner) | Shape::List(inner) => words(inner),
        _ => Vec::new(),
    }
}

#[test]
fn each_key_has_its_row() {
    let page = page("templates.md");
    let tables = tables(&Shape::Keys(KEYS));
    assert_eq!(
        tables.len(),
        5,
        "of templates, mounts, drives, disks, ready"
    );
    for key in tables.into_iter().flatten() {
        let default = match key.default {
            "" => "required",
            default => default,
        };
        let start = format!("| `{}` | {default} | ", key.name);
        let rows: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with(&start))
            .collect();
        assert!(!rows.is_empty(), "no row {start}");
        for word in words(&key.shape) {
            assert!(
                rows.iter().any(|row| row.contains(&word)),
                "{rows:?}: {word}"
            );
        }
    }
}

#[test]
fn each_key_has_an_example_that_loads() {
    let page = page("templates.md");
    let examples: Vec<_> = blocks(&page)
        .into_iter()
        .filter(|(before, text)| {
            let first = text.lines().next().unwrap_or_default();
            let named = first.strip_suffix(':');
            let named = named.is_some_and(|name| !name.contains([' ', '$']));
            named && before != "This file"
        })
        .collect();
    let mut seen = BTreeSet::new();
    for (before, text) in &examples {
        let tree = match before.contains("user's") {
            true => Tree::User,
            false => Tree::System,
        };
        let source = |path: &str, text: &str, tree| Source {
            path: path.into(),
            text: text.into(),
            tree,
        };
        // The site's templates that the examples inherit from.
        let site = source("site.yaml", &examples[0].1, Tree::System);
        let example = source("example.yaml", text, tree);
        let files = [site, example];
        let files = &files[usize::from(*text == examples[0].1)..];
        let library = Library::parse(files)
            .map_err(|e| format!("{e}\n{text}"))
            .unwrap();
        for template in library.iter() {
            seen.extend(template.settings().set().into_iter().map(|(key, _)| key));
            seen.extend(template.inherits.as_ref().map(|_| "inherits"));
            seen.extend((!template.description.is_empty()).then_some("description"));
        }
    }
    let lost: Vec<_> = names(KEYS)
        .into_iter()
        .filter(|k| !seen.contains(k))
        .collect();
    assert!(lost.is_empty(), "no example: {lost:?}");
}

#[test]
fn the_example_of_mistakes_is_answered_as_it_says() {
    let page = page("templates.md");
    let blocks = blocks(&page);
    let at = blocks.iter().position(|(b, _)| b == "This file").unwrap();
    let sources = [
        Source {
            path: "/etc/muster/templates.yaml".into(),
            text: blocks[0].1.clone(),
            tree: Tree::System,
        },
        Source {
            path: "/home/alice/.muster/templates.yaml".into(),
            text: blocks[at].1.clone(),
            tree: Tree::User,
        },
    ];
    let told = Library::parse(&sources).unwrap_err().to_string();
    let answer = blocks[at + 1].1.lines();
    let answer = answer.filter_map(|line| line.strip_prefix("sbatch: error: --vm: "));
    assert_eq!(answer.collect::<Vec<_>>(), told.lines().collect::<Vec<_>>());
}

/// Whatever the pages quote is told by a case of the corpus.
#[test]
fn quoted_mistakes_are_real() {
    let corpus: String = ["templates-", "submit-"]
        .iter()
        .flat_map(|prefix| cases("wrong", prefix))
        .map(|case| case.text("expected").unwrap())
        .collect();
    let corpus: BTreeSet<&str> = corpus
        .lines()
        .map(|line| line.strip_prefix("--vm: ").unwrap_or(line))
        .collect();
    for name in ["templates.md", "plugin.md"] {
        let page = page(name);
        let mut quoted = 0;
        for (before, block) in blocks(&page) {
            if before == "is answered with" {
                continue;
            }
            for line in block.lines() {
                let line = line.strip_prefix("sbatch: error: ").unwrap_or(line);
                let is_option = line.starts_with("--vm") && line.contains(": ");
                if !is_option
                    && !line.starts_with("/home/alice/.muster/")
                    && !line.starts_with("/etc/muster/")
                {
                    continue;
                }
                quoted += 1;
                let line = line.strip_prefix("--vm: ").unwrap_or(line);
                assert!(corpus.contains(line), "{name}: no case tells: {line}");
            }
        }
        assert!(quoted >= 5, "{name}: only {quoted} mistakes");
    }
}

/// A template with everything that it may ask for.
fn everything() -> TemplateSpec {
    let path = || "/x".to_owned();
    let mount = Mount {
        path: path(),
        readonly: false,
        kind: MountType::Virtio9p,
    };
    TemplateSpec {
        user_data: Some(UserData::Inline("#!".into())),
        instance_id: Some("i".into()),
        mount_points: [("home".to_owned(), mount)].into(),
        persistent_drives: vec![Drive {
            path: path(),
            mmp: Mmp::Yes,
            cache: DiskCache::None,
        }],
        disk_model: DiskModel::Ide,
        disk_cache: DiskCache::None,
        nic_model: Some("e1000".into()),
        machine_type: Some("pc".into()),
        cpu_model: Some("host".into()),
        qemu_bin: Some(path()),
        custom_args: vec!["-S".into()],
        kernel: Some(Kernel {
            path: path(),
            initrd: Some(path()),
            args: "quiet".into(),
        }),
        remote_display: Some(Display::Vnc),
        emulator_cores: 1,
        bind_vcpus: false,
        full_node: true,
        hugepages: Some(HugePages::Mib2),
        firmware: Firmware::Uefi,
        tpm: true,
        gpus: Gpus::All,
        disk_size: Some(Mib(1)),
        data_disks: vec![DataDisk {
            size: Mib(1),
            serial: "s".into(),
            bus: DiskModel::Virtio,
            path: None,
        }],
        users: Some(Users::Me),
        ready: Ready::Ssh,
        ready_timeout: Some(1),
        hostname: Some("h".into()),
        dns_aliases: vec!["a".into()],
        ..TemplateSpec::default()
    }
}

#[test]
fn what_this_release_does_not_act_on_is_listed() {
    let page = page("templates.md");
    let section = section(&page, "## What this release does not act on").join("\n");
    let refused = section.split("\n\n").find(|p| p.starts_with("Refused: "));
    let named: BTreeSet<&str> = refused.unwrap().split('`').skip(1).step_by(2).collect();
    let not_yet: BTreeSet<&str> = everything().not_yet().into_iter().collect();
    assert_eq!(named, not_yet);
}

#[test]
fn the_cloud_config_of_the_manual_is_one() {
    let page = page("templates.md");
    let mut all = blocks(&page);
    all.retain(|(_, text)| text.starts_with("#cloud-config"));
    assert!(!all.is_empty());
    for (_, text) in all {
        assert_eq!(check_user_data("manual", &text), Ok(()));
    }
}
