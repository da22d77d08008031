//! What is known of one frame, for all threads: who may touch it, and which page lies in it.
//!
//! ```text
//!   word     63..32       31        30     29     28      27..0
//!          generation  published  marker  out   leaving   pins
//!
//!          take               publish               retract
//!    out <------ in, loose -----------> published ----------> leaving
//!        ------>  (hold)                 (find)   <----------    |
//!          put       ^                             held: stays   | held, but gone: until it is
//!                    +-------------------------------------------+ asked again; held by none
//!
//!    finder      1 its slot names the frame   2 the word: still published?
//!    retraction  1 published -> leaving       2 does a slot name it?   3 the count of pins
//! ```
//!
//! A pin is in the count or in its thread's slot (`slots.rs`), and moves from slot to count only.
//!
//! # Invariants
//! - A frame is never out and published, out and leaving, or out and pinned. While a pin is in a
//!   slot, its frame is published or leaving: so `take` looks at the word alone.
//! - File and index change only while the frame is neither published nor leaving. A finder
//!   compares them before it pins, so that it seldom holds up a page that it does not want (for a
//!   moment, if that comes between its steps), and again with the pin, which is what counts.
//! - Of a retraction that says loose and a pin of what it retracted, one fails. A count: both
//!   change the word as it was seen. A slot: the steps of the picture have one order. If step 2 of
//!   the retraction did not see the slot, step 2 of the finder comes later than its step 1, and
//!   the finder backs out; or it finds the page published anew, where the next retraction sees the
//!   slot. A pin that moved on between the steps 2 and 3 is in the count by then.
//! - Pins are counted up to [`PINS_MAX`]; at the bound a finder finds nothing.
//! # Locking
//! None. `publish`, `retract`, `take` and `put` of one frame are called by one thread at a time.
//! A release of a pin happens before the `take` that follows it: readers have copied before
//! anybody fills the frame anew. Releases and retractions are sequentially consistent, so a
//! reader that lets go, or backs out, and then looks for a flag, and a writer that raises the flag
//! and then retracts, cannot miss each other.

use forerun_core::units::{FileId, FrameId, PageId};

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// See the module. In one half of a cache line.
#[repr(align(32))]
pub(crate) struct Label {
    word: AtomicU64,
    index: AtomicU64,
    file: AtomicU32,
}

/// What a finder is told of the page that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) generation: u32,
    pub(crate) marker: bool,
}

/// What a publication found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// The page can be found from now on.
    Anew,
    /// It was published already; its marker is as told now.
    Before,
}

/// What came of a retraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retracted {
    /// The page that can be found no longer, if it could before.
    pub(crate) page: Option<PageId>,
    /// Nobody holds the frame.
    pub(crate) loose: bool,
}

