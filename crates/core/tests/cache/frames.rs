//! Frames: victims, retractions, readers that hold them, partitions, shares that change.

use super::World;
use forerun_core::cache::{PartitionSettings, Settings, SettingsError};
use forerun_core::units::Nanos;

fn reclaim(pages: u32) -> impl Fn(&mut Settings) {
    move |settings| settings.pool_high = pages
}

/// Two partitions of `frames` each; handle 1 is on file 1 in the second one.
fn two(frames: u32) -> World {
    let mut world = World::with(2 * frames, "off", |settings| {
        settings.partitions =
            ["a", "b"].map(|name| PartitionSettings::new(name, frames, "lru")).into();
    });
    world.open(1, 1, 1, 100);
    world
}

#[test]
fn the_oldest_page_is_retracted_before_its_frame_is_fetched_into() {
    let mut world = World::new(2, "off");
    world.load(0, 2);
    world.read(1, 0, 1);
    assert_eq!(world.read(2, 5, 1), "out 1, demand 5..6");
    assert_eq!(world.cache.stats().evicted, 1);
    assert_eq!(world.resident(0..9), [0]);
}

#[test]
fn a_victim_that_is_held_stays_and_another_leaves() {
    let mut world = World::new(3, "off");
    world.load(0, 3);
    world.pin(0);
    world.pin(1);
    assert_eq!(world.read(1, 5, 1), "out 0 pinned, out 1 pinned, out 2, demand 5..6");
    let stats = *world.cache.stats();
    assert_eq!((stats.pinned, stats.evicted), (2, 1));
    assert_eq!(world.read(2, 0, 2), "serve 2:0, serve 2:1, done 2");
    let (zero, one) = (world.hit(0), world.hit(1));
    world.send(forerun_core::event::Event::Hits { hits: &[zero, one] });
    assert_eq!(world.cache.stats().stale_hits, 0, "they were never out of the index");
    assert_eq!(world.arrive(5, 1), "serve 1:5, done 1");
}

#[test]
fn where_all_victims_are_held_a_read_waits_until_one_comes_free() {
    let mut world = World::new(2, "off");
    world.load(0, 2);
    world.pin(0);
    world.pin(1);
    assert_eq!(world.read(1, 5, 1), "out 0 pinned, out 1 pinned");
    assert_eq!(world.cache.deadline(), Some(Nanos::from_millis(10_000)));
    assert_eq!(world.tick(1), "out 0 pinned, out 1 pinned", "each is named once an event");
    let frame = world.frame(0);
    world.unpin(frame);
    assert_eq!(world.tick(1), "out 0, demand 5..6");
    assert_eq!(world.cache.deadline(), None);
    assert_eq!(world.arrive(5, 1), "serve 1:5, done 1");
    assert_eq!(world.cache.stats().evicted, 1);
}

#[test]
fn a_read_fails_when_no_frame_came_free_in_time() {
    let mut world = World::with(2, "off", |settings| settings.wait_max = Nanos(10));
    world.load(0, 2);
    world.pin(0);
    world.pin(1);
    world.now = Nanos(5);
    let held = "out 0 pinned, out 1 pinned";
    assert_eq!(world.read(1, 5, 1), held);
    assert_eq!(world.cache.deadline(), Some(Nanos(15)));
    assert_eq!(world.tick(6), held);
    assert_eq!(world.cache.deadline(), Some(Nanos(15)), "the clock does not start again");
    assert_eq!(world.read(2, 6, 1), held);
    let none = "no frame came free: all 2 are held, dirty or in flight";
    assert_eq!(world.tick(4), format!("{held}, fail 1: {none}"));
    assert_eq!(world.cache.deadline(), Some(Nanos(21)));
    assert_eq!(world.tick(6), format!("{held}, fail 2: {none}"));
    assert_eq!((world.cache.deadline(), world.cache.free_frames()), (None, 0));
    let frame = world.frame(1);
    world.unpin(frame);
    assert_eq!(world.read(3, 7, 1), "out 0 pinned, out 1, demand 7..8");
}

#[test]
fn a_read_fails_in_time_where_all_frames_are_in_flight() {
    let mut world = World::with(2, "off", |settings| settings.wait_max = Nanos(10));
    assert_eq!(world.read(1, 0, 2), "demand 0..2");
    assert_eq!(world.read(2, 5, 1), "");
    assert_eq!(world.tick(9), "");
    let none = "no frame came free: all 2 are held, dirty or in flight";
    assert_eq!(world.tick(1), format!("fail 2: {none}"));
    assert_eq!(world.read(3, 6, 1), "");
    assert_eq!(world.arrive(0, 1), "serve 1:0, out 0, demand 6..7");
}

#[test]
fn a_wait_without_limit_does_not_overflow() {
    let mut world = World::with(1, "off", |settings| settings.wait_max = Nanos(u64::MAX));
    world.read(1, 0, 1);
    world.now = Nanos(7);
    world.read(2, 1, 1);
    assert_eq!(world.cache.deadline(), Some(Nanos(u64::MAX)));
    assert_eq!(world.tick(100), "");
    assert_eq!(world.arrive(0, 1), "serve 1:0, done 1, out 0, demand 1..2");
}

