//! Sizes, rates and times as people write them.
//!
//! Sizes count in powers of 1024, as files do: `4096`, `64K`, `2G`. Rates count in powers of 1000,
//! as networks do: `90M` is 90,000,000 bytes a second.
//!
//! # Invariants
//! - Digits and one unit; signs, points and numbers beyond 64 bits are refused.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// A size in bytes.
pub(super) fn size(text: &str) -> Result<u64> {
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40), ("", 1)];
    scaled(text, &units).with_context(|| format!("{text}: expected a size, as 4096, 64K or 2G"))
}

/// Bytes a second; 0 is no limit.
pub(super) fn rate(text: &str) -> Result<u64> {
    let units = [("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000), ("", 1)];
    scaled(text, &units).with_context(|| format!("{text}: expected a rate, as 90M or 0"))
}

/// A time; 0 needs no unit.
pub(super) fn time(text: &str) -> Result<Duration> {
    let units = [("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("s", 1_000_000_000)];
    let nanos = if text == "0" { Some(0) } else { scaled(text, &units) };
    let nanos = nanos.with_context(|| format!("{text}: expected a time, as 30ms, 2s or 0"))?;
    Ok(Duration::from_nanos(nanos))
}

/// The number before the first of `units` that `text` ends in, times that unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (digits, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    whole(digits)?.checked_mul(*unit)
}

/// `digits` as a number, without the sign that `parse` would let pass.
pub(super) fn whole(digits: &str) -> Option<u64> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rates_and_times_are_read() {
        #[rustfmt::skip]
        let rows = [ // text        size                rate                 nanoseconds
            ("0",               Some(0),            Some(0),             Some(0)),
            ("4096",            Some(4_096),        Some(4_096),         None),
            ("64K",             Some(65_536),       Some(64_000),        None),
            ("90M",             Some(94_371_840),   Some(90_000_000),    None),
            ("2G",              Some(2 << 30),      Some(2_000_000_000), None),
            ("1T",              Some(1 << 40),      None,                None),
            ("30ms",            None,               None,                Some(30_000_000)),
            ("500us",           None,               None,                Some(500_000)),
            ("2s",              None,               None,                Some(2_000_000_000)),
            ("",                None,               None,                None),
            ("M",               None,               None,                None),
            ("+1",              None,               None,                None),
            ("1.5M",            None,               None,                None),
            ("99999999999999999999", None,          None,                None),
            ("99999999999G",    None,               None,                None),
        ];
        for (text, bytes, a_second, nanos) in rows {
            assert_eq!(size(text).ok(), bytes, "{text}");
            assert_eq!(rate(text).ok(), a_second, "{text}");
            assert_eq!(time(text).ok(), nanos.map(Duration::from_nanos), "{text}");
        }
    }
}
