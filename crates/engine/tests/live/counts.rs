//! Statistics: counters balance at any instant, and in the end each page is counted once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use forerun_core::{prng::Prng, units::Nanos};
use forerun_engine::{Cache, Settings, Stats};
use forerun_io::store::pattern::Pattern;
use forerun_testkit::within;

use crate::rig::{PAGE, PAGE_BYTES, check_quiet, next_read, read, readaheads, settings};

/// Checks two snapshots, and the later one by itself.
fn check(before: &Stats, now: &Stats, ahead_max: u64) {
    assert!(now.core.balanced(), "{now:?}");
    assert!(now.core.ahead_unread <= ahead_max, "{now:?}");
    assert_eq!(now.latency.count(), now.requests - now.unlocked, "{now:?}");
    assert!(now.unlocked <= now.requests && now.failures == 0, "{now:?}");
    let nanos = |time| Nanos::from(time).0;
    #[rustfmt::skip]
    let never_less = [
        ("bytes",           before.bytes,           now.bytes),
        ("requests",        before.requests,        now.requests),
        ("unlocked",        before.unlocked,        now.unlocked),
        ("demanded",        before.core.demanded,   now.core.demanded),
        ("dropped_hits",    before.dropped_hits,    now.dropped_hits),
        ("store_bytes",     before.store_bytes,     now.store_bytes),
        ("store_requests",  before.store_requests,  now.store_requests),
        ("waits",           before.waits,           now.waits),
        ("waited",          nanos(before.waited),   nanos(now.waited)),
    ];
    for (what, before, now) in never_less {
        assert!(before <= now, "{what} went from {before} to {now}");
    }
}

#[test]
fn at_any_instant_the_counts_balance_and_in_the_end_no_page_is_missing() {
    for readahead in readaheads() {
        within(move || {
            let settings = settings(200, &readahead);
            let ahead_max = u64::from(settings.core().unwrap().ahead_pages_max);
            let cache = Cache::new(settings.clone()).unwrap();
            let file = cache.open_store(Arc::new(Pattern::new(300 * PAGE + 9))).unwrap();
            let (pages, total) = (AtomicU64::new(0), AtomicU64::new(0));
            thread::scope(|scope| {
                let readers: Vec<_> = (0..8)
                    .map(|thread| {
                        let (file, pages, total) = (file.try_clone().unwrap(), &pages, &total);
                        scope.spawn(move || {
                            let (mut random, mut at) = (Prng::new(thread), thread * 30 * PAGE);
                            for _ in 0..400 {
                                let (offset, bytes) = next_read(&mut random, file.len(), &mut at);
                                let count = read(&file, offset, bytes).unwrap() as u64;
                                let last = (offset + count - 1) / PAGE;
                                pages.fetch_add(last - offset / PAGE + 1, Ordering::Relaxed);
                                total.fetch_add(count, Ordering::Relaxed);
                            }
                        })
                    })
                    .collect();
                let mut before = Stats::default();
                while readers.iter().any(|reader| !reader.is_finished()) {
                    let now = cache.stats();
                    check(&before, &now, ahead_max);
                    before = now;
                }
            });
            let stats = cache.stats();
            assert_eq!(stats.pages(), pages.into_inner(), "{readahead}: {stats:?}");
            assert_eq!((stats.bytes, stats.requests), (total.into_inner(), 8 * 400), "{readahead}");
            check_quiet(&cache, &settings);
        });
    }
}

#[test]
fn a_cold_sequential_read_counts_each_page_once_and_nearly_all_as_hits() {
    within(|| {
        let settings = Settings { cache_bytes: 4 << 20, ..settings(1, "streams") };
        let cache = Cache::new(settings).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(4_000 * PAGE))).unwrap();
        for page in 0..4_000 {
            read(&file, page * PAGE, PAGE_BYTES as usize).unwrap();
        }
        let stats = cache.stats();
        assert_eq!(stats.pages(), 4_000, "{stats:?}");
        assert_eq!(stats.core.demand_fetched, 1, "all but the first page is read ahead: {stats:?}");
        assert_eq!(stats.misses(), 1, "{stats:?}");
    });
}
