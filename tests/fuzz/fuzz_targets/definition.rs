//! The cluster definition of `--vm`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_fuzz::check_message;
use muster_templates::definition::parse;
use muster_types::ids::MAX_VMS;

fuzz_target!(|text: &str| {
    match parse(text) {
        Ok(items) => {
            assert!(!items.is_empty());
            assert!(
                items
                    .iter()
                    .all(|item| item.count > 0 && !item.name.is_empty())
            );
            let total: u64 = items.iter().map(|item| u64::from(item.count)).sum();
            assert!(total <= u64::from(MAX_VMS), "{total} VMs");
            let written: Vec<_> = items
                .iter()
                .map(|item| format!("{}:{}", item.name, item.count))
                .collect();
            assert_eq!(parse(&written.join(",")), Ok(items));
        }
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            for error in errors {
                check_message(&error.to_string());
            }
        }
    }
});
