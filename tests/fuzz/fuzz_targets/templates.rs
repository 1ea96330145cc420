//! Templates of the site and of the user. What is shown of one is read as the same template.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_fuzz::{check_errors, check_place, defined_in, files};
use muster_templates::library::Library;
use muster_templates::source::{Source, Tree};

fuzz_target!(|text: &str| {
    let sources = files(
        text,
        [("system.yaml", Tree::System), ("user.yaml", Tree::User)],
    );
    let library = match Library::parse(&sources) {
        Ok(library) => library,
        Err(errors) => return check_errors(&errors, &sources),
    };
    for template in library.iter() {
        assert_eq!(
            defined_in(&template.defined_at, &sources).tree,
            template.tree
        );
        if let Some(parent) = &template.inherits {
            assert!(library.get(parent).is_some(), "the parent '{parent}'");
        }
        for (key, _) in template.settings().set() {
            let origin = template.origin(key).expect("a key that is set");
            assert!(library.get(&origin.template).is_some());
            let source = sources.iter().find(|source| source.path == origin.file);
            check_place(&source.expect("a file").text, origin.at.0, origin.at.1);
        }
        let shown = Source {
            path: "shown.yaml".into(),
            text: template.to_yaml(),
            tree: Tree::System,
        };
        let again = Library::parse(std::slice::from_ref(&shown));
        let again = again.unwrap_or_else(|errors| panic!("{errors}\n{}", shown.text));
        let again = again.get(&template.name).expect("the same template");
        assert_eq!(again.settings(), template.settings(), "{}", shown.text);
        assert_eq!(again.description, template.description, "{}", shown.text);
    }
});
