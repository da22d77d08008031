//! The memory that a simulation may take, and the sample to propose where that is too little.
//!
//! ```text
//!   needed so far / share of the trace that was read = needed in the end, at most
//!   what may be taken / that, rounded down           = the sample that fits
//! ```
//! Distinct keys grow no faster than the trace is read, so that the sample is a safe one.

use anyhow::{Error, anyhow};
use forerun_core::params::{Param as _, Share};
use forerun_report::quantity;
use forerun_steer::memory::Memory;
use indicatif::ProgressBar;

/// Half of the memory that is free; where the system does not say, a gibibyte.
pub(super) fn default() -> u64 {
    Memory::here().room().free_bytes.map_or(UNKNOWN, |free| free / 2)
}

/// The error of keys and caches that need `bytes`, which is more than `allowed`. `bar` says how
/// much of the trace was read till then; nothing, if `keys` were not yet counted. Where there can
/// be a `sample`, another is proposed.
pub(super) fn too_large(
    (bytes, keys): (u64, u32),
    allowed: u64,
    sample: Option<Share>,
    bar: &ProgressBar,
) -> Error {
    let read = bar.length().filter(|&all| all > 0).map(|all| (bar.position().min(all), all));
    let read = if keys == 0 { Some((1, 1)) } else { read };
    let rate = sample.map(|sample| fitting(bytes, allowed, sample, read).show());
    let estimate =
        rate.map_or_else(String::new, |rate| format!("estimate with --sample {rate}, or "));
    let (bytes, allowed) = (quantity::bytes(bytes), quantity::bytes(allowed));
    let after = if keys == 0 { String::new() } else { format!(" after {keys} distinct pages") };
    anyhow!(
        "the simulation needs {bytes} of memory{after}, and --memory allows {allowed}: \
         {estimate}allow more"
    )
}

/// A sample that needs no more than is `allowed`, where `sample` needs `bytes` for as much of the
/// trace as was `read`.
fn fitting(bytes: u64, allowed: u64, sample: Share, read: Option<(u64, u64)>) -> Share {
    let Some((read, all)) = read else { return one_digit(u64::from(sample.ppm) / 10) };
    let [bytes, allowed, read, all] = [bytes, allowed, read, all].map(u128::from);
    // Tables grow by doubling.
    let fits = u128::from(sample.ppm) * allowed * read / (bytes * all * 2).max(1);
    one_digit(u64::try_from(fits).unwrap_or(u64::MAX))
}

/// `ppm` rounded down to one digit and zeros; one at least.
fn one_digit(ppm: u64) -> Share {
    let ppm = u32::try_from(ppm.clamp(1, 1_000_000)).expect("at most a million");
    let unit = 10_u32.pow(ppm.ilog10());
    Share { ppm: ppm / unit * unit }
}

const UNKNOWN: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_fits_is_proposed() {
        #[rustfmt::skip]
        let rows = [ // why  bytes  allowed  sample  read  the sample in parts per million
            ("all was read",            4_000, 1_000, 1_000_000, Some((1, 1)),   100_000),
            ("a tenth was read",        4_000, 1_000, 1_000_000, Some((1, 10)),  10_000),
            ("rounded down",            1_100, 1_000, 1_000_000, Some((1, 1)),   400_000),
            ("a sample is too large",   4_000, 1_000, 10_000,    Some((1, 1)),   1_000),
            ("nobody knows how much",   4_000, 1_000, 1_000_000, None,           100_000),
            ("nothing fits",            1 << 60, 1,   1_000_000, Some((1, 1)),   1),
        ];
        for (why, bytes, allowed, ppm, read, expected) in rows {
            let fits = fitting(bytes, allowed, Share { ppm }, read);
            assert_eq!(fits.ppm, expected, "{why}");
        }
    }
}
