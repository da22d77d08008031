//! Writes: which pages are fetched first, what is bounded, what is dirty.

use forerun_core::units::{FileId, Nanos};

use super::World;
use super::world::page;

#[test]
fn a_page_written_whole_is_not_fetched() {
    let mut world = World::new(8, "off");
    assert_eq!(world.write(1, 3, 2), "fill 1:3 fresh, fill 1:4 fresh");
    assert_eq!((world.cache.dirty_pages(), world.resident(0..9)), (0, vec![]));
    assert!(world.cache.unwritten(page(3)), "it is being filled");
    assert_eq!(world.filled(1, 3..5), "done 1");
    assert_eq!((world.cache.dirty_pages(), world.resident(0..9)), (2, vec![3, 4]));
    assert!(world.cache.unwritten(page(3)) && !world.cache.unwritten(page(5)));
    assert_eq!(world.read(2, 3, 1), "serve 2:3, done 2");
    let stats = *world.cache.stats();
    assert_eq!((stats.written, stats.fetches, stats.demand_fetched), (2, 0, 0));
}

#[test]
fn a_page_written_in_part_is_fetched_first_unless_it_is_there() {
    let mut world = World::new(32, "off");
    world.load(5, 1);
    let write = world.write_part(1, 3, 3, (true, true), false);
    assert_eq!(write, "fill 1:5, demand 3..4, fill 1:4 fresh");
    assert_eq!(world.arrive(3, 1), "fill 1:3");
    assert_eq!(world.filled(1, 3..6), "done 1");
    assert_eq!(world.write_part(2, 7, 2, (true, false), false), "demand 7..8, fill 2:8 fresh");
    assert_eq!(world.write_part(3, 11, 2, (false, true), false), "fill 3:11 fresh, demand 12..13");
}

#[test]
fn a_write_beyond_the_end_extends_the_file_and_fetches_nothing() {
    let mut world = World::new(8, "off");
    let write = world.write_part(1, 100, 2, (true, true), false);
    assert_eq!(write, "fill 1:100 fresh, fill 1:101 fresh");
    assert_eq!(world.filled(1, 100..102), "done 1");
    assert_eq!(world.read(2, 101, 1), "serve 2:101, done 2");
    assert_eq!(world.read(3, 102, 1), "fail 3: page 102 is beyond the end of a file of 102 pages");
    assert_eq!(world.write_part(4, 5, 1, (true, false), false), "demand 5..6");
    assert_eq!(world.read(5, 101, 1), "serve 5:101, done 5", "a write within cuts nothing");
    let last = u64::MAX - 1;
    let beyond = format!("fail 6: page {last} is beyond the end of a file of 102 pages");
    assert_eq!(world.write(6, last, 2), beyond);
}

#[test]
fn readers_and_writers_of_a_page_that_is_filled_wait_for_the_bytes() {
    let mut world = World::new(8, "off");
    world.write(1, 3, 1);
    assert_eq!(world.read(2, 3, 1), "");
    assert_eq!(world.write(3, 3, 1), "");
    assert_eq!(world.read(4, 3, 1), "");
    assert_eq!(world.filled(1, 3..4), "serve 2:3, done 2, fill 3:3, serve 4:3, done 4, done 1");
    assert_eq!(world.filled(3, 3..4), "done 3");
    assert_eq!(world.cache.dirty_pages(), 1);
    assert_eq!(world.cache.stats().late_hits, 2);
}

#[test]
fn a_writer_waits_for_a_page_in_flight_and_uses_up_readahead() {
    let mut world = World::new(16, "fixed:size=16K");
    world.read(1, 0, 1);
    assert_eq!(world.write(2, 1, 1), "");
    assert_eq!(world.arrive(0, 4), "serve 1:0, done 1, fill 2:1, mark 2");
    assert_eq!(world.filled(2, 1..2), "done 2");
    assert_eq!(world.write(3, 3, 1), "fill 3:3");
    let stats = *world.cache.stats();
    assert_eq!((stats.ahead_used, stats.ahead_unread), (2, 1));
}

