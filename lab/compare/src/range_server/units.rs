//! The text forms of sizes, rates and times.
//!
//! Sizes count in powers of 1024, as files do: `4096`, `64K`, `2G`. Rates count in powers of 1000,
//! as networks do: `90M` is 90,000,000 bytes a second.
//!
//! # Invariants
//! - Digits and one unit, in sizes with a fraction; signs and numbers beyond 64 bits are refused.

use std::time::Duration;

use forerun_core::device::Rate;
use forerun_core::params::Bytes;
use forerun_core::units::Nanos;
use forerun_report::quantity::read;

/// A size in bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    read(text).map(|Bytes(bytes)| bytes)
}

/// Bytes a second; 0 is no limit.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    let unit = if text.ends_with(|c: char| c.is_ascii_digit()) { "" } else { "B" };
    read(&format!("{text}{unit}")).map(|Rate(rate)| rate)
}

/// A time; 0 needs no unit.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let Nanos(nanos) = if text == "0" { Nanos(0) } else { read(text)? };
    Ok(Duration::from_nanos(nanos))
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
            ("1T",              Some(1 << 40),      Some(1_000_000_000_000), None),
            ("30ms",            None,               None,                Some(30_000_000)),
            ("500us",           None,               None,                Some(500_000)),
            ("2s",              None,               None,                Some(2_000_000_000)),
            ("",                None,               None,                None),
            ("M",               None,               None,                None),
            ("+1",              None,               None,                None),
            ("1.5M",            Some(1_572_864),    Some(1_500_000),     None),
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
