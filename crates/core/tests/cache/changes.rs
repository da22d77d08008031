//! Changes that the store makes itself: what they wait for, what waits for them, what leaves.

use forerun_core::event::Event;
use forerun_core::units::Nanos;

use super::World;

const LOST: &str = "written bytes are not durable yet: errno 28; they are kept";

#[test]
fn the_pages_of_a_change_leave_when_the_store_has_made_it() {
    let mut world = World::new(16, "off");
    world.load(0, 6);
    world.dirty(1, 2, 1);
    assert_eq!(world.zero(2, 1, 4), "change 2");
    assert_eq!(world.read(3, 2, 1), "serve 3:2, done 3", "until then they stay");
    let gone = "out 1 gone, out 2 gone, out 3 gone, out 4 gone, done 2";
    assert_eq!(world.changed(2, 0), gone);
    assert_eq!((world.resident(0..6), world.cache.dirty_pages()), (vec![0, 5], 0));
    assert_eq!(world.flush(4), "sync", "page 2 is not written any more");
    assert_eq!(world.synced(0), "done 4");
}

#[test]
fn a_change_waits_for_writes_that_began_and_for_those_at_the_store() {
    let mut world = World::new(16, "off");
    world.dirty(1, 7, 1);
    assert_eq!(world.flush(2), "write 7..8");
    assert_eq!(world.write(3, 0, 1), "fill 3:0 fresh");
    assert_eq!(world.zero(4, 0, 3), "");
    assert_eq!(world.write(5, 1, 1), "", "in their order");
    assert_eq!(world.zero(6, 9, 1), "", "one at a time");
    assert_eq!(world.filled(3, 0..1), "done 3");
    assert_eq!(world.flush(7), "", "no page is written before the change");
    assert_eq!(world.written(7, 1), "sync, change 4");
    let after = "out 0 gone, done 4, fill 5:1 fresh";
    assert_eq!(world.changed(4, 0), after);
    assert_eq!(world.synced(0), "done 2, sync");
    assert_eq!(world.filled(5, 1..2), "done 5, change 6");
    assert_eq!(world.changed(6, 0), "done 6");
    assert_eq!(world.synced(0), "done 7");
}

#[test]
fn writes_behind_a_change_cause_no_writing_of_others() {
    let mut world = World::new(16, "off");
    world.open(1, 1, 0, 100);
    world.through(1).dirty(1, 0, 1);
    world.through(0);
    assert_eq!(world.zero(2, 0, 3), "change 2");
    assert_eq!(world.write(3, 1, 1), "");
    assert_eq!(world.tick(1), "", "there is room: only the change is in the way");
    assert_eq!(world.changed(2, 0), "done 2, fill 3:1 fresh");
}

#[test]
fn a_read_that_waits_for_a_changed_page_gets_its_new_bytes() {
    let mut world = World::new(16, "off");
    assert_eq!(world.read(1, 0, 3), "demand 0..3");
    assert_eq!(world.zero(2, 1, 1), "change 2");
    let old = world.frame(1);
    assert_eq!(world.changed(2, 0), "done 2, demand 1..2");
    assert_eq!(world.arrive(0, 1), "serve 1:0");
    assert_eq!(world.send(Event::Arrived { first: old, count: 1 }), "", "of before");
    assert_eq!(world.arrive(1, 1), "serve 1:1");
    assert_eq!(world.arrive(2, 1), "serve 1:2, done 1");
    assert_eq!(world.cache.free_frames(), 13);
}

#[test]
fn a_cut_fails_those_who_wait_beyond_the_end_and_lets_writes_extend_the_file_again() {
    let mut world = World::new(16, "off");
    world.load(0, 2);
    world.dirty(1, 5, 1);
    assert_eq!(world.read(2, 7, 1), "demand 7..8");
    assert_eq!(world.set_len(3, 5, false), "change 3");
    let past = "fail 2: page 7 is beyond the end of a file of 5 pages";
    assert_eq!(world.changed(3, 0), format!("out 5 gone, {past}, sync"));
    assert_eq!(world.synced(0), "done 3");
    assert_eq!(world.read(4, 5, 1), "fail 4: page 5 is beyond the end of a file of 5 pages");
    assert_eq!(world.write_part(5, 6, 1, (true, true), false), "fill 5:6 fresh");
    assert_eq!(world.filled(5, 6..7), "done 5");
    assert_eq!(world.set_len(6, 50, false), "change 6");
    assert_eq!(world.changed(6, 0), "write 6..7");
    assert_eq!(world.read(7, 49, 1), "demand 49..50", "a longer one");
}

#[test]
fn what_a_cut_page_keeps_is_durable_before() {
    let mut world = World::new(16, "off");
    world.dirty(1, 4, 2);
    assert_eq!(world.set_len(2, 4, true), "write 4..6");
    assert_eq!(world.write(3, 9, 1), "");
    assert_eq!(world.written(4, 2), "sync");
    assert_eq!(world.synced(0), "change 2");
    let changed = "out 4 gone, out 5 gone, sync, fill 3:9 fresh";
    assert_eq!(world.changed(2, 0), changed);
    assert_eq!(world.synced(0), "done 2");
    assert_eq!(world.set_len(4, 4, true), "", "a page is being filled");
    assert_eq!(world.filled(3, 9..10), "done 3, change 4", "page 4 is in the store alone");
}

