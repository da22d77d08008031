//! Reads: hits, late hits, misses, readahead, markers, failures.

use super::World;
use forerun_core::cache::PartitionSettings;
use forerun_core::event::{Event, Hit};

/// Windows of four pages, the marker on the third.
const FOUR: &str = "fixed:size=16K";

#[test]
fn a_hit_serves_at_once_and_takes_no_memory() {
    let mut world = World::new(8, "off");
    world.load(0, 4);
    world.actions.list.reserve(64);
    let room = (world.actions.list.capacity(), world.actions.frames.capacity());
    assert_eq!(world.read(1, 0, 2), "serve 1:0, serve 1:1, done 1");
    assert_eq!(room, (world.actions.list.capacity(), world.actions.frames.capacity()));
    assert_eq!(world.actions.list.len(), 3);
    let stats = *world.cache.stats();
    assert_eq!((stats.demanded, stats.hits, stats.misses, stats.late_hits), (6, 2, 4, 0));
}

#[test]
fn a_page_in_flight_is_fetched_once_and_served_in_the_order_of_arrival() {
    let mut world = World::new(8, "off");
    assert_eq!(world.read(1, 5, 1), "demand 5..6");
    assert_eq!(world.read(2, 5, 1), "");
    assert_eq!(world.read(3, 5, 1), "");
    assert_eq!(world.arrive(5, 1), "serve 1:5, done 1, serve 2:5, done 2, serve 3:5, done 3");
    let stats = *world.cache.stats();
    assert_eq!((stats.misses, stats.late_hits, stats.fetches), (1, 2, 1));
    assert_eq!((stats.demand_fetches, stats.demand_fetched, stats.ahead_fetched), (1, 1, 0));
}

#[test]
fn a_read_is_done_when_its_last_page_is_there() {
    let mut world = World::new(8, "off");
    world.load(1, 1);
    assert_eq!(world.read(1, 0, 4), "serve 1:1, demand 0..1, demand 2..4");
    assert_eq!(world.arrive(2, 1), "serve 1:2");
    assert_eq!(world.arrive(0, 1), "serve 1:0");
    assert_eq!(world.arrive(3, 1), "serve 1:3, done 1");
    let stats = *world.cache.stats();
    assert_eq!((stats.misses, stats.late_hits, stats.hits), (4, 0, 1), "its own pages are misses");
    assert_eq!(stats.demand_fetched, 4);
}

#[test]
fn runs_are_cut_to_the_largest_request() {
    let mut world = World::with(16, "off", |settings| settings.request_pages_max = 3);
    assert_eq!(world.read(1, 10, 8), "demand 10..13, demand 13..16, demand 16..18");
    assert_eq!(world.arrive(13, 3), "serve 1:13, serve 1:14, serve 1:15");
}

#[test]
fn only_what_is_asked_for_is_a_demand() {
    let mut world = World::with(16, "fixed:size=32K", |settings| settings.request_pages_max = 3);
    assert_eq!(world.read(1, 0, 2), "demand 0..3, ahead 3..6, ahead 6..8");
    let stats = *world.cache.stats();
    assert_eq!((stats.fetches, stats.demand_fetches), (3, 1));
    assert_eq!((stats.ahead_fetched, stats.ahead_unread, stats.demand_fetched), (6, 6, 2));
    assert_eq!(world.read(2, 3, 1), "", "a late hit on a page read ahead");
    let stats = *world.cache.stats();
    assert_eq!((stats.ahead_used, stats.ahead_unread, stats.late_hits), (1, 5, 1));
    assert_eq!(world.arrive(3, 3), "serve 2:3, done 2, mark 4");
}

#[test]
fn a_marker_fires_once() {
    let mut world = World::new(32, FOUR);
    assert_eq!(world.read(1, 0, 1), "demand 0..4");
    assert_eq!(world.arrive(0, 4), "serve 1:0, done 1, mark 2");
    assert_eq!(world.read(2, 1, 1), "serve 2:1, done 2");
    assert_eq!(world.read(3, 2, 1), "serve 3:2, unmark 2, done 3, ahead 4..8");
    assert_eq!(world.read(4, 2, 1), "serve 4:2, done 4");
}

#[test]
fn a_marker_that_is_still_in_flight_fires_too() {
    let mut world = World::new(32, FOUR);
    world.read(1, 0, 1);
    assert_eq!(world.read(2, 2, 1), "ahead 4..8");
    assert_eq!(world.arrive(0, 4), "serve 1:0, done 1, serve 2:2, done 2");
}

