//! The name that was probably meant.

/// The candidate nearest to `name`, if one is near enough to be worth naming.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Words of a few hundred characters are no typing mistakes.
    let name: String = name.chars().take(200).collect::<String>().to_lowercase();
    let length = name.chars().count();
    // A word of one letter is near to every other.
    let most = (length / 3).max(1).min(length.saturating_sub(1));
    candidates
        .into_iter()
        .map(|c| (strsim::damerau_levenshtein(&name, &c.to_lowercase()), c))
        .filter(|(distance, _)| *distance <= most && most > 0)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// ` (did you mean 'x'?)`, or nothing.
#[must_use]
pub fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, candidates) {
        Some(near) => format!(" (did you mean '{near}'?)"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_find_their_word() {
        let names = ["debian13", "rocky9", "tiny"];
        assert_eq!(nearest("debain13", names), Some("debian13"));
        assert_eq!(nearest("tny", names), Some("tiny"));
        assert_eq!(nearest("Debian13", names), Some("debian13"));
        assert_eq!(nearest("ubuntu", names), None);
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(hint("roky9", names), " (did you mean 'rocky9'?)");
    }
}
