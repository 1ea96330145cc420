//! The addresses on a virtual network: of its VMs, its gateway and its services.

use std::net::{Ipv4Addr, Ipv6Addr};

use muster_types::subnet::{Subnet, Subnet6};

/// Shortest prefix of an `ipv6-network`: a longer range cannot be given out by DHCPv6 (dnsmasq(8), `--dhcp-range`).
pub const MIN_PREFIX_LENGTH6: u8 = 64;

/// The IPv4 addresses on one virtual network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    subnet: Subnet,
}

impl Addresses {
    /// The addresses of a range, of which VMs have [`Addresses::room`].
    #[must_use]
    pub fn new(subnet: Subnet) -> Self {
        Self { subnet }
    }

    /// How many VMs have an address: all of the range but the network, the broadcast address, the
    /// gateway and the services.
    #[must_use]
    pub fn room(self) -> u64 {
        self.subnet.size().saturating_sub(4)
    }

    /// Address of VM number `n` on the network, below [`Addresses::room`].
    #[must_use]
    pub fn vm(self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.subnet.base().to_bits().wrapping_add(n).wrapping_add(1))
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

    /// Length of the network prefix in bits.
    #[must_use]
    pub fn prefix_length(self) -> u8 {
        self.subnet.prefix_length()
    }

    fn last(self, back: u32) -> Ipv4Addr {
        // 2^32 is zero here, as the sum would be.
        let size = u32::try_from(self.subnet.size()).unwrap_or(0);
        let end = self.subnet.base().to_bits().wrapping_add(size);
        Ipv4Addr::from_bits(end.wrapping_sub(back))
    }
}

/// The IPv6 addresses on one virtual network: the same numbers as in IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses6 {
    base: u128,
    length: u8,
}

impl Addresses6 {
    /// The addresses of a range.
    #[must_use]
    pub fn new(subnet: Subnet6) -> Self {
        let text = subnet.to_string();
        let (base, length) = text.split_once('/').unwrap_or((&text, "128"));
        Self {
            base: base.parse::<Ipv6Addr>().map_or(0, u128::from),
            length: length.parse().unwrap_or(128),
        }
    }

    /// How many VMs have an address, at most 2^64: all of the range but the first, which is its
    /// routers' (RFC 4291, 2.6.1), the last, the gateway and the services.
    #[must_use]
    pub fn room(self) -> u64 {
        self.hosts().saturating_sub(4)
    }

    /// Address of VM number `n` on the network, below [`Addresses6::room`].
    #[must_use]
    pub fn vm(self, n: u32) -> Ipv6Addr {
        Ipv6Addr::from(self.base.wrapping_add(u128::from(n) + 1))
    }

    /// Address of the gateway, the same on every node.
    #[must_use]
    pub fn gateway(self) -> Ipv6Addr {
        self.last(1)
    }

    /// Address of the DHCP and DNS service, the same on every node.
    #[must_use]
    pub fn service(self) -> Ipv6Addr {
        self.last(2)
    }

    /// Length of the network prefix in bits.
    #[must_use]
    pub fn prefix_length(self) -> u8 {
        self.length
    }

    /// The network address.
    #[must_use]
    pub fn base(self) -> Ipv6Addr {
        Ipv6Addr::from(self.base)
    }

    /// Number of addresses, 2^64 - 1 at most.
    fn hosts(self) -> u64 {
        1_u64
            .checked_shl(128 - u32::from(self.length.min(128)))
            .unwrap_or(u64::MAX)
    }

    fn last(self, back: u32) -> Ipv6Addr {
        let host_bits = 128 - u32::from(self.length.min(128));
        let mask = u128::MAX.checked_shl(host_bits).map_or(u128::MAX, |m| !m);
        Ipv6Addr::from((self.base | mask).wrapping_sub(u128::from(back)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_pcoccs() {
        let a = Addresses::new("10.200.0.0/16".parse().unwrap());
        assert_eq!(a.vm(0).to_string(), "10.200.0.1");
        assert_eq!(a.vm(255).to_string(), "10.200.1.0");
        assert_eq!(a.gateway().to_string(), "10.200.255.254");
        assert_eq!(a.service().to_string(), "10.200.255.253");
    }

    #[test]
    fn no_vm_gets_the_address_of_a_service() {
        let a = Addresses::new("10.0.0.0/29".parse().unwrap());
        assert_eq!(a.room(), 4);
        assert!(a.vm(3) < a.service() && a.service() < a.gateway());
        let a = Addresses6::new("fd00::/124".parse().unwrap());
        assert_eq!(a.room(), 12);
        assert!(a.vm(11) < a.service() && a.service() < a.gateway());
        assert_eq!(Addresses::new("10.0.0.0/32".parse().unwrap()).room(), 0);
        assert_eq!(Addresses6::new("fd00::/128".parse().unwrap()).room(), 0);
    }

    #[test]
    fn large_ranges_have_their_ends() {
        let all = Addresses::new("0.0.0.0/0".parse().unwrap());
        assert_eq!(all.gateway().to_string(), "255.255.255.254");
        let a = Addresses6::new("fd00:1::/64".parse().unwrap());
        assert_eq!(a.vm(9).to_string(), "fd00:1::a");
        assert_eq!(a.gateway().to_string(), "fd00:1::ffff:ffff:ffff:fffe");
        assert_eq!(a.service().to_string(), "fd00:1::ffff:ffff:ffff:fffd");
        assert_eq!((a.room(), a.prefix_length()), (u64::MAX - 4, 64));
        assert_eq!(
            Addresses6::new("::/0".parse().unwrap()).room(),
            u64::MAX - 4
        );
    }
}
