//! Any bytes, read as a trace of any format and written in any other.
//!
//! ```text
//!   first byte     which format to write
//!   second byte    which format to read; past the last one, a guess
//!   the rest       the file
//! ```
//! # Invariants
//! - Writing ends, does not panic, and what was written can be read again.
#![no_main]

use std::io::Cursor;

use forerun_sim::trace::write::{FORMATS as WRITTEN, Writer, link_next_uses};
use forerun_sim::trace::{AUTO, FORMATS, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [to, from, file @ ..] = bytes else { return };
    let to = WRITTEN[usize::from(*to) % WRITTEN.len()].0;
    let from = match FORMATS.get(usize::from(*from)).map(|(name, _)| *name) {
        Some("csv") => "csv:key=1,time=2,size=3",
        Some(name) => name,
        None => AUTO,
    };
    let Ok(mut trace) = Trace::new("t", Cursor::new(file.to_vec()), from, 100) else { return };
    let mut writer = Writer::new(to, trace.facts()).expect("it is one of the list");
    let mut out = Cursor::new(Vec::new());
    if writer.begin(&mut out).is_err() {
        return;
    }
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch).unwrap_or(false) && out.get_ref().len() < BYTES_MAX {
        for request in &batch {
            // Keys are written one by one, of a request of any length.
            if request.count > PAGES_MAX || writer.add(request, &mut out).is_err() {
                return;
            }
        }
    }
    if writer.needs_next_uses() {
        link_next_uses(&mut out, MEMORY).expect("memory is enough for so few");
    }
});

const BYTES_MAX: usize = 1 << 20;
const PAGES_MAX: u32 = 1 << 12;
const MEMORY: u64 = 1 << 28;
