//! The text of user-data: what a guest would ignore is a mistake here.

use crate::source::{Source, Tree};
use crate::tree;

/// The first line of cloud-init's own configuration.
const HEADER: &str = "#cloud-config";

/// Checks user-data: a `#cloud-config` is a YAML map, and one whose first line is not that would be
/// ignored by cloud-init. What else a guest may take is passed on. `name` is for messages.
///
/// # Errors
/// What is wrong, with its place.
pub fn check_user_data(name: &str, text: &str) -> Result<(), String> {
    let source = || Source {
        path: name.to_owned(),
        text: text.to_owned(),
        tree: Tree::User,
    };
    let first = text.trim_start_matches('\u{feff}').lines().next();
    let first = first.unwrap_or_default().trim_end();
    let header = format!("{name}:1:1: the first line must be {HEADER}");
    // #cloud-config-archive and #cloud-config-jsonp are other things.
    if text
        .strip_prefix(HEADER)
        .is_some_and(|rest| !rest.starts_with('-'))
    {
        return match tree::parse(&source()).map_err(|e| e.to_string())?.value {
            tree::Value::Map(_) | tree::Value::Null => Ok(()),
            other => Err(format!(
                "{name}: a #cloud-config is a map, found {}",
                other.describe()
            )),
        };
    }
    if first == HEADER {
        return Err(format!("{header}, found a byte order mark before it"));
    }
    let letters = |text: &str| -> String {
        let letters = text.chars().filter(char::is_ascii_alphabetic);
        letters.map(|c| c.to_ascii_lowercase()).collect()
    };
    if letters(first) == "cloudconfig" {
        return Err(format!("{header}, found '{first}'"));
    }
    // MIME has its own header; JSON may be another tool's.
    let is_key = first.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_mime = ["content-type:", "mime-version:"]
        .iter()
        .any(|mime| first.to_ascii_lowercase().starts_with(mime));
    if is_key
        && !is_mime
        && matches!(
            tree::parse(&source()).map(|n| n.value),
            Ok(tree::Value::Map(_))
        )
    {
        return Err(header);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cloud_init_would_ignore_is_refused() {
        let say = |text: &str| check_user_data("u", text).unwrap_err();
        let header = "u:1:1: the first line must be #cloud-config";
        assert_eq!(say("packages: [vim]\n"), header);
        for first in ["# cloud-config", "#cloud_config", "#Cloud-Config"] {
            let text = format!("{first}\npackages: [vim]\n");
            assert_eq!(say(&text), format!("{header}, found '{first}'"));
        }
        assert_eq!(
            say("\u{feff}#cloud-config\n"),
            format!("{header}, found a byte order mark before it")
        );
        assert_eq!(
            say("#cloud-config\n- vim\n"),
            "u: a #cloud-config is a map, found a list"
        );
        assert_eq!(
            say("#cloud-config\npackages: [vim\n"),
            "u:2:11: not valid YAML: unclosed bracket '['"
        );
    }

    #[test]
    fn what_a_guest_may_take_is_passed_on() {
        for text in [
            "",
            "#cloud-config\n",
            "#cloud-config\npackages: [vim]\n",
            "#cloud-config-archive\n- {}\n",
            "#cloud-config-jsonp\n[]\n",
            "#!/bin/sh\nx: y\n",
            "#include\nhttp://x/\n",
            "## template: jinja\n#cloud-config\na: {{ b }}\n",
            "{\"ignition\": {}}\n",
            "MIME-Version: 1.0\n",
            "Content-Type: multipart/mixed\n\n",
        ] {
            assert_eq!(check_user_data("u", text), Ok(()), "{text}");
        }
    }
}
