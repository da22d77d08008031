//! The end of handles and caches: nothing that was written is lost without a word.

use std::panic::{AssertUnwindSafe, catch_unwind};

use forerun_engine::{Access, Cache, WriteError};
use forerun_testkit::{Scratch, until};

use crate::rig::{ENOSPC, failing, faulty, memory, settings};

#[test]
fn the_last_handle_flushes_and_so_does_the_cache() {
    let cache = Cache::new(settings(32)).unwrap();
    let (store, file) = memory(&cache, 1_000);
    let other = file.try_clone().unwrap();
    file.write_at(&[1; 100], 0).unwrap();
    drop(file);
    assert_eq!(store.contents()[0], 0, "another handle is open");
    drop(other);
    assert_eq!(store.contents()[..101], [&[1; 100][..], &[0]].concat());
    let (store, file) = memory(&cache, 1_000);
    file.write_at(&[2; 100], 0).unwrap();
    cache.close().unwrap();
    assert_eq!(store.contents()[0], 2);
    assert_eq!(file.write_at(&[3], 0), Err(WriteError::Closed));
    assert_eq!(file.flush(), Err(WriteError::Closed));
    assert_eq!(cache.close(), Ok(()), "it is closed already");
}

#[test]
fn a_last_handle_whose_bytes_cannot_be_written_panics_and_the_bytes_stay() {
    let cache = Cache::new(settings(32)).unwrap();
    let (memory, fault, file) = faulty(&cache, 1_000);
    file.write_at(&[1; 100], 0).unwrap();
    fault.set(failing(Some(ENOSPC), None));
    let panic = catch_unwind(AssertUnwindSafe(|| drop(file))).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("not durable") && message.contains("space"), "{message}");
    assert_eq!(memory.contents()[0], 0);
    fault.set(failing(None, None));
    cache.close().unwrap();
    assert_eq!(memory.contents()[..100], [1; 100], "the cache kept them");
}

#[test]
fn a_cache_that_cannot_write_at_its_end_says_so() {
    let cache = Cache::new(settings(32)).unwrap();
    let (_, fault, file) = faulty(&cache, 1_000);
    file.write_at(&[1; 100], 0).unwrap();
    fault.set(failing(Some(ENOSPC), None));
    assert_eq!(cache.close(), Err(WriteError::Writeback { errno: ENOSPC }));
    drop((file, cache)); // It was said.
}

#[test]
fn a_file_that_is_left_unwritten_is_the_same_when_it_is_opened_again() {
    let scratch = Scratch::new("writes");
    let path = scratch.file("data", [0; 3_000]);
    let cache = Cache::builder().memory(1 << 20).build().unwrap();
    for round in 1..20 {
        let file = cache.open_with(&path, Access::ReadWrite).unwrap();
        let mut buf = [0; 3_000];
        assert_eq!(file.read_at(&mut buf, 0), Ok(3_000));
        assert_eq!(buf, [round - 1; 3_000]);
        file.write_at(&[round; 3_000], 0).unwrap();
        if round % 2 == 0 {
            file.flush().unwrap();
        }
    }
    until(|| std::fs::read(&path).unwrap() == [19; 3_000]);
    let stats = cache.stats();
    assert_eq!((stats.files_changed, stats.core.misses), (0, 1), "the pages stay: {stats:?}");
}
