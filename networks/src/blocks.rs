//! MAC addresses by blocks: a few masked matches stand for thousands of VMs.

use std::fmt;

use muster_types::mac::Mac;

/// A MAC address, or those that agree with it in all but the last few bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacBlock {
    /// The address, or the block's lowest.
    pub base: Mac,
    /// Number of low bits that do not count, 0 to 16.
    pub free_bits: u8,
}

impl MacBlock {
    /// One address.
    #[must_use]
    pub fn one(base: Mac) -> Self {
        Self { base, free_bits: 0 }
    }

    /// Whether an address is in the block.
    #[must_use]
    pub fn contains(self, mac: Mac) -> bool {
        number(mac) >> self.free_bits == number(self.base) >> self.free_bits
    }
}

impl fmt::Display for MacBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.base)?;
        if self.free_bits == 0 {
            return Ok(());
        }
        let [_, _, mask @ ..] = (u64::MAX << self.free_bits).to_be_bytes();
        write!(f, "/{}", Mac(mask))
    }
}

/// An address as a number of 48 bits.
fn number(mac: Mac) -> u64 {
    let [a, b, c, d, e, g] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, g])
}

/// The fewest blocks that have exactly these addresses. They are sorted here; all are of one prefix.
#[must_use]
pub fn blocks(macs: &[Mac]) -> Vec<MacBlock> {
    let mut numbers: Vec<u64> = macs.iter().copied().map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut out = Vec::new();
    let mut rest = numbers.as_slice();
    while let Some(&first) = rest.first() {
        let run = (first..)
            .zip(rest)
            .take_while(|(want, have)| want == *have)
            .count();
        // The largest power of two that the start is a multiple of and the run holds.
        let mut free_bits = 0;
        while free_bits < 16 && first.is_multiple_of(2 << free_bits) && run >= 2 << free_bits {
            free_bits += 1;
        }
        let [_, _, base @ ..] = first.to_be_bytes();
        let base = Mac(base);
        out.push(MacBlock { base, free_bits });
        rest = rest.get(1 << free_bits..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_types::mac::MacPrefix;
    use proptest::prelude::*;

    fn macs(numbers: impl IntoIterator<Item = u32>) -> Vec<Mac> {
        let prefix = MacPrefix::default();
        let numbers = numbers.into_iter();
        numbers.map(|n| prefix.address(0, n, 0).unwrap()).collect()
    }

    #[test]
    fn a_run_is_a_few_blocks() {
        let text = |range| {
            let blocks = blocks(&macs(range));
            blocks.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(text(0..4), ["52:54:00:00:00:00/ff:ff:ff:ff:ff:fc"]);
        assert_eq!(
            text(1..4),
            ["52:54:00:00:00:01", "52:54:00:00:00:02/ff:ff:ff:ff:ff:fe"]
        );
        assert_eq!(text(0..65_536), ["52:54:00:00:00:00/ff:ff:ff:ff:00:00"]);
        assert!(text(1..65_535).len() <= 30);
    }

    proptest! {
        #[test]
        fn blocks_have_exactly_the_addresses(numbers in proptest::collection::btree_set(0_u32..100, 0..80)) {
            let blocks = blocks(&macs(numbers.iter().copied()));
            for n in 0_u32..110 {
                let mac = macs([n])[0];
                let holding = blocks.iter().filter(|b| b.contains(mac)).count();
                prop_assert_eq!(holding, usize::from(numbers.contains(&n)));
            }
        }
    }
}
