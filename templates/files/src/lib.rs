//! Finds and reads the configuration trees, and lists image repositories by name.
//!
//! Used by the plugin inside salloc, sbatch and srun and by `muster`, as the user, and by vmd for the
//! system tree alone. No threads, no processes: slurmstepd and the Slurm commands may load it.

mod check;
mod listing;
mod networks;
mod policy;
mod site;
mod trees;
mod user_files;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use muster_templates::batch::{self, BatchConfig};
use muster_templates::error::ConfigErrors;
use muster_templates::expand::{self, ExpandError, Names};
use muster_templates::library::Library;
use muster_templates::repos::{self, RepoSpec, Repos};
use muster_templates::source::{MAX_FILE_BYTES, Source, Tree};

pub use check::{Finding, Report, Severity, check};
pub use listing::catalog;
pub use networks::{networks, resource_sets};
pub use policy::policy;
pub use site::{LoadErrors, Site};
pub use trees::Trees;
pub use user_files::UserFiles;

/// A configuration that cannot be read or is wrong.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or directory cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not UTF-8.
    #[error("{}: the file is not UTF-8 text", .0.display())]
    NotText(PathBuf),
    /// The content has mistakes.
    #[error(transparent)]
    Content(#[from] ConfigErrors),
    /// A repository's path cannot be expanded.
    #[error("path of repository '{repo}'")]
    Expand {
        /// The repository.
        repo: String,
        /// Why.
        source: ExpandError,
    },
    /// The cache's path cannot be expanded.
    #[error("path of the images' cache")]
    ExpandCache(#[source] ExpandError),
}

/// Reads all templates that the user may name: `templates.yaml`, then `templates.d/*.yaml`, in the
/// system tree and the user's.
///
/// # Errors
/// A file cannot be read, or has mistakes.
pub fn library(trees: &Trees) -> Result<Library, LoadError> {
    let mut sources = Vec::new();
    for (dir, tree) in trees.in_order() {
        sources.extend(file(&dir.join("templates.yaml"), tree)?);
        for path in drop_ins(&dir.join("templates.d"))? {
            sources.extend(file(&path, tree)?);
        }
    }
    Ok(Library::parse(&sources)?)
}

/// Reads the repositories, the user's before the site's, with their paths expanded.
///
/// # Errors
/// A file cannot be read, or has mistakes.
pub fn repos(trees: &Trees, names: &Names<'_>) -> Result<Vec<RepoSpec>, LoadError> {
    let mut specs = repo_files(trees)?.repos;
    for spec in &mut specs {
        let path = expand::expand(&spec.path, names, expand::Late::Refused);
        spec.path = path.map_err(|source| LoadError::Expand {
            repo: spec.name.clone(),
            source,
        })?;
    }
    Ok(specs)
}

/// Reads where copies of images are kept, the user's word before the site's; none where neither says.
///
/// # Errors
/// A file cannot be read, or has mistakes.
pub fn image_cache(trees: &Trees, names: &Names<'_>) -> Result<Option<String>, LoadError> {
    let Some(path) = repo_files(trees)?.cache else {
        return Ok(None);
    };
    let path = expand::expand(&path, names, expand::Late::Refused);
    path.map(Some).map_err(LoadError::ExpandCache)
}

fn repo_files(trees: &Trees) -> Result<Repos, LoadError> {
    let mut sources = Vec::new();
    for (dir, tree) in trees.in_order().into_iter().rev() {
        sources.extend(file(&dir.join("repos.yaml"), tree)?);
    }
    Ok(repos::parse(&sources)?)
}

/// Reads `batch.yaml` of the system tree.
///
/// # Errors
/// The file cannot be read, or has mistakes.
pub fn batch(trees: &Trees) -> Result<BatchConfig, LoadError> {
    let source = file(&trees.system.join("batch.yaml"), Tree::System)?;
    Ok(batch::parse(source.as_ref())?)
}

/// Reads a file; one that is not there is none.
fn file(path: &Path, tree: Tree) -> Result<Option<Source>, LoadError> {
    let read = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    // Looked at before it is opened: opening a FIFO would wait for its writer.
    let metadata = match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(read)?,
    };
    if !metadata.is_file() {
        return Err(read(io::Error::other("not a regular file")));
    }
    let file = std::fs::File::open(path).map_err(read)?;
    let mut bytes = Vec::new();
    // One byte more than is allowed tells that there is more.
    let most = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX);
    file.take(most + 1).read_to_end(&mut bytes).map_err(read)?;
    let text = String::from_utf8(bytes).map_err(|_| LoadError::NotText(path.to_owned()))?;
    Ok(Some(Source {
        path: path.display().to_string(),
        text,
        tree,
    }))
}

