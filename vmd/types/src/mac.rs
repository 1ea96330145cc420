//! Ethernet addresses of VMs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::shown;

/// An Ethernet address that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MacError {
    /// Not three bytes of an Ethernet address.
    #[error("'{0}' is no MAC prefix such as 52:54:00 (three bytes, the first one even)")]
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

/// The first three bytes of a network's Ethernet addresses (`mac-prefix`, default `52:54:00`, the
/// range that QEMU guests use).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacPrefix([u8; 3]);

impl fmt::Display for MacPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}")
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
        Self([0x52, 0x54, 0x00])
    }
}

impl FromStr for MacPrefix {
    type Err = MacError;

    /// Three hexadecimal bytes with colons. The lowest bit of the first stands for multicast
    /// (IEEE 802) and must be off.
    fn from_str(s: &str) -> Result<Self, MacError> {
        let bad = || MacError::Prefix(shown(s));
        let mut bytes = [0; 3];
        let mut parts = s.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| (1..=2).contains(&p.len()));
            *byte = part
                .and_then(|p| u8::from_str_radix(p, 16).ok())
                .ok_or_else(bad)?;
        }
        if parts.next().is_some() || bytes[0] & 1 != 0 {
            return Err(bad());
        }
        Ok(Self(bytes))
    }
}

impl MacPrefix {
    /// The address of VM number `vm` on a network.
    ///
    /// `index` tells a VM's networks apart where several have the same prefix; it goes into the
    /// fourth byte.
    ///
    /// # Errors
    /// The number and the offset need more than the 16 bits that are left.
    pub fn address(self, index: u8, vm: u32, start_offset: u32) -> Result<Mac, MacError> {
        let number = vm
            .checked_add(start_offset)
            .and_then(|n| u16::try_from(n).ok())
            .ok_or(MacError::Range { vm, start_offset })?;
        let [a, b, c] = self.0;
        let [high, low] = number.to_be_bytes();
        Ok(Mac([a, b, c, index, high, low]))
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
        assert!(prefix.address(0, 65_535, 1).is_err());
        assert!(prefix.address(0, 1, u32::MAX).is_err());
    }

    #[test]
    fn prefixes_are_three_unicast_bytes() {
        assert_eq!(
            "0a:0:b".parse::<MacPrefix>().unwrap(),
            MacPrefix([10, 0, 11])
        );
        for bad in [
            "",
            "52:54",
            "52:54:00:01",
            "53:54:00",
            "5g:54:00",
            "052:54:00",
            "52:54:",
        ] {
            assert!(bad.parse::<MacPrefix>().is_err(), "{bad}");
        }
    }
}
