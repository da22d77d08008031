//! Files that shrink, change, are closed and opened again.

use super::World;
use super::world::page;
use forerun_core::event::Event;

#[test]
fn truncate_drops_pages_beyond_the_end_dirty_ones_too() {
    let mut world = World::new(8, "off");
    world.load(0, 2);
    world.dirty(1, 2, 2);
    assert_eq!(world.truncate(1), "out 1 gone, out 2 gone, out 3 gone");
    assert_eq!((world.cache.dirty_pages(), world.cache.free_frames()), (0, 7));
    assert_eq!(world.cache.stats().invalidated, 3);
    assert_eq!(world.read(2, 1, 1), "fail 2: page 1 is beyond the end of a file of 1 pages");
    assert_eq!(world.flush(3), "sync");
    assert_eq!(world.synced(0), "done 3");
    assert_eq!(world.truncate(4), "");
    assert_eq!(world.read(4, 2, 1), "demand 2..3", "what was cut does not come back");
}

#[test]
fn truncate_drops_what_waits_for_a_sync() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 2);
    world.flush(2);
    assert_eq!(world.written(0, 2), "sync");
    assert_eq!(world.truncate(0), "out 0 gone, out 1 gone");
    assert_eq!(world.cache.dirty_pages(), 0);
    assert_eq!(world.synced(0), "done 2");
    assert_eq!(world.cache.free_frames(), 8);
}

#[test]
fn truncate_lets_a_flush_go_on_that_waited_for_what_is_gone() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.write(2, 0, 1);
    assert_eq!(world.flush(3), "");
    assert_eq!(world.truncate(0), "out 0 gone, sync");
    assert_eq!(world.filled(2, 0..1), "done 2");
    assert_eq!(world.cache.free_frames(), 8, "the frame comes free when the copy has ended");
    assert_eq!(world.synced(0), "done 3");
}

#[test]
fn truncate_fails_those_who_wait_for_pages_beyond_the_end() {
    let mut world = World::new(2, "off");
    assert_eq!(world.read(1, 4, 2), "demand 4..6");
    assert_eq!(world.write_part(2, 5, 1, (true, false), false), "");
    assert_eq!(world.read(3, 9, 1), "", "no frame");
    let of = "is beyond the end of a file of 5 pages";
    let cut = format!("fail 1: page 5 {of}, fail 2: page 5 {of}, fail 3: page 9 {of}");
    assert_eq!(world.truncate(5), cut);
    assert_eq!(world.arrive(4, 2), "");
    assert_eq!(world.cache.free_frames(), 1);
    assert_eq!(world.cache.deadline(), None);
}

#[test]
fn a_page_that_went_while_it_was_in_flight_is_fetched_anew() {
    let mut world = World::new(4, "off");
    world.read(1, 5, 1);
    let old = world.frame(5);
    assert_eq!(world.invalidate(5, 1), "fail 1: the file changed at page 5: read it again");
    assert_eq!(world.read(2, 5, 1), "demand 5..6", "into another frame");
    assert_ne!(world.frame(5), old);
    assert_eq!(world.arrive(5, 1), "serve 2:5, done 2");
    assert_eq!(world.send(Event::Failed { first: old, count: 1, errno: 5 }), "");
    assert_eq!(world.cache.free_frames(), 3);
}

#[test]
fn a_page_read_ahead_that_goes_is_waste() {
    let mut world = World::new(16, "fixed:size=16K");
    world.read(1, 0, 1);
    world.arrive(0, 2);
    assert_eq!(world.invalidate(1, 2), "out 1 gone");
    let stats = *world.cache.stats();
    assert_eq!((stats.ahead_wasted, stats.ahead_unread, stats.invalidated), (2, 1, 2));
}

#[test]
fn invalidate_spares_what_is_not_in_the_store_yet() {
    let mut world = World::new(16, "off");
    world.load(0, 3);
    world.dirty(1, 1, 1);
    world.write(2, 2, 1);
    world.write(3, 3, 1);
    assert_eq!(world.invalidate(0, u64::MAX), "out 0 gone");
    assert_eq!(world.resident(0..4), [1, 2]);
    assert!([1, 2, 3].iter().all(|&index| world.cache.unwritten(page(index))));
    assert!(!world.cache.unwritten(page(0)));
    assert_eq!(world.filled(3, 3..4), "done 3");
}

