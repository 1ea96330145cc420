//! Which directories hold the configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use muster_templates::source::Tree;

/// The directories of configuration files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trees {
    /// The site's.
    pub system: PathBuf,
    /// The user's; none for vmd, and for a user without a home.
    pub user: Option<PathBuf>,
}

impl Trees {
    /// The usual search: `MUSTER_CONF_DIR`, else `/etc/muster`, else `/etc/pcocc` where only that
    /// exists; `MUSTER_USER_CONF_DIR`, else `~/.muster`, else `PCOCC_USER_CONF_DIR` or `~/.pcocc`
    /// where only that exists.
    #[must_use]
    pub fn from_env(env: &dyn Fn(&str) -> Option<OsString>, home: Option<&Path>) -> Self {
        let given = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let system = given("MUSTER_CONF_DIR").unwrap_or_else(|| {
            let old = Path::new("/etc/pcocc");
            let own = Path::new("/etc/muster");
            if own.exists() || !old.exists() {
                own
            } else {
                old
            }
            .to_owned()
        });
        let user = given("MUSTER_USER_CONF_DIR").or_else(|| {
            let own = home.map(|h| h.join(".muster"));
            let old = given("PCOCC_USER_CONF_DIR").or_else(|| home.map(|h| h.join(".pcocc")));
            match (own, old) {
                (Some(own), Some(old)) if !own.exists() && old.exists() => Some(old),
                (own, old) => own.or(old),
            }
        });
        Self { system, user }
    }

    /// The system tree, then the user's.
    pub(crate) fn in_order(&self) -> Vec<(&Path, Tree)> {
        let system = (self.system.as_path(), Tree::System);
        let user = self.user.as_deref().map(|dir| (dir, Tree::User));
        std::iter::once(system).chain(user).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_win_and_old_trees_are_found() {
        let home = tempfile::tempdir().unwrap();
        let none = |_: &str| None;
        let user =
            |env: &dyn Fn(&str) -> Option<OsString>| Trees::from_env(env, Some(home.path())).user;
        assert_eq!(user(&none), Some(home.path().join(".muster")));
        std::fs::create_dir(home.path().join(".pcocc")).unwrap();
        assert_eq!(user(&none), Some(home.path().join(".pcocc")));
        std::fs::create_dir(home.path().join(".muster")).unwrap();
        assert_eq!(user(&none), Some(home.path().join(".muster")));
        let set = |name: &str| (name == "MUSTER_USER_CONF_DIR").then(|| "/u".into());
        assert_eq!(user(&set), Some("/u".into()));
        let set = |name: &str| (name == "MUSTER_CONF_DIR").then(|| "/s".into());
        let trees = Trees::from_env(&set, None);
        assert_eq!((trees.system, trees.user), ("/s".into(), None));
    }
}
