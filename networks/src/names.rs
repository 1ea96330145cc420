//! Names of what a network has on a node.
//!
//! A device is `<prefix>-<job>-<role><index><number>`: job, index and number in base 36, the role a
//! letter, the number a tap's only. The kernel takes 15 bytes (`IFNAMSIZ` less the NUL), so a long
//! prefix is cut; it is for people's eyes, and what is behind it tells devices apart.

use muster_types::ids::{JobId, MAX_VMS};

/// The longest name of a network device in bytes (`IFNAMSIZ` less the NUL, if(7)).
pub const MAX_DEVICE_NAME: usize = 15;

/// The most networks one job may have: the index is one digit in base 36.
pub const MAX_JOB_NETWORKS: u8 = 36;

/// Bytes behind the job in the longest name: role, index, and 4095 in base 36.
const LONGEST_TAIL: usize = 5;

/// What a device is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The bridge of the network.
    Bridge,
    /// The end of the tunnels to other nodes.
    Tunnel,
    /// The port with the gateway's and the service's addresses.
    Gateway,
    /// The node's end of the link to the network's namespace.
    Uplink,
    /// The NIC of the VM with this number on the network.
    Tap(u32),
}

/// The name of a device.
///
/// `index` is below [`MAX_JOB_NETWORKS`], a tap's number below [`MAX_VMS`].
#[must_use]
pub fn device(prefix: &str, job: JobId, index: u8, role: Role) -> String {
    let job = base36(job.0);
    let room = MAX_DEVICE_NAME - LONGEST_TAIL - 2 - job.len();
    let cut: String = prefix.chars().take(room).collect();
    let mut name = format!("{cut}-{job}-{}{}", letter(role), base36(u32::from(index)));
    if let Role::Tap(number) = role {
        name.push_str(&base36(number));
    }
    name
}

/// Whose a device is, by its name: job, index of the network, role. `None`: no name of Muster's.
#[must_use]
pub fn owner(name: &str) -> Option<(JobId, u8, Role)> {
    let mut parts = name.rsplitn(3, '-');
    let (tail, job, prefix) = (parts.next()?, parts.next()?, parts.next()?);
    let (role, index) = (tail.get(..1)?, tail.get(1..2)?);
    let role = match (role, tail.get(2..)?) {
        ("b", "") => Role::Bridge,
        ("x", "") => Role::Tunnel,
        ("g", "") => Role::Gateway,
        ("u", "") => Role::Uplink,
        ("t", number) => Role::Tap(number36(number).filter(|n| *n < MAX_VMS)?),
        _ => return None,
    };
    let job = JobId(number36(job)?);
    let index = u8::try_from(number36(index)?).ok()?;
    // Only what `device` makes: no leading zeros, no capitals, a prefix of the right length.
    (device(prefix, job, index, role) == name).then_some((job, index, role))
}

/// The network namespace of a network with addresses.
#[must_use]
pub fn netns(job: JobId, index: u8) -> String {
    format!("mst-{job}-{index}")
}

/// A chain of the node's nftables table.
#[must_use]
pub(crate) fn chain(job: JobId, index: u8, what: &str) -> String {
    format!("mst-{job}-{index}-{what}")
}

fn letter(role: Role) -> char {
    match role {
        Role::Bridge => 'b',
        Role::Tunnel => 'x',
        Role::Gateway => 'g',
        Role::Uplink => 'u',
        Role::Tap(_) => 't',
    }
}

fn base36(mut n: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit(n % 36, 36));
        n /= 36;
        if n == 0 {
            return digits.iter().rev().collect();
        }
    }
}

fn number36(text: &str) -> Option<u32> {
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    plain.then(|| u32::from_str_radix(text, 36).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn roles() -> impl Strategy<Value = Role> {
        prop_oneof![
            Just(Role::Bridge),
            Just(Role::Tunnel),
            Just(Role::Gateway),
            Just(Role::Uplink),
            (0..MAX_VMS).prop_map(Role::Tap),
        ]
    }

    #[test]
    fn names_are_short_and_readable() {
        assert_eq!(device("nat", JobId(1234), 0, Role::Bridge), "nat-ya-b0");
        assert_eq!(device("nat", JobId(1234), 1, Role::Tap(37)), "nat-ya-t111");
        let longest = device("verylong", JobId(u32::MAX), 35, Role::Tap(MAX_VMS - 1));
        assert_eq!(longest, "v-1z141z3-tz35r");
        assert_eq!(longest.len(), MAX_DEVICE_NAME);
    }

    #[test]
    fn foreign_names_have_no_owner() {
        for name in [
            "eth0",
            "nat-ya-b",
            "nat-ya-b00",
            "nat-YA-b0",
            "nat-0ya-b0",
            "nat-ya-t0",
            "nat-ya-tz35s",
            "verylong-1z141z3-b0",
            "ya-b0",
            "br-int",
            "nat--b0",
            "nat-ya-é0",
        ] {
            assert_eq!(owner(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_fits_the_kernel_and_tells_its_owner(
            prefix in "[A-Za-z][A-Za-z0-9_-]{0,7}", job in 1_u32.., index in 0..MAX_JOB_NETWORKS, role in roles(),
        ) {
            let name = device(&prefix, JobId(job), index, role);
            prop_assert!(name.len() <= MAX_DEVICE_NAME, "{name}");
            prop_assert!(name.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':'));
            prop_assert_eq!(owner(&name), Some((JobId(job), index, role)));
        }

        #[test]
        fn equal_names_are_of_one_device(
            all in proptest::collection::vec(("[a-z][a-z0-9-]{0,7}", 1_u32..50, 0_u8..4, roles()), 1..40),
        ) {
            let mut seen = HashMap::new();
            for (prefix, job, index, role) in all {
                let name = device(&prefix, JobId(job), index, role);
                let first = *seen.entry(name).or_insert((job, index, role));
                prop_assert_eq!(first, (job, index, role));
            }
        }
    }
}
