//! Everything that is wrong or odd in the configuration: each file by itself, then what the files say
//! of one another. `muster config check` prints it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use muster_templates::catalog::Catalog;
use muster_templates::error::ConfigError;
use muster_templates::expand::Names;
use muster_templates::library::{Library, ResolvedTemplate};
use muster_templates::nearest::hint;
use muster_templates::networks::Networks;
use muster_templates::policy::Policy;
use muster_templates::sets::ResourceSets;
use muster_templates::source::Tree;
use muster_templates::submit::{self, Options, SubmitError, Wish};
use muster_types::request::Submitter;

use crate::{
    LoadError, Trees, UserFiles, batch, catalog, drop_ins, image_cache, library, networks, policy,
    repos, resource_sets,
};

/// The files of the site's tree.
const SITE_FILES: &[&str] = &[
    "batch.yaml",
    "networks.yaml",
    "policy.yaml",
    "repos.yaml",
    "resources.yaml",
    "templates.yaml",
];

/// The files of a user's tree.
const USER_FILES: &[&str] = &["repos.yaml", "templates.yaml"];

/// The directories of drop-ins.
const DROP_INS: &[&str] = &["networks.d", "templates.d"];

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It has to be mended.
    Error,
    /// It may be meant.
    Warning,
}

/// Something that is wrong or odd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What and where.
    pub what: ConfigError,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The files that there are, in the order in which they are read.
    pub files: Vec<PathBuf>,
    /// What was found, in the order of the files.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings have that severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|f| f.severity == severity).count()
    }

    fn error(&mut self, what: ConfigError) {
        let severity = Severity::Error;
        self.findings.push(Finding { severity, what });
    }

    fn warning(&mut self, what: ConfigError) {
        let severity = Severity::Warning;
        self.findings.push(Finding { severity, what });
    }

    /// Keeps what was read, or what is wrong with it.
    fn kept<T>(&mut self, read: Result<T, LoadError>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(LoadError::Content(errors)) => {
                errors.0.into_iter().for_each(|e| self.error(e));
                None
            }
            Err(e) => {
                let file = match &e {
                    LoadError::Read { path, .. } | LoadError::NotText(path) => path.display(),
                    _ => Path::new("repos.yaml").display(),
                };
                let source = std::error::Error::source(&e).map(ToString::to_string);
                let message = match (&e, source) {
                    (LoadError::Read { .. }, Some(why)) => why,
                    (LoadError::NotText(_), _) => "the file is not UTF-8 text".to_owned(),
                    (_, Some(why)) => format!("{e}: {why}"),
                    (_, None) => e.to_string(),
                };
                self.error(whole_file(file.to_string(), message));
                None
            }
        }
    }
}

fn whole_file(file: String, message: String) -> ConfigError {
    ConfigError {
        file,
        at: None,
        key: String::new(),
        message,
    }
}

/// Reads and checks all files of the trees, as the user who runs it.
#[must_use]
pub fn check(trees: &Trees, names: &Names<'_>) -> Report {
    let mut report = Report::default();
    for (dir, tree) in trees.in_order() {
        look(dir, tree, &mut report);
    }
    let library = report.kept(library(trees));
    let networks = report.kept(networks(trees));
    let sets = networks
        .as_ref()
        .and_then(|n| report.kept(resource_sets(trees, n)));
    let repos = report.kept(repos(trees, names));
    let catalog = repos.map(|repos| catalog(&repos));
    // The error of a file that both read is told once.
    if catalog.is_some() {
        report.kept(image_cache(trees, names));
    }
    report.kept(batch(trees));
    let policy = report.kept(policy(trees));
    for warning in networks.iter().flat_map(Networks::warnings) {
        report.warning(warning.clone());
    }
    if let (Some(policy), Some(sets)) = (&policy, &sets) {
        check_policy(policy, sets, &mut report);
    }
    for repo in catalog.iter().flat_map(|c| &c.repos) {
        if let Some(problem) = &repo.problem {
            let message = format!("repository '{}' cannot be searched: {problem}", repo.name);
            report.warning(whole_file("repos.yaml".into(), message));
        }
    }
    if let (Some(library), Some(networks), Some(sets), Some(catalog)) =
        (&library, &networks, &sets, &catalog)
    {
        check_templates(library, networks, sets, catalog, names, &mut report);
    }
    report
}

