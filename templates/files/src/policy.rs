//! Reads `policy.yaml`.

use muster_templates::policy::Policy;
use muster_templates::source::Tree;

use crate::{LoadError, Trees, file};

/// Reads `policy.yaml` of the system tree; without one, everything is allowed.
///
/// # Errors
/// The file cannot be read, or has mistakes.
pub fn policy(trees: &Trees) -> Result<Policy, LoadError> {
    let source = file(&trees.system.join("policy.yaml"), Tree::System)?;
    Ok(Policy::parse(source.as_ref())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_system_tree_has_a_policy() {
        let root = tempfile::tempdir().unwrap();
        let trees = Trees {
            system: root.path().join("etc"),
            user: Some(root.path().join("home")),
        };
        for dir in ["etc", "home"] {
            std::fs::create_dir(root.path().join(dir)).unwrap();
        }
        std::fs::write(root.path().join("home/policy.yaml"), "x: 1\n").unwrap();
        assert_eq!(policy(&trees).unwrap(), Policy::default());
        std::fs::write(trees.system.join("policy.yaml"), "templates: false\n").unwrap();
        assert!(!policy(&trees).unwrap().allows_everything());
        std::fs::write(trees.system.join("policy.yaml"), "x: 1\n").unwrap();
        let e = policy(&trees).unwrap_err().to_string();
        assert!(e.contains("policy.yaml:1:1: x: unknown key"), "{e}");
    }
}