#[test]
fn a_marker_met_under_congestion_is_counted_and_reads_nothing_ahead() {
    let mut world = World::new(32, FOUR);
    world.read(1, 0, 1);
    world.arrive(0, 4);
    assert_eq!(world.read_after(2, 2, 1, None, true), "serve 2:2, unmark 2, done 2");
    assert_eq!(world.cache.stats().markers_deferred, 1);
    assert_eq!(world.read(3, 2, 1), "serve 3:2, done 3");
}

#[test]
fn a_marker_met_without_a_lock_fires_once_and_a_stale_one_never() {
    let mut world = World::new(32, FOUR);
    world.read(1, 0, 1);
    world.arrive(0, 4);
    assert!(world.marked(2) && !world.marked(1));
    assert_eq!(world.marker(1, 1, false), "", "no marker there");
    let mut hit = world.hit(2);
    hit.generation -= 1;
    let handle = forerun_core::units::HandleId(0);
    let stale = Event::Marker { handle, hit, count: 1, previous_end: None, congested: false };
    assert_eq!(world.send(stale), "");
    assert_eq!(world.marker(2, 1, false), "unmark 2, ahead 4..8");
    assert_eq!(world.marker(2, 1, false), "");
    let stats = *world.cache.stats();
    assert_eq!((stats.hits, stats.ahead_used), (0, 0), "the use comes with the batch");
    assert_eq!(world.marker(2, 1, true), "");
    assert_eq!(world.cache.stats().markers_deferred, 0);
}

#[test]
fn a_marker_on_the_very_page_that_was_missed_fires_at_once() {
    let mut world = World::new(64, "linux-6:max=64K,io=64K");
    world.open(1, 1, 0, 1);
    // A window of two with a tail of one, of which the file has one: all of it is tail.
    assert_eq!(world.through(1).read(1, 0, 1), "demand f1/0..1");
    assert_eq!(world.arrive(0, 1), "serve 1:0, done 1", "the marker is spent already");
}

#[test]
fn readahead_stays_within_its_bound() {
    let mut world = World::with(32, FOUR, |settings| {
        settings.ahead_pages_max = 4;
        settings.explain = true;
    });
    assert_eq!(world.read(1, 0, 1), "sync 0..4-2 for 0:0 fresh 4, demand 0..4");
    let second = world.read(2, 10, 1);
    assert_eq!(second, "sync 10..14-2 for 0:10 fresh 4, demand 10..12", "one of three fits");
    let third = world.read(3, 20, 1);
    assert_eq!(third, "sync 20..24-2 for 0:20 fresh 4, demand 20..21");
    let stats = *world.cache.stats();
    assert_eq!((stats.ahead_unread, stats.ahead_dropped), (4, 5));
}

#[test]
fn a_window_skips_what_is_there_and_ends_with_the_file() {
    let mut world = World::with(32, FOUR, |settings| settings.explain = true);
    world.open(1, 1, 0, 3);
    world.through(1);
    assert_eq!(world.read(1, 1, 1), "sync 1..5-2 for 1:1 fresh 2, demand f1/1..3");
    assert_eq!(world.read(2, 0, 1), "sync 0..4-2 for 1:0 fresh 1, demand f1/0..1");
}

#[test]
fn pages_asked_for_come_before_pages_read_ahead_when_frames_are_few() {
    let mut world = World::new(6, FOUR);
    assert_eq!(world.read(1, 0, 1), "demand 0..4");
    assert_eq!(world.read(2, 9, 3), "demand 9..11", "two of three asked for, none ahead");
    let stats = *world.cache.stats();
    assert_eq!(
        (stats.ahead_unread, stats.ahead_dropped, stats.misses),
        (3, 1, 4),
        "no window is tried without frames"
    );
}

#[test]
fn a_failed_readahead_is_dropped_and_counted() {
    let mut world = World::new(32, "fixed:size=32K");
    world.read(1, 0, 1);
    assert_eq!(world.arrive(0, 1), "serve 1:0, done 1");
    assert_eq!(world.fail(1, 7), "");
    let stats = *world.cache.stats();
    assert_eq!((stats.ahead_failed, stats.ahead_unread, stats.failures), (7, 0, 0));
    assert_eq!(world.cache.free_frames(), 31);
    assert_eq!(world.read(2, 1, 1), "demand 1..9");
}

