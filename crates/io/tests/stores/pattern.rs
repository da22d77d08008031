//! The pattern: the same byte at the same offset, whichever run it is in.

use std::sync::Arc;

use forerun_io::store::{
    OpKind, QueueKind, Store,
    pattern::{Pattern, fill, verify},
};

use crate::rig::{one, op};

/// The pattern's first `count` bytes from `offset`, one at a time.
fn bytewise(offset: u64, count: usize) -> Vec<u8> {
    let mut byte = [0];
    (0..count as u64)
        .map(|at| {
            fill(offset.wrapping_add(at), &mut byte);
            byte[0]
        })
        .collect()
}

#[test]
fn a_byte_depends_on_its_offset_alone() {
    for base in [0, 8, 4_096 - 8, 1 << 40, u64::MAX - 7] {
        let whole = bytewise(base, 64);
        for from in 0..24 {
            for count in 0..40 {
                let mut run = vec![0; count];
                fill(base.wrapping_add(from as u64), &mut run);
                assert_eq!(run, whole[from..from + count], "{base} + {from}, {count} bytes");
            }
        }
    }
}

#[test]
fn the_pattern_never_changes() {
    let mut run = [0; 24];
    fill(0, &mut run);
    assert_eq!(run, GOLDEN);
}

#[test]
fn no_two_words_of_a_mebibyte_are_equal() {
    let mut run = vec![0; 1 << 20];
    fill(0, &mut run);
    let mut words: Vec<_> = run.chunks(8).collect();
    words.sort_unstable();
    assert!(words.windows(2).all(|pair| pair[0] != pair[1]));
    assert_ne!(words[0], [0; 8]);
}

#[test]
fn the_first_wrong_byte_is_found_wherever_it_is() {
    for (offset, bytes) in [(0, 64), (5, 70), (8_192, 9_000), (4_097, 8_191), (3, 1)] {
        let mut run = vec![0; bytes];
        fill(offset, &mut run);
        assert_eq!(verify(offset, &run), Ok(()));
        for wrong in [0, 1, bytes / 3, bytes / 2, 4_095, 4_096, 4_097, bytes - 1] {
            if wrong >= bytes {
                continue;
            }
            run[wrong] ^= 0x10;
            run[bytes - 1] ^= 0x01;
            assert_eq!(verify(offset, &run), Err(offset + wrong as u64), "{offset} {wrong}");
            run[bytes - 1] ^= 0x01;
            run[wrong] ^= 0x10;
        }
    }
    assert_eq!(verify(9, &[]), Ok(()));
}

#[test]
fn a_pattern_may_be_as_large_as_offsets_go_and_is_not_written_to() {
    let store: Arc<dyn Store> = Arc::new(Pattern::new(u64::MAX));
    assert_eq!(store.bytes(), Ok(u64::MAX));
    let offset = u64::MAX - 70;
    let done = one(&store, QueueKind::Caller, op(OpKind::Read, 1, offset, 128));
    assert_eq!(done.result, Ok(70));
    assert_eq!(verify(offset, &done.op.frames[0]), Ok(()));
    let done = one(&store, QueueKind::Caller, op(OpKind::Write, 1, 0, 128));
    assert_eq!(done.result, Err(rustix::io::Errno::ROFS.raw_os_error()));
}

/// Computed apart from the code, in arithmetic of any length.
#[rustfmt::skip]
const GOLDEN: [u8; 24] = [
    0x8f, 0x2e, 0x99, 0xcf, 0x31, 0xec, 0xda, 0x0a,
    0x83, 0xbf, 0x0e, 0x0b, 0xb3, 0x06, 0x5d, 0x21,
    0xa4, 0x67, 0x2f, 0xf3, 0xc0, 0xc3, 0x23, 0x09,
];
