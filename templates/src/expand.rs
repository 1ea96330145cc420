//! `%{...}` and `~` in strings that name paths.

use muster_types::ids::shown;

use crate::nearest::hint;

/// Where the names of `%{...}` come from.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// The user's home directory, if there is one.
    pub home: Option<&'a str>,
    /// The user's name.
    pub user: &'a str,
    /// Environment variables.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Whether a text may hold names that are known only where and when a VM runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// They stay as they are, and so does `%%`: the text is expanded once more on the node.
    Kept,
    /// They are a mistake.
    Refused,
}

/// The names that are known on the node: of the VM, of the job, and its scratch directory.
const LATE: &[&str] = &["vm_rank", "jobid", "clusterdir"];

/// Whether a text that was expanded with [`Late::Kept`] waits for a name.
#[must_use]
pub fn is_late(text: &str) -> bool {
    LATE.iter()
        .any(|name| text.contains(&format!("%{{{name}}}")))
}

/// A string that cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// `%` followed by neither `{` nor `%`, or no closing brace.
    #[error("'{0}': write %% for a percent sign, or %{{name}}")]
    Syntax(String),
    /// A name that does not exist.
    #[error(
        "%{{{name}}}: no such name{hint}; known are env:VAR, homedir, user, vm_rank, jobid, clusterdir"
    )]
    Unknown {
        /// The name.
        name: String,
        /// The nearest one, or nothing.
        hint: String,
    },
    /// A name that is not known yet.
    #[error("%{{{0}}} is known only when the VM starts: it has no meaning here")]
    Late(String),
    /// An environment variable that is not set.
    #[error("%{{env:{0}}}: the variable is not set")]
    Unset(String),
    /// The user has no home directory.
    #[error("the user has no home directory")]
    NoHome,
}

/// Expands `%{env:VAR}`, `%{homedir}`, `%{user}`, `%%`, then a leading `~`.
///
/// # Errors
/// See [`ExpandError`].
pub fn expand(text: &str, names: &Names<'_>, late: Late) -> Result<String, ExpandError> {
    // What a user's names stand for is no text to be expanded again.
    let whole = |text: &str| match late {
        Late::Kept => text.replace('%', "%%"),
        Late::Refused => text.to_owned(),
    };
    let home = || names.home.ok_or(ExpandError::NoHome);
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix('%') {
            out.push_str(&whole("%"));
            rest = after;
            continue;
        }
        let inner = tail.strip_prefix('{').and_then(|t| t.split_once('}'));
        let (name, after) = inner.ok_or_else(|| ExpandError::Syntax(shown(text)))?;
        match name.split_once(':') {
            Some(("env", variable)) => {
                let value = (names.env)(variable);
                out.push_str(&whole(
                    &value.ok_or_else(|| ExpandError::Unset(shown(variable)))?,
                ));
            }
            None if name == "homedir" => out.push_str(&whole(home()?)),
            None if name == "user" => out.push_str(&whole(names.user)),
            None if LATE.contains(&name) => match late {
                Late::Kept => out.push_str(&format!("%{{{name}}}")),
                Late::Refused => return Err(ExpandError::Late(name.to_owned())),
            },
            _ => {
                let known = ["homedir", "user"].into_iter().chain(LATE.iter().copied());
                return Err(ExpandError::Unknown {
                    name: shown(name),
                    hint: hint(name, known),
                });
            }
        }
        rest = after;
    }
    out.push_str(rest);
    match out.strip_prefix('~') {
        Some(tail) if tail.is_empty() || tail.starts_with('/') => {
            Ok(format!("{}{tail}", whole(home()?)))
        }
        _ => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<'a>(home: Option<&'a str>, env: &'a dyn Fn(&str) -> Option<String>) -> Names<'a> {
        Names {
            home,
            user: "alice",
            env,
        }
    }

    #[test]
    fn names_are_replaced() {
        let env = |name: &str| (name == "D").then(|| "/data".to_owned());
        let n = names(Some("/home/alice"), &env);
        let to = |text: &str| expand(text, &n, Late::Refused).unwrap();
        assert_eq!(to("%{env:D}/%{user}/100%%"), "/data/alice/100%");
        assert_eq!(to("%{homedir}/x"), "/home/alice/x");
        assert_eq!(to("~/x"), "/home/alice/x");
        assert_eq!(to("~bob/x"), "~bob/x");
        assert_eq!(to("/a~"), "/a~");
    }

    #[test]
    fn what_is_known_later_stays() {
        let env = |name: &str| (name == "D").then(|| "/50%".to_owned());
        let n = names(Some("/home/alice"), &env);
        let kept = expand("~/%{env:D}/%{vm_rank}/%%.img", &n, Late::Kept).unwrap();
        assert_eq!(kept, "/home/alice//50%%/%{vm_rank}/%%.img");
        assert!(is_late(&kept) && !is_late("/50%%"));
        let e = expand("%{jobid}", &n, Late::Refused).unwrap_err();
        assert!(e.to_string().contains("only when the VM starts"));
        let e = expand("%{homdir}", &n, Late::Kept).unwrap_err().to_string();
        assert!(e.contains("(did you mean 'homedir'?)"), "{e}");
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        let env = |_: &str| None;
        let n = names(None, &env);
        for (text, word) in [
            ("%x", "write %%"),
            ("%{x", "write %%"),
            ("%{nope}", "no such name"),
            ("%{env:X}", "not set"),
            ("~/x", "no home"),
            ("%{homedir}", "no home"),
        ] {
            let e = expand(text, &n, Late::Refused).unwrap_err().to_string();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
