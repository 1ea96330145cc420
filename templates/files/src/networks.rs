//! Reads what only the site defines: networks and resource sets. A user's tree has none.

use muster_templates::networks::Networks;
use muster_templates::sets::ResourceSets;
use muster_templates::source::Tree;

use crate::{LoadError, Trees, drop_ins, file};

/// Reads `networks.yaml`, then `networks.d/*.yaml`, of the system tree.
///
/// # Errors
/// A file cannot be read, or has mistakes.
pub fn networks(trees: &Trees) -> Result<Networks, LoadError> {
    let mut sources = Vec::new();
    sources.extend(file(&trees.system.join("networks.yaml"), Tree::System)?);
    for path in drop_ins(&trees.system.join("networks.d"))? {
        sources.extend(file(&path, Tree::System)?);
    }
    Ok(Networks::parse(&sources)?)
}

/// Reads `resources.yaml` of the system tree, whose sets are of these networks.
///
/// # Errors
/// The file cannot be read, or has mistakes.
pub fn resource_sets(trees: &Trees, networks: &Networks) -> Result<ResourceSets, LoadError> {
    let source = file(&trees.system.join("resources.yaml"), Tree::System)?;
    Ok(ResourceSets::parse(source.as_slice(), networks)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sites_files_are_read_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let trees = Trees {
            system: root.path().join("etc"),
            user: Some(root.path().join("home")),
        };
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let none = networks(&trees).unwrap();
        assert_eq!(none, Networks::default());
        let sets = resource_sets(&trees, &none).unwrap();
        assert_eq!(sets.iter().count(), 0);
        let eth = |prefix: &str| {
            format!("{{type: ethernet, settings: {{network-layer: L2, dev-prefix: {prefix}}}}}\n")
        };
        write("etc/networks.yaml", &format!("one: {}", eth("one")));
        write(
            "etc/networks.d/20-two.yaml",
            &format!("two: {}", eth("two")),
        );
        write("home/networks.yaml", "{{{");
        write("home/resources.yaml", "{{{");
        let networks = networks(&trees).unwrap();
        assert_eq!(networks.names().collect::<Vec<_>>(), ["one", "two"]);
        let place = &networks.get("two").unwrap().defined_at;
        assert!(place.ends_with("networks.d/20-two.yaml:1"), "{place}");
        write(
            "etc/resources.yaml",
            "set: {networks: [two, one], default: yes}\n",
        );
        let sets = resource_sets(&trees, &networks).unwrap();
        assert_eq!(sets.default_set().unwrap().networks, ["two", "one"]);
        write(
            "etc/networks.d/30-two.yaml",
            &format!("two: {}", eth("three")),
        );
        let e = super::networks(&trees).unwrap_err().to_string();
        assert!(
            e.contains("30-two.yaml:1:1: two: the network is defined in "),
            "{e}"
        );
    }
}
