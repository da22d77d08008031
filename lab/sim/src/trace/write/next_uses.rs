//! The next use of each object, written into a file of oracleGeneral records afterwards.
//!
//! ```text
//!   written first   |time key size -1|time key size -1|...      forwards, as the trace is read
//!   then            <--- block <--- block <--- block      backwards: the use seen last is next
//! ```
//! So any input is read once, and memory follows the distinct keys alone.
//!
//! # Invariants
//! - At most [`KEY_BYTES_MAX`] bytes a distinct key, and never more than was allowed.

use std::io::{self, Read, Seek, SeekFrom, Write};

use forerun_core::hash::FixedState;
use hashbrown::HashMap;

use super::super::oracle_general::RECORD_BYTES;

/// The reason why next uses cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The system refused.
    #[error("cannot write next uses: {0}")]
    Io(#[from] io::Error),
    /// The memory that was allowed does not hold all keys.
    #[error("more than {keys} distinct pages do not fit {memory} bytes: allow more with --memory")]
    Memory {
        /// Keys that fit.
        keys: u64,
        /// Bytes that were allowed.
        memory: u64,
    },
}

/// A record without its next use.
pub(super) fn record(seconds: u32, key: u64, size: u32) -> [u8; RECORD_BYTES] {
    let mut record = [0xff; RECORD_BYTES];
    record[..4].copy_from_slice(&seconds.to_le_bytes());
    record[4..12].copy_from_slice(&key.to_le_bytes());
    record[12..16].copy_from_slice(&size.to_le_bytes());
    record
}

/// Writes into `file`, which holds oracleGeneral records, when each record's object is used next.
///
/// # Errors
/// The system's, or `memory` bytes do not hold all distinct keys.
pub fn link_next_uses(file: &mut (impl Read + Write + Seek), memory: u64) -> Result<(), LinkError> {
    let mut next: HashMap<u64, u64, FixedState> = HashMap::with_hasher(FixedState);
    let keys = memory / KEY_BYTES_MAX;
    let mut end = file.seek(SeekFrom::End(0))? / RECORD_BYTES as u64;
    let mut block = vec![0; BLOCK_RECORDS * RECORD_BYTES];
    while end > 0 {
        let begins = end.saturating_sub(BLOCK_RECORDS as u64);
        let count = usize::try_from(end - begins).expect("at most a block");
        let records = &mut block[..count * RECORD_BYTES];
        file.seek(SeekFrom::Start(begins * RECORD_BYTES as u64))?;
        file.read_exact(records)?;
        for (at, record) in records.chunks_exact_mut(RECORD_BYTES).enumerate().rev() {
            let key = u64::from_le_bytes(*record[4..].first_chunk().expect("a record"));
            if let Some(next) = next.insert(key, begins + at as u64) {
                record[16..].copy_from_slice(&next.to_le_bytes());
            } else if next.len() as u64 > keys {
                return Err(LinkError::Memory { keys, memory });
            }
        }
        file.seek(SeekFrom::Start(begins * RECORD_BYTES as u64))?;
        file.write_all(records)?;
        end = begins;
    }
    file.seek(SeekFrom::End(0))?;
    Ok(())
}

const BLOCK_RECORDS: usize = 1 << 14;
/// What a key takes at most: the table is at least 7/16 full, and for a moment there are two.
const KEY_BYTES_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn every_record_learns_of_the_next_use() {
        for count in [0, 1, 5, BLOCK_RECORDS as u64, 3 * BLOCK_RECORDS as u64 + 7] {
            let key = |at: u64| at * at % 1_009;
            let records: Vec<u8> = (0..count).flat_map(|at| record(0, key(at), 1)).collect();
            let mut file = Cursor::new(records);
            link_next_uses(&mut file, 1 << 20).expect("it fits");
            let linked = file.into_inner();
            for (at, record) in linked.chunks_exact(RECORD_BYTES).enumerate() {
                let at = at as u64;
                let next = i64::from_le_bytes(*record[16..].first_chunk().unwrap());
                let expected = (at + 1..count.min(at + 2_000)).find(|&later| key(later) == key(at));
                assert_eq!(next, expected.map_or(-1, u64::cast_signed), "record {at} of {count}");
            }
        }
    }

    #[test]
    fn memory_is_bounded() {
        let records: Vec<u8> = (0..100).flat_map(|key| record(0, key, 1)).collect();
        assert!(link_next_uses(&mut Cursor::new(records.clone()), 6_400).is_ok());
        let error = link_next_uses(&mut Cursor::new(records), 6_336).expect_err("too many");
        assert!(error.to_string().contains("more than 99 distinct pages"), "{error}");
    }
}
