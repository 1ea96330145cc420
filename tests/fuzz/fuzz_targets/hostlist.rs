//! Slurm's lists of hosts and of CPU counts.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_fuzz::check_message;
use muster_types::hostlist::{MAX_NODES, expand, expand_cpus};

fuzz_target!(|text: &str| {
    let nodes = match expand(text) {
        Ok(names) => {
            assert!((1..=MAX_NODES).contains(&names.len()));
            let written: Vec<_> = names.iter().map(ToString::to_string).collect();
            assert_eq!(expand(&written.join(",")).as_ref(), Ok(&names));
            names.len()
        }
        Err(error) => {
            check_message(&error.to_string());
            3
        }
    };
    match expand_cpus(text, nodes) {
        Ok(cpus) => {
            assert_eq!(cpus.len(), nodes);
            assert!(cpus.iter().all(|&count| count > 0));
        }
        Err(error) => check_message(&error.to_string()),
    }
});
