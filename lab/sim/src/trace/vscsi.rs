//! `.vscsi`: binary records of commands to virtual disks, low byte first.
//!
//! ```text
//!   version 1   u32 number, u32 bytes, u32 segments, u16 command, u16 version, u64 sector, u64 us
//!   version 2   u16 command, u16 version, u32 number, u32 bytes, u32 segments, u64 sector, u64 us,
//!               u64 response
//! ```
//! Commands 0x08, 0x28, 0x88 and 0xa8 read; 0x0a, 0x2a, 0x8a and 0xaa write; others move nothing.
//!
//! # Sources
//! The traces of `CloudPhysics` (Waldspurger and others, "SHARDS", FAST 2015). The two layouts are
//! those that `libCacheSim` reads; the codes are of SCSI Block Commands (READ and WRITE of 6, 10,
//! 16 and 12 bytes).

use forerun_core::units::Nanos;

use super::records::{Format, Step};
use super::{Op, Request};

/// See the module.
#[derive(Default)]
pub(super) struct Vscsi {
    /// Seen in the first record.
    version: Option<Version>,
}

/// How records are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn record_bytes(self) -> usize {
        match self {
            Self::One => 32,
            Self::Two => 40,
        }
    }

    /// Whether the first record of `bytes` says that it is of this version.
    fn is(self, bytes: &[u8]) -> bool {
        let (at, says) = match self {
            Self::One => (15, 1),
            Self::Two => (3, 2),
        };
        bytes.get(at) == Some(&says)
    }
}

/// The version of the records in `bytes`, if the first ones agree on it.
fn version(bytes: &[u8]) -> Option<Version> {
    [Version::Two, Version::One].into_iter().find(|version| {
        let mut records = bytes.chunks_exact(version.record_bytes()).take(PROBED).peekable();
        records.peek().is_some() && records.all(|record| version.is(record))
    })
}

/// Whether `bytes` are records of either version.
pub(super) fn is_likely(bytes: &[u8]) -> bool {
    let known = |record: &[u8], version| op(command(record, version)).is_some();
    version(bytes).is_some_and(|version| {
        bytes.chunks_exact(version.record_bytes()).take(PROBED).all(|r| known(r, version))
    })
}

impl Format for Vscsi {
    const IS_TEXT: bool = false;

    fn parse(&mut self, bytes: &[u8], is_last: bool) -> Step {
        let version = match self.version {
            Some(version) => version,
            None if bytes.len() < 40 * PROBED && !is_last => return Step::More,
            None => match version(bytes) {
                Some(version) => *self.version.insert(version),
                None if bytes.len() < 32 => return Step::More,
                None => return Step::Broken(bytes.len(), "it is of neither version".to_owned()),
            },
        };
        let used = version.record_bytes();
        let Some(record) = bytes.get(..used) else { return Step::More };
        if !version.is(record) {
            return Step::Broken(used, "it is not of the version of the first".to_owned());
        }
        let Some(op) = op(command(record, version)) else { return Step::Idle(used) };
        let size = u32_at(record, if version == Version::One { 4 } else { 8 });
        let (sector, micros) = (u64_at(record, 16), u64_at(record, 24));
        let (Some(offset), Some(nanos)) = (sector.checked_mul(512), micros.checked_mul(1_000))
        else {
            return Step::Broken(used, "its sector or time is too large".to_owned());
        };
        let request = Request::blocks(0, offset, size.into()).map_err(|why| format!("it {why}"));
        Step::of(used, request.map(|made| made.map(|request| request.at(Nanos(nanos), op))))
    }
}

fn command(record: &[u8], version: Version) -> u8 {
    match version {
        Version::One => record[12],
        Version::Two => record[0],
    }
}

fn op(command: u8) -> Option<Op> {
    match command {
        0x08 | 0x28 | 0x88 | 0xa8 => Some(Op::Read),
        0x0a | 0x2a | 0x8a | 0xaa => Some(Op::Write),
        _ => None,
    }
}

/// The word at byte `at`, low byte first.
pub(super) fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*record[at..].first_chunk().expect("a field of the record"))
}

/// The word at byte `at`, low byte first.
pub(super) fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*record[at..].first_chunk().expect("a field of the record"))
}

/// Records that the version is determined from.
const PROBED: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::{broken, facts, requests};

    /// A record of a command, bytes, sector and microseconds.
    type Make = fn(u16, u32, u64, u64) -> Vec<u8>;

    fn one(command: u16, bytes: u32, sector: u64, micros: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(9_u32.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        record.extend(1_u32.to_le_bytes());
        record.extend(command.to_le_bytes());
        record.extend(0x0100_u16.to_le_bytes());
        record.extend(sector.to_le_bytes());
        record.extend(micros.to_le_bytes());
        record
    }

    fn two(command: u16, bytes: u32, sector: u64, micros: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(command.to_le_bytes());
        record.extend(0x0200_u16.to_le_bytes());
        record.extend(9_u32.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        record.extend(1_u32.to_le_bytes());
        record.extend(sector.to_le_bytes());
        record.extend(micros.to_le_bytes());
        record.extend(5_u64.to_le_bytes());
        record
    }

    #[test]
    fn records_become_requests() {
        let makes: [Make; 2] = [one, two];
        for make in makes {
            let bytes = [
                make(0x28, 4_096, 9, 7),
                make(0x2a, 512, 16, 8),
                make(0x35, 512, 16, 8),
                make(0x28, 0, 16, 9),
                make(0x88, 512, 0, 9),
            ]
            .concat();
            let found = requests("vscsi", &bytes);
            #[rustfmt::skip]
            let expected = [
                (7_000, 4_608, 4_096, Op::Read), (8_000, 8_192, 512, Op::Write),
                (9_000, 0, 512, Op::Read),
            ];
            assert_eq!(facts(&found), expected);
            assert_eq!(requests("vscsi", make(0x28, 512, 0, 0)).len(), 1);
        }
        assert!(requests("vscsi", []).is_empty());
    }

    #[test]
    fn what_is_no_record_is_broken() {
        let good = one(0x28, 512, 0, 0).repeat(4);
        broken("vscsi", [&good[..], &[0; 9]].concat(), 5, 128, "the trace ends within it");
        broken("vscsi", [&good[..], &[0; 32]].concat(), 5, 128, "not of the version");
        broken("vscsi", [7; 64], 1, 0, "neither version");
        let far = one(0x28, 512, 1 << 60, 0);
        broken("vscsi", [&good[..], &far].concat(), 5, 128, "too large");
        let long = one(0x28, u32::MAX, 0, 0);
        broken("vscsi", [&good[..], &long].concat(), 5, 128, "more than 262144 blocks");
    }
}
