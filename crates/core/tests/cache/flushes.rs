//! Flushes: epochs, syncs, failures, and the handles that report them.

use forerun_core::units::Nanos;

use super::World;

const LOST: &str = "written bytes are not durable yet: errno 28; they are kept";
const LOST_BY_SYNC: &str = "written bytes are not durable yet: errno 5; they are kept";

#[test]
fn a_flush_writes_what_is_dirty_then_syncs_then_is_done() {
    let mut world = World::new(8, "off");
    world.dirty(1, 3, 2);
    world.dirty(2, 9, 1);
    assert_eq!(world.flush(3), "write 3..5, write 9..10");
    assert_eq!(world.written(9, 1), "");
    assert_eq!(world.written(3, 1), "", "a write may end in parts");
    assert_eq!(world.written(4, 1), "sync");
    assert_eq!(world.synced(0), "done 3");
    let stats = *world.cache.stats();
    assert_eq!((stats.writes, stats.syncs, world.cache.dirty_pages()), (2, 1, 0));
    assert!(!world.cache.unwritten(super::world::page(3)));
}

#[test]
fn writes_are_cut_to_the_largest_request_and_go_out_in_the_order_of_the_file() {
    let mut world = World::with(16, "off", |settings| settings.request_pages_max = 2);
    for (request, index) in [(1, 5), (2, 3), (3, 4), (4, 6), (5, 8)] {
        world.dirty(request, index, 1);
    }
    assert_eq!(world.flush(9), "write 3..5, write 5..7, write 8..9");
}

#[test]
fn a_flush_of_nothing_syncs_all_the_same() {
    let mut world = World::new(8, "off");
    assert_eq!(world.flush(1), "sync");
    assert_eq!(world.synced(0), "done 1");
}

#[test]
fn a_flush_waits_for_a_sync_that_began_after_it() {
    let mut world = World::new(8, "off");
    assert_eq!(world.flush(1), "sync");
    assert_eq!(world.flush(2), "");
    assert_eq!(world.synced(0), "done 1, sync");
    assert_eq!(world.synced(0), "done 2");
}

#[test]
fn a_page_that_was_written_while_a_sync_ran_waits_for_the_next() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.flush(2);
    assert_eq!(world.written(0, 1), "sync");
    world.dirty(3, 1, 1);
    assert_eq!(world.flush(4), "write 1..2");
    assert_eq!(world.written(1, 1), "");
    assert_eq!(world.synced(0), "done 2, sync");
    assert_eq!(world.cache.dirty_pages(), 1);
    assert_eq!(world.synced(0), "done 4");
    assert_eq!(world.cache.dirty_pages(), 0);
}

#[test]
fn later_writes_do_not_delay_a_flush() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    assert_eq!(world.flush(2), "write 0..1");
    world.write(3, 1, 1);
    assert_eq!(world.filled(3, 1..2), "done 3", "no flush waits for it");
    assert_eq!(world.written(0, 1), "sync");
    assert_eq!(world.synced(0), "done 2");
    assert_eq!(world.cache.dirty_pages(), 1);
}

#[test]
fn a_page_dirtied_again_while_it_is_written_is_written_again() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    assert_eq!(world.flush(2), "write 0..1");
    assert_eq!(world.write(3, 0, 1), "fill 3:0");
    assert_eq!(world.filled(3, 0..1), "done 3");
    assert_eq!(world.write(4, 0, 1), "fill 4:0");
    assert_eq!(world.filled(4, 0..1), "done 4");
    assert_eq!(world.written(0, 1), "sync", "the flush has what it waited for");
    assert_eq!(world.synced(0), "done 2");
    assert_eq!(world.flush(5), "write 0..1");
    assert_eq!(world.written(0, 1), "sync");
    assert_eq!(world.synced(0), "done 5");
    assert_eq!(world.cache.dirty_pages(), 0);
}

#[test]
fn a_page_dirtied_again_before_its_sync_is_written_again() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.flush(2);
    assert_eq!(world.written(0, 1), "sync");
    world.write(3, 0, 1);
    assert_eq!(world.filled(3, 0..1), "done 3");
    assert_eq!(world.synced(0), "done 2");
    assert_eq!(world.cache.dirty_pages(), 1);
    assert_eq!(world.flush(4), "write 0..1");
}

#[test]
fn a_flush_waits_for_a_copy_into_a_dirty_page() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.write(2, 0, 1);
    assert_eq!(world.flush(3), "", "no page is written while bytes are copied into it");
    assert_eq!(world.filled(2, 0..1), "write 0..1, done 2");
    assert_eq!(world.written(0, 1), "sync");
}

#[test]
fn a_durable_write_is_done_when_it_is_durable() {
    let mut world = World::new(8, "off");
    world.write_part(1, 0, 2, (false, false), true);
    assert_eq!(world.filled(1, 0..2), "write 0..2");
    assert_eq!(world.written(0, 2), "sync");
    assert_eq!(world.synced(0), "done 1");
}

