//! The outcomes that explained windows report: each page that was read ahead, once.

use super::World;
use forerun_core::event::PrefetchOutcomes;
use forerun_core::prng::Prng;
use forerun_core::units::Nanos;
use forerun_core::windows::{WindowLog, WindowRecord};

/// Windows of four pages, with a tail of two.
const FOUR: &str = "fixed:size=16K";

fn explained(frames: u32) -> World {
    World::with(frames, FOUR, |settings| settings.explain = true)
}

/// The first window: its fresh pages; used, late, wasted, failed; unread.
fn first(world: &World) -> (u32, [u32; 4], u32) {
    let WindowRecord { fresh, outcomes, unread, .. } = world.outside.log.rows(&world.cache)[0];
    (fresh, [outcomes.used, outcomes.late, outcomes.wasted, outcomes.failed], unread)
}

#[test]
fn each_page_of_a_window_has_its_outcome() {
    type Act = fn(&mut World);
    let arrived: Act = |world| {
        world.arrive(0, 4);
    };
    #[rustfmt::skip] // A table test: add a row, not a function.
    let rows: [(&str, Act, Act, [u32; 4], u32); 10] = [ // why, then, then; three outcomes, unread
        ("in flight, nobody asked",  |_| {},  |_| {},                            [0, 0, 0, 0], 3),
        ("asked for in flight",      |_| {},  |w| { w.read(2, 1, 2); },          [0, 2, 0, 0], 1),
        ("asked for again",          |_| {},  |w| { w.read(2, 1, 1); w.read(3, 1, 1); },
                                                                                 [0, 1, 0, 0], 2),
        ("asked for once there",     arrived, |w| { w.read(2, 1, 1); },          [1, 0, 0, 0], 2),
        ("found without a lock",     arrived, |w| { w.use_page(3); w.use_page(3); },
                                                                                 [1, 0, 0, 0], 2),
        ("overwritten",              arrived, |w| { w.write(2, 2, 1); },         [1, 0, 0, 0], 2),
        ("evicted",                  arrived, |w| { w.read(2, 50, 1); },         [0, 0, 1, 0], 2),
        ("a victim that is held",    arrived, |w| { w.pin(1); w.read(2, 50, 1); },
                                                                                 [1, 0, 1, 0], 1),
        ("cut off",                  arrived, |w| { w.truncate(2); },            [0, 0, 2, 0], 1),
        ("the store failed",         |_| {},  |w| { w.fail(0, 4); },             [0, 0, 0, 3], 0),
    ];
    for (why, before, act, outcomes, unread) in rows {
        let mut world = explained(4);
        world.read(1, 0, 1);
        before(&mut world);
        act(&mut world);
        assert_eq!(first(&world), (4, outcomes, unread), "{why}");
    }
}

#[test]
fn a_window_ends_with_its_last_use_and_begins_with_its_opening() {
    let mut world = explained(4);
    let mut times = Vec::new();
    for (now, page) in [(10, 0), (20, 1), (30, 1), (40, 50)] {
        world.now = Nanos(now);
        world.read(now, page, 1);
        if page == 0 {
            world.arrive(0, 4);
        }
        let row = world.outside.log.rows(&world.cache)[0];
        times.push((row.at.0, row.last_use.0));
    }
    assert_eq!(times, [(10, 10), (10, 20), (10, 20), (10, 20)], "neither again nor wasted");
}

#[test]
fn without_explain_and_without_a_window_nothing_is_told() {
    let mut silent = World::new(8, FOUR);
    silent.read(1, 0, 2);
    assert!(silent.outside.log.rows(&silent.cache).is_empty());
    assert_eq!((silent.outcomes(), silent.cache.unread().count()), ([0; 4], 0));
    let mut world = explained(8);
    world.prefetch(0, 4);
    world.read(1, 1, 1);
    assert_eq!((world.outcomes(), world.cache.stats().ahead_used), ([0; 4], 1));
}

#[test]
fn windows_are_numbered_in_the_order_of_their_opening_and_the_log_is_bounded() {
    let mut world = explained(16);
    world.outside.log = WindowLog::new(2);
    for (request, page) in [(1, 0), (2, 20), (3, 40)] {
        world.read(request, page, 1);
    }
    world.read(4, 21, 1);
    world.read(5, 41, 1);
    let rows = world.outside.log.rows(&world.cache);
    let late: Vec<_> =
        rows.iter().map(|row| (row.decision.window.start, row.outcomes.late)).collect();
    assert_eq!((late, world.outside.log.left_out()), (vec![(0, 0), (20, 1)], 1));
}

#[test]
fn what_windows_are_told_adds_up_to_what_was_counted() {
    for (seed, policy) in (0..).zip(forerun_core::readahead::NAMES.iter().cycle().take(28)) {
        let mut random = Prng::new(seed);
        let mut world = World::with(600, policy, |settings| {
            settings.explain = true;
            settings.request_pages_max = 8;
        });
        world.open(1, 1, 0, 4_000);
        world.through(1);
        let mut at = 0;
        for request in 0..400 {
            at = if random.below(10) == 0 { random.below(3_900) } else { at + random.below(8) / 7 };
            world.read_after(request, at.min(3_990), 2, Some(at * 4_096), false);
            at = (at + 2).min(3_990);
            world.arrive_all();
            match random.below(60) {
                0 => drop(world.truncate(2_000 + random.below(2_000))),
                1 => drop(world.invalidate(random.below(4_000), 100)),
                _ => {}
            }
        }
        let stats = *world.cache.stats();
        let counted =
            [stats.ahead_used, stats.ahead_wasted, stats.ahead_failed, stats.ahead_unread];
        assert_eq!(world.outcomes(), counted, "{policy}, seed {seed}");
        // A jump of one page ends a stream of zfs.
        let none = ["off", "zfs"].contains(policy);
        assert!(none || stats.ahead_used > 0, "{policy}: nothing was read ahead");
    }
}

#[test]
fn outcomes_add_up() {
    let mut sum = PrefetchOutcomes { used: 1, late: 2, wasted: 3, failed: 4 };
    sum += PrefetchOutcomes { used: 10, late: 20, wasted: 30, failed: 40 };
    assert_eq!(sum, PrefetchOutcomes { used: 11, late: 22, wasted: 33, failed: 44 });
}
