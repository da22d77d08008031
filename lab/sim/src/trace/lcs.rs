//! lcs: `libCacheSim`'s own binary format, versions 1 to 8.
//!
//! ```text
//!   8192 bytes   u64 magic, u64 version, statistics, ..., u64 magic
//!   version 1    u32 seconds, u64 object, u32 bytes, i64 next use                        24 bytes
//!           2    u32 seconds, u64 object, u32 bytes, u8 op + u24 tenant, i64 next use    28 bytes
//!           3    u32 seconds, u64 object, i64 bytes, u8 op + u24 tenant, u32 ttl, i64 next use
//!           4-8  as 3, with 1, 2, 4, 8 or 16 words behind
//! ```
//! Low byte first. Deletions request no page.
//!
//! # Sources
//! `libCacheSim`, `traceReader/customizedReader/lcs.h`, and its enum `req_op_e` for the operations.

use forerun_core::units::Nanos;

use super::records::{Format, Step};
use super::vscsi::{u32_at, u64_at};
use super::{Facts, Op, Request};

/// See the module.
#[derive(Default)]
pub(super) struct Lcs {
    /// The version, from the header.
    version: Option<u64>,
}

impl Format for Lcs {
    const IS_TEXT: bool = false;

    fn parse(&mut self, bytes: &[u8], _: bool) -> Step {
        let Some(version) = self.version else {
            let Some(header) = bytes.get(..HEADER_BYTES) else { return Step::More };
            return match header_version(header) {
                Ok(version) => {
                    self.version = Some(version);
                    Step::Other(HEADER_BYTES)
                }
                Err(what) => Step::Broken(bytes.len(), what),
            };
        };
        let used = record_bytes(version);
        let Some(record) = bytes.get(..used) else { return Step::More };
        let time = Nanos(u64::from(u32_at(record, 0)) * 1_000_000_000);
        let (size, op) = match version {
            1 => (u32_at(record, 12).into(), Some(Op::Unknown)),
            2 => (u32_at(record, 12).into(), op(record[16])),
            _ => (u64_at(record, 12), op(record[20])),
        };
        if size > i64::MAX as u64 {
            return Step::Broken(used, "its size is below 0".to_owned());
        }
        let Some(op) = op else { return Step::Idle(used) };
        Step::Request(used, Request::key(u64_at(record, 4), size).at(time, op))
    }

    fn facts(&self) -> Facts {
        let ops = self.version.is_some_and(|version| version > 1);
        Facts { times: true, ops, sizes: true, ..Facts::KEYS }
    }
}

fn header_version(header: &[u8]) -> Result<u64, String> {
    if u64_at(header, 0) != MAGIC || u64_at(header, HEADER_BYTES - 8) != MAGIC {
        return Err("its header has not the magic numbers of lcs".to_owned());
    }
    match u64_at(header, 8) {
        version @ 1..=8 => Ok(version),
        version => Err(format!("its header says version {version}; 1 to 8 are known")),
    }
}

fn record_bytes(version: u64) -> usize {
    match version {
        1 => 24,
        2 => 28,
        3 => 36,
        _ => 36 + (4 << (version - 4)),
    }
}

/// The effect of an operation on a cache; none where it requests no page.
fn op(code: u8) -> Option<Op> {
    match code {
        // get, gets, read
        1 | 2 | 12 => Some(Op::Read),
        // set, add, cas, replace, append, prepend, incr, decr, write, update
        3..=8 | 10 | 11 | 13 | 14 => Some(Op::Write),
        // delete
        9 => None,
        // nop, invalid: the trace does not say
        _ => Some(Op::Unknown),
    }
}

/// The magic number of files.
pub(super) const MAGIC: u64 = 0x1234_5678_9abc_def0;
const HEADER_BYTES: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::{broken, key_facts, requests};

    fn header(version: u64) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..16].copy_from_slice(&version.to_le_bytes());
        header[HEADER_BYTES - 8..].copy_from_slice(&MAGIC.to_le_bytes());
        header
    }

    fn record(version: u64, seconds: u32, object: u64, bytes: u32, op: u8) -> Vec<u8> {
        let mut record = seconds.to_le_bytes().to_vec();
        record.extend(object.to_le_bytes());
        match version {
            1 => record.extend(bytes.to_le_bytes()),
            2 => record.extend([&bytes.to_le_bytes()[..], &[op, 1, 0, 0]].concat()),
            _ => record.extend([&u64::from(bytes).to_le_bytes()[..], &[op, 1, 0, 0]].concat()),
        }
        record.resize(record_bytes(version), 0xff);
        record
    }

    #[test]
    fn records_of_every_version_become_requests() {
        for version in 1..=8 {
            let bytes = [
                header(version),
                record(version, 1, 77, 512, 12),
                record(version, 2, 78, 0, 3),
                record(version, 3, 79, 9, 9),
            ]
            .concat();
            let found = requests("lcs", bytes);
            let known = version > 1;
            let op = |op| if known { op } else { Op::Unknown };
            let first = (1_000_000_000, 77, 512, op(Op::Read));
            let second = (2_000_000_000, 78, 0, op(Op::Write));
            assert_eq!(key_facts(&found)[..2], [first, second], "version {version}");
            assert_eq!(
                key_facts(&found).len(),
                if known { 2 } else { 3 },
                "deletions are passed over"
            );
        }
    }

    #[test]
    fn what_is_no_record_is_broken() {
        broken("lcs", &header(1)[..9], 1, 0, "the trace ends within it");
        broken("lcs", header(9), 1, 0, "version 9; 1 to 8 are known");
        broken("lcs", vec![0; HEADER_BYTES], 1, 0, "magic numbers");
        let cut = [header(2), vec![0; 27]].concat();
        broken("lcs", cut, 1, HEADER_BYTES as u64, "the trace ends within it");
        let mut negative = record(3, 1, 1, 1, 1);
        negative[19] = 0x80;
        broken("lcs", [header(3), negative].concat(), 1, HEADER_BYTES as u64, "size is below 0");
    }
}
