//! A whole submission: definition and options, templates, networks, resource sets. A request that it makes is one that nodes take.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::fuzz_target;
use muster_fuzz::{check_message, files};
use muster_templates::catalog::{Catalog, RepoListing};
use muster_templates::expand::Names;
use muster_templates::library::Library;
use muster_templates::networks::Networks;
use muster_templates::sets::ResourceSets;
use muster_templates::source::Tree;
use muster_templates::submit::{Files, Options, Site, UserFile, Wish, resolve};
use muster_types::request::{self, Submitter};

fuzz_target!(|text: &str| {
    let [command, system, user, networks, sets] = files(
        text,
        [
            ("command", Tree::User),
            ("system.yaml", Tree::System),
            ("user.yaml", Tree::User),
            ("networks.yaml", Tree::System),
            ("resources.yaml", Tree::System),
        ],
    );
    let Ok(library) = Library::parse(&[system, user]) else {
        return;
    };
    let Ok(networks) = Networks::parse(&[networks]) else {
        return;
    };
    let Ok(sets) = ResourceSets::parse(&[sets], &networks) else {
        return;
    };
    let catalog = catalog();
    let site = Site {
        library: &library,
        sets: &sets,
        networks: &networks,
        catalog: &catalog,
    };
    let (definition, options) = options(&command.text);
    let wish = Wish {
        definition,
        submitter: Submitter::Salloc,
        options: &options,
    };
    let names = Names {
        home: Some("/home/alice"),
        user: "alice",
        env: &|name| (name == "A").then(|| "tiny".into()),
    };
    match resolve(&wish, &site, &names, &Disk) {
        Ok(submission) => {
            let request = submission.request;
            let json = request.to_json().expect("a request that fits");
            assert_eq!(request::parse(&json).as_ref(), Ok(&request));
            assert_eq!(request.check_supported(), Ok(()));
            for name in submission.own_templates {
                assert!(request.templates.contains_key(&name), "{name}");
                assert!(library.get(&name).is_some_and(|t| t.tree == Tree::User));
            }
            for warning in &submission.warnings {
                check_message(warning);
            }
        }
        Err(errors) => {
            assert!(!errors.0.is_empty(), "refused without a reason");
            for error in errors.0 {
                check_message(&error.to_string());
            }
        }
    }
});

/// The definition, and a line for each option: `image=TEMPLATE=IMAGE`.
fn options(command: &str) -> (&str, Options) {
    let mut lines = command.lines();
    let definition = lines.next().unwrap_or_default();
    let mut options = Options::default();
    for (name, value) in lines.filter_map(|line| line.split_once('=')) {
        let value = value.to_owned();
        match name {
            "image" => options.images.push(value),
            "mount" => options.mounts.push(value),
            "user-data" => options.user_data = Some(value),
            "wait" => options.wait = Some(value),
            "wait-timeout" => options.wait_timeout = Some(value),
            _ => {}
        }
    }
    (definition, options)
}

fn catalog() -> Catalog {
    let repo = |name: &str, problem: Option<&str>| RepoListing {
        name: name.into(),
        path: format!("/srv/{name}"),
        images: BTreeMap::from([("tiny".into(), BTreeSet::from([0, 2]))]),
        problem: problem.map(str::to_owned),
    };
    Catalog {
        repos: vec![repo("lab", None), repo("gone", Some("no such directory"))],
    }
}

/// A file system on which what a path ends in tells what it is.
struct Disk;

impl Files for Disk {
    fn readable(&self, path: &str) -> Result<(), String> {
        check_absolute(path);
        match path.ends_with('x') {
            true => Err("permission denied".into()),
            false => Ok(()),
        }
    }

    fn directory(&self, path: &str) -> Result<(), String> {
        self.readable(path)
    }

    fn read(&self, path: &str) -> Result<UserFile, String> {
        self.readable(path)?;
        let text = match path.ends_with('b') {
            true => None,
            false => Some(format!("#cloud-config\npackages: [{path}]\n")),
        };
        Ok(UserFile {
            text,
            sha256: "0".repeat(64),
        })
    }
}

fn check_absolute(path: &str) {
    assert!(path.starts_with('/') && !path.contains('\0'), "{path:?}");
}
