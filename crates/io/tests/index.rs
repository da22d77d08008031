//! The index: what is published is found, what is retracted is not, and pins are in between.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use forerun_core::{
    event::Hit,
    prng::Prng,
    units::{FileId, FrameId, PageId},
};
use forerun_io::{
    frames::{Frames, Pin},
    index::{Index, PinnedPage, Publisher},
};

const PAGE_BYTES: usize = 64;

fn index(frames: u32) -> (Arc<Index>, Publisher) {
    Index::new(Arc::new(Frames::new(frames, PAGE_BYTES).unwrap())).unwrap()
}

fn page(file: u32, index: u64) -> PageId {
    PageId { file: FileId(file), index }
}

fn panics(body: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(body)).is_err()
}

/// What `find` says: frame, generation, marker.
fn found(index: &Index, page: PageId) -> Option<(u32, u32, bool)> {
    let found = index.find(page)?;
    assert_eq!(found.pin.frame(), found.hit.frame);
    let Hit { frame, generation } = found.hit;
    Some((frame.0, generation, found.marker))
}

#[test]
fn what_is_published_is_found_until_it_is_retracted() {
    let (index, mut publisher) = index(4);
    let (a, b, elsewhere) = (page(1, 0), page(1, 1 << 40), page(2, 0));
    publisher.publish(a, FrameId(3), u32::MAX, true);
    publisher.publish(b, FrameId(0), 0, false);
    assert_eq!(found(&index, a), Some((3, u32::MAX, true)));
    assert_eq!(found(&index, b), Some((0, 0, false)));
    assert_eq!(found(&index, elsewhere), None);
    assert!(publisher.retract(FrameId(3), false));
    assert_eq!((found(&index, a), found(&index, b)), (None, Some((0, 0, false))));
    publisher.publish(elsewhere, FrameId(3), 1, false);
    assert_eq!((found(&index, a), found(&index, elsewhere)), (None, Some((3, 1, false))));
}

#[test]
fn a_page_published_again_has_the_new_marker() {
    let (index, mut publisher) = index(1);
    publisher.publish(page(1, 7), FrameId(0), 5, false);
    let reader = index.find(page(1, 7)).unwrap();
    for marker in [true, false, true, true] {
        publisher.publish(page(1, 7), FrameId(0), 5, marker);
        assert_eq!(found(&index, page(1, 7)), Some((0, 5, marker)));
    }
    assert!(index.frames().pinned(FrameId(0)), "it keeps its pins");
    drop(reader);
    assert!(!index.frames().pinned(FrameId(0)));
}

#[test]
fn a_page_that_is_held_stays_unless_it_is_gone() {
    let (index, mut publisher) = index(1);
    let (frame, wanted) = (FrameId(0), page(1, 7));
    publisher.publish(wanted, frame, 1, true);
    let held = index.find(wanted).unwrap().pin.into_owned();
    assert!(!publisher.retract(frame, false));
    assert_eq!(found(&index, wanted), Some((0, 1, true)), "it stays as it was");
    assert!(!publisher.retract(frame, true));
    assert_eq!(found(&index, wanted), None);
    for gone in [true, false] {
        assert!(!publisher.retract(frame, gone), "it lingers");
    }
    drop(index.frames().resume(held));
    assert!(panics(|| drop(index.frames().check_out(frame))), "nobody has asked since");
    for gone in [true, false, true] {
        assert!(publisher.retract(frame, gone));
    }
    index.frames().check_in(index.frames().check_out(frame));
}

#[test]
fn a_frame_that_is_held_does_not_leave_however_it_is_held() {
    type Hold = for<'a> fn(&'a Index, PinnedPage<'a>) -> Vec<Pin<'a>>;
    // The first pin of a thread lies in its slot, others are counted.
    let rows: [(&str, Hold); 5] = [
        ("one", |_, found| vec![found.pin]),
        ("two", |index, found| vec![found.pin, pin(index)]),
        ("the second of two", |index, found| {
            let second = pin(index);
            drop(found);
            vec![second]
        }),
        ("the first of two", |index, found| {
            drop(pin(index));
            vec![found.pin]
        }),
        ("one that was kept", |index, found| vec![index.frames().resume(found.pin.into_owned())]),
    ];
    for (why, hold) in rows {
        let (index, mut publisher) = index(2);
        publisher.publish(WANTED, FrameId(0), 1, true);
        publisher.publish(page(1, 8), FrameId(1), 1, false);
        let pins = hold(&index, index.find(WANTED).unwrap());
        assert!(!publisher.retract(FrameId(0), false), "{why}");
        assert_eq!(found(&index, WANTED), Some((0, 1, true)), "{why}: it stays as it was");
        assert!(publisher.retract(FrameId(1), false), "{why}: another is not held");
        assert!(index.frames().pinned(FrameId(0)) && !index.frames().pinned(FrameId(1)), "{why}");
        assert!(!publisher.retract(FrameId(0), true), "{why}");
        assert_eq!(found(&index, WANTED), None, "{why}");
        assert!(panics(|| drop(index.frames().check_out(FrameId(0)))), "{why}");
        let anew = panics(|| publisher.publish(page(1, 9), FrameId(0), 2, false));
        assert!(anew, "{why}: what readers hold stays of that page");
        drop(pins);
        assert!(!index.frames().pinned(FrameId(0)), "{why}");
        assert!(publisher.retract(FrameId(0), true), "{why}");
        index.frames().check_in(index.frames().check_out(FrameId(0)));
        publisher.publish(page(1, 9), FrameId(0), 2, false);
    }
}