#[test]
fn those_who_wait_for_frames_get_them_in_order() {
    let mut world = World::new(2, "off");
    world.read(1, 0, 2);
    for request in 2..5 {
        assert_eq!(world.read(request, 10 * request, 1), "");
    }
    assert_eq!(world.read(5, 20, 1), "", "two wait for one page");
    assert_eq!(
        world.arrive(0, 2),
        "serve 1:0, serve 1:1, done 1, out 0, out 1, demand 20..21, demand 30..31"
    );
    assert_eq!(
        world.arrive(20, 1),
        "serve 2:20, done 2, serve 5:20, done 5, out 20, demand 40..41"
    );
    assert_eq!(world.cancel(4), "fail 4: cancelled");
    assert_eq!(world.arrive(40, 1), "");
}

#[test]
fn a_cancelled_read_no_longer_waits_for_a_frame() {
    let mut world = World::new(1, "off");
    world.read(1, 0, 1);
    world.read(2, 5, 1);
    assert_eq!(world.cancel(2), "fail 2: cancelled");
    assert_eq!(world.cache.deadline(), None);
    assert_eq!(world.arrive(0, 1), "serve 1:0, done 1");
}

#[test]
fn an_eviction_fills_the_pool_for_the_misses_that_follow() {
    let mut world = World::with(6, "off", reclaim(2));
    world.load(0, 6);
    assert_eq!(world.read(1, 10, 1), "out 0, out 1, out 2, demand 10..11");
    assert_eq!((world.cache.free_frames(), world.cache.stats().evicted), (2, 3));
    assert_eq!(world.read(2, 11, 2), "demand 11..13");
}

#[test]
fn a_pooled_victim_that_is_held_stays() {
    let mut world = World::with(4, "off", reclaim(1));
    world.load(0, 4);
    world.pin(1);
    assert_eq!(world.read(1, 10, 1), "out 0, out 1 pinned, demand 10..11");
    assert_eq!((world.cache.free_frames(), world.resident(0..4)), (0, vec![1, 2, 3]));
}

#[test]
fn a_frame_that_went_to_the_pool_feeds_the_one_whose_victims_were_held() {
    let mut world = World::with(2, "off", reclaim(1));
    world.load(0, 2);
    world.pin(0);
    assert_eq!(world.read(1, 10, 1), "out 0 pinned, out 1, demand 10..11");
    assert_eq!(world.arrive(10, 1), "serve 1:10, done 1");
}

#[test]
fn held_victims_are_replaced_from_the_pool_and_evict_no_more_than_they_must() {
    let mut world = World::with(8, "off", reclaim(2));
    world.load(0, 8);
    world.pin(0);
    world.pin(1);
    let read = world.read(1, 20, 1);
    assert_eq!(read, "out 0 pinned, out 1 pinned, out 2, demand 20..21");
    assert_eq!((world.cache.free_frames(), world.resident(0..8).len()), (0, 7));
}

#[test]
fn a_pool_without_bound_takes_all_that_may_leave() {
    let mut world = World::with(2, "off", reclaim(u32::MAX));
    world.load(0, 2);
    assert_eq!(world.read(1, 20, 1), "out 0, out 1, demand 20..21");
}

#[test]
fn a_read_far_larger_than_the_cache_asks_for_windows_only_while_there_are_frames() {
    let mut world = World::with(4, "off", |settings| settings.explain = true);
    world.truncate(1 << 20);
    let read = world.read(1, 0, 200_000);
    assert_eq!(read, "random 0..200000-0 for 0:0 fresh 200000, demand 0..4");
    assert_eq!(world.cancel(1), "fail 1: cancelled");
}

#[test]
fn a_marker_survives_a_retraction_that_met_a_reader() {
    let mut world = World::new(5, "fixed:size=16K");
    world.read(1, 4, 1);
    assert_eq!(world.arrive(4, 4), "serve 1:4, done 1, mark 6");
    for index in 4..8 {
        world.pin(index);
    }
    let read = world.read(2, 20, 2);
    assert!(read.contains("out 6 pinned") && read.contains("demand 20..21"), "{read}");
    assert!(world.marked(6));
    assert!(world.marker(6, 1, false).starts_with("unmark 6"), "it fires all the same");
    let stats = *world.cache.stats();
    assert_eq!((stats.ahead_wasted, stats.ahead_used), (0, 3), "what is held is used");
}

#[test]
fn a_page_read_ahead_that_leaves_unused_is_waste() {
    let mut world = World::new(5, "fixed:size=16K");
    world.read(1, 0, 1);
    world.arrive(0, 4);
    world.read(2, 50, 4);
    let stats = *world.cache.stats();
    assert_eq!(
        (stats.ahead_wasted, stats.ahead_used, stats.ahead_unread),
        (3, 0, 1),
        "one of the next window"
    );
}

