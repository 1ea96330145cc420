//! The cluster definition of `--vm`: `item[,item...]`, an item is `name[:count]`.

use muster_types::ids::{MAX_VMS, shown};

/// So many VMs of a template or image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Name of a template, or of an image.
    pub name: String,
    /// How many, 1 to 4096.
    pub count: u32,
}

/// A definition that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// Nothing at all.
    #[error("no template given: write TEMPLATE[:COUNT][,TEMPLATE[:COUNT]...]")]
    Empty,
    /// An item without a name.
    #[error("item {index} '{item}': the template's name is missing")]
    NoName {
        /// From 1.
        index: usize,
        /// The item.
        item: String,
    },
    /// A count outside the range.
    #[error("item {index} '{item}': count must be 1..{MAX_VMS}")]
    Count {
        /// From 1.
        index: usize,
        /// The item.
        item: String,
    },
    /// Too many VMs together.
    #[error("{0} VMs together, at most {MAX_VMS} are possible")]
    Total(u64),
}

/// Parses a definition. The part behind the last `:` of an item is its count when it is a number.
///
/// # Errors
/// Each mistake in it; see [`DefinitionError`].
pub fn parse(text: &str) -> Result<Vec<Item>, Vec<DefinitionError>> {
    let (items, errors) = read(text);
    if errors.is_empty() {
        Ok(items)
    } else {
        Err(errors)
    }
}

/// The items that have a name, one whose count is wrong as a single VM, and what is wrong.
pub(crate) fn read(text: &str) -> (Vec<Item>, Vec<DefinitionError>) {
    let (mut items, mut errors) = (Vec::new(), Vec::new());
    if text.trim().is_empty() {
        errors.push(DefinitionError::Empty);
        return (items, errors);
    }
    for (index, text) in (1..).zip(text.split(',')) {
        let text = text.trim();
        let (name, count) = item(text);
        if name.is_empty() {
            let item = shown(text);
            errors.push(DefinitionError::NoName { index, item });
            continue;
        }
        if count.is_none() {
            let item = shown(text);
            errors.push(DefinitionError::Count { index, item });
        }
        items.push(Item {
            name: name.to_owned(),
            count: count.unwrap_or(1),
        });
    }
    // Nobody reads more.
    errors.truncate(20);
    let total: u64 = items.iter().map(|i| u64::from(i.count)).sum();
    if total > u64::from(MAX_VMS) {
        errors.push(DefinitionError::Total(total));
    }
    (items, errors)
}

/// An item's name and its count, if that can be meant.
fn item(item: &str) -> (&str, Option<u32>) {
    let is_number = |s: &str| {
        let digits = s.strip_prefix(['-', '+']).unwrap_or(s);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    match item.rsplit_once(':') {
        Some((name, count)) if is_number(count) => {
            let count = count.parse().ok();
            (name, count.filter(|n| (1..=MAX_VMS).contains(n)))
        }
        // `tiny:` and `tiny:abc`: the latter may be an image of a repository.
        Some((name, "")) => (name, None),
        _ => (item, Some(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_behind_the_last_colon() {
        let parsed = |text: &str| -> Vec<(String, u32)> {
            parse(text)
                .unwrap()
                .into_iter()
                .map(|i| (i.name, i.count))
                .collect()
        };
        assert_eq!(parsed("tiny"), [("tiny".into(), 1)]);
        assert_eq!(parsed("a:3, b:1"), [("a".into(), 3), ("b".into(), 1)]);
        assert_eq!(parsed("lab:tiny"), [("lab:tiny".into(), 1)]);
        assert_eq!(parsed("lab:tiny@2:4"), [("lab:tiny@2".into(), 4)]);
    }

    #[test]
    fn mistakes_name_their_item() {
        let say = |text: &str| {
            let all = parse(text).unwrap_err();
            all.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")
        };
        assert_eq!(say("tiny,tpl:0"), "item 2 'tpl:0': count must be 1..4096");
        assert_eq!(say("tpl:5000"), "item 1 'tpl:5000': count must be 1..4096");
        assert_eq!(say("tpl:-1"), "item 1 'tpl:-1': count must be 1..4096");
        assert_eq!(say("tpl:"), "item 1 'tpl:': count must be 1..4096");
        assert_eq!(
            say("a:0,b,c:x:"),
            "item 1 'a:0': count must be 1..4096; item 3 'c:x:': count must be 1..4096"
        );
        assert!(say("tiny,").contains("item 2 ''"));
        assert!(say(":3").contains("name is missing"));
        assert!(say("a:4096,b").contains("4097 VMs"));
        assert!(say(" ").contains("no template given"));
    }
}
