//! Wrong submissions: `ask` holds the options, one a line, `images` the repositories, `files` what is
//! in `/srv`.

use std::collections::BTreeMap;

use muster_templates::catalog::{Catalog, RepoListing};
use muster_templates::expand::Names;
use muster_templates::library::Library;
use muster_templates::networks::Networks;
use muster_templates::sets::ResourceSets;
use muster_templates::submit::{Files, Options, Site, Submission, UserFile, Wish, resolve};
use muster_types::request::Submitter;

use crate::case::{Case, cases, compare};

/// What the repositories hold where a case does not say it.
const IMAGES: &str = "site: debian13@0 debian13@1 tiny@3\n";

/// The user's files: those of the case in `/srv`, and directories that let nobody in.
struct Disk<'a>(&'a Case);

impl Disk<'_> {
    fn text(&self, path: &str) -> Result<String, String> {
        if path.starts_with("/closed/") {
            return Err("permission denied".into());
        }
        let long = path.starts_with("/long/").then(String::new);
        let name = path.strip_prefix("/srv/");
        let text = name.and_then(|name| self.0.text(&format!("files/{name}")));
        text.or(long)
            .ok_or_else(|| "no such file or directory".into())
    }
}

impl Files for Disk<'_> {
    fn readable(&self, path: &str) -> Result<(), String> {
        self.text(path).map(drop)
    }

    fn directory(&self, path: &str) -> Result<(), String> {
        match path {
            "/srv" => Ok(()),
            _ => Err("no such file or directory".into()),
        }
    }

    fn read(&self, path: &str) -> Result<UserFile, String> {
        Ok(UserFile {
            text: Some(self.text(path)?),
            sha256: "0".repeat(64),
        })
    }
}

fn variable(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/alice".into()),
        "SPACE" => Some("my image".into()),
        "LONG" => Some(format!("/long/{}", "x".repeat(3500))),
        _ => None,
    }
}

/// `REPO: IMAGE@REVISION...`, or `REPO: !PROBLEM`, a line each.
fn catalog(text: &str) -> Catalog {
    let lines = text.lines().filter(|line| !line.is_empty());
    let repo = |line: &str| {
        let (name, rest) = line.split_once(": ").unwrap();
        let mut listing = RepoListing {
            name: name.to_owned(),
            path: format!("/srv/{name}"),
            ..RepoListing::default()
        };
        if let Some(problem) = rest.strip_prefix('!') {
            listing.problem = Some(problem.to_owned());
            return listing;
        }
        let mut images: BTreeMap<_, std::collections::BTreeSet<u32>> = BTreeMap::new();
        for image in rest.split(' ') {
            let (name, revision) = image.split_once('@').unwrap();
            let revisions = images.entry(name.to_owned()).or_default();
            revisions.insert(revision.parse().unwrap());
        }
        listing.images = images;
        listing
    };
    Catalog {
        repos: lines.map(repo).collect(),
    }
}

/// The definition and the options of a case.
fn asked(case: &Case) -> (String, Options) {
    let mut definition = None;
    let mut options = Options::default();
    for line in case.text("ask").unwrap().lines() {
        let (option, value) = line.split_once('=').unwrap();
        let value = value.to_owned();
        match option {
            "vm" => definition = Some(value),
            "vm-image" => options.images.push(value),
            "vm-mount" => options.mounts.push(value),
            "vm-user-data" => options.user_data = Some(value),
            "vm-wait" => options.wait = Some(value),
            "vm-wait-timeout" => options.wait_timeout = Some(value),
            _ => unreachable!("{}: no option '{option}'", case.name()),
        }
    }
    (definition.unwrap(), options)
}

/// What comes of a submission.
pub(crate) fn submit(case: &Case) -> Result<Submission, String> {
    let library = Library::parse(&case.templates()).unwrap();
    let networks = Networks::parse(case.site("networks.yaml").as_slice()).unwrap();
    let sets = ResourceSets::parse(case.site("resources.yaml").as_slice(), &networks).unwrap();
    let catalog = catalog(case.text("images").as_deref().unwrap_or(IMAGES));
    let site = Site {
        library: &library,
        sets: &sets,
        networks: &networks,
        catalog: &catalog,
    };
    let names = Names {
        home: Some("/home/alice"),
        user: "alice",
        env: &variable,
    };
    let (definition, options) = asked(case);
    let wish = Wish {
        definition: &definition,
        submitter: Submitter::Sbatch,
        options: &options,
    };
    resolve(&wish, &site, &names, &Disk(case)).map_err(|errors| errors.to_string())
}

#[test]
fn wrong_submissions_are_told() {
    let cases = cases("wrong", "submit-");
    assert!(cases.len() >= 25, "only {} cases", cases.len());
    let mut accepted = Vec::new();
    let outcomes = cases.into_iter().filter_map(|case| match submit(&case) {
        Err(errors) => Some((case, errors)),
        Ok(_) => {
            accepted.push(case.name());
            None
        }
    });
    compare(outcomes);
    assert!(accepted.is_empty(), "accepted: {accepted:#?}");
}
