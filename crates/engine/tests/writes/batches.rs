//! What reaches the store, how large and how often, and what happens without a flush.

use std::{sync::Arc, time::Duration};

use forerun_engine::{Access, Cache, Handle, Settings};
use forerun_io::{
    store::{OpKind, Store, memory::Memory},
    wrap::record::Record,
};
use forerun_testkit::until;

use crate::rig::{ENOSPC, failing, faulty, memory, settings};

/// A cache of `cache_bytes` in pages of 4 KiB, and a handle on a store whose operations are logged:
/// one is in flight at a time, so in the order of their submission.
fn recorded(cache_bytes: u64) -> (Cache, Record, Handle) {
    let readahead = "off".into();
    let settings = Settings { cache_bytes, readahead, background_depth: 1, ..Settings::default() };
    let cache = Cache::new(settings).unwrap();
    let record = Record::new(Arc::new(Memory::new(Vec::new(), 64 << 20)), 1 << 20);
    let file = cache.open_store_with(Arc::new(record.clone()), Access::ReadWrite).unwrap();
    (cache, record, file)
}

#[test]
fn small_writes_one_after_the_other_reach_the_store_in_large_ones() {
    let (cache, record, file) = recorded(16 << 20);
    let bytes = 48 << 20;
    for page in 0..bytes / 4096 {
        file.write_at(&[7; 4096], page * 4096).unwrap();
    }
    file.flush().unwrap();
    let log = record.take();
    assert_eq!(log.bytes_moved(OpKind::Write), bytes, "each page once");
    let writes = log.count(OpKind::Write) as u64;
    assert!(bytes / writes >= 256 << 10, "{writes} writes of {} bytes each", bytes / writes);
    assert_eq!(cache.stats().core.writes, writes);
}

#[test]
fn overwrites_of_a_hot_set_stay_in_the_cache() {
    let (_cache, record, file) = recorded(16 << 20);
    let hot_pages = 512;
    for write in 0..100_000_u64 {
        file.write_at(&[7; 4096], write * 7919 % hot_pages * 4096).unwrap();
    }
    file.flush().unwrap();
    let moved = record.take().bytes_moved(OpKind::Write);
    assert!(moved <= 100_000 * 4096 / 10, "{moved} bytes reached the store");
}

#[test]
fn scattered_writes_reach_the_store_in_the_order_of_the_file() {
    let (_cache, record, file) = recorded(16 << 20);
    for write in 0..256_u64 {
        file.write_at(&[7; 4096], write * 7919 % 256 * 2 * 4096).unwrap();
    }
    file.flush().unwrap();
    let log = record.take();
    let writes = log.entries.iter().filter(|entry| entry.kind == OpKind::Write);
    let offsets: Vec<u64> = writes.map(|entry| entry.offset).collect();
    assert_eq!(offsets.len(), 256);
    assert!(offsets.windows(2).all(|pair| pair[1] - pair[0] == 8192));
}

#[test]
fn what_is_old_becomes_durable_without_a_flush() {
    let settings = Settings { dirty_age_max: Duration::from_millis(5), ..settings(64) };
    let cache = Cache::new(settings).unwrap();
    let (store, file) = memory(&cache, 1_000);
    for round in 1..4 {
        file.write_at(&[round; 700], 100).unwrap();
        until(|| store.contents()[100..800] == [round; 700]);
        until(|| cache.stats().core.syncs >= u64::from(round));
    }
}

#[test]
fn a_store_that_recovers_gets_the_bytes_without_a_flush() {
    let settings = Settings {
        dirty_age_max: Duration::from_millis(1),
        retry_delay: Duration::from_millis(1),
        ..settings(64)
    };
    let cache = Cache::new(settings).unwrap();
    let (memory, fault, file) = faulty(&cache, 1_000);
    fault.set(failing(Some(ENOSPC), None));
    file.write_at(&[1; 1_000], 0).unwrap();
    until(|| fault.counts().failed >= 3);
    fault.set(failing(None, None));
    until(|| memory.contents() == [1; 1_000]);
    assert!(file.flush().is_err(), "every handle hears of it");
    assert_eq!(file.flush(), Ok(()));
}

#[test]
fn writers_of_other_files_go_on_beside_stores_that_fail() {
    let cache = Cache::new(settings(256)).unwrap();
    let failed = [(); 3].map(|()| faulty(&cache, 64 << 10));
    for (_, fault, file) in &failed {
        fault.set(failing(Some(ENOSPC), None));
        file.write_at(&vec![1; 64 << 10], 0).unwrap_err();
    }
    let (store, file) = memory(&cache, 0);
    for round in 0..20 {
        file.write_at(&vec![round; 64 << 10], 0).unwrap();
    }
    file.flush().unwrap();
    assert_eq!(store.contents(), vec![19; 64 << 10]);
    for (memory, fault, file) in &failed {
        fault.set(failing(None, None));
        until(|| file.flush().is_ok());
        file.write_at(&vec![2; 64 << 10], 0).unwrap();
        file.flush().unwrap();
        assert_eq!(memory.bytes(), Ok(64 << 10));
        assert!(memory.contents() == vec![2; 64 << 10]);
    }
}
