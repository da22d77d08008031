//! The end of handles and caches: nothing that was written is lost without a word.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use forerun_engine::{Access, Cache, Settings, WriteError};
use forerun_io::{
    store::{Store, memory::Memory},
    wrap::{
        fault::{Fault, Faults, Rule, When},
        volatile::Volatile,
    },
};
use forerun_testkit::{Scratch, until, within};

use crate::rig::{ENOSPC, failing, faulty, memory, settings};

/// Every operation of a kind comes so late.
fn late() -> Rule {
    Rule { delay: Some((When::Every(1), Duration::from_millis(300))), ..Rule::default() }
}

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

#[test]
fn a_durable_write_of_nothing_makes_durable_what_was_written_before() {
    let cache = Cache::new(settings(32)).unwrap();
    let (store, file) = memory(&cache, 1_000);
    file.write_at(&[1; 100], 0).unwrap();
    file.write_at(&[], 0).unwrap();
    assert_eq!(store.contents()[0], 0, "nothing asked for it");
    file.write_durable_at(&[], 0).unwrap();
    assert_eq!(store.contents()[0], 1);
}

#[test]
fn bounds_that_others_fill_lose_nothing_at_the_end() {
    let cache = Cache::new(Settings { handles_max: 1, ..settings(32) }).unwrap();
    let (store, file) = memory(&cache, 1_000);
    file.write_at(&[1; 100], 0).unwrap();
    assert_eq!(cache.close(), Ok(()), "no handle is left but its own");
    assert_eq!(store.contents()[0], 1);
    drop(file);

    within(|| {
        let cache = Cache::new(Settings { readers_max: 1, ..settings(32) }).unwrap();
        let (store, file) = memory(&cache, 1_000);
        file.write_at(&[1; 100], 0).unwrap();
        let (_, fault, slow) = faulty(&cache, 1_000);
        fault.set(Faults { reads: late(), ..Faults::default() });
        let reader = thread::spawn(move || slow.read_at(&mut [0; 1], 0));
        until(|| fault.counts().reads == 1);
        drop(file);
        assert_eq!(store.contents()[0], 1, "it waited for the one request that there may be");
        assert_eq!(reader.join().unwrap(), Ok(1));
    });
}

#[test]
fn another_closing_waits_for_the_first() {
    within(|| {
        let cache = Cache::new(settings(32)).unwrap();
        let memory = Memory::new(vec![0; 1_000], 1 << 24);
        let volatile = Arc::new(Volatile::new(Arc::new(memory.clone()), 1 << 20));
        let faults = Faults { syncs: late(), ..Faults::default() };
        let fault = Arc::new(Fault::new(volatile, faults, 1));
        let store = Arc::clone(&fault) as Arc<dyn Store>;
        let file = cache.open_store_with(store, Access::ReadWrite).unwrap();
        file.write_at(&[1; 100], 0).unwrap();
        let first = cache.clone();
        let first = thread::spawn(move || first.close());
        until(|| fault.counts().syncs == 1);
        assert_eq!(cache.close(), Ok(()));
        assert_eq!(memory.contents()[0], 1, "it is durable when a closing has returned");
        assert_eq!(first.join().unwrap(), Ok(()));
    });
}