fn check_policy(policy: &Policy, sets: &ResourceSets, report: &mut Report) {
    let names: Vec<&str> = sets.names().collect();
    policy
        .check_sets(&names)
        .into_iter()
        .for_each(|e| report.error(e));
}

/// Notes the files of a directory, and those that nobody reads.
fn look(dir: &Path, tree: Tree, report: &mut Report) {
    let own = match tree {
        Tree::System => SITE_FILES,
        Tree::User => USER_FILES,
    };
    report.files.extend(
        own.iter()
            .map(|name| dir.join(name))
            .filter(|path| path.exists()),
    );
    for name in DROP_INS
        .iter()
        .filter(|n| tree == Tree::System || **n == "templates.d")
    {
        // What cannot be listed is told where it is read.
        report
            .files
            .extend(drop_ins(&dir.join(name)).unwrap_or_default());
    }
    report.files.sort();
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    let names: BTreeSet<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .collect();
    for name in &names {
        let is_yaml = [".yaml", ".yml"].iter().any(|end| name.ends_with(end));
        if own.contains(&name.as_str()) || !is_yaml || name.starts_with('.') {
            continue;
        }
        let why = if SITE_FILES.contains(&name.as_str()) {
            "is read from the site's directory only".to_owned()
        } else {
            let near = hint(name, own.iter().copied());
            format!(
                "muster does not read this file{near}; it reads {}",
                own.join(", ")
            )
        };
        report.warning(whole_file(dir.join(name).display().to_string(), why));
    }
}

/// Submits each template that can be run by itself.
fn check_templates(
    library: &Library,
    networks: &Networks,
    sets: &ResourceSets,
    catalog: &Catalog,
    names: &Names<'_>,
    report: &mut Report,
) {
    let site = submit::Site {
        library,
        sets,
        networks,
        catalog,
    };
    // An image may be in a repository that this user cannot list.
    let blind = catalog.repos.iter().any(|r| r.problem.is_some());
    for template in library.iter() {
        let settings = template.settings();
        let boots = settings.image.is_some()
            || settings.kernel.is_some()
            || settings.persistent_drives.is_some();
        if !boots {
            continue;
        }
        let wish = Wish {
            definition: &template.name,
            submitter: Submitter::Sbatch,
            options: &Options::default(),
        };
        match submit::resolve(&wish, &site, names, &UserFiles) {
            Ok(taken) => {
                // That networks are not set up is no matter of a template.
                let about = |w: &&String| w.starts_with("template ");
                for warning in taken.warnings.iter().filter(about) {
                    report.warning(at_template(template, warning.clone()));
                }
            }
            Err(errors) => {
                for e in errors.0 {
                    match e {
                        SubmitError::Template(what) if blind && what.key.ends_with(".image") => {
                            report.warning(what);
                        }
                        SubmitError::Template(what) => {
                            // What a parent has wrong, its children have too.
                            if !report.findings.iter().any(|f| f.what == what) {
                                report.error(what);
                            }
                        }
                        SubmitError::NotYet(what) => {
                            if !report.findings.iter().any(|f| f.what == what) {
                                report.warning(what);
                            }
                        }
                        other => report.error(at_template(template, other.to_string())),
                    }
                }
            }
        }
    }
}