#[test]
fn a_durable_write_that_fails_says_so() {
    let mut world = World::new(8, "off");
    world.write_part(1, 0, 1, (false, false), true);
    world.filled(1, 0..1);
    assert_eq!(world.write_failed(0, 1), "sync");
    assert_eq!(world.synced(0), format!("fail 1: {LOST}"));
    assert_eq!(world.cache.dirty_pages(), 1);
}

#[test]
fn a_failed_write_keeps_its_page_and_the_next_flush_writes_it_again() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.flush(2);
    assert_eq!(world.write_failed(0, 1), "sync");
    assert_eq!(world.synced(0), format!("fail 2: {LOST}"));
    assert_eq!((world.cache.dirty_pages(), world.cache.stats().write_failures), (1, 1));
    assert_eq!(world.read(3, 0, 1), "serve 3:0, done 3");
    assert_eq!(world.flush(4), "write 0..1");
    assert_eq!(world.written(0, 1), "sync");
    assert_eq!(world.synced(0), "done 4");
    assert_eq!(world.cache.dirty_pages(), 0);
}

#[test]
fn a_failed_write_of_a_page_dirtied_again_keeps_the_newer_bytes() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.flush(2);
    world.dirty(3, 0, 1);
    assert_eq!(world.write_failed(0, 1), "sync");
    assert_eq!(world.synced(0), format!("fail 2: {LOST}"));
    assert_eq!(world.flush(4), "write 0..1");
    world.written(0, 1);
    assert_eq!(world.synced(0), "done 4");
}

#[test]
fn a_flush_that_failed_does_not_wait_for_pages_that_are_left_alone() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.dirty(2, 5, 1);
    world.write(3, 0, 1);
    assert_eq!(world.flush(4), "write 5..6");
    assert_eq!(world.write_failed(5, 1), "sync");
    assert_eq!(world.filled(3, 0..1), "done 3", "no more writes after the failure");
    assert_eq!(world.synced(0), format!("fail 4: {LOST}"));
    assert_eq!(world.flush(5), "write 0..1, write 5..6");
}

#[test]
fn after_a_failed_sync_everything_is_written_again() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 2);
    world.flush(2);
    assert_eq!(world.written(0, 2), "sync");
    world.dirty(3, 5, 1);
    assert_eq!(world.flush(4), "write 5..6");
    world.written(5, 1);
    assert_eq!(world.synced(5), format!("fail 2: {LOST_BY_SYNC}, sync"));
    assert_eq!(world.cache.dirty_pages(), 3);
    assert_eq!(world.synced(0), format!("fail 4: {LOST_BY_SYNC}"));
    assert_eq!(world.flush(5), "write 0..2, write 5..6");
    world.written(0, 2);
    assert_eq!(world.written(5, 1), "sync");
    assert_eq!(world.synced(0), "done 5");
}

#[test]
fn a_write_that_ran_while_a_sync_failed_is_repeated() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.flush(2);
    assert_eq!(world.written(0, 1), "sync");
    world.dirty(3, 5, 1);
    assert_eq!(world.flush(8), "write 5..6");
    assert_eq!(world.synced(5), format!("fail 2: {LOST_BY_SYNC}, sync"));
    assert_eq!(world.synced(0), format!("fail 8: {LOST_BY_SYNC}"));
    // Page 5 was on its way when the sync failed: the store may have taken it and lost it.
    assert_eq!(world.flush(4), "write 0..1");
    assert_eq!(world.written(0, 1), "");
    assert_eq!(world.written(5, 1), "write 5..6", "the first time does not count");
    assert_eq!(world.written(5, 1), "sync");
    assert_eq!(world.synced(0), "done 4");
}

#[test]
fn a_page_dirtied_again_while_a_sync_failed_keeps_the_older_flush_waiting() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.flush(2);
    world.written(0, 1);
    world.dirty(3, 5, 1);
    assert_eq!(world.flush(8), "write 5..6");
    assert_eq!(world.synced(5), format!("fail 2: {LOST_BY_SYNC}, sync"));
    assert_eq!(world.synced(0), format!("fail 8: {LOST_BY_SYNC}"));
    assert_eq!(world.flush(4), "write 0..1");
    world.dirty(5, 5, 1);
    world.written(0, 1);
    assert_eq!(world.written(5, 1), "write 5..6");
    assert_eq!(world.written(5, 1), "sync");
    assert_eq!(world.synced(0), "done 4");
    assert_eq!(world.flush(6), "sync");
    assert_eq!((world.synced(0), world.cache.dirty_pages()), ("done 6".into(), 0));
}