/// The `.yaml` files of a directory, sorted; none where it does not exist.
fn drop_ins(dir: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let read = |source| LoadError::Read {
        path: dir.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(read)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(read)?.path();
        let hidden = path
            .file_name()
            .is_none_or(|n| n.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|e| e == "yaml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Trees) {
        let root = tempfile::tempdir().unwrap();
        let trees = Trees {
            system: root.path().join("etc"),
            user: Some(root.path().join("home")),
        };
        std::fs::create_dir_all(trees.system.join("templates.d")).unwrap();
        std::fs::create_dir_all(root.path().join("home")).unwrap();
        (root, trees)
    }

    #[test]
    fn absent_files_are_empty_ones() {
        let (_root, mut trees) = tree();
        assert_eq!(library(&trees).unwrap().names().count(), 0);
        assert_eq!(batch(&trees).unwrap(), BatchConfig::default());
        trees.system = "/nowhere".into();
        trees.user = None;
        assert_eq!(library(&trees).unwrap().names().count(), 0);
    }

    #[test]
    fn drop_ins_and_the_users_tree_are_read() {
        let (root, trees) = tree();
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).unwrap();
        write("etc/templates.yaml", "a: {image: x}\n");
        write("etc/templates.d/10-b.yaml", "b: {inherits: a}\n");
        write("etc/templates.d/notes.txt", "{{{");
        write("home/templates.yaml", "a: {inherits: b}\n");
        let library = library(&trees).unwrap();
        assert_eq!(library.get("a").unwrap().tree, Tree::User);
        assert!(
            library
                .get("b")
                .unwrap()
                .defined_at
                .ends_with("10-b.yaml:1")
        );
        write(
            "etc/repos.yaml",
            "repos: [{name: lab, path: /srv}]\ncache: {path: '%{user}/x'}\n",
        );
        write(
            "home/repos.yaml",
            "repos: [{name: mine, path: '~/images'}]\n",
        );
        let env = |_: &str| None;
        let names = Names {
            home: Some("/home/a"),
            user: "a",
            env: &env,
        };
        let repos = repos(&trees, &names).unwrap();
        assert_eq!(repos[0].path, "/home/a/images");
        assert_eq!(repos[1].name, "lab");
        let cache = image_cache(&trees, &names).unwrap();
        assert_eq!(cache.as_deref(), Some("a/x"));
    }

    #[test]
    fn what_is_too_large_or_never_ends_is_refused_at_once() {
        let (_root, trees) = tree();
        let path = trees.system.join("templates.yaml");
        std::fs::write(&path, vec![b'#'; 10 << 20]).unwrap();
        let e = library(&trees).unwrap_err().to_string();
        assert!(e.ends_with("larger than 1048576 bytes"), "{e}");
        std::fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        let LoadError::Read { source, .. } = library(&trees).unwrap_err() else {
            panic!("a device is read")
        };
        assert!(source.to_string().contains("not a regular file"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let (root, trees) = tree();
        symlink("loop.yaml", root.path().join("home/loop.yaml")).unwrap();
        std::fs::rename(
            root.path().join("home/loop.yaml"),
            root.path().join("home/templates.yaml"),
        )
        .unwrap();
        symlink("templates.yaml", root.path().join("home/loop.yaml")).unwrap();
        let e = library(&trees).unwrap_err().to_string();
        assert!(e.contains("home/templates.yaml"), "{e}");
        std::fs::remove_file(root.path().join("home/templates.yaml")).unwrap();
        std::fs::create_dir(root.path().join("home/templates.yaml")).unwrap();
        assert!(library(&trees).is_err());
        std::fs::remove_dir(root.path().join("home/templates.yaml")).unwrap();
        std::fs::write(root.path().join("home/templates.yaml"), b"a: \xff").unwrap();
        assert!(
            library(&trees)
                .unwrap_err()
                .to_string()
                .contains("not UTF-8")
        );
    }
}
