//! oracleGeneral: `libCacheSim`'s binary records, with the next use of each object.
//!
//! ```text
//!   u32 seconds | u64 object | u32 bytes | i64 next use, in records, or -1; low byte first
//! ```
//! The reader ignores the next use: a policy that needs the future computes it.
//!
//! # Sources
//! `libCacheSim`, `traceReader/customizedReader/oracle/oracleGeneralBin.h`.

use forerun_core::units::Nanos;

use super::records::{Format, Step};
use super::vscsi::{u32_at, u64_at};
use super::{Facts, Op, Request};

/// See the module.
pub(super) struct OracleGeneral;

impl Format for OracleGeneral {
    const IS_TEXT: bool = false;

    fn parse(&mut self, bytes: &[u8], _: bool) -> Step {
        let Some(record) = bytes.first_chunk::<RECORD_BYTES>() else { return Step::More };
        let time = Nanos(u64::from(u32_at(record, 0)) * 1_000_000_000);
        let request = Request::key(u64_at(record, 4), u32_at(record, 12).into());
        Step::Request(RECORD_BYTES, request.at(time, Op::Unknown))
    }

    fn facts(&self) -> Facts {
        Facts { times: true, sizes: true, ..Facts::KEYS }
    }
}

/// Whether `bytes` are such records: times do not fall, and each next use lies ahead. Where `bytes`
/// hold the next record of an object, its index is the announced one.
pub(super) fn is_likely(bytes: &[u8]) -> bool {
    let records: Vec<&[u8]> = bytes.chunks_exact(RECORD_BYTES).take(PROBED).collect();
    let next = |record: &[u8]| u64_at(record, 16).cast_signed();
    let holds = |(at, record): (usize, &&[u8])| {
        let next = next(record);
        let is_ahead =
            usize::try_from(next).is_ok_and(|next| (at + 1..NEXT_LIKELY).contains(&next));
        let announced = usize::try_from(next).ok().and_then(|next| records.get(next));
        let fits = announced.is_none_or(|there| u64_at(there, 4) == u64_at(record, 4));
        let is_last = next == -1 || next == i64::MAX;
        (is_last || is_ahead && fits) && u32_at(record, 12) < SIZE_LIKELY
    };
    let rising = records.windows(2).all(|pair| u32_at(pair[0], 0) <= u32_at(pair[1], 0));
    !records.is_empty() && rising && records.iter().enumerate().all(holds)
}

pub(super) const RECORD_BYTES: usize = 24;
/// Records that a guess examines.
const PROBED: usize = 256;
/// Objects are smaller, where a guess is made,
const SIZE_LIKELY: u32 = 1 << 31;
/// and traces shorter.
const NEXT_LIKELY: usize = 1 << 33;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::{broken, requests};

    fn record(seconds: u32, object: u64, bytes: u32, next: i64) -> Vec<u8> {
        let mut record = seconds.to_le_bytes().to_vec();
        record.extend(object.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        record.extend(next.to_le_bytes());
        record
    }

    #[test]
    fn records_become_requests() {
        let bytes = [record(1, u64::MAX, 512, 1), record(7, u64::MAX, 512, -1)].concat();
        let found = requests("oracleGeneral", &bytes);
        let facts: Vec<_> =
            found.iter().map(|r| (r.time.0, r.first, r.bytes, r.count, r.op)).collect();
        #[rustfmt::skip]
        let expected = [
            (1_000_000_000, u64::MAX, 512, 1, Op::Unknown),
            (7_000_000_000, u64::MAX, 512, 1, Op::Unknown),
        ];
        assert_eq!(facts, expected);
        broken("oracleGeneral", &bytes[..47], 2, 24, "the trace ends within it");
    }

    #[test]
    fn records_are_told_by_their_next_uses() {
        #[rustfmt::skip]
        let rows: [(&str, bool, &[Vec<u8>]); 7] = [
            ("two uses",        true,  &[record(1, 5, 9, 1), record(1, 5, 9, -1)]),
            ("the largest",     true,  &[record(1, 5, 9, i64::MAX)]),
            ("far ahead",       true,  &[record(1, 5, 9, 700), record(2, 6, 9, 800)]),
            ("time falls",      false, &[record(2, 5, 9, 7), record(1, 6, 9, 8)]),
            ("its own record",  false, &[record(1, 5, 9, 0)]),
            ("another object",  false, &[record(1, 5, 9, 1), record(1, 6, 9, -1)]),
            ("nothing",         false, &[]),
        ];
        for (why, likely, records) in rows {
            assert_eq!(is_likely(&records.concat()), likely, "{why}");
        }
        let keys: Vec<u8> = (0..600_u32).flat_map(u32::to_le_bytes).collect();
        assert!(!is_likely(&keys));
    }
}
