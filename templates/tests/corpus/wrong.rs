//! Wrong files of templates: the message alone has to say what to type.

use muster_templates::library::Library;

use crate::case::{cases, compare};

#[test]
fn wrong_templates_are_told() {
    let cases = cases("wrong", "templates-");
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    let mut accepted = Vec::new();
    let outcomes = cases
        .into_iter()
        .filter_map(|case| match Library::parse(&case.templates()) {
            Err(errors) => Some((case, errors.to_string())),
            Ok(_) => {
                accepted.push(case.name());
                None
            }
        });
    compare(outcomes);
    assert!(accepted.is_empty(), "accepted: {accepted:#?}");
}

/// The mistakes of all files together.
#[test]
fn the_corpus_is_large() {
    let all = cases("wrong", "").len();
    assert!(all >= 120, "only {all} cases");
}