#[test]
fn whoever_waits_for_a_failed_readahead_gets_a_second_fetch_and_no_third() {
    let mut world = World::with(32, "fixed:size=16K", |settings| settings.request_pages_max = 2);
    assert_eq!(world.read(1, 0, 1), "demand 0..2, ahead 2..4");
    world.arrive(0, 2);
    assert_eq!(world.read(2, 3, 1), "");
    assert_eq!(world.fail(2, 2), "demand 3..4");
    assert_eq!(world.fail(3, 1), "fail 2: the store failed at page 3: errno 5");
    let stats = *world.cache.stats();
    assert_eq!((stats.ahead_failed, stats.ahead_used, stats.failures), (1, 1, 1));
    assert_eq!(world.read(3, 3, 1), "demand 3..5, ahead 5..7");
}

#[test]
fn a_single_page_read_ahead_alone_is_tried_again_for_whoever_waits() {
    let mut world = World::with(32, "fixed:size=16K", |settings| settings.request_pages_max = 1);
    assert_eq!(world.read(1, 0, 1), "demand 0..1, ahead 1..2, ahead 2..3, ahead 3..4");
    world.read(2, 1, 1);
    assert_eq!(world.fail(1, 1), "demand 1..2");
    assert_eq!(world.arrive(1, 1), "serve 2:1, done 2");
}

#[test]
fn a_failed_run_is_not_tried_again_for_those_who_gave_up() {
    let mut world = World::new(32, "off");
    assert_eq!(world.read(1, 0, 2), "demand 0..2");
    assert_eq!(world.read(2, 1, 1), "");
    assert_eq!(world.cancel(1), "fail 1: cancelled");
    assert_eq!(world.fail(0, 2), "demand 1..2", "page 0 is nobody's any more");
    assert_eq!(world.arrive(1, 1), "serve 2:1, done 2");
    assert_eq!(world.resident(0..2), [1]);
}

#[test]
fn a_demand_that_fails_for_all_its_readers_is_not_tried_again() {
    let mut world = World::new(32, "off");
    assert_eq!(world.read(1, 0, 16), "demand 0..16");
    assert_eq!(world.fail(0, 16), "fail 1: the store failed at page 0: errno 5");
    assert_eq!((world.cache.free_frames(), world.cache.stats().fetches), (32, 1));
    assert_eq!(world.read(2, 0, 3), "demand 0..3", "tried again");
    assert_eq!(world.arrive(0, 3), "serve 2:0, serve 2:1, serve 2:2, done 2");
}

#[test]
fn a_failed_fetch_is_tried_again_once_for_each_group_of_readers() {
    let mut world = World::with(32, "fixed:size=48K", |settings| settings.request_pages_max = 12);
    assert_eq!(world.read(1, 0, 5), "demand 0..12");
    assert_eq!(world.read(2, 2, 2), "");
    assert_eq!(world.fail(0, 12), "demand 0..2, demand 2..4, demand 4..5");
    assert_eq!(world.fail(4, 1), "fail 1: the store failed at page 4: errno 5");
    assert_eq!(world.fail(0, 2), "", "it was answered already");
    assert_eq!(world.arrive(2, 2), "serve 2:2, serve 2:3, done 2");
    let stats = *world.cache.stats();
    assert_eq!((stats.failures, stats.ahead_failed, stats.fetches), (1, 7, 4));
    assert_eq!(world.resident(0..12), [2, 3]);
}

#[test]
fn a_second_try_that_fails_fails_those_who_joined_it_too() {
    let mut world = World::new(32, "off");
    world.read(1, 0, 2);
    world.read(2, 1, 2);
    assert_eq!(world.fail(0, 2), "demand 0..1, demand 1..2");
    assert_eq!(world.read(3, 1, 1), "");
    let why = "the store failed at page 1: errno 5";
    assert_eq!(world.fail(1, 1), format!("fail 1: {why}, fail 2: {why}, fail 3: {why}"));
    assert_eq!((world.arrive(0, 1), world.arrive(2, 1)), (String::new(), String::new()));
}

#[test]
fn a_failed_demand_fails_each_reader_once() {
    let mut world = World::new(32, "off");
    world.read(1, 0, 1);
    world.read(2, 0, 2);
    let why = "the store failed at page 0: errno 5";
    assert_eq!(world.fail(0, 1), format!("fail 1: {why}, fail 2: {why}"));
    assert_eq!(world.arrive(1, 1), "");
    assert_eq!(world.cache.free_frames(), 31);
}

