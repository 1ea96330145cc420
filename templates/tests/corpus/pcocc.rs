//! The files that pcocc's documentation shows, and what Muster makes of them; then each difference
//! from pcocc that users of it have to know.

use muster_templates::catalog::{Catalog, RepoListing};
use muster_templates::definition;
use muster_templates::expand::Names;
use muster_templates::library::{Library, ResolvedTemplate};
use muster_templates::networks::{Networks, to_yaml};
use muster_templates::sets::ResourceSets;
use muster_templates::source::{Source, Tree};
use muster_templates::submit::{
    Files, Options, Site, Submission, UserFile, Wish, check_user_data, resolve,
};
use muster_templates::{batch, repos};
use muster_types::request::Submitter;
use muster_types::template::{DiskCache, Mmp};

use crate::case::{Case, cases, compare};

/// A template without its inheritance, each key with where it comes from.
fn resolved(template: &ResolvedTemplate) -> String {
    let mut text = template.to_yaml();
    for (key, _) in template.settings().set() {
        let origin = template.origin(key).unwrap();
        let place = format!("{} {}:{}", origin.template, origin.file, origin.at.0);
        text.push_str(&format!("# {key}: {place}\n"));
    }
    text
}

/// A cloud-config as Muster understands it: as the inline user-data of a template.
fn cloud_config(text: &str) -> Result<String, String> {
    check_user_data("user-data", text)?;
    let indented: String = text.lines().map(|line| format!("    {line}\n")).collect();
    let template = source("templates.yaml", &format!("t:\n  user-data:\n{indented}"));
    let library = Library::parse(&[template]).map_err(|e| e.to_string())?;
    Ok(library.get("t").unwrap().to_yaml())
}

fn source(path: &str, text: &str) -> Source {
    Source {
        path: path.into(),
        text: text.into(),
        tree: Tree::System,
    }
}

/// What comes of the files of a case.
fn outcome(case: &Case) -> Result<String, String> {
    let mut text = String::new();
    let networks = Networks::parse(case.site("networks.yaml").as_slice());
    let networks = networks.map_err(|e| e.to_string())?;
    for network in networks.iter() {
        text.push_str(&format!("# {}\n{}", network.defined_at, to_yaml(network)));
    }
    for warning in networks.warnings() {
        text.push_str(&format!("warning: {warning}\n"));
    }
    let sets = ResourceSets::parse(case.site("resources.yaml").as_slice(), &networks);
    for set in sets.map_err(|e| e.to_string())?.iter() {
        text.push_str(&format!("{set:#?}\n"));
    }
    let library = Library::parse(&case.templates()).map_err(|e| e.to_string())?;
    let templates: String = library.iter().map(resolved).collect();
    text.push_str(&templates);
    if let Some(file) = case.site("batch.yaml") {
        let config = batch::parse(Some(&file)).map_err(|e| e.to_string())?;
        text.push_str(&format!("{config:#?}\n"));
    }
    if let Some(file) = case.site("repos.yaml") {
        let repos = repos::parse(&[file]).map_err(|e| e.to_string())?;
        text.push_str(&format!("{repos:#?}\n"));
    }
    if let Some(data) = case.text("user-data") {
        text.push_str(&cloud_config(&data)?);
    }
    Ok(text)
}

/// The samples that pcocc does not take either: an unquoted `%`, and keys that only show the syntax.
const WRONG: [&str; 2] = ["networks-syntax", "templates-mount-home-unquoted"];

#[test]
fn the_documentations_samples_load() {
    let cases = cases("pcocc", "");
    assert!(cases.len() >= 30, "only {} cases", cases.len());
    compare(cases.into_iter().map(|case| {
        let name = case.name();
        let text = match outcome(&case) {
            Ok(text) => {
                assert!(!WRONG.contains(&name.as_str()), "{name} is taken");
                text.trim_end().to_owned()
            }
            Err(mistakes) => {
                assert!(WRONG.contains(&name.as_str()), "{name}: {mistakes}");
                mistakes
            }
        };
        (case, text)
    }));
}

/// A sample that has to be there.
fn sample(name: &str) -> Case {
    let mut found = cases("pcocc", name);
    found.retain(|case| case.name() == name);
    found.pop().unwrap()
}

fn sample_template(case: &str, name: &str) -> ResolvedTemplate {
    let library = Library::parse(&sample(case).templates()).unwrap();
    library.get(name).unwrap().clone()
}

/// A user whose files are all there and empty.
pub(crate) struct Everything;

