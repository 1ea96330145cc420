//! Node names in Slurm's short notation.

use muster_types::ids::NodeName;

/// `node[1-3,7],login`: names that follow each other and differ in their last number only are put
/// together; the order is kept.
pub(crate) fn compress<'a>(names: impl IntoIterator<Item = &'a NodeName>) -> String {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for name in names {
        let (prefix, digits) = split(name.as_str());
        match groups.last_mut() {
            Some(group) if group.takes(prefix, digits) => group.numbers.push(digits),
            _ => groups.push(Group {
                prefix,
                numbers: vec![digits],
            }),
        }
    }
    let texts: Vec<String> = groups.iter().map(Group::text).collect();
    texts.join(",")
}

/// Names of one prefix, with numbers of one width where they are padded.
struct Group<'a> {
    prefix: &'a str,
    numbers: Vec<&'a str>,
}

impl<'a> Group<'a> {
    fn takes(&self, prefix: &str, digits: &str) -> bool {
        let plain = |d: &str| !d.is_empty() && (d == "0" || !d.starts_with('0'));
        let alike = |d: &&str| d.len() == digits.len() || (plain(d) && plain(digits));
        self.prefix == prefix && !digits.is_empty() && self.numbers.iter().all(alike)
    }

    fn text(&self) -> String {
        if self.numbers.len() == 1 {
            return format!("{}{}", self.prefix, self.numbers[0]);
        }
        let mut ranges: Vec<(&'a str, &'a str)> = Vec::new();
        for number in &self.numbers {
            match ranges.last_mut() {
                Some((_, to)) if follows(to, number) => *to = number,
                _ => ranges.push((number, number)),
            }
        }
        let ranges: Vec<String> = ranges
            .iter()
            .map(|(from, to)| {
                if from == to {
                    (*from).to_owned()
                } else {
                    format!("{from}-{to}")
                }
            })
            .collect();
        format!("{}[{}]", self.prefix, ranges.join(","))
    }
}

/// The name up to its last number, and that number; none where it is too long to count with.
fn split(name: &str) -> (&str, &str) {
    let at = name
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |i| i + 1);
    if at == 0 || name.len() - at > 9 {
        return (name, "");
    }
    name.split_at(at)
}

fn follows(a: &str, b: &str) -> bool {
    let number = |t: &str| t.parse::<u64>().ok();
    number(a).is_some_and(|n| number(b) == Some(n + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_types::hostlist::expand;
    use proptest::prelude::*;

    fn short(names: &[&str]) -> String {
        let names: Vec<NodeName> = names.iter().map(|n| NodeName::new(n).unwrap()).collect();
        compress(&names)
    }

    #[test]
    fn neighbours_are_put_together() {
        assert_eq!(short(&[]), "");
        assert_eq!(short(&["node1"]), "node1");
        assert_eq!(
            short(&["node1", "node2", "node3", "node7", "login"]),
            "node[1-3,7],login"
        );
        assert_eq!(short(&["n08", "n09", "n10"]), "n[08-10]");
        assert_eq!(short(&["n9", "n10", "n010"]), "n[9-10],n010");
        assert_eq!(short(&["a", "b"]), "a,b");
    }

    proptest! {
        #[test]
        fn slurm_reads_it_back(names in proptest::collection::vec("[ab]{1,2}(0{0,2}[1-9]{1,2})?", 1..12)) {
            let names: Vec<NodeName> = names.iter().map(|n| NodeName::new(n).unwrap()).collect();
            prop_assert_eq!(expand(&compress(&names)).unwrap(), names);
        }
    }
}
