//! salloc, sbatch and srun, as the user: the cluster definition becomes a frozen request.
//!
//! Every mistake of the user ends here, with all that is known of it, before there is a job.

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;

use muster_config::{Trees, UserFiles};
use muster_templates::expand::Names;
use muster_templates::submit::{self, Wish};
use muster_types::request::Submitter;

use crate::options::{Choice, Given};
use crate::submission::{self, SubmissionFacts};
use crate::verdict::chain;

/// Before a line about the definition or the configuration.
pub const PREFIX: &str = "--vm: ";

/// What a submission is seen to be from inside the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submission {
    /// The command.
    pub submitter: Submitter,
    /// srun in an existing allocation: it starts a step of a job that has its VMs or has none. salloc
    /// and sbatch hand their options down to it.
    pub is_step: bool,
}

impl Submission {
    /// Tells the command by its program and by whether the environment is that of a job.
    #[must_use]
    pub fn of(program: Option<&Path>, allocator: bool, job_id: Option<OsString>) -> Self {
        let name = program.and_then(Path::file_name).and_then(|n| n.to_str());
        let submitter = match name {
            Some("salloc") => Submitter::Salloc,
            Some("sbatch") => Submitter::Sbatch,
            Some("srun") => Submitter::Srun,
            // Under another name, or a front end that links Slurm's client code.
            _ if allocator => Submitter::Sbatch,
            _ => Submitter::Srun,
        };
        Self {
            submitter,
            is_step: !allocator && job_id.is_some_and(|id| !id.is_empty()),
        }
    }
}

/// A request that was frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen {
    /// The request as JSON.
    pub json: String,
    /// What the user is told, a line each.
    pub notes: Vec<String>,
}

/// The request of a submission, or `None` if it asks for no VMs. `names` is what `%{...}` in paths
/// stands for.
///
/// # Errors
/// All that is wrong, a line each.
pub fn request(
    given: Given,
    submission: Submission,
    trees: &Trees,
    names: &Names<'_>,
    facts: &dyn Fn(bool) -> SubmissionFacts,
) -> Result<Option<Frozen>, String> {
    if submission.is_step {
        let others = &given.others;
        let waiting = submit::waiting(others.wait.as_deref(), others.wait_timeout.as_deref());
        return waiting.map(|_| None).map_err(|e| e.to_string());
    }
    let definition = match Choice::of(given.vm.clone()) {
        Choice::Vms(definition) => definition,
        Choice::Off if given.vm.is_none() && !given.others.is_empty() => {
            return Err(
                "--vm-image, --vm-mount, --vm-user-data, --vm-wait and --vm-wait-timeout need --vm"
                    .into(),
            );
        }
        Choice::Off => return Ok(None),
    };
    let site = muster_config::Site::read(trees, names).map_err(labelled)?;
    let wish = Wish {
        definition: &definition,
        submitter: submission.submitter,
        options: &given.others,
    };
    let taken = submit::resolve(&wish, &site.view(), names, &UserFiles);
    let taken = taken.map_err(|e| e.to_string())?;
    submission::check_policy(trees, &taken.request, &site.library, facts)
        .map_err(|text| labelled(Refused(text)))?;
    let json = taken.request.to_json().map_err(labelled)?;
    let note = |text: &String| format!("muster: warning: {text}");
    Ok(Some(Frozen {
        json,
        notes: taken.warnings.iter().map(note).collect(),
    }))
}

/// Lines that a policy wrote.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

