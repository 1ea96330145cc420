//! Exit statuses, and the errors that have one of their own.

/// There is no such cluster or VM.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoSuch(pub(crate) String);

/// What was waited for did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotInTime(pub(crate) String);

/// The arguments make no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// The exit status that an error ends in.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|e| e.is::<Usage>()) {
        2
    } else if error.chain().any(|e| e.is::<NoSuch>()) {
        3
    } else if error.chain().any(|e| e.is::<NotInTime>()) {
        4
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn context_does_not_hide_the_code() {
        let error = anyhow::Error::from(NoSuch("no vm9".into()));
        let error = Err::<(), _>(error).context("stop").unwrap_err();
        assert_eq!(code(&error), 3);
        assert_eq!(code(&NotInTime(String::new()).into()), 4);
        assert_eq!(code(&Usage(String::new()).into()), 2);
        assert_eq!(code(&anyhow::anyhow!("x")), 1);
    }
}
