//! Frames: in or out, never both; read through pins, which keep them in.

use std::panic::{AssertUnwindSafe, catch_unwind};

use forerun_core::units::FrameId;
use forerun_io::frames::{Frame, Frames, NoMemory};

fn panics(body: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(body)).is_err()
}

#[test]
fn frames_begin_zeroed_and_keep_what_is_written() {
    let frames = Frames::new(3, 256).unwrap();
    assert_eq!((frames.count(), frames.page_bytes()), (3, 256));
    for id in (0..3).map(FrameId) {
        assert_eq!(frames.pin(id)[..], [0; 256]);
    }
    let mut middle = frames.check_out(FrameId(1));
    assert_eq!((middle.id(), middle.len()), (Some(FrameId(1)), 256));
    middle.fill(7);
    frames.check_in(middle);
    assert_eq!(frames.pin(FrameId(0))[..], [0; 256]);
    assert_eq!(frames.pin(FrameId(1))[..], [7; 256]);
    assert_eq!(frames.pin(FrameId(2))[..], [0; 256]);
}

#[test]
fn frames_come_back_in_any_order_each_under_its_own_number() {
    let frames = Frames::new(2, 64).unwrap();
    let (mut first, second) = (frames.check_out(FrameId(0)), frames.check_out(FrameId(1)));
    first[3] = 9;
    frames.check_in(second);
    frames.check_in(first);
    assert_eq!(frames.pin(FrameId(0))[3], 9);
    assert_eq!(frames.pin(FrameId(1))[3], 0);
}

#[test]
fn a_frame_that_is_out_cannot_be_had_nor_looked_at() {
    let frames = Frames::new(1, 64).unwrap();
    let (id, none) = (FrameId(0), FrameId(1));
    let frame = frames.check_out(id);
    assert!(panics(|| drop(frames.check_out(id))), "taken twice");
    assert!(panics(|| drop(frames.pin(id))), "looked at");
    assert!(panics(|| drop(frames.check_out(none))), "not there");
    assert!(panics(|| drop(frames.pin(none))), "not there");
    frames.check_in(frame);
    assert_eq!(frames.pin(id).len(), 64);
}

#[test]
fn only_frames_of_a_cache_come_back_to_it() {
    let (frames, others) = (Frames::new(1, 64).unwrap(), Frames::new(1, 64).unwrap());
    let other = others.check_out(FrameId(0));
    assert!(panics(|| frames.check_in(other)), "of another");
    assert!(panics(|| frames.check_in(Frame::new(64).unwrap())), "of none");
    assert!(!panics(|| drop(frames.pin(FrameId(0)))));
}

#[test]
fn a_frame_that_is_dropped_is_checked_in_and_one_that_is_leaked_is_not() {
    let (frames, id) = (Frames::new(1, 64).unwrap(), FrameId(0));
    let lost = frames.check_out(id);
    assert!(frames.is_checked_out(id));
    assert!(panics(move || panic!("a store with {lost:?}")));
    assert!(!frames.is_checked_out(id));
    std::mem::forget(frames.check_out(id));
    assert!(frames.is_checked_out(id));
    assert!(panics(|| drop(frames.check_out(id))));
}

#[test]
fn a_frame_outlives_its_cache() {
    let frames = Frames::new(2, 4096).unwrap();
    let mut frame = frames.check_out(FrameId(1));
    drop(frames);
    frame.fill(5);
    assert_eq!(frame[..], [5; 4096]);
}

#[test]
fn many_look_at_a_frame_at_once_and_it_leaves_after_the_last() {
    let frames = Frames::new(1, 64).unwrap();
    let id = FrameId(0);
    assert!(!frames.pinned(id));
    let (first, second) = (frames.pin(id), frames.pin(id));
    assert_eq!((first.frame(), first.len(), second.len()), (id, 64, 64));
    drop(first);
    assert!(frames.pinned(id));
    assert!(panics(|| drop(frames.check_out(id))), "one is left");
    drop(second);
    assert!(!frames.pinned(id));
    frames.check_in(frames.check_out(id));
}

#[test]
fn a_pin_that_is_kept_holds_its_frame_until_somebody_goes_on_with_it() {
    let (frames, others) = (Frames::new(2, 64).unwrap(), Frames::new(2, 64).unwrap());
    let id = FrameId(1);
    let held = frames.pin(id).into_owned();
    assert_eq!(held.frame(), id);
    assert!(frames.pinned(id) && !frames.pinned(FrameId(0)));
    assert!(panics(|| drop(frames.check_out(id))));
    let again = frames.resume(held).into_owned();
    drop(frames.resume(again));
    assert!(!frames.pinned(id));
    let foreign = frames.pin_owned(id);
    assert!(panics(|| drop(others.resume(foreign))), "of another cache");
    assert!(frames.pinned(id) && !others.pinned(id));
}

#[test]
fn a_frame_of_no_cache_is_zeroed_and_at_a_multiple_of_its_size() {
    for page_bytes in [1, 16, 512, 4096, 1 << 16] {
        let mut frame = Frame::new(page_bytes).unwrap();
        assert_eq!((frame.id(), frame.len()), (None, page_bytes));
        assert!(frame.iter().all(|&byte| byte == 0));
        assert_eq!(frame.as_ptr().addr() % page_bytes, 0);
        frame.fill(0xff);
    }
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    let page_bytes = 1 << 62;
    let error = Frames::new(2, page_bytes).unwrap_err();
    assert_eq!(error, NoMemory { count: 2, page_bytes });
    assert_eq!(error.errno(), rustix::io::Errno::NOMEM.raw_os_error());
    assert!(error.to_string().contains("2 frames"));
    assert!(Frame::new(page_bytes).is_err());
    assert!(panics(|| drop(Frames::new(1, 100))), "no power of two");
    assert!(panics(|| drop(Frame::new(0))), "nor is nothing");
}

#[test]
fn no_frames_are_no_error() {
    let frames = Frames::new(0, 4096).unwrap();
    assert_eq!((frames.count(), frames.region().1), (0, 0));
}

#[test]
fn frames_lie_one_behind_the_other() {
    let frames = Frames::new(1_000, 8192).unwrap();
    let (base, bytes) = frames.region();
    assert_eq!((base.addr() % (2 << 20), bytes), (0, 1_000 * 8192));
    for id in [0, 1, 500, 999] {
        let at = base.addr() + id as usize * 8192;
        assert_eq!(frames.pin(FrameId(id)).as_ptr().addr(), at);
    }
    assert!(frames.huge_bytes() <= 8 << 20);
}