#[test]
fn a_failed_fetch_fails_the_write_and_gives_back_its_promise() {
    let mut world = World::with(8, "off", |settings| settings.dirty_pages_max = 1);
    assert_eq!(world.write_part(1, 3, 1, (true, false), false), "demand 3..4");
    assert_eq!(world.write(2, 4, 1), "", "throttled");
    let failed = world.fail(3, 1);
    assert_eq!(failed, "fail 1: the store failed at page 3: errno 5, fill 2:4 fresh");
    assert_eq!(world.filled(2, 4..5), "done 2, write 4..5");
}

#[test]
fn a_cancelled_write_gives_back_its_promise_when_its_page_comes() {
    let mut world = World::with(8, "off", |settings| settings.dirty_pages_max = 1);
    world.write_part(1, 3, 1, (true, false), false);
    world.write(2, 4, 1);
    assert_eq!(world.cancel(1), "fail 1: cancelled");
    assert_eq!(world.arrive(3, 1), "fill 2:4 fresh");
}

#[test]
fn a_copy_under_way_ends_though_its_write_was_cancelled() {
    let mut world = World::new(8, "off");
    world.write(1, 3, 1);
    assert_eq!(world.cancel(1), "fail 1: cancelled");
    assert_eq!(world.filled(1, 3..4), "");
    assert_eq!(world.cache.dirty_pages(), 1, "the bytes count");
    assert_eq!(world.read(2, 3, 1), "serve 2:3, done 2");
}

#[test]
fn a_small_write_does_not_overtake_a_large_one_that_waits() {
    let mut world = World::with(16, "off", |settings| settings.dirty_pages_max = 4);
    world.dirty(1, 0, 3);
    assert!(!world.write(2, 5, 2).contains("fill"), "two more are too many");
    assert!(!world.write(3, 8, 1).contains("fill"), "one more would fit, but not before them");
    world.written(0, 3);
    let begun = world.synced(0);
    assert!(begun.starts_with("fill 2:5 fresh, fill 2:6 fresh, fill 3:8 fresh"), "{begun}");
}

#[test]
fn the_dirty_bound_throttles_writers_in_order() {
    let mut world = World::with(8, "off", |settings| settings.dirty_pages_max = 2);
    world.dirty(1, 0, 2);
    assert_eq!(world.write(2, 5, 2), "");
    assert_eq!(world.write(3, 7, 1), "");
    assert_eq!(world.written(0, 2), "sync");
    assert_eq!(world.cache.dirty_pages(), 2, "kept until they are durable");
    assert_eq!(world.synced(0), "fill 2:5 fresh, fill 2:6 fresh");
    assert_eq!(world.write(4, 8, 1), "", "behind the one that waits");
    assert_eq!(world.filled(2, 5..7), "write 5..6, done 2");
    assert_eq!(world.cancel(3), "fail 3: cancelled");
    assert_eq!(world.written(5, 1), "sync", "room comes of a sync first");
    assert_eq!(world.synced(0), "fill 4:8 fresh");
    assert_eq!(world.cache.dirty_pages(), 1);
}

#[test]
fn half_of_the_dirty_bound_starts_the_writing() {
    let mut world = World::with(16, "off", |settings| settings.dirty_pages_max = 6);
    world.write(1, 0, 3);
    assert_eq!(world.filled(1, 0..3), "done 1");
    assert_eq!(world.write(2, 3, 1), "fill 2:3 fresh");
    assert_eq!(world.filled(2, 3..4), "done 2, write 0..4");
    assert_eq!(world.cache.stats().writes, 1);
}

#[test]
fn a_file_holds_twice_what_is_free_at_most() {
    #[rustfmt::skip]
    let rows = [ // bound, dirty, a write of, begins
        (9,  6, 1, false),
        (10, 6, 1, true),
        (10, 6, 2, true),
        (10, 6, 3, false),
        (10, 0, 10, true),
    ];
    for (bound, dirty, count, begins) in rows {
        let mut world = World::with(16, "off", |settings| settings.dirty_pages_max = bound);
        if dirty > 0 {
            world.dirty(1, 0, dirty);
        }
        let came = world.write(2, 20, count);
        assert_eq!(came.contains("fill"), begins, "{count} beside {dirty} of {bound}: {came}");
    }
}

