//! Frames: in the table or out, never both, all of one size.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

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
        assert_eq!(frames.read(id)[..], [0; 256]);
    }
    frames.write(FrameId(1)).fill(7);
    assert_eq!(frames.read(FrameId(0))[..], [0; 256]);
    assert_eq!(frames.read(FrameId(1))[..], [7; 256]);
    assert_eq!(frames.read(FrameId(2))[..], [0; 256]);
}

#[test]
fn a_frame_keeps_its_bytes_while_it_is_out_and_comes_back_by_any_number() {
    let frames = Frames::new(2, 64).unwrap();
    let (mut first, second) = (frames.take(FrameId(0)), frames.take(FrameId(1)));
    assert_eq!((first.len(), first.iter().max()), (64, Some(&0)));
    first[3] = 9;
    frames.put(FrameId(1), first);
    frames.put(FrameId(0), second);
    assert_eq!(frames.read(FrameId(1))[3], 9);
    assert_eq!(frames.read(FrameId(0))[3], 0);
}

#[test]
fn a_frame_that_is_out_cannot_be_had_and_one_that_is_in_not_replaced() {
    let frames = Frames::new(1, 64).unwrap();
    let (id, none) = (FrameId(0), FrameId(1));
    assert!(panics(|| frames.put(id, Frame::new(64).unwrap())));
    let _ = frames.take(id);
    assert!(panics(|| drop(frames.take(id))));
    assert!(panics(|| drop(frames.read(id))));
    assert!(panics(|| drop(frames.write(id))));
    assert!(panics(|| frames.put(id, Frame::new(128).unwrap())));
    assert!(panics(|| drop(frames.read(none))));
    frames.put(id, Frame::new(64).unwrap());
    assert_eq!(frames.read(id).len(), 64);
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
}

#[test]
fn many_read_a_frame_at_once_and_taking_it_waits_for_them() {
    let frames = Frames::new(1, 64).unwrap();
    let id = FrameId(0);
    let (first, second) = (frames.read(id), frames.read(id));
    thread::scope(|scope| {
        let (sender, taken) = channel();
        let frames = &frames;
        scope.spawn(move || sender.send(frames.take(id)));
        drop(first);
        let early = taken.recv_timeout(Duration::from_millis(20));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        drop(second);
        assert_eq!(taken.recv_timeout(Duration::from_secs(20)).unwrap().len(), 64);
    });
}
