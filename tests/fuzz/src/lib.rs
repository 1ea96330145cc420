//! What the targets share: invariants of messages, and files out of one input.

use muster_templates::error::{ConfigError, ConfigErrors};
use muster_templates::source::{Source, Tree};

/// The longest message of one mistake, in bytes: what is long in an input is cut before it is shown.
const MAX_MESSAGE_BYTES: usize = 8192;

/// The line between two files of one input.
const BETWEEN: &str = "\n===\n";

/// A message goes to a terminal and to logs: one line of bounded length.
///
/// # Panics
/// It is not.
pub fn check_message(text: &str) {
    assert!(!text.is_empty(), "an empty message");
    let length = text.len();
    assert!(
        length <= MAX_MESSAGE_BYTES,
        "a message of {length} bytes: {text}"
    );
    let control = text.chars().find(|c| c.is_control());
    assert!(control.is_none(), "{control:?} in a message: {text:?}");
}

/// Every mistake names one of the files and a place inside it, and can be shown.
///
/// # Panics
/// One does not.
pub fn check_errors(errors: &ConfigErrors, sources: &[Source]) {
    assert!(!errors.0.is_empty(), "refused without a reason");
    errors
        .0
        .iter()
        .for_each(|error| check_error(error, sources));
}

/// A mistake, or a warning, names one of the files and a place inside it, and can be shown.
///
/// # Panics
/// It does not.
pub fn check_error(error: &ConfigError, sources: &[Source]) {
    check_message(&error.to_string());
    let source = sources.iter().find(|source| source.path == error.file);
    let source = source.unwrap_or_else(|| panic!("no such file: {error}"));
    let place = error.at;
    let (line, column) = place.unwrap_or_else(|| panic!("a mistake without a place: {error}"));
    check_place(&source.text, line, column);
}

/// A place is inside a text: one of its characters, or just behind the last one of a line.
///
/// # Panics
/// It is not.
pub fn check_place(text: &str, line: u64, column: u64) {
    let index = usize::try_from(line)
        .ok()
        .and_then(|line| line.checked_sub(1));
    // As YAML counts: CR alone ends a line too, and behind the last end of line there is an empty one.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let found = index.and_then(|index| text.split('\n').nth(index));
    let found = found.unwrap_or_else(|| panic!("line {line} of {}", text.lines().count()));
    let length = found.chars().count();
    assert!(
        usize::try_from(column).is_ok_and(|column| (1..=length + 1).contains(&column)),
        "column {column} of line {line}, which has {length} characters"
    );
}

/// `FILE:LINE` is in one of the files, which is returned.
///
/// # Panics
/// It is not.
pub fn defined_in<'s>(defined_at: &str, sources: &'s [Source]) -> &'s Source {
    let (file, line) = defined_at.rsplit_once(':').expect("FILE:LINE");
    let source = sources.iter().find(|source| source.path == file);
    let source = source.expect("a file of the input");
    check_place(&source.text, line.parse().expect("a line"), 1);
    source
}

/// Files out of one input, which are parted by lines `===`; those that are not there are empty.
#[must_use]
pub fn files<const N: usize>(text: &str, names: [(&str, Tree); N]) -> [Source; N] {
    let mut parts = text.splitn(N, BETWEEN);
    names.map(|(path, tree)| Source {
        path: path.into(),
        text: parts.next().unwrap_or_default().into(),
        tree,
    })
}
