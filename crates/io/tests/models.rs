//! Frames and index under a model checker: every step between atomic operations may be another
//! thread's, as a seeded scheduler likes.
//!
//! ```text
//!   cargo test -p forerun-io --features shuttle --test models
//! ```
//!
//! Each model runs under a scheduler that chooses at random and under one that changes its mind
//! only a few times, at points that matter (PCT). Generations are the same for all publications
//! where it is not said otherwise, so that what a finder compares is all that it can go by.
//!
//! # Invariants
//! - The models see one order of all operations; what relaxed orders would allow beyond that is
//!   argued in `frames/header.rs`, not checked here.
//! # Sources
//! Burckhardt et al., A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, 2010.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use forerun_core::units::{FileId, FrameId, PageId};
use forerun_io::{
    frames::{Frames, OwnedPin, Pin},
    index::{Index, Publisher},
};
use shuttle::{sync::mpsc, thread};

const PAGE_BYTES: usize = 64;
const FRAME: FrameId = FrameId(0);

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), 10_000);
    shuttle::check_pct(model, 10_000, 4); // A slot that is named late needs three.
}

fn page(index: u64) -> PageId {
    PageId { file: FileId(1), index }
}

/// The bytes of a page, all alike.
fn byte(page: PageId) -> u8 {
    0x40 | u8::try_from(page.index).expect("few pages")
}

/// An index of `count` frames, and its publisher.
fn index(count: u32) -> (Arc<Index>, Publisher) {
    Index::new(Arc::new(Frames::new(count, PAGE_BYTES).unwrap())).unwrap()
}

/// Fills a frame that is loose with the bytes of `page`, in two steps.
fn fill(index: &Index, frame: FrameId, page: PageId) {
    let mut out = index.frames().check_out(frame);
    let (head, tail) = out.split_at_mut(PAGE_BYTES / 2);
    head.fill(byte(page));
    thread::yield_now();
    tail.fill(byte(page));
    index.frames().check_in(out);
}

/// The same pin, counted in any case.
fn moved<'a>(index: &'a Index, pin: Pin<'a>) -> Pin<'a> {
    index.frames().resume(pin.into_owned())
}

fn holds(bytes: &[u8], page: PageId) {
    assert!(bytes.iter().all(|&is| is == byte(page)), "{page:?} is {bytes:?}");
}

#[test]
fn a_reader_sees_the_bytes_of_the_page_that_it_asked_for() {
    check(|| {
        let (index, mut publisher) = index(2);
        for frame in 0..2 {
            fill(&index, FrameId(frame), page(frame.into()));
            publisher.publish(page(frame.into()), FrameId(frame), 0, false);
        }
        let reader = |wanted: [u64; 3]| {
            let index = Arc::clone(&index);
            move || {
                for wanted in wanted.map(page) {
                    let Some(found) = index.find(wanted) else { continue };
                    holds(&found.pin, wanted);
                    thread::yield_now();
                    holds(&found.pin, wanted);
                }
            }
        };
        let readers = [thread::spawn(reader([0, 1, 2])), thread::spawn(reader([0, 2, 3]))];
        for (frame, next) in [(0, 2), (1, 3), (0, 0), (1, 1)] {
            if publisher.retract(FrameId(frame), false) {
                fill(&index, FrameId(frame), page(next));
                publisher.publish(page(next), FrameId(frame), 0, false);
            }
        }
        for reader in readers {
            reader.join().unwrap();
        }
        for frame in (0..2).map(FrameId) {
            assert!(publisher.retract(frame, false), "no pin is left behind");
        }
    });
}

#[test]
fn a_frame_that_is_loose_is_held_by_nobody() {
    for gone in [false, true] {
        check(move || {
            let (index, mut publisher) = index(1);
            publisher.publish(page(0), FRAME, 0, false);
            let live = Arc::new(AtomicU32::new(0));
            let reader = || {
                let (index, live) = (Arc::clone(&index), Arc::clone(&live));
                move || {
                    for kept in [true, false] {
                        let Some(found) = index.find(page(0)) else { continue };
                        live.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        let pin = if kept { moved(&index, found.pin) } else { found.pin };
                        thread::yield_now();
                        live.fetch_sub(1, Ordering::SeqCst);
                        drop(pin);
                    }
                }
            };
            let readers = [thread::spawn(reader()), thread::spawn(reader())];
            let mut unpublished = false;
            for _ in 0..3 {
                let loose = publisher.retract(FRAME, gone);
                assert!(!loose || live.load(Ordering::SeqCst) == 0, "loose, but held");
                unpublished |= loose || gone;
                assert_eq!(index.find(page(0)).is_none(), unpublished, "found or not");
                if loose {
                    index.frames().check_in(index.frames().check_out(FRAME));
                }
            }
            for reader in readers {
                reader.join().unwrap();
            }
            assert!(publisher.retract(FRAME, gone));
        });
    }
}

