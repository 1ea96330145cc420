//! The node's user database (getpwuid_r(3), getgrouplist(3)). It may ask a server and take its time:
//! never on an async thread.

use std::ffi::CString;
use std::io;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// The groups of a user by name; one without a name by its number.
///
/// # Errors
/// The database does not answer.
pub fn groups(user: &str, gid: u32) -> io::Result<Vec<String>> {
    let name = CString::new(user).map_err(io::Error::other)?;
    let gids = getgrouplist(&name, Gid::from_raw(gid))?;
    let name_of = |gid: Gid| {
        let group = Group::from_gid(gid)?;
        Ok(group.map_or_else(|| gid.to_string(), |group| group.name))
    };
    gids.into_iter().map(name_of).collect()
}

/// A user's home directory; none for one that the database does not have.
///
/// # Errors
/// The database does not answer.
pub fn home(uid: u32) -> io::Result<Option<String>> {
    let user = User::from_uid(Uid::from_raw(uid))?;
    Ok(user.map(|user| user.dir.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_strangers_have_the_group_that_is_given() {
        assert!(groups("root", 0).unwrap().contains(&"root".to_owned()));
        let stranger = groups("no-such-user", 3_999_999_999).unwrap();
        assert_eq!(stranger, ["3999999999"]);
        assert!(groups("a\0b", 0).is_err());
        assert!(home(0).unwrap().is_some());
        assert_eq!(home(3_999_999_999).unwrap(), None);
    }
}