#[test]
fn a_failure_is_told_once_to_every_handle() {
    let mut world = World::new(8, "off");
    world.open(1, 0, 0, 100);
    world.dirty(1, 0, 1);
    world.flush(2);
    world.write_failed(0, 1);
    world.synced(0);
    world.open(2, 0, 0, 100);
    let mut flushed = |request: u64, handle: u32| {
        world.through(handle).flush(request);
        world.written(0, 1);
        world.synced(0)
    };
    assert_eq!(flushed(3, 1), format!("fail 3: {LOST}"));
    for (request, handle) in [(4, 1), (5, 0), (6, 2)] {
        world.through(handle).flush(request);
        assert_eq!(world.synced(0), format!("done {request}"));
    }
}

#[test]
fn a_cancelled_flush_is_answered_once_and_tells_no_failure() {
    let mut world = World::new(8, "off");
    world.dirty(1, 0, 1);
    world.flush(2);
    world.flush(3);
    assert_eq!(world.cancel(2), "fail 2: cancelled");
    assert_eq!(world.cancel(2), "");
    assert_eq!(world.write_failed(0, 1), "sync");
    assert_eq!(world.synced(0), format!("fail 3: {LOST}"));
}

#[test]
fn flushes_are_bounded_and_cancelled_ones_do_not_count() {
    let mut world = World::with(8, "off", |settings| settings.waiters_max = 2);
    world.flush(1);
    world.flush(2);
    let busy = |request: u64| format!("fail {request}: more than 2 requests wait already");
    assert_eq!(world.flush(3), busy(3));
    assert_eq!(world.write(4, 0, 1), busy(4));
    world.cancel(2);
    assert_eq!(world.flush(5), "");
    assert_eq!(world.flush(6), busy(6));
    assert_eq!(world.synced(0), "done 1, sync");
    assert_eq!(world.synced(0), "done 5");
    assert_eq!(world.write_part(7, 0, 1, (false, false), true), "fill 7:0 fresh");
}

#[test]
fn files_are_flushed_each_by_itself() {
    let mut world = World::new(8, "off");
    world.open(1, 1, 0, 10);
    world.dirty(1, 0, 1);
    world.through(1).dirty(2, 0, 1);
    assert_eq!(world.flush(3), "write f1/0..1");
    assert_eq!(world.written(0, 1), "sync f1");
    assert_eq!(world.synced(0), "done 3");
    assert_eq!(world.cache.dirty_pages(), 1);
}

#[test]
fn a_store_that_keeps_failing_fails_the_writers_that_wait_for_room() {
    let mut world = World::with(8, "off", |settings| {
        settings.dirty_pages_max = 1;
        settings.retry_delay = Nanos(10);
    });
    world.write(1, 0, 1);
    assert_eq!(world.filled(1, 0..1), "done 1, write 0..1");
    assert_eq!(world.write(2, 1, 1), "");
    assert_eq!(world.write(3, 2, 1), "");
    assert_eq!(world.write_failed(0, 1), format!("fail 2: {LOST}, fail 3: {LOST}"));
    assert_eq!(world.write(4, 1, 1), format!("fail 4: {LOST}"));
    assert_eq!(world.cache.writeback_due(), Some(Nanos(10)));
    assert_eq!(world.tick(9), "", "it is too early for another try");
    assert_eq!(world.tick(1), "write 0..1");
    assert_eq!(world.write(5, 1, 1), "");
    assert_eq!(world.written(0, 1), "sync");
    assert_eq!(world.synced(0), "fill 5:1 fresh");
}

#[test]
fn a_writer_to_another_file_waits_as_long_as_something_may_drain() {
    let mut world = World::with(8, "off", |settings| settings.dirty_pages_max = 2);
    world.open(1, 1, 0, 10);
    world.dirty(1, 0, 1);
    world.through(1).dirty(2, 0, 1);
    world.write(3, 1, 1);
    world.through(0);
    assert_eq!(world.write_failed(0, 1), "", "the other file's page is on its way");
    world.through(1);
    assert_eq!(world.written(0, 1), "sync f1");
    assert_eq!(world.synced(0), "fill 3:1 fresh");
    assert_eq!(world.write(4, 2, 1), "");
    world.cancel(4);
    world.filled(3, 1..2);
    world.write(5, 2, 1);
    let io = "fail 5: written bytes are not durable yet: errno 28; they are kept";
    assert_eq!(world.write_failed(1, 1), io);
}

#[test]
fn a_writer_that_no_drain_can_help_fails_at_once() {
    let mut world = World::with(8, "off", |settings| {
        settings.dirty_pages_max = 4;
        settings.retry_delay = Nanos(1_000);
    });
    world.open(1, 1, 0, 10);
    world.write(1, 0, 3);
    assert_eq!(world.filled(1, 0..3), "done 1, write 0..3");
    assert_eq!(world.write_failed(0, 3), "", "they stay, and one more page is free");
    world.through(1);
    let full = "fail 2: all 4 pages that may be dirty belong to files whose store fails";
    assert_eq!(world.write(2, 0, 2), full, "all that is dirty waits after a failure");
    world.dirty(3, 0, 1);
    assert_eq!(world.write(4, 1, 1), "", "its own page is on its way");
}
