//! The shim's ring, written to by a program that keeps no rule.
//!
//! ```text
//!   12 bytes       a word: which (4), its value (8)
//!   after 16       the reader takes what there is
//! ```
//! # Invariants
//! - Taking ends, gives sound records alone, no more than the ring has and awaits, and each that
//!   was awaited comes or is lost.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use forerun_steer::shim::Ring;
use forerun_steer::shim::layout::Ring as Layout;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (mut ring, writer) = Ring::create().expect("there is memory for a ring");
    let [_, (_, number)] = writer.variables(Path::new("/shim.so"), None);
    let number = number.into_string().expect("a number");
    let memory = File::options().write(true).open(format!("/proc/self/fd/{number}"));
    let memory = memory.expect("a descriptor of this process");
    for words in bytes.chunks(16 * 12) {
        for word in words.chunks_exact(12) {
            let (which, value) = word.split_at(4);
            let which = u32::from_le_bytes(which.try_into().expect("four bytes"));
            // Half of the words lie at the head and in the first slots.
            let among = if which % 2 == 0 { size_of::<Layout>() / 8 } else { 16 + 8 * 16 };
            let at = (which as usize / 2 % among) as u64 * 8;
            memory.write_all_at(value, at).expect("within the ring");
        }
        let (mut records, lost) = (0, ring.lost());
        ring.drain(|record| {
            assert!(record.pid > 0 && i32::try_from(record.pid).is_ok());
            assert!(i32::try_from(record.fd).is_ok());
            assert!(i64::try_from(record.offset + record.length).is_ok());
            records += 1;
        });
        assert!(records <= Ring::AT_ONCE_MAX && ring.lost().saturating_add(records as u64) >= lost);
    }
});
