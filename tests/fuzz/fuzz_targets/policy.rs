//! `policy.yaml`, and a request that a user may have forged held against it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_fuzz::{check_errors, check_message, files};
use muster_templates::expand::Names;
use muster_templates::library::Library;
use muster_templates::policy::{Asker, Own, Policy};
use muster_templates::source::Tree;
use muster_types::request;

/// A request for those inputs that hold none.
const REQUEST: &str = include_str!("../seeds/request/full");

fuzz_target!(|text: &str| {
    let sources = files(
        text,
        [
            ("policy.yaml", Tree::System),
            ("request", Tree::User),
            ("site.yaml", Tree::System),
        ],
    );
    let policy = match Policy::parse(Some(&sources[0])) {
        Ok(policy) => policy,
        Err(errors) => return check_errors(&errors, &sources[..1]),
    };
    for error in policy.check_sets(&["s", "default"]) {
        check_message(&error.to_string());
    }
    let request = match request::parse(&sources[1].text) {
        Ok(request) => request,
        Err(_) => request::parse(REQUEST).expect("the seed"),
    };
    let library = Library::parse(&sources[2..]).unwrap_or_default();
    let names = Names {
        home: Some("/home/alice"),
        user: "alice",
        env: &|_| None,
    };
    let own = Own::by_site(&request, &library, &names);
    let groups = ["users".to_owned(), "staff".to_owned()];
    let partitions = ["a".to_owned(), "b".to_owned()];
    let unknown = Asker {
        user: "alice",
        groups: &groups,
        account: None,
        partitions: &[],
    };
    let known = Asker {
        account: Some("projx"),
        partitions: &partitions,
        ..unknown
    };
    let told = |own: &Own, asker: &Asker<'_>| -> Vec<String> {
        let refusals = policy.judge(&request, asker, own);
        let told: Vec<_> = refusals.iter().map(ToString::to_string).collect();
        told.iter().for_each(|text| check_message(text));
        told
    };
    let refused = told(&own, &known);
    assert!(!policy.allows_everything() || refused.is_empty());
    // With nothing of the user's own there is less to refuse, and what is not known yet refuses nothing.
    let sites = told(&Own::default(), &known);
    assert!(sites.iter().all(|text| refused.contains(text)), "{sites:?}");
    assert!(told(&own, &unknown).len() <= refused.len());
});
