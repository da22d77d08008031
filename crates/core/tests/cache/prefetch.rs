//! Prefetches: a window that no policy decided, which no request waits for.

use super::World;
use forerun_core::cache::{PartitionSettings, Settings};

/// A cache of eight, all of which may be read ahead.
fn eight(change: impl Fn(&mut Settings)) -> World {
    World::with(8, "off", |settings| {
        settings.ahead_pages_max = 8;
        change(settings);
    })
}

/// How many pages were fetched ahead, dropped, and evicted.
fn counts(world: &World) -> (u64, u64, u64) {
    let stats = world.cache.stats();
    (stats.ahead_fetched, stats.ahead_dropped, stats.evicted)
}

#[test]
fn a_prefetch_fetches_what_is_absent_within_the_bounds() {
    #[rustfmt::skip]
    let rows = [ // why  loaded, range, bound, cut, seen, (fetched, dropped, evicted)
        ("an empty cache", (0, 0), (3, 4), 8, 256,
            "ahead 3..7", (4, 0, 0)),
        ("a single page, the last one", (0, 0), (99, 1), 8, 256,
            "ahead 99..100", (1, 0, 0)),
        ("what is there is left alone", (4, 2), (3, 4), 8, 256,
            "ahead 3..4, ahead 6..7", (2, 0, 0)),
        ("all of it is there", (3, 4), (3, 4), 8, 256,
            "", (0, 0, 0)),
        ("cut at the end of the file", (0, 0), (97, 9), 8, 256,
            "ahead 97..100", (3, 0, 0)),
        ("beyond the end there is nothing", (0, 0), (100, 5), 8, 256,
            "", (0, 0, 0)),
        ("from the highest number on", (0, 0), (u64::MAX, u32::MAX), 8, 256,
            "", (0, 0, 0)),
        ("cut to the largest request", (0, 0), (10, 7), 8, 3,
            "ahead 10..13, ahead 13..16, ahead 16..17", (7, 0, 0)),
        ("no more than may be read ahead", (0, 0), (10, 7), 3, 256,
            "ahead 10..13", (3, 4, 0)),
        ("pages that are there take nothing of the bound", (11, 2), (10, 7), 3, 256,
            "ahead 10..11, ahead 13..15", (3, 2, 0)),
        ("pages that are there are not dropped", (12, 3), (10, 7), 1, 256,
            "ahead 10..11", (1, 3, 0)),
        ("nothing may be read ahead", (11, 2), (10, 7), 0, 256,
            "", (0, 5, 0)),
        ("more than the cache holds", (0, 0), (0, u32::MAX), 8, 256,
            "ahead 0..8", (8, 92, 0)),
        ("victims leave for it", (0, 6), (10, 4), 8, 256,
            "out 0, out 1, ahead 10..14", (4, 0, 2)),
        ("no victim beyond the bound", (0, 8), (10, 4), 1, 256,
            "out 0, ahead 10..11", (1, 3, 1)),
    ];
    for (why, loaded, range, bound, cut, seen, counted) in rows {
        let mut world = eight(|settings| {
            settings.ahead_pages_max = bound;
            settings.request_pages_max = cut;
        });
        world.load(loaded.0, loaded.1);
        assert_eq!(world.prefetch(range.0, range.1), seen, "{why}");
        assert_eq!(counts(&world), counted, "{why}");
        let stats = world.cache.stats();
        assert_eq!(stats.demanded, u64::from(loaded.1), "{why}: nobody asked for a page");
    }
}

#[test]
fn a_prefetch_has_no_marker_whatever_the_policy() {
    for readahead in ["fixed:size=16K", "linux-2.6.22:max=16K", "linux-6:max=16K,io=16K"] {
        let mut world = World::new(16, readahead);
        assert_eq!(world.prefetch(4, 4), "ahead 4..8", "{readahead}");
        assert_eq!(world.arrive(4, 4), "", "{readahead}: neither marks nor answers");
        assert!((4..8).all(|index| !world.marked(index)), "{readahead}");
        assert_eq!(world.cache.stats().ahead_unread, 4, "{readahead}");
    }
}

#[test]
fn a_prefetch_is_not_explained_as_no_policy_decided_it() {
    let mut world = eight(|settings| settings.explain = true);
    assert_eq!(world.prefetch(4, 4), "ahead 4..8");
}

