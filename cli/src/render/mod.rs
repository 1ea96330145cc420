//! What clusters, images and templates look like on a terminal: pure functions from values to text.

mod hosts;
mod ps;
mod show;
mod table;

#[cfg(test)]
pub(crate) mod samples;

pub(crate) use hosts::compress;
pub(crate) use ps::ps;
pub(crate) use show::show;
pub(crate) use table::table;

/// A size in the largest binary unit that leaves one digit or more before the point.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (38_000_000, "36.2 MiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "16383.9 PiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }
}
