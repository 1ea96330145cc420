//! Slurm's compressed lists: host lists (`n[1-3,7],login`) and CPU counts (`4(x2),8`).
//!
//! Both come from the prolog's environment, which slurmd builds; they are parsed with limits all the
//! same. Formats: slurm.conf(5) "NodeName", sbatch(1) `SLURM_JOB_CPUS_PER_NODE`.

use crate::ids::{IdError, NodeName, shown};

/// The most nodes that one job's list may name.
pub const MAX_NODES: usize = 65_536;

/// A list that is not in Slurm's notation, or names too much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Brackets that do not pair, an empty element, a bad range.
    #[error("'{0}' is no host list such as n[1-3,7],m1")]
    Syntax(String),
    /// More hosts than [`MAX_NODES`].
    #[error("the host list names more than {MAX_NODES} nodes")]
    TooMany,
    /// An expanded name that is no node name.
    #[error("bad name in the host list")]
    Name(#[from] IdError),
    /// A CPU list that does not read `4(x2),8`.
    #[error("'{0}' is no list of CPU counts such as 4(x2),8")]
    Cpus(String),
    /// The CPU list is for another number of nodes.
    #[error("CPU counts for {cpus} nodes, but {nodes} nodes")]
    CpuNodes {
        /// Entries of the expanded CPU list.
        cpus: usize,
        /// Nodes of the job.
        nodes: usize,
    },
}

/// Expands a host list in Slurm's order. Several bracket groups in one name multiply
/// (`r[1-2]n[1-2]`), leading zeros keep their width.
///
/// # Errors
/// See [`ListError`].
pub fn expand(list: &str) -> Result<Vec<NodeName>, ListError> {
    let mut names = Vec::new();
    for item in split_top(list).ok_or_else(|| ListError::Syntax(shown(list)))? {
        for name in expand_item(item).ok_or_else(|| ListError::Syntax(shown(list)))?? {
            if names.len() >= MAX_NODES {
                return Err(ListError::TooMany);
            }
            names.push(NodeName::new(&name)?);
        }
    }
    Ok(names)
}

/// Splits at commas outside brackets; `None` for unbalanced brackets or an empty list.
fn split_top(list: &str) -> Option<Vec<&str>> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (i, c) in list.char_indices() {
        match c {
            '[' if inside => return None,
            '[' => inside = true,
            ']' if !inside => return None,
            ']' => inside = false,
            ',' if !inside => {
                items.push(&list[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    if inside {
        return None;
    }
    items.push(&list[start..]);
    items.iter().all(|i| !i.is_empty()).then_some(items)
}

/// Expands one item. `None`: bad syntax; inner error: too many.
fn expand_item(item: &str) -> Option<Result<Vec<String>, ListError>> {
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some(open) = rest.find('[') {
        let close = open + rest[open..].find(']')?;
        let mut next = Vec::new();
        let numbers = ranges(&rest[open + 1..close])?;
        if names.len().saturating_mul(numbers.len()) > MAX_NODES {
            return Some(Err(ListError::TooMany));
        }
        for name in &names {
            for number in &numbers {
                next.push(format!("{name}{}{number}", &rest[..open]));
            }
        }
        names = next;
        rest = &rest[close + 1..];
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Some(Ok(names))
}

/// `1-3,07` to `["1", "2", "3", "07"]`; at most [`MAX_NODES`] + 1 numbers are made.
fn ranges(text: &str) -> Option<Vec<String>> {
    let digits = |s: &str| !s.is_empty() && s.len() <= 18 && s.bytes().all(|b| b.is_ascii_digit());
    let mut out = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if !digits(from) || !digits(to) {
            return None;
        }
        let (a, b): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        if a > b {
            return None;
        }
        for n in a..=b {
            if out.len() > MAX_NODES {
                return Some(out);
            }
            out.push(format!("{n:0width$}", width = from.len()));
        }
    }
    Some(out)
}

/// Expands `SLURM_JOB_CPUS_PER_NODE` (`4(x2),8`) for a job of `nodes` nodes.
///
/// # Errors
/// The text has another form, a count of 0, or does not stand for exactly `nodes` nodes.
pub fn expand_cpus(text: &str, nodes: usize) -> Result<Vec<u32>, ListError> {
    let bad = || ListError::Cpus(shown(text));
    let mut out: Vec<u32> = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (
                count,
                times
                    .strip_suffix(')')
                    .and_then(|t| t.parse::<usize>().ok())
                    .ok_or_else(bad)?,
            ),
            None => (part, 1),
        };
        let count: u32 = count.parse().map_err(|_| bad())?;
        if count == 0 || times == 0 {
            return Err(bad());
        }
        let total = out.len().saturating_add(times);
        if total > nodes {
            return Err(ListError::CpuNodes { cpus: total, nodes });
        }
        out.resize(total, count);
    }
    if out.len() == nodes {
        Ok(out)
    } else {
        Err(ListError::CpuNodes {
            cpus: out.len(),
            nodes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(list: &str) -> Vec<String> {
        expand(list)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn lists_expand_in_order() {
        assert_eq!(names("node1"), ["node1"]);
        assert_eq!(names("n[1-3,7],m1"), ["n1", "n2", "n3", "n7", "m1"]);
        assert_eq!(names("n[08-10]"), ["n08", "n09", "n10"]);
        assert_eq!(names("r[1-2]n[1-2]x"), ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]);
    }

    #[test]
    fn bad_lists_are_refused() {
        for bad in [
            "",
            ",",
            "n[1",
            "n]1[",
            "n[3-1]",
            "n[a]",
            "n[]",
            "n[1-]",
            "a,,b",
            "n[[1]]",
            "a b",
            "n[1-99999999]",
            "r[1-9999]n[1-9999]",
        ] {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cpu_counts_expand() {
        assert_eq!(expand_cpus("4(x2),8", 3).unwrap(), [4, 4, 8]);
        assert_eq!(expand_cpus("2", 1).unwrap(), [2]);
        for (bad, nodes) in [
            ("", 1),
            ("4", 2),
            ("4(x3)", 2),
            ("0", 1),
            ("4(x0),4", 1),
            ("4(x2", 2),
            ("x", 1),
            ("4(x99999999999)", 2),
        ] {
            assert!(expand_cpus(bad, nodes).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(s in "[a-z0-9,\\[\\]\\-(x)]{0,40}", n in 0usize..9) {
            drop(expand(&s));
            drop(expand_cpus(&s, n));
        }
    }
}