const WANTED: PageId = PageId { file: FileId(1), index: 7 };

fn pin(index: &Index) -> Pin<'_> {
    index.find(WANTED).unwrap().pin
}

#[test]
fn a_pin_may_be_released_by_another_thread() {
    let (index, mut publisher) = index(1);
    publisher.publish(WANTED, FrameId(0), 1, false);
    for _ in 0..3 {
        let pins = [pin(&index), pin(&index)];
        assert!(!publisher.retract(FrameId(0), false));
        thread::scope(|scope| scope.spawn(move || drop(pins)).join().unwrap());
        assert!(!index.frames().pinned(FrameId(0)));
    }
    assert!(publisher.retract(FrameId(0), false));
}

#[test]
fn a_frame_of_no_page_may_be_asked_about() {
    let (index, mut publisher) = index(1);
    assert!(publisher.retract(FrameId(0), false));
    let held = index.frames().pin_owned(FrameId(0));
    assert!(!publisher.retract(FrameId(0), true) && !publisher.retract(FrameId(0), false));
    publisher.publish(page(1, 1), FrameId(0), 0, false);
    assert!(!publisher.retract(FrameId(0), false), "held from before");
    drop(index.frames().resume(held));
    assert!(publisher.retract(FrameId(0), false));
}

#[test]
fn what_is_published_does_not_leave() {
    let (index, mut publisher) = index(1);
    publisher.publish(page(1, 1), FrameId(0), 0, false);
    assert!(panics(|| drop(index.frames().check_out(FrameId(0)))));
    assert!(publisher.retract(FrameId(0), false));
    index.frames().check_in(index.frames().check_out(FrameId(0)));
}

#[test]
fn a_publication_that_contradicts_another_is_a_bug() {
    type Publish = fn(&mut Publisher);
    #[rustfmt::skip]
    let rows: [(&str, Publish); 4] = [
        ("another page",       |p| p.publish(page(1, 2), FrameId(0), 0, false)),
        ("another generation", |p| p.publish(page(1, 1), FrameId(0), 1, false)),
        ("two frames",         |p| p.publish(page(1, 1), FrameId(1), 0, false)),
        ("a frame that is out", |p| p.publish(page(1, 3), FrameId(2), 0, false)),
    ];
    for (why, publish) in rows {
        let (index, mut publisher) = index(3);
        let _out = index.frames().check_out(FrameId(2));
        publisher.publish(page(1, 1), FrameId(0), 0, false);
        assert!(panics(|| publish(&mut publisher)), "{why}");
    }
}

#[test]
fn a_full_index_finds_all() {
    let count = 5_000;
    let (index, mut publisher) = index(count);
    let at = |frame: u32| page(frame % 3, u64::from(frame / 3) * 512);
    for frame in 0..count {
        publisher.publish(at(frame), FrameId(frame), frame, frame % 7 == 0);
    }
    for frame in 0..count {
        assert_eq!(found(&index, at(frame)), Some((frame, frame, frame % 7 == 0)));
    }
    for frame in (0..count).rev() {
        assert!(publisher.retract(FrameId(frame), false));
        assert_eq!(found(&index, at(frame)), None);
    }
}

#[test]
fn readers_on_many_threads_see_the_bytes_that_they_asked_for() {
    const FRAMES: u32 = 8;
    const PAGES: u64 = 24;
    const ROUNDS: u32 = 60_000;
    let (index, mut publisher) = index(FRAMES);
    let (done, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..3 {
            let (index, done, hits) = (&index, &done, &hits);
            scope.spawn(move || {
                let mut prng = Prng::new(seed);
                while !done.load(Ordering::Relaxed) {
                    let wanted = page(1, prng.below(PAGES));
                    let Some(found) = index.find(wanted) else { continue };
                    assert_eq!(found.pin[..], bytes(wanted));
                    hits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _done = Done(&done);
        let mut prng = Prng::new(99);
        // Which page each frame has, and each page's frame.
        let (mut of_frame, mut retracted) = ([None; FRAMES as usize], 0);
        for generation in 0..ROUNDS {
            let frame = FrameId(u32::try_from(prng.below(FRAMES.into())).unwrap());
            if publisher.retract(frame, false) {
                of_frame[frame.0 as usize] = None;
                let next = page(1, prng.below(PAGES));
                let mut out = index.frames().check_out(frame);
                out.copy_from_slice(&bytes(next));
                index.frames().check_in(out);
                if !of_frame.contains(&Some(next)) {
                    of_frame[frame.0 as usize] = Some(next);
                    publisher.publish(next, frame, generation, false);
                    retracted += 1;
                }
            }
        }
        while hits.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        assert!(retracted > 0);
    });
    assert!((0..FRAMES).all(|frame| publisher.retract(FrameId(frame), false)));
}

/// Has the readers come to their end, also where the test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The bytes of a page, no two pages alike.
fn bytes(page: PageId) -> [u8; PAGE_BYTES] {
    let first = u8::try_from(page.index).expect("few pages").wrapping_mul(37);
    std::array::from_fn(|at| first.wrapping_add(u8::try_from(at).expect("a small page")))
}