/// An error's lines, each with the option that it is about.
fn labelled(error: impl Error) -> String {
    let text = chain(&error);
    text.lines()
        .map(|line| format!("{PREFIX}{line}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_types::request;
    use std::fs;

    const SALLOC: Submission = Submission {
        submitter: Submitter::Salloc,
        is_step: false,
    };

    /// A site with the image `tiny` and the template `debian13`.
    fn site() -> (tempfile::TempDir, Trees) {
        let root = tempfile::tempdir().unwrap();
        let images = root.path().join("images/meta");
        let etc = root.path().join("etc");
        let user = root.path().join("user");
        for dir in [&images, &etc, &user] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(images.join("tiny@0"), "{}").unwrap();
        fs::write(
            etc.join("repos.yaml"),
            format!(
                "repos:\n  - name: lab\n    path: {}\n",
                root.path().join("images").display()
            ),
        )
        .unwrap();
        fs::write(
            etc.join("templates.yaml"),
            "debian13: {image: tiny, accel: tcg}\nnowhere: {image: ghost}\n",
        )
        .unwrap();
        let trees = Trees {
            system: etc,
            user: Some(user),
        };
        (root, trees)
    }

    fn ask(
        trees: &Trees,
        definition: &str,
        submission: Submission,
    ) -> Result<Option<String>, String> {
        let names = Names {
            home: None,
            user: "alice",
            env: &|_| None,
        };
        let given = Given {
            vm: Some(definition.into()),
            ..Given::none()
        };
        ask_given(trees, given, submission, &names)
    }

    fn ask_given(
        trees: &Trees,
        given: Given,
        submission: Submission,
        names: &Names<'_>,
    ) -> Result<Option<String>, String> {
        let facts = |_| SubmissionFacts::default();
        let frozen = request(given, submission, trees, names, &facts)?;
        Ok(frozen.map(|f| f.json))
    }

    #[test]
    fn the_other_options_need_vms() {
        let (_root, trees) = site();
        let names = Names {
            home: None,
            user: "alice",
            env: &|_| None,
        };
        let mut given = Given::none();
        given.others.user_data = Some("/x".into());
        let e = ask_given(&trees, given.clone(), SALLOC, &names).unwrap_err();
        assert!(e.ends_with("need --vm"), "{e}");
        given.vm = Some("none".into());
        assert_eq!(ask_given(&trees, given.clone(), SALLOC, &names), Ok(None));
        let step = Submission {
            submitter: Submitter::Srun,
            is_step: true,
        };
        given.others.wait = Some("now".into());
        let e = ask_given(&trees, given, step, &names).unwrap_err();
        assert!(e.starts_with("--vm-wait: 'now' is none of"), "{e}");
    }

    #[test]
    fn a_definition_becomes_a_request() {
        let (_root, trees) = site();
        let json = ask(&trees, "debian13:3", SALLOC).unwrap().unwrap();
        let request = request::parse(&json).unwrap();
        assert_eq!(
            (request.vm_count(), request.submitter),
            (3, Submitter::Salloc)
        );
    }

    #[test]
    fn none_and_steps_have_no_request() {
        let (_root, mut trees) = site();
        trees.system = "/proc/self/mem".into();
        let step = Submission {
            submitter: Submitter::Srun,
            is_step: true,
        };
        assert_eq!(ask(&trees, "none", SALLOC), Ok(None));
        assert_eq!(ask(&trees, "debain13", step), Ok(None));
    }

    #[test]
    fn mistakes_are_explained() {
        let (_root, trees) = site();
        for (definition, part) in [
            ("debain13", "did you mean 'debian13'"),
            ("debian13:0", "count"),
            ("", "no template given"),
            ("nowhere", "ghost"),
        ] {
            let e = ask(&trees, definition, SALLOC).unwrap_err();
            assert!(e.contains(part), "{definition}: {e}");
        }
        let file = trees.user.as_ref().unwrap().join("templates.yaml");
        fs::write(&file, "x: {immage: tiny}\n").unwrap();
        let e = ask(&trees, "debian13", SALLOC).unwrap_err();
        assert!(e.starts_with(&format!("--vm: {}", file.display())), "{e}");
        assert!(e.contains("immage"), "{e}");
    }

    #[test]
    fn commands_are_told_apart() {
        let of = |program: &str, allocator, id: Option<&str>| {
            Submission::of(Some(Path::new(program)), allocator, id.map(OsString::from))
        };
        assert_eq!(of("/usr/bin/salloc", true, None), SALLOC);
        // In the shell of another job it makes a job of its own.
        assert_eq!(of("/usr/bin/salloc", true, Some("5")), SALLOC);
        let srun = of("/usr/bin/srun", false, None);
        assert_eq!((srun.submitter, srun.is_step), (Submitter::Srun, false));
        assert!(of("/usr/bin/srun", false, Some("5")).is_step);
        assert_eq!(of("/x/other", true, None).submitter, Submitter::Sbatch);
    }
}
