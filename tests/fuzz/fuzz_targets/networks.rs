//! `networks.yaml` and `resources.yaml`. What is shown of a network is read as the same network.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_fuzz::{check_error, check_errors, defined_in, files};
use muster_templates::networks::{Networks, room, to_yaml};
use muster_templates::sets::ResourceSets;
use muster_templates::source::{Source, Tree};

fuzz_target!(|text: &str| {
    let [networks, more, sets] = files(
        text,
        [
            ("networks.yaml", Tree::System),
            ("more.yaml", Tree::System),
            ("resources.yaml", Tree::System),
        ],
    );
    let sources = [networks, more];
    let networks = match Networks::parse(&sources) {
        Ok(networks) => networks,
        Err(errors) => return check_errors(&errors, &sources),
    };
    for warning in networks.warnings() {
        check_error(warning, &sources);
    }
    for network in networks.iter() {
        defined_in(&network.defined_at, &sources);
        assert!(room(&network.spec) > 0, "{network:?}");
        let shown = Source {
            path: "shown.yaml".into(),
            text: to_yaml(network),
            tree: Tree::System,
        };
        let again = Networks::parse(std::slice::from_ref(&shown));
        let again = again.unwrap_or_else(|errors| panic!("{errors}\n{}", shown.text));
        let again = again.get(&network.name).expect("the same network");
        assert_eq!(again.spec, network.spec, "{}", shown.text);
    }
    let sources = [sets];
    match ResourceSets::parse(&sources, &networks) {
        Ok(sets) => {
            for set in sets.iter() {
                let known = |name: &String| networks.get(name).is_some();
                assert!(set.networks.iter().all(known), "{set:?}");
            }
        }
        Err(errors) => check_errors(&errors, &sources),
    }
});
