//! `cargo xtask bench`: how long things take, as ratios in one run on one machine. A report, never a test.

mod config;
mod start;

use anyhow::Result;
use clap::ValueEnum;

use crate::packages;
use crate::progress::Progress;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// From the prolog to the guest's CPU running, against QEMU by itself with the same arguments.
    Start,
    /// What a submission does with the configuration of a large site, in a fresh process.
    Config,
}

/// Measures and prints.
///
/// # Errors
/// What is measured cannot be built or does not run.
pub fn run(subject: Subject, progress: &Progress) -> Result<()> {
    packages::ensure(progress)?;
    match subject {
        Subject::Start => start::run(progress),
        Subject::Config => config::run(progress),
    }
}

fn median(values: Vec<u64>) -> u64 {
    quantile(values, 50)
}

/// The value that `percent` of all are not above.
fn quantile(mut values: Vec<u64>, percent: usize) -> u64 {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    let at = (values.len() * percent / 100).min(last);
    values.get(at).copied().unwrap_or(0)
}

fn millis(micros: u64) -> String {
    format!("{}.{}", micros / 1000, micros % 1000 / 100)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio of durations for a person to read"
)]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_its_words() {
        assert_eq!(median(vec![9, 1, 5]), 5);
        assert_eq!(median(Vec::new()), 0);
        assert_eq!(quantile((1..=20).collect(), 90), 19);
        assert_eq!(quantile(vec![3], 90), 3);
        assert_eq!(millis(12_345), "12.3");
    }
}
