//! The size of a cache, changed while it is used.

use std::sync::Arc;

use forerun_core::prng::Prng;
use forerun_engine::Cache;
use forerun_io::store::pattern::Pattern;
use forerun_testkit::{on_threads, until, within};

use crate::rig::{PAGE, WINDOW, check_quiet, fixed, next_read, read, readaheads, settings};

/// Frames that hold something.
fn held(cache: &Cache) -> u32 {
    let (frames, free) = cache.frames();
    frames - free
}

#[test]
fn pages_beyond_the_share_leave_and_come_again_when_it_grows() {
    let settings = settings(64, "off");
    let cache = Cache::new(settings.clone()).unwrap();
    let file = cache.open_store(Arc::new(Pattern::new(300 * PAGE))).unwrap();
    read(&file, 0, 300 * 512).unwrap();
    assert_eq!(held(&cache), 64);
    for frames in [40, 1, 7, 64] {
        cache.resize(u64::from(frames) * PAGE + 511).unwrap();
        assert!(held(&cache) <= frames, "{frames}");
        read(&file, 0, 300 * 512).unwrap();
        assert_eq!(held(&cache), frames);
    }
    check_quiet(&cache, &settings);
}

#[test]
fn sizes_that_cannot_work_are_refused_and_change_nothing() {
    let cache = Cache::new(settings(64, &fixed())).unwrap();
    let file = cache.open_store(Arc::new(Pattern::new(300 * PAGE))).unwrap();
    read(&file, 0, 300 * 512).unwrap();
    let window = u64::from(WINDOW) * PAGE;
    for bytes in [0, 1, PAGE, window - 1, 65 * PAGE, 1 << 40, u64::MAX] {
        let error = cache.resize(bytes).expect_err("no such size").to_string();
        assert!(!error.is_empty() && !error.contains('\n'), "{bytes}: {error}");
        assert_eq!(held(&cache), 64, "{bytes}");
    }
    cache.resize(window).unwrap();
    cache.resize(65 * PAGE - 1).unwrap();
    let off = Cache::new(settings(64, "off")).unwrap();
    assert!(off.resize(PAGE - 1).is_err(), "a page is the least");
    off.resize(PAGE).unwrap();
}

#[test]
fn a_pinned_page_stays_until_it_is_unpinned_however_small_the_cache_gets() {
    within(|| {
        let cache = Cache::new(settings(8, "off")).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(300 * PAGE))).unwrap();
        let pinned: Vec<_> = (0..8).map(|page| file.pin(page * PAGE).unwrap()).collect();
        cache.resize(2 * PAGE).unwrap();
        assert_eq!(held(&cache), 8);
        drop(pinned);
        read(&file, 100 * PAGE, 10).unwrap();
        assert!(held(&cache) <= 2, "{}", held(&cache));
    });
}

#[test]
fn four_readers_get_their_bytes_while_the_cache_shrinks_and_grows() {
    for readahead in readaheads() {
        within(move || {
            let settings = settings(96, &readahead);
            let cache = Cache::new(settings.clone()).unwrap();
            let file = cache.open_store(Arc::new(Pattern::new(300 * PAGE + 9))).unwrap();
            on_threads(5, |thread| {
                let mut random = Prng::new(thread);
                if thread == 4 {
                    for _ in 0..150 {
                        let frames = u64::from(WINDOW) + random.below(97 - u64::from(WINDOW));
                        cache.resize(frames * PAGE).unwrap();
                        std::thread::yield_now();
                    }
                    return;
                }
                let mut at = thread * 70 * PAGE;
                for _ in 0..150 {
                    let (offset, bytes) = next_read(&mut random, file.len(), &mut at);
                    read(&file, offset, bytes).unwrap();
                }
            });
            cache.resize(u64::from(WINDOW) * PAGE).unwrap();
            read(&file, 0, 512).unwrap();
            until(|| held(&cache) <= WINDOW);
            check_quiet(&cache, &settings);
            drop(file);
            assert_eq!(cache.frames(), (96, 96), "{readahead}");
        });
    }
}
