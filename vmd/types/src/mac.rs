//! Ethernet addresses of VMs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::shown;

/// An Ethernet address that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MacError {
    /// Not the first bytes of an Ethernet address.
    #[error(
        "'{0}' is no MAC prefix such as 52:54:00: one to four bytes with colons, the first one even"
    )]
    Prefix(String),
    /// A VM's number does not fit the Ethernet address.
    #[error(
        "VM {vm} with mac-start-offset {start_offset} is beyond the 65536 MAC addresses of a prefix"
    )]
    Range {
        /// Number of the VM on the network.
        vm: u32,
        /// The network's `mac-start-offset`.
        start_offset: u32,
    },
}

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The first bytes of a network's Ethernet addresses (`mac-prefix`, default `52:54:00`, the range that
/// QEMU guests use): three, or four where the last of them is not zero. Two prefixes with the same
/// bytes are equal, however many were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacPrefix([u8; 4]);

impl fmt::Display for MacPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}")?;
        match d {
            0 => Ok(()),
            d => write!(f, ":{d:02x}"),
        }
    }
}

impl TryFrom<String> for MacPrefix {
    type Error = MacError;
    fn try_from(s: String) -> Result<Self, MacError> {
        s.parse()
    }
}

impl From<MacPrefix> for String {
    fn from(prefix: MacPrefix) -> Self {
        prefix.to_string()
    }
}

impl Default for MacPrefix {
    fn default() -> Self {
        Self([0x52, 0x54, 0x00, 0x00])
    }
}

impl FromStr for MacPrefix {
    type Err = MacError;

    /// One to four hexadecimal bytes with colons, filled up with zeros. The lowest bit of the first
    /// stands for multicast (IEEE 802) and must be off.
    fn from_str(s: &str) -> Result<Self, MacError> {
        let bad = || MacError::Prefix(shown(s));
        let mut bytes = [0; 4];
        for (i, part) in s.split(':').enumerate() {
            let digits = (1..=2).contains(&part.len()) && !part.starts_with('+');
            let byte = u8::from_str_radix(part, 16).ok().filter(|_| digits);
            *bytes.get_mut(i).ok_or_else(bad)? = byte.ok_or_else(bad)?;
        }
        if bytes[0] & 1 != 0 {
            return Err(bad());
        }
        Ok(Self(bytes))
    }
}

impl MacPrefix {
    /// The address of VM number `vm` on a network.
    ///
    /// `index` tells a VM's networks apart where several have the same prefix; it is added to the
    /// fourth byte, modulo 256.
    ///
    /// # Errors
    /// The number and the offset need more than the 16 bits that are left.
    pub fn address(self, index: u8, vm: u32, start_offset: u32) -> Result<Mac, MacError> {
        let number = vm
            .checked_add(start_offset)
            .and_then(|n| u16::try_from(n).ok())
            .ok_or(MacError::Range { vm, start_offset })?;
        let [a, b, c, d] = self.0;
        let [high, low] = number.to_be_bytes();
        Ok(Mac([a, b, c, d.wrapping_add(index), high, low]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_prefix() {
        let prefix = MacPrefix::default();
        assert_eq!(
            prefix.address(0, 0, 0).unwrap().to_string(),
            "52:54:00:00:00:00"
        );
        assert_eq!(
            prefix.address(0, 258, 1).unwrap().to_string(),
            "52:54:00:00:01:03"
        );
        assert_eq!(
            prefix.address(2, 1, 0).unwrap().to_string(),
            "52:54:00:02:00:01"
        );
        let four: MacPrefix = "52:54:00:10".parse().unwrap();
        assert_eq!(
            four.address(2, 1, 0).unwrap().to_string(),
            "52:54:00:12:00:01"
        );
        assert!(prefix.address(0, 65_535, 1).is_err());
        assert!(prefix.address(0, 1, u32::MAX).is_err());
    }

    #[test]
    fn prefixes_are_unicast_bytes() {
        for (text, shown) in [
            ("0a:0:b", "0a:00:0b"),
            ("52:54", "52:54:00"),
            ("52", "52:00:00"),
            ("52:54:00:01", "52:54:00:01"),
            ("52:54:00:00", "52:54:00"),
        ] {
            assert_eq!(text.parse::<MacPrefix>().unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "52:54:00:01:00",
            "53:54:00",
            "+2:54:00",
            "5g:54:00",
            "052:54:00",
            "52:54:",
        ] {
            assert!(bad.parse::<MacPrefix>().is_err(), "{bad}");
        }
    }
}