#[test]
fn a_part_of_a_fetch_may_fail() {
    let mut world = World::new(32, "off");
    world.read(1, 0, 4);
    assert_eq!(world.arrive(0, 2), "serve 1:0, serve 1:1");
    assert_eq!(world.fail(2, 2), "demand 2..4", "both at once");
    assert_eq!(world.arrive(2, 1), "serve 1:2");
    assert_eq!(world.fail(3, 1), "fail 1: the store failed at page 3: errno 5");
}

#[test]
fn a_cancelled_read_is_answered_once_and_its_pages_still_come() {
    let mut world = World::new(32, "off");
    world.read(1, 0, 2);
    world.read(2, 1, 1);
    assert_eq!(world.cancel(1), "fail 1: cancelled");
    assert_eq!(world.cancel(1), "", "unknown by now");
    assert_eq!(world.arrive(0, 2), "serve 2:1, done 2");
    assert_eq!(world.read(3, 0, 2), "serve 3:0, serve 3:1, done 3");
}

#[test]
fn a_number_may_be_used_again_once_it_was_answered() {
    let mut world = World::new(32, "off");
    for round in 0..5 {
        world.read(7, round, 1);
        assert_eq!(world.arrive(round, 1), format!("serve 7:{round}, done 7"));
        world.read(8, 10 + round, 1);
        assert_eq!(world.cancel(8), "fail 8: cancelled");
        world.arrive(10 + round, 1);
    }
}

#[test]
fn a_read_beyond_the_end_fails_and_says_where() {
    let mut world = World::new(32, "off");
    let of = "is beyond the end of a file of 100 pages";
    assert_eq!(world.read(1, 99, 2), format!("fail 1: page 100 {of}"));
    assert_eq!(world.read(2, 200, 1), format!("fail 2: page 200 {of}"));
    assert_eq!(world.read(3, u64::MAX, 7), format!("fail 3: page {} {of}", u64::MAX));
    assert_eq!(world.read(4, 99, 1), "demand 99..100");
    assert_eq!(world.cache.stats().demanded, 1);
}

#[test]
fn pages_that_wait_are_bounded() {
    let mut world = World::with(32, "off", |settings| settings.waiters_max = 3);
    assert_eq!(world.read(1, 0, 2), "demand 0..2");
    assert_eq!(world.read(2, 0, 2), "fail 2: more than 3 requests wait already");
    assert_eq!(world.read(3, 0, 1), "");
    assert_eq!(world.read(4, 9, 1), "fail 4: more than 3 requests wait already");
    assert_eq!(world.arrive(0, 1), "serve 1:0, serve 3:0, done 3");
    assert_eq!(world.read(5, 9, 2), "demand 9..11", "there is room again");
    assert_eq!(world.read(6, 0, 4), "fail 6: a request of 4 pages; at most 3 fit");
}

#[test]
fn a_batch_of_hits_renews_pages_and_skips_stale_ones() {
    let mut world = World::new(3, "off");
    world.load(0, 3);
    let (first, mut stale) = (world.hit(0), world.hit(1));
    assert_eq!(world.send(Event::Hits { hits: &[first] }), "");
    stale.generation += 1;
    world.send(Event::Hits { hits: &[stale] });
    let stats = *world.cache.stats();
    assert_eq!((stats.hits, stats.stale_hits, stats.demanded), (1, 1, 4));
    assert_eq!(world.read(1, 3, 1), "out 1, demand 3..4", "the hit spared page 0");
    let gone = first;
    assert_eq!(world.read(2, 4, 1), "out 2, demand 4..5");
    world.arrive(4, 1);
    assert_eq!(world.read(3, 5, 1), "out 0, demand 5..6");
    world.arrive(5, 1);
    world.send(Event::Hits { hits: &[gone] });
    assert_eq!(world.cache.stats().stale_hits, 2, "its frame has another page");
}