#[test]
fn a_page_asked_for_again_before_its_retraction_failed_is_served_where_it_is() {
    let mut world = World::new(2, "off");
    world.load(4, 2);
    world.pin(5);
    world.read(9, 4, 1);
    // Page 3 is to have the frame of 5, and 5 that of 4; then 3 gets it.
    let read = world.read(1, 3, 3);
    assert_eq!(read, "out 5 pinned, serve 1:4, out 4, serve 1:5, demand 3..4");
    assert_eq!(world.arrive(3, 1), "serve 1:3, done 1");
}

#[test]
fn partitions_do_not_take_each_others_frames() {
    let mut world = two(3);
    world.load(0, 3);
    assert_eq!(world.read(1, 9, 1), "out 0, demand 9..10");
    assert_eq!(world.cache.free_frames(), 3);
    assert_eq!(world.through(1).read(2, 0, 4), "demand f1/0..3");
    assert_eq!(world.arrive(0, 3), "serve 2:0, serve 2:1, serve 2:2, out f1/0, demand f1/3..4");
    assert_eq!(world.through(0).resident(0..10), [1, 2]);
}

#[test]
fn one_partition_without_frames_does_not_hold_up_another() {
    let mut world = two(2);
    world.read(1, 0, 2);
    world.read(2, 5, 1);
    world.read(3, 6, 1);
    world.through(1).read(4, 0, 3);
    assert_eq!(world.arrive(1, 1), "serve 4:1, out f1/1, demand f1/2..3");
    assert_eq!(world.through(0).arrive(0, 1), "serve 1:0, out 0, demand 5..6");
}

#[test]
fn a_partition_that_shrinks_evicts_its_surplus() {
    let mut world = World::new(6, "off");
    world.load(0, 6);
    assert_eq!(world.resize(0, 4), "out 0, out 1");
    assert_eq!((world.cache.free_frames(), world.resident(0..6)), (2, vec![2, 3, 4, 5]));
    assert_eq!(world.read(1, 9, 1), "out 2, demand 9..10", "free frames beyond its share stay");
    assert_eq!(world.resize(0, 6), "");
    assert_eq!(world.read(2, 10, 2), "demand 10..12");
}

#[test]
fn a_surplus_that_is_held_leaves_later() {
    let mut world = World::new(4, "off");
    world.load(0, 4);
    for index in 0..4 {
        world.pin(index);
    }
    assert_eq!(world.resize(0, 2), "out 0 pinned, out 1 pinned, out 2 pinned, out 3 pinned");
    assert_eq!(world.read(1, 9, 1), "out 0 pinned, out 1 pinned, out 2 pinned, out 3 pinned");
    for index in 0..4 {
        let frame = world.frame(index);
        world.unpin(frame);
    }
    assert_eq!(world.tick(1), "out 0, out 1, out 2, demand 9..10");
    assert_eq!(world.cache.free_frames(), 2);
}

#[test]
fn a_share_can_be_moved_within_what_there_is() {
    let mut world = two(3);
    let check = |world: &World, partition, frames| world.cache.check_resize(partition, frames);
    assert_eq!(check(&world, 0, 3), Ok(()));
    assert_eq!(check(&world, 0, 4), Err(SettingsError::Shares { shares: 7, frames: 6 }));
    assert_eq!(check(&world, 0, 0), Err(SettingsError::Window { frames: 0, window: 1 }));
    assert_eq!((check(&world, 1, 1), check(&world, 1, 0)), (Ok(()), Ok(())), "not the rest");
    world.resize(1, 1);
    assert_eq!(check(&world, 0, 5), Ok(()));
    assert_eq!(check(&world, 0, 6), Err(SettingsError::Shares { shares: 7, frames: 6 }));
    world.resize(0, 5);
    assert_eq!(world.read(1, 0, 5), "demand 0..5");
}

#[test]
fn a_page_that_is_gone_lingers_until_its_reader_lets_go() {
    let mut world = World::new(2, "off");
    world.load(0, 2);
    world.pin(0);
    let frame = world.frame(0);
    assert_eq!(world.truncate(0), "out 0 gone pinned, out 1 gone");
    assert_eq!((world.cache.free_frames(), world.resident(0..2)), (1, vec![]));
    assert_eq!(world.tick(1), "still held");
    assert_eq!(world.truncate(100), "");
    world.unpin(frame);
    assert_eq!(world.read(1, 0, 2), "let go, demand 0..2", "asked again when frames are short");
    assert_eq!(world.arrive(0, 2), "serve 1:0, serve 1:1, done 1");
}

#[test]
fn a_tick_reclaims_what_lingers() {
    let mut world = World::new(2, "off");
    world.load(0, 2);
    world.pin(0);
    let frame = world.frame(0);
    world.truncate(1);
    assert_eq!(world.invalidate(0, 1), "out 0 gone pinned");
    world.unpin(frame);
    assert_eq!(world.tick(1), "let go");
    assert_eq!(world.cache.free_frames(), 2);
}

#[test]
fn one_that_lingers_still_does_not_keep_another_from_being_used() {
    let mut world = World::new(2, "off");
    world.load(0, 2);
    let frames = [0, 1].map(|index| world.frame(index));
    world.pin(0);
    world.pin(1);
    world.invalidate(0, 2);
    world.unpin(frames[1]);
    assert_eq!(world.read(1, 7, 1), "still held, let go, demand 7..8");
}
