//! How much YAML may hold, so that no file takes long, and what is said of a file that holds more.

use serde_saphyr::budget::BudgetBreach;

use crate::error::one_line;

use super::explain::explain;

/// How many values, keys included, a file may hold: a template of 20 keys has 42 of them.
const MAX_VALUES: usize = 100_000;

/// How many values may come out of the aliases of one file.
const MAX_ALIAS_EVENTS: usize = 100_000;

/// How many anchors, aliases or merges a file may hold.
const MAX_ALIASES: usize = 10_000;

/// How deep lists and maps may be in one another. The parser is recursive: a level takes up to 40 KB
/// of stack without optimisation, and threads have 2 MiB.
const MAX_DEPTH: usize = 24;

/// How many characters a key may have, and be looked for its colon.
pub(super) const MAX_KEY: usize = 1024;

/// How much of the parser's words is shown; they may hold a value.
const MAX_SHOWN: usize = 200;

/// How files are read: within the limits, and with what a site may have.
pub(super) fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MAX_VALUES,
            max_depth: MAX_DEPTH,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_merge_keys: MAX_ALIASES,
            simple_key_max_lookahead: MAX_KEY,
            // One anchor may stand for the base of all templates.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIAS_EVENTS },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::PassThrough,
        // Nobody reads them, and a long block of them is no mistake.
        emit_comments: false,
        with_snippet: false,
    }
}

/// A mistake of the whole file, in words for who wrote it.
pub(super) fn told(error: &serde_saphyr::Error, at: Option<(u64, u64)>) -> String {
    if let Some(limit) = exceeded(error) {
        return limit;
    }
    let text = error.to_string();
    // The place is shown in front; the message's first line says what is wrong.
    let first = text.lines().next().unwrap_or_default();
    let column = at.and_then(|(_, column)| usize::try_from(column).ok());
    format!("not valid YAML: {}", explain(&strip_place(first), column))
}

/// Which limit a file exceeds, if that is the mistake.
fn exceeded(error: &serde_saphyr::Error) -> Option<String> {
    use serde_saphyr::Error as E;
    Some(match error {
        E::AliasError { error, .. } => return exceeded(error),
        E::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { .. } => too_deep(),
            BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => {
                format!("the file holds more than {MAX_VALUES} values")
            }
            BudgetBreach::Aliases { .. }
            | BudgetBreach::Anchors { .. }
            | BudgetBreach::MergeKeys { .. } => {
                format!("the file has more than {MAX_ALIASES} anchors, aliases or merges")
            }
            BudgetBreach::RecordedAnchorEvents { .. }
            | BudgetBreach::RecordedAnchorBytes { .. } => "the file's anchors hold too much".into(),
            _ => return None,
        },
        E::AliasReplayLimitExceeded { .. }
        | E::AliasExpansionLimitExceeded { .. }
        | E::AliasReplayStackDepthExceeded { .. } => {
            format!("the file's aliases stand for more than {MAX_ALIAS_EVENTS} values")
        }
        // The parser's own bound on brackets, which it may meet before that of the budget.
        other if other.to_string().contains("recursion limit exceeded") => too_deep(),
        _ => return None,
    })
}

fn too_deep() -> String {
    format!("more than {MAX_DEPTH} lists and maps in one another")
}

/// Takes serde-saphyr's own place (`line 3 column 5: `, or ` at line 3, column 5`) off a message.
fn strip_place(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let text = match text.strip_prefix("line ").and_then(|t| t.split_once(": ")) {
        Some((_, rest)) => rest,
        None => text,
    };
    match text.find(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text.to_owned(),
    }
}

/// A message of the parser as one line of bounded length.
pub(super) fn cut(message: &str) -> String {
    let mut out: String = message.chars().take(MAX_SHOWN).collect();
    if message.chars().nth(MAX_SHOWN).is_some() {
        out.push_str("...");
    }
    one_line(&out).into_owned()
}
