//! The request of a job, which its user can forge.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_fuzz::check_message;
use muster_types::ids::MAX_VMS;
use muster_types::request::parse;

fuzz_target!(|text: &str| {
    match parse(text) {
        Ok(request) => {
            assert!((1..=MAX_VMS).contains(&request.vm_count()));
            assert_eq!(request.vms().count(), request.vm_count() as usize);
            let json = request.to_json().expect("a request that fits");
            assert_eq!(parse(&json).as_ref(), Ok(&request));
            assert_eq!(parse(&json).and_then(|again| again.to_json()), Ok(json));
            if let Err(error) = request.check_supported() {
                check_message(&error.to_string());
            }
        }
        Err(error) => check_message(&error.to_string()),
    }
});
