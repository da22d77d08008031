//! Any bytes, read as a trace of any format: an end or an error, and nothing else.
//!
//! ```text
//!   first byte     which format; past the last one, a guess
//!   the rest       the file
//! ```
//! `FUZZ_FORMAT=spc` in the environment reads all as that one, `auto` as a guess; the first byte
//! then says nothing.
//! # Invariants
//! - Reading ends, does not panic, and gives no request that is longer than the bound.
#![no_main]

use std::env;
use std::io::Cursor;
use std::sync::LazyLock;

use forerun_sim::trace::{AUTO, FORMATS, REQUEST_BLOCKS_MAX, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, file)) = bytes.split_first() else { return };
    let which = ONLY.unwrap_or(first.into());
    let format = match FORMATS.get(which).map(|(name, _)| *name) {
        Some("csv") => "csv:key=1,time=2,size=3",
        Some(name) => name,
        None => AUTO,
    };
    let name = if first % 2 == 0 { "t" } else { "t.u32be" };
    let Ok(mut trace) = Trace::new(name, Cursor::new(file.to_vec()), format, 100) else { return };
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch).unwrap_or(false) {
        for request in &batch {
            assert!((1..=REQUEST_BLOCKS_MAX).contains(&u64::from(request.count)));
            assert!(request.pages().last() >= Some(request.first));
        }
    }
});

/// The only format to read, where one is asked for.
static ONLY: LazyLock<Option<usize>> = LazyLock::new(|| {
    let asked = env::var("FUZZ_FORMAT").ok().filter(|asked| !asked.is_empty())?;
    let at = FORMATS.iter().position(|(name, _)| *name == asked);
    Some(at.unwrap_or_else(|| {
        assert!(asked == AUTO, "FUZZ_FORMAT={asked}: there is no such format");
        FORMATS.len()
    }))
});