#[test]
fn a_file_that_cannot_be_written_throttles_no_other_files_writers() {
    let mut world = World::with(64, "off", |settings| {
        settings.dirty_pages_max = 48;
        settings.retry_delay = Nanos(100);
    });
    world.open(1, 1, 0, 100);
    world.open(2, 2, 0, 100);
    // Two stores fail. Their files take all they may: each write is of one page.
    let mut request = 0;
    for handle in [0, 1] {
        world.through(handle);
        let mut index = 0;
        loop {
            request += 1;
            let came = world.write(request, index, 1);
            if came.contains("fail") {
                break;
            }
            assert!(came.contains("fill"), "a page of {handle}: {came}");
            if world.filled(request, index..index + 1).contains("write") {
                let came = world.write_failed(0, u32::try_from(index).unwrap() + 1);
                assert_eq!(came, "");
            }
            index += 1;
        }
        assert!(index >= 8, "file {handle} has {index} pages");
    }
    world.through(2);
    for index in 0..200 {
        request += 1;
        let came = world.write(request, index % 2, 1);
        assert!(came.contains("fill"), "{index}: {came}");
        world.filled(request, index % 2..index % 2 + 1);
    }
}

#[test]
fn a_writer_waits_for_what_is_being_written_though_another_part_failed() {
    let mut world = World::with(32, "off", |settings| {
        settings.dirty_pages_max = 16;
        settings.request_pages_max = 4;
        settings.retry_delay = Nanos(1_000);
    });
    world.write(1, 0, 9);
    assert_eq!(world.filled(1, 0..9), "done 1, write 0..4, write 4..8, write 8..9");
    assert_eq!(world.write_failed(0, 4), "");
    assert_eq!(world.write(2, 20, 8), "", "five pages are still on their way");
    world.written(8, 1);
    assert_eq!(world.cancel(2), "fail 2: cancelled");
    world.write(3, 20, 8);
    let kept = world.written(4, 4);
    assert!(kept.contains("fail 3: written bytes are not durable yet"), "{kept}");
}

#[test]
fn after_a_failure_the_delay_doubles_up_to_a_bound() {
    let mut world = World::with(8, "off", |settings| settings.retry_delay = Nanos(10));
    world.dirty(1, 0, 1);
    world.flush(2);
    world.write_failed(0, 1);
    world.synced(0);
    for delay in [10, 20, 40, 80, 160, 320, 640, 640, 640] {
        let due = world.cache.writeback_due().unwrap();
        assert_eq!(due.since(world.now), Nanos(delay));
        assert_eq!(world.tick(delay - 1), "");
        assert_eq!(world.tick(1), "write 0..1");
        assert_eq!(world.cache.writeback_due(), None, "it is being written");
        assert_eq!(world.write_failed(0, 1), "");
    }
    assert_eq!(world.tick(640), "write 0..1");
    assert_eq!(world.written(0, 1), "sync", "what came of age becomes durable");
    world.synced(0);
    assert_eq!((world.cache.writeback_due(), world.cache.dirty_pages()), (None, 0));
}

#[test]
fn a_page_that_is_old_is_written_and_synced_without_a_flush() {
    let mut world = World::with(8, "off", |settings| settings.dirty_age_max = Nanos(100));
    world.dirty(1, 0, 1);
    world.now = Nanos(60);
    world.dirty(2, 4, 1);
    assert_eq!(world.cache.writeback_due(), Some(Nanos(100)));
    assert_eq!(world.cache.file_writeback_due(FileId(0)), Some(Nanos(100)));
    assert_eq!(world.cache.file_writeback_due(FileId(1)), None, "it has nothing to write");
    assert_eq!(world.tick(39), "");
    assert_eq!(world.tick(1), "write 0..1, write 4..5");
    world.written(0, 1);
    assert_eq!(world.written(4, 1), "sync");
    assert_eq!(world.synced(0), "");
    assert_eq!((world.cache.writeback_due(), world.cache.dirty_pages()), (None, 0));
}