#[test]
fn invalidate_keeps_to_its_range_and_its_file() {
    let mut world = World::new(32, "off");
    world.open(1, 1, 0, 100);
    world.load(0, 9);
    world.through(1).load(0, 9);
    world.through(0);
    assert_eq!(world.invalidate(3, 2), "out 3 gone, out 4 gone", "fewer than are there");
    let more = "out 0 gone, out 1 gone, out 2 gone, out 5 gone, out 6 gone, out 7 gone";
    assert_eq!(world.invalidate(0, 8), more, "more than are there");
    assert_eq!(world.resident(0..9), [8]);
    assert_eq!(world.through(1).resident(0..9).len(), 9);
    assert_eq!(world.invalidate(20, 2), "");
}

#[test]
fn a_read_that_waits_for_a_frame_is_not_served_two_versions() {
    let mut world = World::new(2, "off");
    world.load(0, 2);
    world.pin(0);
    world.pin(1);
    assert_eq!(world.read(1, 1, 2), "serve 1:1, out 0 pinned, out 1 pinned");
    assert_eq!(world.read(2, 9, 1), "out 0 pinned, out 1 pinned");
    let frame = world.frame(0);
    world.unpin(frame);
    let changed = "fail 1: the file changed at page 2: read it again";
    let expected = format!("out 1 gone pinned, {changed}, out 0, demand 9..10");
    assert_eq!(world.invalidate(1, 2), expected);
}

#[test]
fn a_closed_file_keeps_its_pages_and_is_forgotten_without_any() {
    let mut world = World::with(4, "off", |settings| settings.files_max = 2);
    world.load(0, 2);
    assert_eq!(world.close(0), "");
    assert_eq!(world.resident(0..2), [0, 1]);
    world.open(0, 0, 0, 100);
    assert_eq!(world.read(1, 0, 1), "serve 1:0, done 1");
    for file in 1..9 {
        world.open(1, file, 0, 10);
        world.through(1).read(2, 0, 1);
        world.arrive(0, 1);
        world.invalidate(0, 1);
        world.close(1);
    }
    world.through(0);
    for file in 1..9 {
        world.open(1, file, 0, 10);
        world.through(1).dirty(2, 0, 1);
        world.flush(3);
        world.written(0, 1);
        assert_eq!(world.synced(0), "done 3");
        world.through(0).load(u64::from(file) * 10, 4);
        world.close(1);
    }
}

#[test]
fn a_file_opened_again_with_fewer_pages_lost_the_others() {
    let mut world = World::new(8, "off");
    world.load(4, 4);
    world.close(0);
    assert_eq!(world.open(0, 0, 0, 6), "out 6 gone, out 7 gone");
    assert_eq!(world.resident(0..9), [4, 5]);
    world.write(1, 9, 1);
    assert_eq!(world.read(2, 7, 1), "demand 7..8", "a hole, not what was there before");
}

#[test]
fn a_file_known_to_others_keeps_its_length() {
    let mut world = World::new(8, "off");
    world.load(4, 4);
    world.open(1, 0, 0, 6);
    assert_eq!(world.read(1, 7, 1), "serve 1:7, done 1");
    world.close(1);
    world.dirty(2, 8, 1);
    world.close(0);
    world.open(0, 0, 0, 6);
    assert_eq!(world.read(3, 7, 1), "serve 3:7, done 3", "it has bytes to write");
    world.truncate(6);
    world.close(0);
    world.open(0, 0, 0, 50);
    assert_eq!(world.read(4, 49, 1), "demand 49..50", "it grew");
}

#[test]
fn truncate_of_an_unknown_file_does_nothing() {
    let mut world = World::new(8, "off");
    world.close(0);
    assert_eq!((world.truncate(0), world.invalidate(0, 9)), (String::new(), String::new()));
}

#[test]
fn a_doomed_page_that_a_reader_holds_lingers_when_its_copy_has_ended() {
    let mut world = World::new(2, "off");
    world.load(0, 1);
    world.write(1, 0, 1);
    world.pin(0);
    let frame = world.frame(0);
    assert_eq!(world.truncate(0), "out 0 gone pinned");
    assert_eq!(world.filled(1, 0..1), "still held, done 1", "its pin may have been dropped since");
    assert_eq!((world.cache.free_frames(), world.tick(1)), (1, "still held".into()));
    world.unpin(frame);
    assert_eq!((world.tick(1), world.cache.free_frames()), ("let go".into(), 2));
}

#[test]
fn a_hit_on_a_frame_that_came_free_and_was_used_again_is_stale() {
    let mut world = World::new(1, "off");
    world.load(0, 1);
    let hit = world.hit(0);
    world.truncate(0);
    world.truncate(8);
    world.load(3, 1);
    assert_eq!(world.hit(3).frame, hit.frame, "there is one frame");
    world.send(Event::Hits { hits: &[hit] });
    let stats = world.cache.stats();
    assert_eq!((stats.hits, stats.stale_hits), (0, 1));
}
