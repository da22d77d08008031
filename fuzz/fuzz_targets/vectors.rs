//! Any text, run as recorded vectors: a verdict or an error, and nothing else.
//!
//! # Invariants
//! - Running ends, and does not panic.
#![no_main]

use forerun_sim::vectors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = vectors::run(text, None);
});