impl Files for Everything {
    fn readable(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
    fn directory(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
    fn read(&self, _: &str) -> Result<UserFile, String> {
        Ok(UserFile {
            text: Some(String::new()),
            sha256: "0".repeat(64),
        })
    }
}

/// Submits at a site of two templates; the repository `gone` cannot be read.
fn submit(definition: &str, resources: &str) -> Result<Submission, String> {
    let templates = source(
        "templates.yaml",
        "tpl: {image: site:tiny}\nbig: {image: site:tiny, cpus: 8, memory: 16G}\n",
    );
    let networks = Networks::default();
    let listing = |name: &str| RepoListing {
        name: name.into(),
        path: format!("/srv/{name}"),
        ..RepoListing::default()
    };
    let mut gone = listing("gone");
    gone.problem = Some("/srv/gone: no such file or directory".into());
    let mut site = listing("site");
    site.images.insert("tiny".into(), [0].into());
    let library = Library::parse(&[templates]).unwrap();
    let sets = ResourceSets::parse(&[source("resources.yaml", resources)], &networks).unwrap();
    let catalog = Catalog {
        repos: vec![gone, site],
    };
    let site = Site {
        library: &library,
        sets: &sets,
        networks: &networks,
        catalog: &catalog,
    };
    let names = Names {
        home: Some("/home/alice"),
        user: "alice",
        env: &|_| None,
    };
    let wish = Wish {
        definition,
        submitter: Submitter::Sbatch,
        options: &Options::default(),
    };
    resolve(&wish, &site, &names, &Everything).map_err(|e| e.to_string())
}

#[test]
fn a_word_for_a_count_is_explained() {
    assert_eq!(
        submit("tpl:abc", "").unwrap_err(),
        "--vm: item 'tpl:abc': 'abc' is not a count for 'tpl': write tpl:COUNT, a number from 1 to 4096"
    );
}

#[test]
fn a_count_of_zero_is_refused() {
    assert_eq!(
        submit("tpl:0", "").unwrap_err(),
        "--vm: item 1 'tpl:0': count must be 1..4096"
    );
    assert!(definition::parse("tpl:1").is_ok());
}

#[test]
fn an_unknown_template_is_named() {
    assert_eq!(
        submit("tlp", "").unwrap_err(),
        "--vm: no template 'tlp' (did you mean 'tpl'?)"
    );
}

#[test]
fn an_empty_resources_yaml_means_no_networks() {
    let taken = submit("tpl", "").unwrap();
    assert!(taken.request.resource_sets.is_empty() && taken.request.networks.is_empty());
    assert_eq!(taken.request.templates["tpl"].resource_set, None);
}

#[test]
fn self_inheritance_is_told_as_a_circle() {
    let file = source("templates.yaml", "tpl: {inherits: tpl}\n");
    assert_eq!(
        Library::parse(&[file]).unwrap_err().to_string(),
        "templates.yaml:1:17: tpl.inherits: inheritance goes in a circle: tpl -> tpl: take 'inherits' out of it"
    );
}

#[test]
fn a_quoted_no_switches_the_protection_off() {
    let texts = ["'no'", "no", "No"];
    for text in texts {
        let text = format!("t: {{persistent-drives: [{{/d: {{mmp: {text}}}}}]}}\n");
        let library = Library::parse(&[source("templates.yaml", &text)]).unwrap();
        let drives = library
            .get("t")
            .unwrap()
            .settings()
            .persistent_drives
            .clone();
        assert_eq!(drives.unwrap()[0].mmp, Mmp::No, "{text}");
    }
    let sample = sample_template("templates-sample", "example");
    let drives = sample.settings().persistent_drives.as_ref().unwrap();
    let settings: Vec<_> = drives
        .iter()
        .map(|d| (d.path.as_str(), d.mmp, d.cache))
        .collect();
    assert_eq!(
        settings,
        [
            ("/path/to/first/drive", Mmp::Yes, DiskCache::Writeback),
            ("/path/to/second/drive", Mmp::No, DiskCache::Unsafe),
        ]
    );
}

#[test]
fn a_repository_that_is_missing_breaks_nothing_else() {
    assert!(submit("tpl", "").is_ok());
    assert_eq!(
        submit("gone:tiny", "").unwrap_err(),
        "--vm: no image 'gone:tiny' in repository 'gone' (/srv/gone: no such file or directory)"
    );
}

#[test]
fn templates_of_one_cluster_may_differ_in_cpus_and_memory() {
    let taken = submit("tpl,big:2", "").unwrap();
    assert_eq!(taken.request.templates["big"].cpus, Some(8));
    assert_eq!(taken.request.templates["tpl"].cpus, None);
}

#[test]
fn keys_that_pcocc_has_and_does_not_document_are_taken() {
    let text = "t:\n  disk-cache: none\n  kernel: /boot/vmlinuz\n  full-node: true\n  \
                bind-vcpus: no\n  cpu-model: host,-vmx\n";
    let library = Library::parse(&[source("templates.yaml", text)]).unwrap();
    assert_eq!(
        library.get("t").unwrap().to_yaml(),
        "t:\n  disk-cache: none\n  cpu-model: \"host,-vmx\"\n  kernel: /boot/vmlinuz\n  \
         bind-vcpus: false\n  full-node: true\n"
    );
    let text = "nat:\n  type: ethernet\n  settings:\n    dev-prefix: nat\n    \
                mac-start-offset: 16\n    manage-ip-forward: false\n";
    let networks = Networks::parse(&[source("networks.yaml", text)]).unwrap();
    let shown = to_yaml(networks.get("nat").unwrap());
    for line in ["mac-start-offset: 16", "manage-ip-forward: false"] {
        assert!(shown.contains(line), "{shown}");
    }
    let text = "type: slurm\nsettings:\n  batch-args: [--exclusive]\n";
    let config = batch::parse(Some(&source("batch.yaml", text))).unwrap();
    assert_eq!(config.batch_args, ["--exclusive"]);
}

#[test]
fn network_types_that_pcocc_has_and_does_not_document_are_taken() {
    let text = "lan: {type: bridged, settings: {host-bridge: br0, tap-prefix: lan}}\n\
                fabric: {type: hostib, settings: {host-device: mlx5_0}}\n\
                nvme: {type: genericpci, settings: {host-device-addrs: ['0000:81:00.0'], host-driver: nvme}}\n";
    let networks = Networks::parse(&[source("networks.yaml", text)]).unwrap();
    let types: Vec<_> = networks.iter().map(to_yaml).collect();
    for (shown, kind) in types.iter().zip(["hostib", "bridged", "genericpci"]) {
        assert!(shown.contains(&format!("type: {kind}")), "{shown}");
    }
}
