//! salloc, sbatch and srun, as the user: the cluster definition becomes a frozen request.
//!
//! Every mistake of the user ends here, with all that is known of it, before there is a job.

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use muster_config::Trees;
use muster_templates::expand::Names;
use muster_templates::submit;
use muster_types::request::Submitter;

use crate::options::Choice;
use crate::verdict::chain;

/// Before each line that the user sees.
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

/// The request of a submission as JSON, or `None` if it asks for no VMs. `names` is what `%{...}` in
/// paths stands for.
///
/// # Errors
/// All that is wrong, a line each, without [`PREFIX`].
pub fn request(
    choice: &Choice,
    submission: Submission,
    trees: &Trees,
    names: &Names<'_>,
) -> Result<Option<String>, String> {
    let Choice::Vms(definition) = choice else {
        return Ok(None);
    };
    if submission.is_step {
        return Ok(None);
    }
    let library = muster_config::library(trees).map_err(text)?;
    let repos = muster_config::repos(trees, names).map_err(text)?;
    let catalog = muster_config::catalog(&repos);
    let request = submit::resolve(
        definition,
        submission.submitter,
        &library,
        &catalog,
        names,
        &readable,
    )
    .map_err(text)?;
    request.to_json().map(Some).map_err(text)
}

/// Whether the user can read a disk file.
fn readable(path: &str) -> Result<(), String> {
    let meta = File::open(path)
        .and_then(|file| file.metadata())
        .map_err(|e| e.to_string())?;
    if meta.is_dir() {
        return Err("it is a directory".into());
    }
    Ok(())
}

fn text(error: impl Error) -> String {
    chain(&error)
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
        request(
            &Choice::of(Some(definition.into())),
            submission,
            trees,
            &names,
        )
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
        assert!(e.starts_with(&file.display().to_string()), "{e}");
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

    #[test]
    fn disk_files_must_be_readable() {
        assert!(readable("/proc/self/stat").is_ok());
        assert!(
            readable("/nonexistent")
                .unwrap_err()
                .contains("No such file")
        );
        assert!(readable("/").unwrap_err().contains("directory"));
    }
}
