//! A device remembered: kept when a cache closes, used by the next one.
//!
//! # Invariants
//! - What a store that completes at once is taken for depends on the machine: the tests look at
//!   what was given, and at whether something was kept.

use std::sync::Arc;

use forerun_engine::{Cache, DeviceKey, DeviceRecord, DeviceStore, Settings};
use forerun_io::store::pattern::Pattern;
use forerun_testkit::Scratch;

use crate::rig::{PAGE, read, settings};

/// It delivers 62 pages of 4 KiB in the time of an access, and its rate was not seen.
fn record() -> DeviceRecord {
    "parallel 500000 500000000 8 65536 ka 0".parse().expect("a record")
}

fn streams() -> Settings {
    settings(4_096, &Settings::default().readahead)
}

#[test]
fn the_first_window_is_that_of_the_device_remembered() {
    let first_window = |remembered| {
        let cache = Cache::new(Settings { remembered, ..streams() }).expect("good settings");
        let file = cache.open_store(Arc::new(Pattern::new(4_000 * PAGE))).expect("a length");
        assert_eq!(read(&file, 0, 1), Ok(1));
        cache.stats().core.ahead_unread
    };
    let (assumed, remembered) = (first_window(None), first_window(Some(record())));
    // A disk is assumed: 8 ms at 100 MB/s.
    assert!(remembered < assumed, "{remembered} of {assumed} pages");
}

#[test]
fn what_a_cache_has_learnt_is_there_for_the_next_one() {
    let scratch = Scratch::new("remembered");
    let key = DeviceKey::of_host("a-store").expect("a name");
    let devices = || DeviceStore::at(&scratch).expect("a folder of one's own");
    let run = |reads: u64| {
        let builder = Cache::builder().settings(streams()).remember(devices(), key.clone());
        let cache = builder.build().expect("good settings");
        let file = cache.open_store(Arc::new(Pattern::new(4_000 * PAGE))).expect("a length");
        for nth in 1..=reads {
            assert_eq!(read(&file, (nth * 1_013 % 4_000) * PAGE, 1), Ok(1));
        }
        let known = cache.device_record();
        drop(file);
        drop(cache);
        let kept = devices().load(&key).expect("a file of one's own");
        // Readahead in flight may have told more before the close.
        assert_eq!(kept.is_some(), known.is_some(), "{reads} reads");
        kept
    };
    assert_eq!(run(0), None, "nothing was seen");
    let learnt = run(40).expect("latencies were seen");
    assert!(learnt.estimate.known.access, "{learnt}");
    assert_eq!(run(0), Some(learnt), "nothing new was seen");
}
