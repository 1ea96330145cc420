//! Waits that end: each has a deadline and names what it waits for.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// What a look at the thing waited for found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look<T> {
    /// It is there.
    Ready(T),
    /// Not yet, and this is what was seen instead.
    NotYet(String),
}

/// Looks every 100 ms until `look` finds it.
///
/// # Errors
/// `look` fails, or the deadline passes: the error names `what` and what was seen last.
pub fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Result<Look<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let seen = match look()? {
            Look::Ready(value) => return Ok(value),
            Look::NotYet(seen) => seen,
        };
        if start.elapsed() >= deadline {
            bail!(
                "waited {} s for {what}; last seen: {}",
                deadline.as_secs_f64(),
                seen.trim()
            );
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_when_found() {
        let mut looks = 0;
        let found = wait_for("the third look", Duration::from_secs(5), || {
            looks += 1;
            Ok(if looks == 3 {
                Look::Ready(looks)
            } else {
                Look::NotYet(String::new())
            })
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn a_deadline_names_what_was_waited_for_and_seen() {
        let error = wait_for::<()>("the moon", Duration::ZERO, || {
            Ok(Look::NotYet("clouds\n".into()))
        })
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "waited 0 s for the moon; last seen: clouds"
        );
    }
}
