//! Sizing: shares that change by themselves.

use super::World;
use forerun_core::cache::{MOVES_MAX, MoveReason, PartitionSettings, Rule, Settings, Sizing};
use forerun_core::prng::Prng;
use forerun_core::units::PartitionId;

/// Pages from here on belong to the partition `far`.
const FAR: u64 = 1_000;
const PAGES: u64 = 1 << 20;

/// A cache of 64 frames in two equal partitions that are sized.
fn sized(change: impl Fn(&mut Settings)) -> World {
    let mut world = World::with(64, "off", |settings| {
        settings.partitions[0].frames = 32;
        let rule = Rule::Offsets(FAR * 4096..u64::MAX);
        settings
            .partitions
            .push(PartitionSettings { rule, ..PartitionSettings::new("far", 32, "lru") });
        settings.sizing = Sizing::Auto;
        settings.request_pages_max = 4;
        change(settings);
    });
    world.open(1, 1, 0, PAGES);
    world.through(1);
    world
}

fn shares(world: &World) -> Vec<u32> {
    world.cache.partitions().map(|part| part.frames).collect()
}

/// Reads `count` pages of a loop over `pages` near ones, and as many far ones that come once.
fn loop_and_scan(world: &mut World, pages: u64, count: u64) {
    let from = world.cache.stats().demanded;
    for nth in 0..count {
        world.load(nth % pages, 1);
        world.load(FAR + from + nth, 1);
    }
}

#[test]
fn a_loop_gets_the_frames_of_a_scan_beside_it_and_the_scan_keeps_its_minimum() {
    for (least, kept) in [(0, 4), (9, 9)] {
        let mut world = sized(|settings| settings.partitions[1].frames_min = least);
        loop_and_scan(&mut world, 50, 1_000);
        let after = shares(&world);
        assert!(after[0] >= 50 && after[1] >= kept, "{after:?}");
        assert_eq!(after.iter().sum::<u32>(), 64);
        let before = world.cache.stats().hits;
        loop_and_scan(&mut world, 50, 50);
        assert_eq!(world.cache.stats().hits - before, 50, "all of the loop is there");
        let parts: Vec<_> = world.cache.partitions().map(|part| part.stats).collect();
        let moved = u64::from(after[0] - 32);
        assert_eq!((parts[0].got, parts[1].gave), (moved, moved));
        assert_eq!(world.cache.moved(), moved);
    }
}

#[test]
fn each_move_says_from_where_to_where_and_why() {
    let mut world = sized(|_| {});
    loop_and_scan(&mut world, 50, 1_000);
    let moves: Vec<_> = world.cache.moves().copied().collect();
    assert!(!moves.is_empty());
    for one in &moves {
        assert_eq!((one.from, one.to), (PartitionId(1), PartitionId(0)), "{one:?}");
        assert!(one.frames <= 2, "a 32nd of the cache in a window: {one:?}");
        assert_eq!(one.reason, MoveReason::Gain);
        assert!(one.hits_after > one.hits_before, "{one:?}");
    }
    let sum = moves.iter().map(|one| u64::from(one.frames)).sum::<u64>();
    assert_eq!(sum, world.cache.moved());
    let demanded: Vec<u64> = moves.iter().map(|one| one.demanded).collect();
    assert!(demanded.is_sorted() && demanded[0] >= 96, "six windows are cold: {demanded:?}");
    let expected = |frames| world.cache.expected_hits(PartitionId(0), frames);
    assert_eq!(expected(40), Some(0));
    assert!(expected(60) > Some(400_000), "{:?}", expected(60));
    assert!(world.cache.sizing_bytes() > 0);
}

#[test]
fn shares_of_like_partitions_settle() {
    let mut world = sized(|_| {});
    let mut prng = Prng::new(7);
    let mut read = |world: &mut World, count: u32| {
        for _ in 0..count {
            let page = prng.below(60);
            world.load(if prng.chance(50) { page } else { FAR + page }, 1);
        }
        world.cache.moved()
    };
    let moved = read(&mut world, 20_000);
    assert!(moved <= 64, "{moved} frames moved back and forth");
}

#[test]
fn a_partition_gets_what_one_lru_would_give_it() {
    // All of the near loop would be more hits than the far pages, of which each is read twice
    // within 60 reads; but one LRU has these, and none of the loop.
    let mut world = sized(|_| {});
    let twice = |nth: u64| FAR + nth / 2 + if nth.is_multiple_of(2) { 10 } else { 0 };
    for nth in 0..4_000 {
        world.load(nth % 52, 1);
        if nth.is_multiple_of(2) {
            world.load(twice(nth / 2), 1);
        }
    }
    let share = shares(&world)[1];
    let shared = world.cache.expected_hits(PartitionId(1), 64).expect("it is on");
    let hits = world.cache.expected_hits(PartitionId(1), share).expect("it is on");
    assert!(hits + 10_000 > shared, "{hits} of {shared} with {share} frames");
}

#[test]
fn what_a_user_resizes_is_a_start_and_an_empty_partition_stays_empty() {
    let mut world = sized(|_| {});
    loop_and_scan(&mut world, 50, 1_000);
    world.resize(1, 0);
    world.resize(0, 64);
    let moved = world.cache.moved();
    loop_and_scan(&mut world, 50, 500);
    assert_eq!((shares(&world), world.cache.moved()), (vec![64, 0], moved));
}

#[test]
fn a_partition_that_a_user_fills_again_keeps_its_minimum_from_the_first_event_on() {
    for reads in 60..200 {
        let mut world = sized(|settings| {
            let rule = Rule::Offsets(2 * FAR * PAGES..u64::MAX);
            let third = PartitionSettings { rule, ..PartitionSettings::new("third", 8, "lru") };
            settings.partitions.push(PartitionSettings { frames_min: 8, ..third });
            settings.partitions[0].frames = 23;
            settings.partitions[1].frames = 33;
        });
        world.resize(2, 0);
        loop_and_scan(&mut world, 45, reads);
        let near = shares(&world)[0];
        assert!(near > 23, "frames moved");
        world.resize(0, near - 8);
        world.resize(2, 8);
        world.tick(1);
        assert_eq!(shares(&world)[2], 8, "after {reads} reads");
    }
}

#[test]
fn the_list_of_moves_is_bounded() {
    let mut world = sized(|_| {});
    for turn in 0..60 {
        let base = if turn % 2 == 0 { 0 } else { FAR };
        for nth in 0..1_200 {
            world.load(base + nth % 50, 1);
        }
    }
    let (listed, moved) = (world.cache.moves().count(), world.cache.moved());
    assert_eq!(listed, MOVES_MAX, "{moved} frames moved");
}

#[test]
fn without_sizing_nothing_moves() {
    let mut world = sized(|settings| settings.sizing = Sizing::Manual);
    loop_and_scan(&mut world, 50, 1_000);
    assert_eq!((shares(&world), world.cache.moved()), (vec![32, 32], 0));
    assert_eq!(world.cache.moves().count(), 0);
    assert_eq!(world.cache.expected_hits(PartitionId(0), 9), None);
    assert_eq!(world.cache.sizing_bytes(), 0);
}