#[test]
fn a_long_batch_renews_in_its_order_and_each_partition_its_own_pages() {
    // Up to more hits than a policy gets at once, of two files in turn.
    for count in [6, 64, 65, 300] {
        let mut world = World::with(6, "off", |settings| {
            settings.partitions =
                ["a", "b"].map(|name| PartitionSettings::new(name, 3, "lru")).into();
        });
        world.open(1, 1, 1, 100);
        world.load(0, 3);
        let first: Vec<Hit> = (0..3).map(|index| world.hit(index)).collect();
        world.through(1).load(50, 3);
        let second: Vec<Hit> = (0..3).map(|nth| world.hit(50 + nth)).collect();
        let mut hits: Vec<Hit> =
            (0..count - 6).map(|nth| [first[nth % 3], second[nth % 3]][nth % 2]).collect();
        for nth in [2, 0, 1] {
            hits.extend([first[nth], second[2 - nth]]);
        }
        world.send(Event::Hits { hits: &hits });
        let stats = *world.cache.stats();
        assert_eq!((stats.hits, stats.stale_hits), (count as u64, 0));
        for (request, victim) in [(1, 50), (2, 52), (3, 51)] {
            let index = 60 + request;
            let text = world.through(1).read(request, index, 1);
            assert_eq!(text, format!("out f1/{victim}, demand f1/{index}..{}", index + 1));
        }
        for (request, victim) in [(4, 2), (5, 0), (6, 1)] {
            let index = 60 + request;
            let text = world.through(0).read(request, index, 1);
            assert_eq!(text, format!("out {victim}, demand {index}..{}", index + 1));
        }
    }
}

#[test]
fn a_hit_uses_up_a_page_read_ahead_once() {
    let mut world = World::new(32, FOUR);
    world.read(1, 0, 1);
    world.arrive(0, 4);
    let hit = world.hit(1);
    world.send(Event::Hits { hits: &[hit, hit] });
    let stats = *world.cache.stats();
    assert_eq!((stats.ahead_used, stats.ahead_unread, stats.hits), (1, 2, 2));
}

#[test]
fn the_history_before_a_miss_reaches_the_policy() {
    // A lone read in the middle of a file; with enough pages before it, it is a stream.
    let mut world = World::with(64, "linux-6:max=64K,io=64K", |settings| settings.explain = true);
    for index in [54, 53, 52, 51, 50] {
        let lone = world.read_after(index, index, 1, Some(0), false);
        let window = format!("{index}..{}", index + 1);
        let why = format!("random {window}-0 for 0:{index} fresh 1, demand {window}");
        assert_eq!(lone, why);
        world.arrive(index, 1);
    }
    let stream = world.read_after(1, 55, 1, Some(0), false);
    assert_eq!(stream, "sync 55..61-1 for 0:55 fresh 6, demand 55..61");
}

#[test]
fn a_policy_that_sees_requests_sees_every_page_of_each() {
    let mut world = World::with(64, "linux-2.6.22:max=64K", |settings| settings.explain = true);
    assert!(world.cache.sees_requests());
    assert!(!World::new(64, "off").cache.sees_requests());
    let first = world.read(1, 0, 2);
    assert!(first.starts_with("initial 0..") && first.contains("demand 0.."), "{first}");
    world.arrive(0, 4);
    let second = world.read_after(2, 2, 2, Some(8192), false);
    assert!(second.contains("serve 2:2") && second.contains("done 2"), "{second}");
}

#[test]
fn pages_of_a_cancelled_read_do_not_reach_the_next_one() {
    let mut world = World::new(32, "off");
    world.read(1, 0, 3);
    world.cancel(1);
    assert_eq!(world.arrive(0, 1), "");
    world.read(2, 9, 1);
    assert_eq!(world.arrive(1, 2), "");
    world.read(3, 10, 1);
    assert_eq!(world.arrive(9, 1), "serve 2:9, done 2");
    assert_eq!(world.arrive(10, 1), "serve 3:10, done 3");
}

#[test]
fn fetches_that_follow_each_other_show_the_rate_of_a_device_with_an_arm() {
    let mut world = World::with(100, "streams", |settings| {
        (settings.request_pages_max, settings.ahead_pages_max) = (4, 1);
    });
    for (request, from) in [(1, 1), (2, 34), (3, 67)] {
        world.read(request, from, 32);
        for first in (from..from + 32).step_by(4) {
            world.now.0 += 1_000_000;
            world.arrive(first, 4);
        }
    }
    let estimate = world.cache.device().expect("the policy asks for it");
    assert!(estimate.known.rate, "{estimate:?}");
    assert_eq!(estimate.profile.bytes_per_second, 16_384_000);
}
