//! What the parser says of a file that is no YAML, in words for who wrote the file.

use super::limits::{MAX_KEY, cut};

/// What the parser says, by a part of it, and what that means for who wrote the file.
const MEANINGS: &[(&str, &str)] = &[
    (
        "multiple YAML documents",
        "a second document begins here: put all into one",
    ),
    (
        "recursive references",
        "an alias stands for a list or map that it is in",
    ),
    (
        "alias references unknown anchor",
        "no anchor of this name is defined above: write &NAME there, or quote a value that begins with *",
    ),
    (
        "while scanning an anchor or alias",
        "a value that begins with * or & must be in quotes",
    ),
    (
        "YAML merge value must be",
        "<< takes over an anchor: write <<: *NAME",
    ),
    (
        "mapping values are not allowed",
        "a colon where no key can be: indent the line as the one above it, and quote a text with ': '",
    ),
    (
        "while parsing a block mapping, did not find expected key",
        "this line fits neither the keys above it nor their values: indent it as the keys",
    ),
    (
        "while parsing a block collection",
        "this line fits neither the list above it nor its items: indent it as the items",
    ),
    ("tabs disallowed", "a tab in the indentation: use spaces"),
    (
        "illegal placement of ':' indicator",
        "a key inside [...]: is the bracket above it closed?",
    ),
    (
        "while parsing a flow mapping",
        "a comma or the closing } is missing before this place",
    ),
    (
        "while parsing a flow sequence",
        "a comma or the closing ] is missing before this place",
    ),
    (
        "unknown escape character",
        "a backslash in double quotes that means nothing: write it twice, or use single quotes",
    ),
];

/// A message of the parser's, which was told for a place in column `column`.
pub(super) fn explain(message: &str, column: Option<usize>) -> String {
    if message.contains("mapping values are not allowed") && column.is_some_and(|c| c > MAX_KEY) {
        return format!(
            "a key of more than {MAX_KEY} characters, or ': ' in a text without quotes"
        );
    }
    if let Some(number) = message.strip_prefix("non-finite float ") {
        return cut(&format!("no number: {number}"));
    }
    for sign in ["%", "@", "`"] {
        if message.contains(&format!("unexpected character: `{sign}'")) {
            return format!("a value that begins with {sign} must be in quotes");
        }
    }
    let meaning = MEANINGS.iter().find(|(part, _)| message.contains(part));
    meaning.map_or_else(|| cut(message), |(_, meaning)| (*meaning).to_owned())
}
