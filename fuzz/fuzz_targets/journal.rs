//! Any bytes, replayed as a journal, and as two, one behind the other.
//!
//! # Invariants
//! - Replaying ends, and does not panic.
#![no_main]

use forerun_engine::journal::replay;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = replay(bytes, |_| ());
    let twice = [bytes, bytes].concat();
    let _ = replay(twice.as_slice(), |_| ());
});
