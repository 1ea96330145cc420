//! The user database: a uid's name, group and home (getpwuid_r(3)).

use std::path::PathBuf;

use nix::unistd::{Uid, User, getuid};

/// What the user database says of a uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name.
    pub name: String,
    /// Primary group.
    pub gid: u32,
    /// Home directory.
    pub home: PathBuf,
}

/// Looks a uid up; `None` if the database does not have it or does not answer.
#[must_use]
pub fn of(uid: u32) -> Option<Account> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    Some(Account {
        name: user.name,
        gid: user.gid.as_raw(),
        home: user.dir,
    })
}

/// The account of the process's real uid, whatever `HOME` says.
#[must_use]
pub fn own() -> Option<Account> {
    of(getuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known() {
        let root = of(0).unwrap();
        assert_eq!((root.name.as_str(), root.gid), ("root", 0));
        assert_eq!(of(u32::MAX - 7), None);
    }
}
