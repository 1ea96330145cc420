//! `%{...}` and `~` in strings that name paths.

use muster_types::ids::shown;

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

/// A string that cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// `%` followed by neither `{` nor `%`, or no closing brace.
    #[error("'{0}': write %% for a percent sign, or %{{name}}")]
    Syntax(String),
    /// A name that does not exist.
    #[error("%{{{0}}}: no such name; known are env:VAR, homedir, user")]
    Unknown(String),
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
pub fn expand(text: &str, names: &Names<'_>) -> Result<String, ExpandError> {
    let home = || names.home.ok_or(ExpandError::NoHome);
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let inner = tail.strip_prefix('{').and_then(|t| t.split_once('}'));
        let (name, after) = inner.ok_or_else(|| ExpandError::Syntax(shown(text)))?;
        match name.split_once(':') {
            Some(("env", variable)) => {
                let value = (names.env)(variable);
                out.push_str(&value.ok_or_else(|| ExpandError::Unset(shown(variable)))?);
            }
            None if name == "homedir" => out.push_str(home()?),
            None if name == "user" => out.push_str(names.user),
            _ => return Err(ExpandError::Unknown(shown(name))),
        }
        rest = after;
    }
    out.push_str(rest);
    match out.strip_prefix('~') {
        Some(tail) if tail.is_empty() || tail.starts_with('/') => Ok(format!("{}{tail}", home()?)),
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
        let to = |text: &str| expand(text, &n).unwrap();
        assert_eq!(to("%{env:D}/%{user}/100%%"), "/data/alice/100%");
        assert_eq!(to("%{homedir}/x"), "/home/alice/x");
        assert_eq!(to("~/x"), "/home/alice/x");
        assert_eq!(to("~bob/x"), "~bob/x");
        assert_eq!(to("/a~"), "/a~");
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
            let e = expand(text, &n).unwrap_err().to_string();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
