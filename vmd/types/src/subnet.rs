//! Address ranges.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::shown;

/// A text that names no range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubnetError {
    /// Not an IPv4 network in CIDR notation.
    #[error("'{0}' is no network such as 10.200.0.0/16")]
    V4(String),
    /// Not an IPv6 network in CIDR notation.
    #[error("'{0}' is no network such as fd00:1234::/64")]
    V6(String),
    /// An address of the network, not the network.
    #[error("'{shown}' has host bits set: the network is {network}")]
    HostBits {
        /// As written.
        shown: String,
        /// What was probably meant.
        network: String,
    },
}

/// An IPv4 network in CIDR notation (RFC 4632).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    base: u32,
    length: u8,
}

/// An IPv6 network in CIDR notation (RFC 4291, 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet6 {
    base: u128,
    length: u8,
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.length)
    }
}

impl fmt::Display for Subnet6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from(self.base), self.length)
    }
}

impl FromStr for Subnet {
    type Err = SubnetError;
    fn from_str(s: &str) -> Result<Self, SubnetError> {
        let bad = || SubnetError::V4(shown(s));
        let (base, length) = s.split_once('/').ok_or_else(bad)?;
        let base: Ipv4Addr = base.parse().map_err(|_| bad())?;
        let length: u8 = length.parse().ok().filter(|l| *l <= 32).ok_or_else(bad)?;
        let written = u32::from(base);
        let base = written & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        let subnet = Self { base, length };
        if base == written {
            Ok(subnet)
        } else {
            Err(SubnetError::HostBits {
                shown: shown(s),
                network: subnet.to_string(),
            })
        }
    }
}

impl FromStr for Subnet6 {
    type Err = SubnetError;
    fn from_str(s: &str) -> Result<Self, SubnetError> {
        let bad = || SubnetError::V6(shown(s));
        let (base, length) = s.split_once('/').ok_or_else(bad)?;
        let base: Ipv6Addr = base.parse().map_err(|_| bad())?;
        let length: u8 = length.parse().ok().filter(|l| *l <= 128).ok_or_else(bad)?;
        let written = u128::from(base);
        let base = written & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        let subnet = Self { base, length };
        if base == written {
            Ok(subnet)
        } else {
            Err(SubnetError::HostBits {
                shown: shown(s),
                network: subnet.to_string(),
            })
        }
    }
}

/// A range travels as its text.
macro_rules! as_text {
    ($($range:ty),+) => {
        $(impl TryFrom<String> for $range {
            type Error = SubnetError;
            fn try_from(s: String) -> Result<Self, SubnetError> {
                s.parse()
            }
        }

        impl From<$range> for String {
            fn from(range: $range) -> Self {
                range.to_string()
            }
        })+
    };
}
as_text!(Subnet, Subnet6);

impl Subnet {
    /// A range that is known to be one; host bits are cleared.
    #[must_use]
    pub const fn new(base: Ipv4Addr, length: u8) -> Self {
        let length = if length > 32 { 32 } else { length };
        let mask = match length {
            0 => 0,
            n => u32::MAX << (32 - n),
        };
        Self {
            base: base.to_bits() & mask,
            length,
        }
    }

    /// Number of addresses, network and broadcast address included; 2^32 for `0.0.0.0/0`.
    #[must_use]
    pub fn size(self) -> u64 {
        1 << (32 - u32::from(self.length))
    }

    /// The network address.
    #[must_use]
    pub fn base(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base)
    }

    /// Length of the network prefix in bits, 0 to 32.
    #[must_use]
    pub fn prefix_length(self) -> u8 {
        self.length
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        Self::new(address, self.length) == self
    }

    /// Whether any address is in both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.base()) || other.contains(self.base())
    }
}

impl Subnet6 {
    /// A range that is known to be one; host bits are cleared.
    #[must_use]
    pub const fn new(base: Ipv6Addr, length: u8) -> Self {
        let length = if length > 128 { 128 } else { length };
        let mask = match length {
            0 => 0,
            n => u128::MAX << (128 - n),
        };
        Self {
            base: base.to_bits() & mask,
            length,
        }
    }

    /// Number of addresses; at most 2^64 - 1 are counted.
    #[must_use]
    pub fn size(self) -> u64 {
        1_u64
            .checked_shl(128 - u32::from(self.length))
            .unwrap_or(u64::MAX)
    }

    /// The network address.
    #[must_use]
    pub fn base(self) -> Ipv6Addr {
        Ipv6Addr::from(self.base)
    }

    /// Length of the network prefix in bits, 0 to 128.
    #[must_use]
    pub fn prefix_length(self) -> u8 {
        self.length
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(self, address: Ipv6Addr) -> bool {
        Self::new(address, self.length) == self
    }

    /// Whether any address is in both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.base()) || other.contains(self.base())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_parsed_and_shown() {
        for good in ["10.200.0.0/16", "0.0.0.0/0", "10.0.0.1/32"] {
            let subnet: Subnet = good.parse().unwrap();
            assert_eq!(subnet.to_string(), good);
            let json = serde_json::to_string(&subnet).unwrap();
            assert_eq!(serde_json::from_str::<Subnet>(&json).unwrap(), subnet);
        }
        assert_eq!(
            "fd00::/8".parse::<Subnet6>().unwrap().to_string(),
            "fd00::/8"
        );
        let bad = [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0/16",
            "x/16",
            "10.0.0.0/16/1",
        ];
        for bad in bad {
            assert!(bad.parse::<Subnet>().is_err(), "{bad}");
        }
        assert!("fd00::/129".parse::<Subnet6>().is_err());
    }

    #[test]
    fn host_bits_are_told_with_the_network() {
        let e = "10.0.0.1/16".parse::<Subnet>().unwrap_err().to_string();
        assert_eq!(
            e,
            "'10.0.0.1/16' has host bits set: the network is 10.0.0.0/16"
        );
        let e = "fd00::1/64".parse::<Subnet6>().unwrap_err().to_string();
        assert!(e.ends_with("fd00::/64"), "{e}");
    }

    #[test]
    fn ranges_are_compared() {
        let subnet = |s: &str| s.parse::<Subnet>().unwrap();
        assert!(subnet("10.0.0.0/8").overlaps(subnet("10.200.0.0/16")));
        assert!(subnet("10.200.0.0/16").overlaps(subnet("10.0.0.0/8")));
        assert!(!subnet("10.200.0.0/16").overlaps(subnet("10.201.0.0/16")));
        assert!(subnet("0.0.0.0/0").contains(Ipv4Addr::LOCALHOST));
        assert_eq!(subnet("10.0.0.0/29").size(), 8);
        let subnet6 = |s: &str| s.parse::<Subnet6>().unwrap();
        assert!(subnet6("fd00::/8").overlaps(subnet6("fd12:3400::/32")));
        assert!(!subnet6("fd00::/64").overlaps(subnet6("fd00:0:0:1::/64")));
        assert!(subnet6("::/0").contains(Ipv6Addr::LOCALHOST));
        assert_eq!(subnet6("fd00::/120").size(), 256);
        assert_eq!(subnet6("fd00::/64").size(), u64::MAX);
    }
}
