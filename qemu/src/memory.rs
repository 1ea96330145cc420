//! How much RAM the guests of a node get.
//!
//! The job's memory on a node holds guest RAM and what QEMU needs beside it: a fixed part and a share
//! of the guest's RAM (page tables, device state, the translator's cache). A guest may touch all of
//! its RAM without the job being killed for memory.

use muster_types::ids::Mib;

use crate::machine::Accel;

/// The least RAM that a guest is given when it takes a share of the job's.
pub const LEAST_SHARE: Mib = Mib(32);

/// What QEMU needs beside guest RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overhead {
    /// The part that every VM has, in MiB.
    pub fixed_mib: u64,
    /// The part that grows with guest RAM, in thousandths of it.
    pub permille: u64,
}

impl Overhead {
    /// What a VM with this much RAM needs beside it.
    #[must_use]
    pub fn of(self, ram: Mib) -> Mib {
        let share = ram.0.saturating_mul(self.permille).div_ceil(1000);
        Mib(self.fixed_mib.saturating_add(share))
    }

    /// The most guest RAM that fits into `total` together with its overhead, in steps of 2 MiB (a
    /// large page).
    fn fitting(self, total: Mib) -> Mib {
        let rest = total.0.saturating_sub(self.fixed_mib);
        let ram = u128::from(rest) * 1000 / (1000 + u128::from(self.permille));
        Mib(u64::try_from(ram).unwrap_or(u64::MAX) & !1)
    }
}

/// Why the guests of a node have no memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The templates ask for more than the job has.
    #[error(
        "the {vms} VM(s) here need {guest} of RAM and {overhead} beside it for QEMU, but the job has {available} on this node: ask Slurm for more memory (--mem, --mem-per-cpu) or the templates for less"
    )]
    TooLarge {
        /// VMs on the node.
        vms: usize,
        /// Guest RAM of all.
        guest: Mib,
        /// What QEMU needs for all.
        overhead: Mib,
        /// What the job has.
        available: Mib,
    },
    /// What is left is too little to boot anything.
    #[error(
        "the job has {available} on this node, which leaves {share} of RAM for each of the {vms} VM(s) without a 'memory' of their own, at least {LEAST_SHARE} are needed: ask Slurm for more memory (--mem, --mem-per-cpu)"
    )]
    TooSmall {
        /// VMs that take a share.
        vms: usize,
        /// What each would get.
        share: Mib,
        /// What the job has.
        available: Mib,
    },
}

/// RAM of each guest of a node: what its template asks for, else an equal share of what the job has
/// here and the other templates leave, less the overhead.
///
/// # Errors
/// It does not fit into `available`.
pub fn divide(
    wanted: &[Option<Mib>],
    available: Mib,
    overhead: Overhead,
) -> Result<Vec<Mib>, MemoryError> {
    let fixed = || wanted.iter().flatten();
    let guest = fixed().fold(0_u64, |sum, m| sum.saturating_add(m.0));
    let beside = fixed().fold(0_u64, |sum, m| sum.saturating_add(overhead.of(*m).0));
    let taken = guest.saturating_add(beside);
    let sharing = wanted.iter().filter(|w| w.is_none()).count();
    if taken > available.0 {
        return Err(MemoryError::TooLarge {
            vms: wanted.len() - sharing,
            guest: Mib(guest),
            overhead: Mib(beside),
            available,
        });
    }
    let mut share = Mib(0);
    if sharing > 0 {
        let each = (available.0 - taken) / u64::try_from(sharing).unwrap_or(u64::MAX);
        share = overhead.fitting(Mib(each));
        if share < LEAST_SHARE {
            return Err(MemoryError::TooSmall {
                vms: sharing,
                share,
                available,
            });
        }
    }
    Ok(wanted.iter().map(|w| w.unwrap_or(share)).collect())
}

/// Emulation of a guest with this much RAM: translated code may take half of the overhead.
#[must_use]
pub fn emulation(ram: Mib, overhead: Overhead) -> Accel {
    Accel::Tcg {
        translation: Mib((overhead.of(ram).0 / 2).clamp(32, 1024)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERHEAD: Overhead = Overhead {
        fixed_mib: 192,
        permille: 15,
    };

    #[test]
    fn a_share_and_its_overhead_fill_the_jobs_memory() {
        let got = divide(&[None, None], Mib(2000), OVERHEAD).unwrap();
        // (1000 - 192) / 1.015 = 796.06
        assert_eq!(got, [Mib(796), Mib(796)]);
        let used = 2 * (796 + OVERHEAD.of(Mib(796)).0);
        assert!((1990..=2000).contains(&used), "{used}");
    }

    #[test]
    fn templates_come_first_and_the_rest_is_shared() {
        let wanted = [Some(Mib(1000)), None, None];
        let got = divide(&wanted, Mib(4000), OVERHEAD).unwrap();
        // 1000 + 207 are taken; (2793 / 2 - 192) / 1.015 = 1186.2
        assert_eq!(got, [Mib(1000), Mib(1186), Mib(1186)]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let e = divide(&[Some(Mib(800)), Some(Mib(800))], Mib(2000), OVERHEAD).unwrap_err();
        let text = e.to_string();
        for number in ["1600 MiB", "408 MiB", "2000 MiB", "2 VM"] {
            assert!(text.contains(number), "{text}");
        }
        let e = divide(&[None], Mib(220), OVERHEAD).unwrap_err();
        assert!(e.to_string().contains("leaves 26 MiB"), "{e}");
        assert!(divide(&[Some(Mib(u64::MAX))], Mib(1), OVERHEAD).is_err());
        assert_eq!(divide(&[], Mib(0), OVERHEAD).unwrap(), []);
    }

    #[test]
    fn whatever_fits_is_within_the_limit() {
        for available in (300..20_000).step_by(37) {
            for vms in 1..6_usize {
                if let Ok(got) = divide(&vec![None; vms], Mib(available), OVERHEAD) {
                    let used: u64 = got.iter().map(|m| m.0 + OVERHEAD.of(*m).0).sum();
                    assert!(used <= available, "{vms} VMs in {available} use {used}");
                }
            }
        }
    }

    #[test]
    fn the_translator_stays_within_the_overhead() {
        assert_eq!(
            emulation(Mib(1000), OVERHEAD),
            Accel::Tcg {
                translation: Mib(103)
            }
        );
        let none = Overhead {
            fixed_mib: 0,
            permille: 0,
        };
        assert_eq!(
            emulation(Mib(1), none),
            Accel::Tcg {
                translation: Mib(32)
            }
        );
    }
}