fn at_template(template: &ResolvedTemplate, message: String) -> ConfigError {
    let place = template.defined_at.rsplit_once(':');
    let (file, line) = place.unwrap_or((template.defined_at.as_str(), ""));
    ConfigError {
        file: file.to_owned(),
        at: line.parse().ok().map(|line| (line, 1)),
        key: String::new(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tried {
        root: tempfile::TempDir,
        trees: Trees,
    }

    fn tree() -> Tried {
        let root = tempfile::tempdir().unwrap();
        let trees = Trees {
            system: root.path().join("etc"),
            user: Some(root.path().join("home")),
        };
        for dir in ["etc/templates.d", "etc/networks.d", "home", "images/meta"] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        std::fs::write(root.path().join("images/meta/tiny@0"), "").unwrap();
        Tried { root, trees }
    }

    impl Tried {
        fn write(&self, name: &str, text: &str) {
            let images = self.root.path().join("images").display().to_string();
            let text = text.replace("IMAGES", &images);
            std::fs::write(self.root.path().join(name), text).unwrap();
        }

        /// The findings, the directory's name left out.
        fn told(&self) -> (usize, Vec<String>) {
            let names = Names {
                home: None,
                user: "alice",
                env: &|_| None,
            };
            let report = check(&self.trees, &names);
            let root = format!("{}/", self.root.path().display());
            let line = |f: &Finding| {
                let text = f.what.to_string().replace(&root, "");
                format!("{:?} {text}", f.severity)
            };
            (
                report.files.len(),
                report.findings.iter().map(line).collect(),
            )
        }
    }

    #[test]
    fn a_good_site_has_no_findings() {
        let site = tree();
        site.write("etc/repos.yaml", "repos: [{name: lab, path: IMAGES}]\n");
        site.write(
            "etc/networks.d/a.yaml",
            "nat: {type: ethernet, settings: {dev-prefix: nat}}\n",
        );
        site.write(
            "etc/resources.yaml",
            "default: {networks: [nat], default: true}\n",
        );
        site.write(
            "etc/templates.yaml",
            "base: {cpus: 2}\ntiny: {image: tiny, inherits: base}\n",
        );
        site.write("etc/batch.yaml", "type: slurm\n");
        site.write(
            "etc/policy.yaml",
            "resource-sets: {default: {users: [alice]}}\n",
        );
        site.write("home/templates.yaml", "mine: {inherits: tiny}\n");
        assert_eq!(site.told(), (7, vec![]));
    }

    #[test]
    fn what_files_say_of_one_another_is_checked() {
        let site = tree();
        site.write("etc/repos.yaml", "repos: [{name: lab, path: IMAGES}]\n");
        site.write("etc/resources.yaml", "cluster: {networks: []}\n");
        site.write(
            "etc/templates.yaml",
            "a: {image: tny, resource-set: clster}\nb: {inherits: a}\nc: {image: tiny, tpm: true, resource-set: cluster}\n",
        );
        site.write(
            "etc/policy.yaml",
            "resource-sets: {clutser: {users: [alice]}}\n",
        );
        let (files, told) = site.told();
        assert_eq!(files, 4);
        let expected = [
            "Error etc/policy.yaml:1:17: resource-sets.clutser: no such resource set (did you mean 'cluster'?)",
            "Error etc/templates.yaml:1:31: a.resource-set: no resource set 'clster' (did you mean 'cluster'?); resources.yaml has cluster",
            "Error etc/templates.yaml:1:12: a.image: no image 'tny' (did you mean 'tiny'?) in repository 'lab'",
            "Warning etc/templates.yaml:3:23: c.tpm: key 'tpm' is not supported by this release of muster",
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}");
        }
    }

    #[test]
    fn what_nobody_reads_is_told() {
        let site = tree();
        site.write("etc/template.yaml", "");
        site.write("etc/policy.yml", "");
        site.write("etc/notes.txt", "");
        site.write("home/networks.yaml", "");
        site.write("etc/templates.yaml", "a: [\n");
        std::fs::write(site.root.path().join("etc/batch.yaml"), [0xff]).unwrap();
        let (_, told) = site.told();
        let expected = [
            "Warning etc/policy.yml: muster does not read this file (did you mean 'policy.yaml'?); it reads",
            "Warning etc/template.yaml: muster does not read this file (did you mean 'templates.yaml'?); it reads",
            "Warning home/networks.yaml: is read from the site's directory only",
            "Error etc/templates.yaml:1:4: not valid YAML: unclosed bracket '['",
            "Error etc/batch.yaml: the file is not UTF-8 text",
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}");
        }
    }

    #[test]
    fn an_image_may_be_where_this_user_cannot_look() {
        let site = tree();
        site.write(
            "etc/repos.yaml",
            "repos: [{name: lab, path: /nonexistent}]\n",
        );
        site.write("etc/templates.yaml", "a: {image: tiny}\n");
        let (_, told) = site.told();
        assert!(told[0].starts_with("Warning repos.yaml: repository 'lab' cannot be searched"));
        assert!(
            told[1].starts_with("Warning etc/templates.yaml:1:12: a.image: no image"),
            "{told:?}"
        );
    }
}
