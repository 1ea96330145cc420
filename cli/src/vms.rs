//! Which VMs a command is for: `vm3`, `3`, `vm[0-3,7]`, `vm0,vm2`, `all`.

use std::collections::BTreeSet;

use muster_types::ids::{MAX_VMS, Rank, shown};

use crate::exit::{NoSuch, Usage};

/// The ranks that words name among `count` VMs; all of them without words.
pub(crate) fn select(words: &[String], count: u32) -> anyhow::Result<BTreeSet<Rank>> {
    let all = || (0..count).map(Rank).collect::<BTreeSet<_>>();
    if words.is_empty() {
        return Ok(all());
    }
    let mut ranks = BTreeSet::new();
    for word in words {
        if word == "all" {
            ranks.extend(all());
            continue;
        }
        let parsed = parse(word).ok_or_else(|| {
            Usage(format!(
                "'{}' names no VMs: give vm3, 3, vm[0-3,7] or all",
                shown(word)
            ))
        })?;
        ranks.extend(parsed.into_iter().map(Rank));
    }
    match ranks.last() {
        Some(last) if last.0 >= count => Err(NoSuch(format!(
            "no {last} in this cluster: it has {}",
            described(count)
        ))
        .into()),
        _ => Ok(ranks),
    }
}

fn described(count: u32) -> String {
    match count {
        0 => "no VM".to_owned(),
        1 => "vm0 only".to_owned(),
        n => format!("vm0 to vm{}", n - 1),
    }
}

/// Ranks that one word names; `None` where it names nothing.
fn parse(word: &str) -> Option<BTreeSet<u32>> {
    let mut ranks = BTreeSet::new();
    let mut rest = word;
    loop {
        // Up to the next comma outside brackets.
        let bare = rest.strip_prefix("vm").unwrap_or(rest);
        let after = if let Some(inner) = bare.strip_prefix('[') {
            let (list, after) = inner.split_once(']')?;
            for item in list.split(',') {
                ranks.extend(range(item)?);
            }
            after
        } else {
            let end = bare.find(',').unwrap_or(bare.len());
            ranks.extend(range(&bare[..end])?);
            &bare[end..]
        };
        if after.is_empty() {
            return Some(ranks);
        }
        rest = after.strip_prefix(',')?;
    }
}

/// `3` or `0-3`; both ends are ranks that a cluster can have.
fn range(text: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |t: &str| -> Option<u32> {
        let digits = !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
        t.parse().ok().filter(|&n| digits && n < MAX_VMS)
    };
    let (from, to) = (number(from)?, number(to)?);
    (from <= to).then_some(from..=to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chosen(words: &[&str], count: u32) -> Result<Vec<u32>, (u8, String)> {
        let words: Vec<String> = words.iter().map(|&w| w.to_owned()).collect();
        select(&words, count)
            .map(|ranks| ranks.into_iter().map(|r| r.0).collect())
            .map_err(|e| (crate::exit::code(&e), e.to_string()))
    }

    #[test]
    fn all_spellings() {
        assert_eq!(chosen(&[], 3).unwrap(), [0, 1, 2]);
        assert_eq!(chosen(&["all"], 2).unwrap(), [0, 1]);
        assert_eq!(chosen(&["vm3"], 8).unwrap(), [3]);
        assert_eq!(chosen(&["3", "vm1"], 8).unwrap(), [1, 3]);
        assert_eq!(chosen(&["vm[0-2,7]"], 8).unwrap(), [0, 1, 2, 7]);
        assert_eq!(chosen(&["vm0,vm[2-3],5"], 8).unwrap(), [0, 2, 3, 5]);
        assert_eq!(chosen(&["1-2"], 8).unwrap(), [1, 2]);
    }

    #[test]
    fn mistakes_have_their_code() {
        for bad in [
            "",
            "vm",
            "vm-1",
            "vm[",
            "vm[]",
            "vm[1-0]",
            "vm[1",
            "1,,2",
            "vmx",
            "a",
            "vm[1]x",
            "+1",
            "4096",
            "vm[0-99999999999]",
            "0-3-5",
            ",",
        ] {
            assert_eq!(chosen(&[bad], 8).unwrap_err().0, 2, "{bad}");
        }
        let (code, text) = chosen(&["vm9"], 2).unwrap_err();
        assert_eq!(code, 3);
        assert_eq!(text, "no vm9 in this cluster: it has vm0 to vm1");
    }

    proptest! {
        #[test]
        fn never_panics(word in "(vm)?[\\[\\]0-9,v m-]{0,20}") {
            drop(parse(&word));
        }

        #[test]
        fn a_set_is_read_as_written(set in proptest::collection::btree_set(0..4096_u32, 1..20)) {
            let list: Vec<String> = set.iter().map(u32::to_string).collect();
            prop_assert_eq!(parse(&format!("vm[{}]", list.join(","))), Some(set.clone()));
            prop_assert_eq!(parse(&list.join(",")), Some(set));
        }
    }
}