#[test]
fn a_page_that_is_being_filled_has_no_time_to_be_written() {
    let mut world = World::with(8, "off", |settings| settings.dirty_age_max = Nanos(100));
    world.dirty(1, 0, 1);
    world.write(2, 0, 1);
    assert_eq!(world.cache.writeback_due(), None, "its copy ends first");
    world.filled(2, 0..1);
    assert_eq!(world.cache.writeback_due(), Some(Nanos(100)));
}

#[test]
fn pages_collect_while_a_write_of_their_file_is_in_flight() {
    let mut world = World::with(64, "off", |settings| {
        settings.dirty_pages_max = 16;
        settings.request_pages_max = 4;
    });
    for page in 0..8 {
        world.dirty(page, page, 1);
    }
    world.write(8, 8, 1);
    let batch = world.filled(8, 8..9);
    assert_eq!(batch, "done 8, write 0..4, write 4..8, write 8..9");
    let mut written = 9;
    for page in 9..11 {
        world.write(page, page, 1);
        assert_eq!(world.filled(page, page..page + 1), format!("done {page}"));
        written += 1;
    }
    assert_eq!((written, world.cache.stats().throttled), (11, 0));
    let throttled = world.write(11, 11, 1);
    assert_eq!((throttled.as_str(), world.cache.stats().throttled), ("", 1));
    assert_eq!(world.written(0, 4), "", "two requests are in flight");
    assert_eq!(world.written(4, 4), "sync", "more than a quarter waits for it");
}

#[test]
fn a_batch_is_bounded_and_the_next_goes_on_where_it_ended() {
    let mut world = World::with(256, "off", |settings| {
        settings.dirty_pages_max = 64;
        settings.request_pages_max = 1;
    });
    for page in 0..32 {
        world.dirty(page, 2 * page, 1);
    }
    world.write(32, 64, 1);
    let batch = world.filled(32, 64..65);
    assert_eq!(batch, "done 32, write 0..1, write 2..3, write 4..5, write 6..7");
    for request in 33..38 {
        let page = 2 * request - 65;
        world.write(request, page, 1);
        let done = format!("done {request}");
        assert_eq!(world.filled(request, page..page + 1), done, "four are in flight");
    }
    assert_eq!(world.written(0, 1), "write 7..8", "the next place, not the first");
    assert_eq!(world.written(2, 1), "write 8..9");
    assert_eq!(world.cache.stats().throttled, 0);
}

#[test]
fn a_write_that_can_never_fit_is_too_large() {
    let mut world = World::with(8, "off", |settings| settings.dirty_pages_max = 3);
    assert_eq!(world.write(1, 0, 4), "fail 1: a request of 4 pages; at most 3 fit");
    assert_eq!(world.write(2, 0, 3), "fill 2:0 fresh, fill 2:1 fresh, fill 2:2 fresh");
    world.resize(0, 2);
    assert_eq!(world.write(3, 0, 3), "fail 3: a request of 3 pages; at most 2 fit");
}

#[test]
fn throttled_writes_are_bounded() {
    let mut world = World::with(8, "off", |settings| {
        settings.dirty_pages_max = 1;
        settings.waiters_max = 2;
    });
    world.write(1, 0, 1);
    assert_eq!(world.write(2, 1, 1), "");
    assert_eq!(world.write(3, 2, 1), "");
    assert_eq!(world.write(4, 3, 1), "fail 4: more than 2 requests wait already");
}

#[test]
fn dirty_pages_do_not_leave_and_a_reader_without_frames_gets_them_written() {
    let mut world = World::with(2, "off", |settings| settings.dirty_pages_max = 4);
    world.dirty(1, 0, 2);
    assert_eq!(world.read(2, 9, 1), "write 0..2");
    assert_eq!(world.written(0, 2), "sync");
    assert_eq!(world.synced(0), "out 0, demand 9..10");
}

