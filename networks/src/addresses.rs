//! IPv4 addresses of VMs and of the services of a network.

use std::net::Ipv4Addr;

use muster_types::subnet::Subnet;

/// An address range that does not suffice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// More VMs than the range has addresses.
    #[error("network {subnet} has addresses for {most} VMs, not for {vms}")]
    Small {
        /// The range.
        subnet: Subnet,
        /// VMs that fit.
        most: u64,
        /// VMs asked for.
        vms: u32,
    },
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
        let most = subnet.size().saturating_sub(4);
        if u64::from(vms) > most {
            return Err(AddressError::Small { subnet, most, vms });
        }
        Ok(Self { subnet })
    }

    /// Address of VM number `n` on the network.
    #[must_use]
    pub fn vm(self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.subnet.base().to_bits().wrapping_add(n + 1))
    }

    /// Address of the gateway, the same on every node.
    #[must_use]
    pub fn gateway(self) -> Ipv4Addr {
        self.last(2)
    }

    /// Address of the DHCP and DNS service, the same on every node.
    #[must_use]
    pub fn service(self) -> Ipv4Addr {
        self.last(3)
    }

    fn last(self, back: u32) -> Ipv4Addr {
        let size = u32::try_from(self.subnet.size()).unwrap_or(0);
        let end = self.subnet.base().to_bits().wrapping_add(size);
        Ipv4Addr::from_bits(end.wrapping_sub(back))
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
}