#[test]
fn a_cut_whose_page_cannot_be_made_durable_fails_and_nothing_leaves() {
    let mut world = World::with(16, "off", |settings| settings.retry_delay = Nanos(10));
    world.dirty(1, 4, 1);
    assert_eq!(world.set_len(2, 4, true), "write 4..5");
    assert_eq!(world.write_failed(4, 1), "sync");
    assert_eq!(world.synced(0), format!("fail 2: {LOST}"));
    assert_eq!((world.resident(0..9), world.cache.dirty_pages()), (vec![4], 1));
    assert_eq!(world.set_len(3, 4, true), "write 4..5", "tried again");
    world.written(4, 1);
    assert_eq!(world.synced(0), "change 3");
}

#[test]
fn a_change_that_fails_keeps_what_is_dirty_and_drops_what_it_may_have_changed() {
    let mut world = World::new(16, "off");
    world.load(0, 2);
    world.dirty(1, 1, 1);
    assert_eq!(world.read(2, 3, 1), "demand 3..4");
    assert_eq!(world.set_len(3, 0, false), "change 3");
    let failed = "out 0 gone, fail 3: the store failed at page 0: errno 95, demand 3..4";
    assert_eq!(world.changed(3, 95), failed);
    assert_eq!((world.resident(0..9), world.cache.dirty_pages()), (vec![1], 1));
    assert_eq!(world.arrive(3, 1), "serve 2:3, done 2", "the length is what it was");
}

#[test]
fn a_durable_change_is_answered_by_a_sync_after_it() {
    let mut world = World::new(16, "off");
    world.dirty(1, 8, 1);
    assert_eq!(world.set_len(2, 20, false), "change 2");
    assert_eq!(world.changed(2, 0), "write 8..9", "with all that was written before");
    assert_eq!(world.written(8, 1), "sync");
    assert_eq!(
        world.synced(5),
        "fail 2: written bytes are not durable yet: errno 5; they are kept"
    );
}

#[test]
fn zeros_become_durable_without_a_flush_once_they_are_old() {
    let mut world = World::with(16, "off", |settings| settings.dirty_age_max = Nanos(100));
    world.now = Nanos(50);
    world.zero(1, 0, 4);
    assert_eq!(world.cache.writeback_due(), None, "the store changes it just now");
    assert_eq!(world.changed(1, 0), "done 1");
    assert!(world.cache.unwritten_file(forerun_core::units::FileId(0)));
    assert_eq!(world.cache.writeback_due(), Some(Nanos(150)));
    assert_eq!(world.tick(99), "");
    assert_eq!(world.tick(1), "sync");
    assert_eq!(world.zero(2, 0, 4), "change 2");
    assert_eq!(world.changed(2, 0), "done 2");
    assert_eq!(world.synced(0), "");
    assert!(world.cache.unwritten_file(forerun_core::units::FileId(0)), "the second is newer");
    assert_eq!(world.tick(100), "sync");
    assert_eq!(world.synced(5), "");
    assert!(world.cache.unwritten_file(forerun_core::units::FileId(0)), "a sync that failed");
    world.flush(3);
    world.synced(0);
    assert!(!world.cache.unwritten_file(forerun_core::units::FileId(0)));
    assert_eq!(world.cache.writeback_due(), None);
}

#[test]
fn a_change_that_waits_may_be_cancelled_and_one_in_the_store_may_not() {
    let mut world = World::new(16, "off");
    world.write(1, 0, 1);
    world.zero(2, 0, 1);
    assert_eq!(world.cancel(2), "fail 2: cancelled");
    world.filled(1, 0..1);
    assert_eq!(world.flush(3), "write 0..1");
    assert_eq!(world.zero(4, 0, 1), "", "its turn has come, and the store writes");
    assert_eq!(world.cancel(4), "fail 4: cancelled");
    assert_eq!(world.written(0, 1), "sync");
    world.synced(0);
    world.dirty(5, 0, 1);
    assert_eq!(world.set_len(6, 0, true), "write 0..1", "a flush before it");
    assert_eq!(world.cancel(6), "fail 6: cancelled");
    assert_eq!(world.written(0, 1), "", "no flush is left");
    assert_eq!(world.zero(7, 0, 1), "change 7");
    assert_eq!(world.cancel(7), "");
    assert_eq!(world.changed(7, 0), "out 0 gone, done 7");
    assert_eq!(world.write(8, 0, 1), "fill 8:0 fresh", "nothing is left in the way");
}

#[test]
fn changes_that_wait_are_bounded() {
    let mut world = World::with(16, "off", |settings| settings.waiters_max = 2);
    world.write(1, 0, 1);
    world.zero(2, 0, 1);
    world.zero(3, 0, 1);
    assert_eq!(world.zero(4, 0, 1), "fail 4: more than 2 requests wait already");
    assert_eq!(world.cache.stats().throttled, 0, "no write was throttled");
}
