//! Times as users read and write them.

use std::time::Duration;

/// A span: `45s`, `2m13s`, `3h04m`, `2d05h`.
pub(crate) fn span(ms: u64) -> String {
    let s = ms / 1000;
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    if d > 0 {
        format!("{d}d{:02}h", h % 24)
    } else if h > 0 {
        format!("{h}h{:02}m", m % 60)
    } else if m > 0 {
        format!("{m}m{:02}s", s % 60)
    } else {
        format!("{s}s")
    }
}

/// How long ago a moment was; nothing for one to come (clocks of nodes differ).
pub(crate) fn since(now_ms: u64, then_ms: u64) -> String {
    span(now_ms.saturating_sub(then_ms))
}

/// A moment in UTC: `2026-12-01 01:46:34`. The calendar is the proleptic Gregorian one (Howard
/// Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
pub(crate) fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Counted from March.
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Reads a time limit: a number of seconds, or one with `s`, `m`, `h` or `d`.
pub(crate) fn parse_limit(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("'{text}' is no time limit: seconds such as 90, or 30s, 10m, 2h, 1d (at most 1d)")
    };
    let (digits, factor) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        Some(b'd') => (&text[..text.len() - 1], 86_400),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    match number.checked_mul(factor) {
        Some(seconds) if seconds <= 86_400 => Ok(Duration::from_secs(seconds)),
        _ => Err(wrong()),
    }
}

/// A duration in milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        let cases = [
            (999, "0s"),
            (59_000, "59s"),
            (133_000, "2m13s"),
            (11_040_000, "3h04m"),
            (190_800_000, "2d05h"),
        ];
        for (ms, text) in cases {
            assert_eq!(span(ms), text);
        }
        assert_eq!(since(1000, 5000), "0s");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(utc(1_796_089_594), "2026-12-01 01:46:34");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59:59");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00");
    }

    #[test]
    fn limits_have_units_and_a_bound() {
        assert_eq!(parse_limit("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_limit("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_limit("1d"), Ok(Duration::from_secs(86_400)));
        for bad in ["", "s", "-1", "1.5h", "2d", "99999999999999999999d", "1w"] {
            assert!(parse_limit(bad).is_err(), "{bad}");
        }
    }
}