#[test]
fn of_a_retraction_and_the_last_release_one_sees_the_other() {
    check(|| {
        let (index, mut publisher) = index(1);
        publisher.publish(page(0), FRAME, 0, false);
        // A finder that backs out may be in the way as well: it goes to the lock, and asks there.
        let (told, backed_out) = (Arc::default(), Arc::default());
        let reader = || {
            let index = Arc::clone(&index);
            let (told, backed_out): (Arc<AtomicBool>, Arc<AtomicBool>) =
                (Arc::clone(&told), Arc::clone(&backed_out));
            move || match index.find(page(0)) {
                Some(found) => _ = told.fetch_or(found.pin.release(), Ordering::SeqCst),
                None => backed_out.store(true, Ordering::SeqCst),
            }
        };
        let readers = [thread::spawn(reader()), thread::spawn(reader())];
        let unpinned = publisher.retract(FRAME, true);
        for reader in readers {
            reader.join().unwrap();
        }
        let seen = [told, backed_out].iter().any(|flag| flag.load(Ordering::SeqCst));
        assert!(unpinned || seen, "the frame is left behind");
        assert!(publisher.retract(FRAME, true));
    });
}

#[test]
fn a_pin_that_is_kept_holds_its_bytes_through_other_hands() {
    check(|| {
        let (index, mut publisher) = index(1);
        fill(&index, FRAME, page(0));
        // As for a reader that is served a page before it is published.
        let served = index.frames().pin_owned(FRAME);
        publisher.publish(page(0), FRAME, 0, false);
        let (sender, receiver) = mpsc::channel::<OwnedPin>();
        let second = sender.clone();
        let finder = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                if let Some(found) = index.find(page(0)) {
                    sender.send(found.pin.into_owned()).unwrap();
                }
            })
        };
        let adopter = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                while let Ok(held) = receiver.recv() {
                    let pin = index.frames().resume(held);
                    holds(&pin, page(0));
                    thread::yield_now();
                    holds(&pin, page(0));
                }
            })
        };
        second.send(served).unwrap();
        drop(second);
        for _ in 0..3 {
            if publisher.retract(FRAME, true) {
                fill(&index, FRAME, page(1));
                publisher.publish(page(1), FRAME, 0, false);
            }
        }
        finder.join().unwrap();
        adopter.join().unwrap();
        assert!(!index.frames().pinned(FRAME));
    });
}

#[test]
fn a_second_pin_of_a_thread_outlives_the_first() {
    check(|| {
        let (index, mut publisher) = index(1);
        fill(&index, FRAME, page(0));
        publisher.publish(page(0), FRAME, 0, false);
        let reader = |first_goes_first: bool| {
            let index = Arc::clone(&index);
            move || {
                let (first, second) = (index.find(page(0)), index.find(page(0)));
                let (goes, stays) =
                    if first_goes_first { (first, second) } else { (second, first) };
                drop(goes);
                let Some(found) = stays else { return };
                holds(&found.pin, page(0));
                thread::yield_now();
                holds(&found.pin, page(0));
            }
        };
        let readers = [thread::spawn(reader(true)), thread::spawn(reader(false))];
        for gone in [false, true, true] {
            if publisher.retract(FRAME, gone) {
                fill(&index, FRAME, page(1));
                publisher.publish(page(1), FRAME, 0, false);
            }
        }
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(publisher.retract(FRAME, true), "no pin is left behind");
    });
}

#[test]
fn a_new_marker_loses_neither_the_page_nor_a_pin() {
    check(|| {
        let (index, mut publisher) = index(1);
        publisher.publish(page(0), FRAME, 7, true);
        let reader = || {
            let index = Arc::clone(&index);
            move || {
                for _ in 0..2 {
                    let found = index.find(page(0)).expect("it is published all the time");
                    assert_eq!((found.hit.frame, found.hit.generation), (FRAME, 7));
                    assert!(index.frames().pinned(FRAME));
                }
            }
        };
        let readers = [thread::spawn(reader()), thread::spawn(reader())];
        for marker in [false, true, false] {
            publisher.publish(page(0), FRAME, 7, marker);
            assert_eq!(index.find(page(0)).map(|found| found.marker), Some(marker));
        }
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(!index.frames().pinned(FRAME));
    });
}

#[test]
fn who_looks_for_one_page_holds_up_another_for_a_moment_at_most() {
    check(|| {
        let (index, mut publisher) = index(1);
        publisher.publish(page(0), FRAME, 0, false);
        let finder = {
            let index = Arc::clone(&index);
            thread::spawn(move || drop(index.find(page(0))))
        };
        if publisher.retract(FRAME, false) {
            for generation in 1..3 {
                publisher.publish(page(1), FRAME, generation, false);
                if !publisher.retract(FRAME, false) {
                    break; // Its slot was named after the frame had got this page.
                }
            }
        }
        finder.join().unwrap();
        assert!(publisher.retract(FRAME, false), "nobody looks for that page");
    });
}

#[test]
fn who_lets_go_sees_that_somebody_starves_or_is_not_in_his_way() {
    check(|| {
        let (index, mut publisher) = index(1);
        publisher.publish(page(0), FRAME, 0, false);
        let starving = Arc::new(shuttle::sync::atomic::AtomicBool::new(false));
        let woken = Arc::new(AtomicBool::new(false));
        let reader = {
            let (index, starving, woken) =
                (Arc::clone(&index), Arc::clone(&starving), Arc::clone(&woken));
            thread::spawn(move || {
                // A lookup that does not find it may have been in the way all the same.
                drop(index.find(page(0)));
                if starving.load(Ordering::SeqCst) {
                    woken.store(true, Ordering::SeqCst);
                }
            })
        };
        starving.store(true, Ordering::SeqCst);
        let loose = publisher.retract(FRAME, false);
        reader.join().unwrap();
        assert!(loose || woken.load(Ordering::SeqCst), "a frame came loose and nobody heard");
    });
}
