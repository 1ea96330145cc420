//! All of the configuration that a submission rests on, read at once.

use muster_templates::catalog::Catalog;
use muster_templates::expand::Names;
use muster_templates::library::Library;
use muster_templates::networks::Networks;
use muster_templates::sets::ResourceSets;
use muster_templates::submit;

use crate::{LoadError, Trees, catalog, library, networks, repos, resource_sets};

/// Templates, networks, resource sets and images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// The templates.
    pub library: Library,
    /// The networks.
    pub networks: Networks,
    /// The resource sets.
    pub sets: ResourceSets,
    /// The images.
    pub catalog: Catalog,
}

/// Everything that cannot be read or is wrong, file after file.
#[derive(Debug)]
pub struct LoadErrors(pub Vec<LoadError>);

impl std::fmt::Display for LoadErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
            if let Some(source) = std::error::Error::source(error) {
                write!(f, ": {source}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for LoadErrors {}

impl Site {
    /// Reads the trees; a file that is not there is an empty one.
    ///
    /// # Errors
    /// All mistakes of all files.
    pub fn read(trees: &Trees, names: &Names<'_>) -> Result<Self, LoadErrors> {
        let mut errors = Vec::new();
        let library = kept(library(trees), &mut errors);
        // Sets that name a network which was not understood would be told for nothing.
        let (networks, sets) = match networks(trees) {
            Ok(networks) => {
                let sets = kept(resource_sets(trees, &networks), &mut errors);
                (networks, sets)
            }
            Err(e) => {
                errors.push(e);
                Default::default()
            }
        };
        let repos = kept(repos(trees, names), &mut errors);
        if !errors.is_empty() {
            return Err(LoadErrors(errors));
        }
        Ok(Self {
            library,
            networks,
            sets,
            catalog: catalog(&repos),
        })
    }

    /// What a submission is resolved with.
    #[must_use]
    pub fn view(&self) -> submit::Site<'_> {
        submit::Site {
            library: &self.library,
            sets: &self.sets,
            networks: &self.networks,
            catalog: &self.catalog,
        }
    }
}

fn kept<T: Default>(read: Result<T, LoadError>, errors: &mut Vec<LoadError>) -> T {
    read.unwrap_or_else(|e| {
        errors.push(e);
        T::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mistakes_of_all_files_are_told() {
        let root = tempfile::tempdir().unwrap();
        let trees = Trees {
            system: root.path().to_owned(),
            user: None,
        };
        let names = Names {
            home: None,
            user: "a",
            env: &|_| None,
        };
        assert_eq!(Site::read(&trees, &names).unwrap(), Site::default());
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).unwrap();
        write("templates.yaml", "a: {imge: x}\n");
        write("networks.yaml", "n: {}\n");
        write("resources.yaml", "default: {networks: [n]}\n");
        write("repos.yaml", "repos: [{name: lab, path: '~/x'}]\n");
        let told = Site::read(&trees, &names).unwrap_err().to_string();
        for part in [
            "a.imge: unknown key",
            "networks.yaml:1:",
            "path of repository 'lab': the user has no home",
        ] {
            assert!(told.contains(part), "{told}");
        }
        assert!(!told.contains("resources.yaml"), "{told}");
    }
}