impl Label {
    /// A frame that is in, of no page.
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), index: AtomicU64::new(0), file: AtomicU32::new(0) }
    }

    /// The frame leaves.
    pub(crate) fn take(&self, id: FrameId) {
        let taken = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
            let free = Word(bits).pins() == 0 && bits & (OUT | PUBLISHED | LEAVING) == 0;
            free.then_some(bits | OUT)
        });
        if let Err(bits) = taken {
            panic!("{id:?} cannot leave: {}", Word(bits).describe());
        }
    }

    /// The frame is back.
    pub(crate) fn put(&self, id: FrameId) {
        let before = self.word.fetch_and(!OUT, Ordering::AcqRel);
        assert!(before & OUT != 0, "{id:?} was not out");
    }

    /// Pins the frame, whatever lies in it.
    pub(crate) fn hold(&self, id: FrameId) {
        let held = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
            (Word(bits).pins() < PINS_MAX && bits & OUT == 0).then(|| bits + 1)
        });
        if let Err(bits) = held {
            panic!("{id:?} cannot be held: {}", Word(bits).describe());
        }
    }

    /// Whether `page` is published in the frame. Pins nothing.
    #[inline]
    pub(crate) fn look(&self, page: PageId) -> Option<Pinned> {
        self.seen(self.word.load(Ordering::SeqCst), page)
    }

    /// Counts a pin if `page` is published in the frame.
    pub(crate) fn pin(&self, page: PageId) -> Option<Pinned> {
        let mut bits = self.word.load(Ordering::Acquire);
        loop {
            let pinned = self.seen(bits, page)?;
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self.word.compare_exchange_weak(bits, bits + 1, success, failure) {
                Ok(_) if self.page() == page => return Some(pinned),
                // The same word again, but of another publication.
                Ok(_) => {
                    self.unpin();
                    return None;
                }
                Err(now) => bits = now,
            }
        }
    }

    #[inline]
    fn seen(&self, bits: u64, page: PageId) -> Option<Pinned> {
        let word = Word(bits);
        let may = bits & PUBLISHED != 0 && word.pins() < PINS_MAX && self.page() == page;
        may.then(|| Pinned { generation: word.generation(), marker: bits & MARKER != 0 })
    }

    /// Gives one pin back.
    #[inline]
    pub(crate) fn unpin(&self) {
        let before = self.word.fetch_sub(1, Ordering::SeqCst);
        assert!(Word(before).pins() > 0, "a pin is given back once");
    }

    /// Whether pins are counted.
    pub(crate) fn pinned(&self) -> bool {
        Word(self.word.load(Ordering::SeqCst)).pins() > 0
    }

    /// `page` lies in the frame: lets it be found, or changes its marker.
    pub(crate) fn publish(&self, page: PageId, generation: u32, marker: bool) -> Published {
        let marker = if marker { MARKER } else { 0 };
        let bits = self.word.load(Ordering::Acquire);
        let before = bits & PUBLISHED != 0;
        if before {
            assert_eq!((self.page(), Word(bits).generation()), (page, generation), "published");
        } else {
            let free = bits & (OUT | LEAVING) == 0;
            assert!(free, "{page:?} cannot be published: {}", Word(bits).describe());
            self.file.store(page.file.0, Ordering::Relaxed);
            self.index.store(page.index, Ordering::Relaxed);
        }
        let fresh = u64::from(generation) << GENERATION_SHIFT | PUBLISHED | marker;
        self.change(bits, |bits| fresh | bits & PINS_MAX);
        if before { Published::Before } else { Published::Anew }
    }

    /// Lets the page be found no longer, if nobody holds it or it is `gone`; `named`: whether a
    /// slot names the frame.
    pub(crate) fn retract(&self, gone: bool, named: impl FnOnce() -> bool) -> Retracted {
        let answer = self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |bits| {
            let may = bits & PUBLISHED != 0 && (gone || Word(bits).pins() == 0);
            may.then_some(bits & !(PUBLISHED | MARKER) | LEAVING)
        });
        let before = match answer {
            Ok(bits) => bits,
            Err(bits) if bits & LEAVING != 0 => bits, // It was gone and held before.
            Err(bits) => {
                return Retracted { page: None, loose: bits & (PUBLISHED | PINS_MAX) == 0 };
            }
        };
        // A pin that is kept meanwhile moves from its slot to the count.
        let loose = !named() && !self.pinned();
        let stays = before & PUBLISHED != 0 && !gone && !loose;
        if stays {
            self.change(LEAVING, |bits| bits & !LEAVING | before & (PUBLISHED | MARKER));
        } else if loose {
            self.change(LEAVING, |bits| bits & !LEAVING);
        }
        let page = (before & PUBLISHED != 0 && !stays).then(|| self.page());
        Retracted { page, loose }
    }

    #[inline]
    fn page(&self) -> PageId {
        let file = FileId(self.file.load(Ordering::Relaxed));
        PageId { file, index: self.index.load(Ordering::Relaxed) }
    }

    /// Changes a word whose state is that of `seen`; only its count of pins may differ.
    fn change(&self, seen: u64, change: impl Fn(u64) -> u64) {
        let changed = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
            (bits & STATE == seen & STATE).then(|| change(bits))
        });
        assert!(changed.is_ok(), "`publish`, `retract`, `take` and `put` come one at a time");
    }
}

/// A word as it was at a moment.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    #[inline]
    fn pins(self) -> u64 {
        self.0 & PINS_MAX
    }

    #[inline]
    fn generation(self) -> u32 {
        u32::try_from(self.0 >> GENERATION_SHIFT).expect("the upper half")
    }

    fn describe(self) -> &'static str {
        if self.0 & OUT != 0 {
            "it is out"
        } else if self.0 & PUBLISHED != 0 {
            "it is published"
        } else if self.0 & LEAVING != 0 {
            "it was held when its page left"
        } else {
            "it is pinned"
        }
    }
}

/// As many pins as a frame can have at once: more than any system has threads.
const PINS_MAX: u64 = (1 << 28) - 1;
const LEAVING: u64 = 1 << 28;
const OUT: u64 = 1 << 29;
const MARKER: u64 = 1 << 30;
const PUBLISHED: u64 = 1 << 31;
const STATE: u64 = OUT | LEAVING | PUBLISHED;
const GENERATION_SHIFT: u32 = 32;

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Label>() == 32);
