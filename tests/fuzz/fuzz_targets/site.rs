//! `repos.yaml` of both trees and `batch.yaml`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_fuzz::{check_errors, files};
use muster_templates::source::Tree;
use muster_templates::{batch, repos};

fuzz_target!(|text: &str| {
    let sources = files(
        text,
        [("first.yaml", Tree::System), ("second.yaml", Tree::User)],
    );
    if let Err(errors) = repos::parse(&sources) {
        check_errors(&errors, &sources);
    }
    if let Err(errors) = batch::parse(Some(&sources[0])) {
        check_errors(&errors, &sources);
    }
});