#[test]
fn a_write_without_a_frame_waits_for_one_and_still_fetches_nothing() {
    let mut world = World::new(2, "off");
    world.read(1, 0, 2);
    assert_eq!(world.write(2, 5, 1), "");
    assert_eq!(world.arrive(0, 1), "serve 1:0, out 0, fill 2:5 fresh");
    assert_eq!(world.filled(2, 5..6), "done 2");
    let mut world = World::with(1, "off", |settings| settings.dirty_pages_max = 4);
    world.load(0, 1);
    world.pin(0);
    let frame = world.frame(0);
    assert_eq!(world.write(1, 7, 1), "out 0 pinned");
    world.unpin(frame);
    assert_eq!(world.tick(1), "out 0, fill 1:7 fresh");
    assert_eq!(world.write_part(2, 7, 1, (true, false), false), "");
    assert_eq!(world.filled(1, 7..8), "fill 2:7, done 1");
}

#[test]
fn a_write_in_part_behind_a_cancelled_whole_one_is_fetched() {
    let mut world = World::with(1, "off", |settings| settings.dirty_pages_max = 4);
    world.load(0, 1);
    world.pin(0);
    let frame = world.frame(0);
    world.write(1, 7, 1);
    world.write_part(2, 7, 1, (true, false), false);
    world.cancel(1);
    world.unpin(frame);
    assert_eq!(world.tick(1), "out 0, demand 7..8");
    assert_eq!(world.arrive(7, 1), "fill 2:7");
}

#[test]
fn a_write_without_a_frame_fails_in_time() {
    let mut world = World::with(2, "off", |settings| {
        settings.wait_max = forerun_core::units::Nanos(10);
        settings.dirty_pages_max = 1;
    });
    world.read(1, 0, 2);
    world.write(2, 5, 1);
    world.write(3, 6, 1);
    let none = "no frame came free: all 2 are held, dirty or in flight";
    assert_eq!(world.tick(10), format!("fail 2: {none}"));
    assert_eq!(world.arrive(0, 1), "serve 1:0, out 0, fill 3:6 fresh", "its promise came back");
}

#[test]
fn a_page_being_filled_is_no_victim() {
    let mut world = World::new(2, "off");
    world.load(0, 2);
    assert_eq!(world.write(1, 0, 1), "fill 1:0");
    assert_eq!(world.read(2, 9, 2), "out 1, demand 9..10");
    assert!(world.cache.unwritten(page(0)));
}

#[test]
fn a_write_that_failed_for_lack_of_one_frame_gives_back_the_other() {
    let mut world = World::with(2, "off", |settings| {
        settings.wait_max = forerun_core::units::Nanos(10);
    });
    world.load(0, 2);
    world.pin(0);
    world.pin(1);
    let frame = world.frame(0);
    assert_eq!(world.write(1, 7, 2), "out 0 pinned, out 1 pinned");
    world.unpin(frame);
    let none = "no frame came free: all 2 are held, dirty or in flight";
    assert_eq!(world.tick(10), format!("out 0, out 1 pinned, fail 1: {none}"));
    assert_eq!(world.cache.free_frames(), 1);
    assert_eq!(world.write(2, 8, 1), "fill 2:8 fresh");
    assert_eq!(world.filled(2, 8..9), "done 2");
    assert_eq!(world.write(3, 8, 1), "fill 3:8", "both promises came back");
}

#[test]
fn a_write_in_part_fetches_the_page_that_a_whole_write_left() {
    let mut world = World::with(2, "off", |settings| {
        settings.wait_max = forerun_core::units::Nanos(10);
    });
    world.load(0, 2);
    world.pin(0);
    world.pin(1);
    let frame = world.frame(0);
    assert_eq!(world.write(1, 7, 2), "out 0 pinned, out 1 pinned");
    world.now += Nanos(5);
    assert_eq!(world.write_part(2, 7, 1, (true, false), false), "out 0 pinned, out 1 pinned");
    world.unpin(frame);
    let none = "no frame came free: all 2 are held, dirty or in flight";
    assert_eq!(world.tick(5), format!("out 0, out 1 pinned, fail 1: {none}"));
    assert_eq!(world.tick(1), "demand 7..8", "the other bytes of the page are the store's");
    assert_eq!(world.arrive(7, 1), "fill 2:7");
    assert_eq!(world.filled(2, 7..8), "done 2");
}
