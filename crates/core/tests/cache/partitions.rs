//! Partitions: rules, shares that change, the pool of free frames, policies of their own.

use super::World;
use forerun_core::cache::{
    Cache, PartitionSettings, PartitionStats, Rule, Settings, SettingsError,
};
use forerun_core::eviction::NAMES;
use forerun_core::units::{Nanos, PartitionId};

/// The rest with `frames`, and a partition of `other` frames for the pages from `first` on.
fn ranged(frames: u32, other: u32, first: u64, readahead: &str) -> World {
    World::with(frames + other, readahead, |settings| {
        settings.partitions[0].frames = frames;
        let rule = Rule::Offsets(first * 4096..u64::MAX);
        settings
            .partitions
            .push(PartitionSettings { rule, ..PartitionSettings::new("far", other, "lru") });
    })
}

/// Frames that each partition holds.
fn used(world: &World) -> Vec<u32> {
    world.cache.partitions().map(|part| part.used).collect()
}

fn counts(world: &World, at: usize) -> PartitionStats {
    world.cache.partitions().nth(at).expect("it is there").stats
}

#[test]
fn a_page_in_a_range_takes_a_frame_of_its_partition() {
    let mut world = ranged(2, 3, 10, "off");
    world.load(0, 2);
    world.load(10, 3);
    assert_eq!(used(&world), [2, 3]);
    assert_eq!(world.read(1, 5, 1), "out 0, demand 5..6");
    world.arrive(5, 1);
    assert_eq!(world.read(2, 20, 1), "out 10, demand 20..21");
    world.arrive(20, 1);
    assert_eq!(world.read(3, 9, 2), "out 1, out 11, demand 9..10, demand 10..11");
    let stats = (counts(&world, 0), counts(&world, 1));
    assert_eq!((stats.0.misses, stats.1.misses), (4, 5));
    assert_eq!((stats.0.evicted_by_misses, stats.1.evicted_by_misses), (2, 2));
    assert_eq!((stats.0.inserted, stats.1.inserted), (3, 4), "two are in flight");
}

#[test]
fn a_window_ends_where_another_partition_begins() {
    let mut world = ranged(8, 8, 10, "fixed:size=16K");
    assert_eq!(world.read(1, 8, 1), "demand 8..10");
    world.arrive(8, 2);
    assert_eq!(world.read(2, 10, 1), "demand 10..14");
    world.arrive(10, 4);
    assert_eq!(used(&world), [2, 4]);
}

#[test]
fn a_prefetch_over_two_partitions_takes_frames_of_both() {
    let mut world = ranged(4, 2, 10, "off");
    assert_eq!(world.prefetch(7, 6), "ahead 7..10, ahead 10..12");
    assert_eq!((used(&world), world.cache.stats().ahead_dropped), (vec![3, 2], 1));
}

#[test]
fn a_partition_of_no_frames_leaves_its_pages_to_the_rest() {
    let mut world = ranged(2, 2, 10, "off");
    world.load(10, 2);
    assert_eq!(world.resize(1, 0), "out 10, out 11");
    assert_eq!(world.read(1, 10, 1), "demand 10..11");
    world.arrive(10, 1);
    assert_eq!(used(&world), [1, 0]);
    assert_eq!(world.resize(1, 2), "");
    assert_eq!(world.read(2, 10, 2), "serve 2:10, demand 11..12", "what is there stays there");
    assert_eq!(used(&world), [1, 1]);
}

#[test]
fn pages_stay_in_their_order_when_the_policy_changes() {
    for policy in NAMES {
        let mut world = World::new(4, "off");
        world.load(0, 4);
        world.read(1, 0, 1);
        assert_eq!(world.change_policy(0, policy), "", "{policy}");
        assert_eq!(world.cache.settings().partitions[0].policy, *policy);
        assert_eq!(used(&world), [4], "{policy}: no page leaves");
        assert_eq!(
            world.read(2, 0, 4),
            "serve 2:0, serve 2:1, serve 2:2, serve 2:3, done 2",
            "{policy}"
        );
    }
    let mut world = World::new(4, "off");
    world.change_policy(0, "fifo");
    world.load(0, 4);
    world.read(1, 0, 1);
    world.change_policy(0, "lru");
    world.read(2, 1, 1);
    world.change_policy(0, "fifo");
    assert_eq!(world.read(3, 9, 3), "out 0, out 2, out 3, demand 9..12", "the last use counts");
    let check = Cache::check_policy;
    assert!(check("lru").is_ok() && check("lru:x=1").is_err() && check("none").is_err());
    assert!(check("2q:kin=0.5").is_err(), "an event has no parameters");
}

#[test]
fn handles_of_one_file_fill_the_partitions_of_their_own() {
    let mut world = World::with(4, "off", |settings| {
        settings.partitions = ["a", "b"].map(|name| PartitionSettings::new(name, 2, "lru")).into();
    });
    world.open(1, 0, 1, 100);
    world.load(0, 2);
    world.through(1).load(2, 2);
    assert_eq!(used(&world), [2, 2]);
    assert_eq!(world.read(1, 0, 1), "serve 1:0, done 1", "a page has one frame");
    assert_eq!((counts(&world, 0).hits, counts(&world, 1).hits), (1, 0));
    assert_eq!(world.read(2, 9, 1), "out 2, demand 9..10");
}

