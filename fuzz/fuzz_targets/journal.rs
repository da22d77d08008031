//! Any bytes, replayed as a journal, and as several, one behind the other, as runs of one file are.
//!
//! ```text
//!   first byte     how many journals the bytes are cut into, 1 to 4, at equal distances
//!   the rest       the journals
//! ```
//! # Invariants
//! - Replaying ends, and does not panic.
//! - Journals that replay each, whole, replay one behind the other with the same runs.
#![no_main]

use forerun_engine::journal::replay;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&count, rest)) = bytes.split_first() else { return };
    let _ = replay(rest, |_| ());
    let twice = [rest, rest].concat();
    let _ = replay(twice.as_slice(), |_| ());
    let each = rest.len().div_ceil(usize::from(count % 4) + 1).max(1);
    let parts: Vec<_> = rest.chunks(each).map(|part| replay(part, |_| ())).collect();
    let Ok(whole) = replay(rest, |_| ()) else { return };
    let Ok(parts) = parts.into_iter().collect::<Result<Vec<_>, _>>() else { return };
    if parts.iter().all(|part| part.cut_bytes == 0) {
        let runs: Vec<_> = parts.into_iter().flat_map(|part| part.runs).collect();
        assert_eq!(whole.runs, runs, "journals do not depend on each other");
    }
});
