//! A meta file of an image repository, which whoever shares the repository may have written.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use muster_fuzz::check_message;
use muster_images::{Listing, Repository};

/// The repository with the one meta file. Whoever starts the target gives it a scratch directory and removes it.
static REPOSITORY: LazyLock<(Repository, PathBuf)> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("repository-{}", std::process::id()));
    let repository = Repository::open_or_create(&root).expect("make a repository");
    (repository, root.join("meta/a@3"))
});

fuzz_target!(|bytes: &[u8]| {
    let listing = list(bytes);
    for warning in &listing.warnings {
        check_message(warning);
    }
    let Some(revision) = listing.revisions.first() else {
        assert_eq!(listing.warnings.len(), 1, "a file is listed or told");
        return;
    };
    let meta = &revision.meta;
    assert_eq!((meta.name.as_str(), meta.revision), ("a", 3));
    assert!((1..=256).contains(&meta.data_blobs.len()));
    let digest = |text: &String| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(meta.data_blobs.iter().all(digest));
    // What was read can be written and read again. Numbers may lose their last bit.
    let written = serde_json::to_vec(meta).expect("a meta file that was read");
    let again = list(&written);
    assert_eq!(again.revisions[0].meta.data_blobs, meta.data_blobs);
});

fn list(bytes: &[u8]) -> Listing {
    let (repository, path) = &*REPOSITORY;
    fs::write(path, bytes).expect("write the meta file");
    repository.list().expect("list the repository")
}