#[test]
fn a_page_that_was_prefetched_is_used_like_one_read_ahead() {
    let mut world = eight(|_| {});
    world.prefetch(4, 3);
    assert_eq!(world.read(1, 4, 1), "", "a late hit");
    assert_eq!(world.arrive(4, 3), "serve 1:4, done 1");
    assert_eq!(world.read(2, 5, 1), "serve 2:5, done 2");
    let stats = *world.cache.stats();
    assert_eq!((stats.late_hits, stats.hits, stats.misses), (1, 1, 0));
    assert_eq!((stats.ahead_used, stats.ahead_unread, stats.demand_fetches), (2, 1, 0));
    world.read(3, 20, 8);
    assert_eq!(world.cache.stats().ahead_wasted, 1, "nobody came for page 6");
}

#[test]
fn pages_in_flight_are_fetched_once() {
    let mut world = eight(|_| {});
    world.read(1, 2, 2);
    assert_eq!(world.prefetch(1, 4), "ahead 1..2, ahead 4..5");
    assert_eq!(world.prefetch(1, 4), "");
    assert_eq!(world.arrive(2, 2), "serve 1:2, serve 1:3, done 1");
    assert_eq!(counts(&world), (2, 0, 0));
}

#[test]
fn a_prefetch_that_failed_is_dropped_and_its_late_reader_gets_a_second_try() {
    let mut world = eight(|_| {});
    world.prefetch(4, 2);
    assert_eq!(world.read(1, 5, 1), "");
    assert_eq!(world.fail(4, 2), "demand 5..6");
    assert_eq!(world.arrive(5, 1), "serve 1:5, done 1");
    let stats = *world.cache.stats();
    assert_eq!((stats.ahead_failed, stats.ahead_used, stats.failures), (1, 1, 0));
}

#[test]
fn without_frames_a_prefetch_is_dropped_and_counted_and_nobody_waits() {
    let mut world = eight(|_| {});
    world.read(1, 0, 8);
    assert_eq!(world.prefetch(20, 3), "");
    assert_eq!((counts(&world), world.cache.deadline()), ((0, 3, 0), None));
    world.arrive(0, 8);
    assert_eq!(world.tick(1), "", "it is not tried again");
}

#[test]
fn a_victim_that_is_held_takes_its_page_out_of_the_prefetch() {
    let mut world = eight(|_| {});
    world.load(0, 8);
    for index in 0..7 {
        world.pin(index);
    }
    let out = "out 0 pinned, out 1 pinned, out 2 pinned, out 3 pinned, out 4 pinned, \
               out 5 pinned, out 6 pinned, out 7, ahead 21..22";
    assert_eq!(world.prefetch(20, 3), out);
    assert_eq!(counts(&world), (1, 2, 1));
}

#[test]
fn a_prefetch_keeps_to_the_share_of_its_partition() {
    let mut world = World::with(8, "off", |settings| {
        settings.ahead_pages_max = 8;
        settings.partitions = ["a", "b"].map(|name| PartitionSettings::new(name, 4, "lru")).into();
    });
    world.open(1, 1, 1, 100);
    assert_eq!(world.through(1).prefetch(0, 6), "ahead f1/0..4");
    assert_eq!((counts(&world), world.cache.free_frames()), ((4, 2, 0), 4));
}

#[test]
fn a_prefetch_does_not_change_what_the_policy_remembers_of_the_handle() {
    let reads = |prefetches: bool| {
        let mut world = World::new(64, "linux-2.6.22:max=32K");
        world.read(1, 0, 1);
        if prefetches {
            world.prefetch(50, 3);
        }
        world.read_after(2, 1, 1, Some(4096), false)
    };
    assert_eq!(reads(true), reads(false));
}

#[test]
fn what_streams_reads_ahead_again_soon_after_it_left_stays_and_the_rest_goes() {
    let mut world = World::with(128, "streams", |settings| {
        settings.partitions[0].policy = "2q-star".into();
    });
    world.open(1, 1, 0, 10_000);
    world.through(1);
    let read = |world: &mut World, pages: std::ops::Range<u64>| {
        let before = world.cache.stats().ahead_used;
        for index in pages {
            world.read(index, index, 1);
            world.arrive_all();
        }
        world.cache.stats().ahead_used - before
    };
    read(&mut world, 0..30);
    read(&mut world, 1_000..1_110);
    assert_eq!(world.resident(0..30), [], "they were used once");
    assert!(read(&mut world, 0..30) > 20, "readahead brought most of them");
    read(&mut world, 2_000..2_600);
    let stayed = world.resident(0..30).len();
    assert!(stayed > 20, "{stayed} of 30 stayed");
    assert_eq!(world.resident(2_000..2_400), [], "a scan is used once");
}
