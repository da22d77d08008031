//! Prefetches: pages arrive in the background, within bounds, and no caller waits.

use std::sync::Arc;

use forerun_engine::{Cache, ReadError, Settings};
use forerun_io::store::pattern::Pattern;
use forerun_testkit::{until, within};

use crate::rig::{Gated, PAGE, check_quiet, fixed, read, settings};

#[test]
fn what_was_prefetched_needs_no_demand_later() {
    within(|| {
        let settings = settings(64, "off");
        let cache = Cache::new(settings.clone()).unwrap();
        let (store, gate) = Gated::new(100 * PAGE);
        let file = cache.open_store(store).unwrap();
        // Both gates are shut: a call that waits would hang here.
        file.prefetch(5 * PAGE + 7..25 * PAGE + 1).unwrap();
        assert_eq!(cache.stats().core.ahead_unread, 21, "every page that the range touches");
        file.prefetch(5 * PAGE..20 * PAGE).unwrap();
        assert_eq!(cache.stats().core.ahead_fetched, 21, "pages in flight are not requested again");
        gate.set(false, true);
        until(|| cache.stats().store_requests == 3);
        assert_eq!(read(&file, 5 * PAGE, 21 * 512), Ok(21 * 512));
        assert_eq!((gate.submitted(false), gate.submitted(true)), (0, 3));
        let stats = cache.stats();
        assert_eq!((stats.core.hits, stats.core.ahead_used, stats.waits), (21, 21, 0));
        check_quiet(&cache, &settings);
    });
}

#[test]
fn a_prefetch_of_nothing_fetches_nothing() {
    let cache = Cache::new(settings(64, &fixed())).unwrap();
    let (store, gate) = Gated::new(10 * PAGE + 5);
    let file = cache.open_store(store).unwrap();
    let end = file.len();
    #[expect(clippy::reversed_empty_ranges, reason = "what a caller may compute")]
    let ranges = [0..0, 700..700, end..end, end..end + 1, end + PAGE..u64::MAX, 900..100];
    for range in ranges {
        file.prefetch(range.clone()).unwrap();
        assert_eq!(cache.stats().core.ahead_fetched, 0, "{range:?}");
    }
    file.prefetch(end - 1..u64::MAX).unwrap();
    assert_eq!(cache.stats().core.ahead_fetched, 1, "the page that is partial");
    let empty = cache.open_store(Arc::new(Pattern::new(0))).unwrap();
    empty.prefetch(0..u64::MAX).unwrap();
    assert_eq!((cache.stats().core.ahead_fetched, gate.submitted(false)), (1, 0));
    gate.set(true, true);
}

#[test]
fn prefetches_stay_within_the_bound_of_what_is_read_ahead() {
    #[rustfmt::skip]
    let rows = [ // why             ahead_bytes_max   pages
        ("the bound",               9 * PAGE + 511,   9),
        ("no readahead at all",     0,                0),
        ("7/8 of the cache",        u64::MAX,         56),
    ];
    for (why, ahead_bytes_max, pages) in rows {
        within(move || {
            let settings = Settings { ahead_bytes_max, ..settings(64, "off") };
            let cache = Cache::new(settings.clone()).unwrap();
            let (store, gate) = Gated::new(1_000 * PAGE);
            let file = cache.open_store(store).unwrap();
            for _ in 0..3 {
                file.prefetch(0..u64::MAX).unwrap();
                let core = cache.stats().core;
                assert_eq!((core.ahead_unread, core.ahead_fetched), (pages, pages), "{why}");
            }
            assert!(cache.stats().core.ahead_dropped > 0, "{why}");
            gate.set(true, true);
            read(&file, 0, 200_000).unwrap();
            check_quiet(&cache, &settings);
        });
    }
}

#[test]
fn a_prefetch_through_what_has_ended_is_refused() {
    let cache = Cache::new(settings(64, &fixed())).unwrap();
    let file = cache.open_store(Arc::new(Pattern::new(10 * PAGE))).unwrap();
    cache.close().unwrap();
    assert_eq!(file.prefetch(0..100), Err(ReadError::Closed));
    assert_eq!(cache.stats().core.ahead_fetched, 0);
}

#[test]
fn a_prefetch_that_fails_is_no_readers_error() {
    within(|| {
        let cache = Cache::new(settings(64, "off")).unwrap();
        let (store, gate) = Gated::new(100 * PAGE);
        gate.fail_background(5);
        gate.set(true, true);
        let file = cache.open_store(store).unwrap();
        file.prefetch(0..10 * PAGE).unwrap();
        until(|| cache.stats().core.ahead_failed == 10);
        assert_eq!(read(&file, 0, 5_120), Ok(5_120));
        assert_eq!(cache.stats().failures, 0);
    });
}
