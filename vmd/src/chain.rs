//! Errors as one line for logs, verdicts and replies.

/// An error with its sources: `write journal /run/x: no space left on device`.
#[must_use]
pub fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_follow_in_order() {
        let inner = std::io::Error::other("disk on fire");
        let outer = crate::wire::WireError::Io {
            peer: "x".into(),
            source: inner,
        };
        assert_eq!(chain(&outer), "socket to x: disk on fire");
    }
}
