//! Memory: its bound, and what another program's changes do.

use std::sync::Arc;

use forerun_io::store::{OpKind, QueueKind, Store, memory::Memory};

use crate::rig::{held, one, op, write};

const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();

#[test]
fn a_write_up_to_the_bound_fits_and_one_past_it_changes_nothing() {
    #[rustfmt::skip]
    let rows = [ // why              offset  bytes      result   length
        ("up to the bound",            90,    10,      Ok(10),    100),
        ("one byte past it",           91,    10,  Err(ENOSPC),    50),
        ("offsets wrap",         u64::MAX,    10,  Err(ENOSPC),    50),
        ("past the end, a gap",        60,    10,      Ok(10),     70),
        ("nothing, past the end",      80,     0,       Ok(0),     50),
    ];
    for (why, offset, bytes, result, length) in rows {
        let memory = Memory::new(vec![1; 50], 100);
        let store: Arc<dyn Store> = Arc::new(memory.clone());
        let done = one(&store, QueueKind::Caller, write(1, offset, &vec![2; bytes]));
        assert_eq!(done.result, result, "{why}");
        let contents = memory.contents();
        assert_eq!((contents.len(), store.bytes()), (length, Ok(length as u64)), "{why}");
        assert_eq!(contents[..50], [1; 50], "{why}");
        let gap = usize::try_from(offset).unwrap().clamp(50, length);
        assert!(contents[50..gap].iter().all(|byte| *byte == 0), "{why}");
        if result == Ok(10) {
            assert_eq!(contents[gap..], [2; 10], "{why}");
        }
    }
}

#[test]
fn it_is_cut_and_padded_from_outside() {
    let memory = Memory::new(vec![1; 50], 100);
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    memory.resize(20);
    let done = one(&store, QueueKind::Caller, op(OpKind::Read, 1, 0, 64));
    assert_eq!((done.result, store.bytes()), (Ok(20), Ok(20)));
    memory.resize(100);
    let done = one(&store, QueueKind::Caller, op(OpKind::Read, 1, 0, 64));
    assert_eq!((done.result, store.bytes()), (Ok(64), Ok(100)));
    assert_eq!(held(&done)[20..], [0; 44], "what was cut off is gone");
}
