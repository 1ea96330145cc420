//! IPv4 addresses of VMs and of the services of a network.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use muster_types::ids::shown;

/// An address range that does not parse or does not suffice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not a network in CIDR notation.
    #[error("'{0}' is no network such as 10.200.0.0/16: prefix length 8 to 29, host bits zero")]
    Subnet(String),
    /// Not three bytes of an Ethernet address.
    #[error("'{0}' is no MAC prefix such as 52:54:00 (three bytes, the first one even)")]
    MacPrefix(String),
    /// More VMs than the range has addresses.
    #[error("network {subnet} has addresses for {most} VMs, not for {vms}")]
    Small {
        /// The range.
        subnet: Subnet,
        /// VMs that fit.
        most: u32,
        /// VMs asked for.
        vms: u32,
    },
    /// A VM's number does not fit the Ethernet address.
    #[error(
        "VM {vm} with mac-start-offset {start_offset} is beyond the 65536 MAC addresses of a prefix"
    )]
    MacRange {
        /// Number of the VM on the network.
        vm: u32,
        /// The network's `mac-start-offset`.
        start_offset: u32,
    },
}

/// An IPv4 network in CIDR notation (RFC 4632).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    base: u32,
    length: u8,
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.length)
    }
}

impl FromStr for Subnet {
    type Err = AddressError;
    fn from_str(s: &str) -> Result<Self, AddressError> {
        let bad = || AddressError::Subnet(shown(s));
        let (base, length) = s.split_once('/').ok_or_else(bad)?;
        let base: Ipv4Addr = base.parse().map_err(|_| bad())?;
        let length: u8 = length.parse().map_err(|_| bad())?;
        let subnet = Self {
            base: base.into(),
            length,
        };
        if (8..=29).contains(&length) && subnet.base & (subnet.size() - 1) == 0 {
            Ok(subnet)
        } else {
            Err(bad())
        }
    }
}

impl Subnet {
    /// Number of addresses, network and broadcast address included.
    fn size(self) -> u32 {
        1 << (32 - self.length)
    }

    /// Length of the network prefix in bits.
    #[must_use]
    pub fn prefix_length(self) -> u8 {
        self.length
    }
}

/// The addresses on one virtual network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    subnet: Subnet,
}

impl Addresses {
    /// Addresses for `vms` VMs from a range.
    ///
    /// # Errors
    /// The range is too small: the last two host addresses are not for VMs.
    pub fn new(subnet: Subnet, vms: u32) -> Result<Self, AddressError> {
        // Without the network and broadcast addresses, the gateway and the services.
        let most = subnet.size() - 4;
        if vms > most {
            return Err(AddressError::Small { subnet, most, vms });
        }
        Ok(Self { subnet })
    }

    /// Address of VM number `n` on the network.
    #[must_use]
    pub fn vm(self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.subnet.base + n + 1)
    }

    /// Address of the gateway, the same on every node.
    #[must_use]
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(self.subnet.base + (self.subnet.size() - 2))
    }

    /// Address of the DHCP and DNS service, the same on every node.
    #[must_use]
    pub fn service(self) -> Ipv4Addr {
        Ipv4Addr::from(self.subnet.base + (self.subnet.size() - 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_pcoccs() {
        let a = Addresses::new("10.200.0.0/16".parse().unwrap(), 4).unwrap();
        assert_eq!(a.vm(0).to_string(), "10.200.0.1");
        assert_eq!(a.vm(255).to_string(), "10.200.1.0");
        assert_eq!(a.gateway().to_string(), "10.200.255.254");
        assert_eq!(a.service().to_string(), "10.200.255.253");
    }

    #[test]
    fn no_vm_gets_the_address_of_a_service() {
        let small: Subnet = "10.0.0.0/29".parse().unwrap();
        assert!(
            Addresses::new(small, 5)
                .unwrap_err()
                .to_string()
                .contains("4 VMs")
        );
        let a = Addresses::new(small, 4).unwrap();
        assert!(a.vm(3) < a.service() && a.service() < a.gateway());
    }

    #[test]
    fn bad_ranges_are_refused() {
        for bad in [
            "",
            "10.0.0.0",
            "10.0.0.0/7",
            "10.0.0.0/30",
            "10.0.0.1/16",
            "10.0.0/16",
            "x/16",
            "10.0.0.0/16/1",
        ] {
            assert!(bad.parse::<Subnet>().is_err(), "{bad}");
        }
    }
}