#[test]
fn a_partition_may_have_a_readahead_policy_of_its_own() {
    let mut world = World::with(16, "off", |settings| {
        settings.partitions = ["a", "b"].map(|name| PartitionSettings::new(name, 8, "lru")).into();
        settings.partitions[1].readahead = Some("fixed:size=16K".into());
    });
    world.open(1, 1, 1, 100);
    assert_eq!(world.read(1, 0, 1), "demand 0..1");
    assert_eq!(world.through(1).read(2, 0, 1), "demand f1/0..4");
    let window = world.cache.check_resize(1, 3);
    assert_eq!(window, Err(SettingsError::Window { frames: 3, window: 4 }));
    assert_eq!(world.cache.check_resize(0, 1), Ok(()));
}

#[test]
fn what_moves_is_a_share_of_the_one_and_leaves_the_other_a_window() {
    let world = ranged(8, 8, 10, "fixed:size=16K");
    let check =
        |from, to, frames| world.cache.check_move(PartitionId(from), PartitionId(to), frames);
    assert_eq!(check(0, 1, 4), Ok((4, 12)));
    assert_eq!(check(0, 1, 5), Err(SettingsError::Window { frames: 3, window: 4 }));
    assert_eq!(check(1, 0, 5), Err(SettingsError::Window { frames: 3, window: 4 }));
    assert_eq!(check(1, 0, 8), Ok((0, 16)));
    assert_eq!(check(1, 0, 9), Err(SettingsError::Move { frames: 8, wanted: 9 }));
    assert_eq!(check(1, 1, 1), Err(SettingsError::Move { frames: 8, wanted: 1 }));
}

fn marks(low: u32, high: u32) -> impl Fn(&mut Settings) {
    move |settings| (settings.pool_low, settings.pool_high) = (low, high)
}

#[test]
fn the_pool_is_filled_where_no_request_waits_and_misses_take_from_it() {
    let mut world = World::with(16, "off", marks(2, 4));
    world.load(0, 15);
    assert_eq!(world.cache.free_frames(), 4, "at the last arrival, from 1 free to the high mark");
    for (request, page) in [(1, 20), (2, 21), (3, 22)] {
        let demand = format!("demand {page}..{}", page + 1);
        assert_eq!(world.read(request, page, 1), demand, "no miss evicts");
    }
    let arrived = world.arrive(20, 1);
    assert!(arrived.starts_with("serve 1:20, done 1, out "), "{arrived}");
    assert_eq!(world.cache.free_frames(), 4);
    let stats = counts(&world, 0);
    assert_eq!((stats.evicted, stats.evicted_by_misses), (6, 0));
}

#[test]
fn a_miss_that_finds_the_pool_empty_evicts_by_itself() {
    let mut world = World::with(16, "off", marks(1, 2));
    world.load(0, 14);
    assert_eq!(world.read(1, 20, 2), "demand 20..22");
    assert_eq!(world.read(2, 30, 1), "out 0, out 1, out 2, demand 30..31");
    assert_eq!(counts(&world, 0).evicted_by_misses, 1);
}

#[test]
fn a_writer_in_a_partition_that_failing_files_hold_fails_whatever_others_write() {
    let mut world = World::with(16, "off", |settings| {
        settings.partitions = vec![
            PartitionSettings::new("rest", 12, "lru"),
            PartitionSettings::new("small", 4, "lru"),
        ];
        settings.dirty_pages_max = 12;
        settings.retry_delay = Nanos(1_000);
    });
    for (handle, partition) in [(1, 1), (2, 1), (3, 1), (4, 0)] {
        world.open(handle, handle, partition, 20);
    }
    for (handle, pages) in [(1, 2), (2, 1)] {
        let (world, request) = (world.through(handle), u64::from(handle));
        world.dirty(request, 0, pages);
        world.flush(10 + request);
        world.write_failed(0, pages);
        world.synced(0);
    }
    world.through(4).dirty(4, 0, 1);
    let full = "fail 5: all 3 pages that may be dirty belong to files whose store fails";
    assert_eq!(world.through(3).write(5, 0, 1), full, "one frame in four holds no dirty page");
    assert_eq!(world.through(4).write(6, 1, 1), "fill 6:1 fresh", "the others go on");
}

#[test]
fn what_a_file_holds_elsewhere_does_not_keep_it_from_a_partition() {
    let mut world = ranged(16, 4, 40, "off");
    world.dirty(1, 0, 5);
    assert_eq!(world.write(2, 40, 2), "fill 2:40 fresh, fill 2:41 fresh");
    world.filled(2, 40..42);
    let waits = "write 0..5, write 40..42";
    assert_eq!(world.write(3, 42, 1), waits, "there it holds twice what is free");
    assert_eq!(world.written(0, 5), "");
    world.write(4, 41, 1);
    assert_eq!(world.written(40, 2), "sync");
    assert_eq!(world.synced(0), "fill 4:41, fill 3:42 fresh");
}
