//! What is known of one frame, for all threads: who may touch it, and which page lies in it.
//!
//! ```text
//!   word    63..32       31         30      29    28..0
//!         generation  published  marker    out    pins
//!
//!               take                 publish
//!     out  <------------   in    ------------------>  published
//!          ------------>  (hold)  <------------------  (find)
//!               put                  retract
//! ```
//!
//! # Invariants
//! - A frame is never out and published, nor out and pinned: `take` refuses both, a pin needs
//!   the frame in, and all of it is decided on one word.
//! - File and index change only while the frame is not published. A finder compares them before
//!   it pins, so that it does not hold up a page that it does not want, and again with the pin,
//!   which is what counts.
//! - `retract` without `gone` and a pin never both succeed: each changes the word as it was seen.
//! - Pins are counted up to [`PINS_MAX`]; at the bound a finder finds nothing.
//! # Locking
//! None. `publish`, `retract`, `take` and `put` of one frame are called by one thread at a time.
//! A release of a pin happens before the `take` that follows it: readers have copied before
//! anybody fills the frame anew. Releases and retractions are sequentially consistent, so a
//! reader that lets go and then looks for a flag, and a writer that raises the flag and then
//! retracts, cannot miss each other.

use forerun_core::units::{FileId, FrameId, PageId};

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// See the module. In one half of a cache line.
#[repr(align(32))]
pub(crate) struct Label {
    word: AtomicU64,
    index: AtomicU64,
    file: AtomicU32,
}

/// What a finder is told with its pin.
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
            (Word(bits).pins() == 0 && bits & (OUT | PUBLISHED) == 0).then_some(bits | OUT)
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

    /// Pins the frame if `page` is published in it.
    pub(crate) fn pin(&self, page: PageId) -> Option<Pinned> {
        let mut bits = self.word.load(Ordering::Acquire);
        loop {
            let word = Word(bits);
            if bits & PUBLISHED == 0 || word.pins() == PINS_MAX || self.page() != page {
                return None;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self.word.compare_exchange_weak(bits, bits + 1, success, failure) {
                Ok(_) if self.page() == page => {
                    let marker = bits & MARKER != 0;
                    return Some(Pinned { generation: word.generation(), marker });
                }
                // The same word again, but of another publication.
                Ok(_) => {
                    self.unpin();
                    return None;
                }
                Err(now) => bits = now,
            }
        }
    }

    /// Gives one pin back.
    pub(crate) fn unpin(&self) {
        let before = self.word.fetch_sub(1, Ordering::SeqCst);
        assert!(Word(before).pins() > 0, "a pin is given back once");
    }

    /// Whether anybody has the frame pinned.
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
            assert!(bits & OUT == 0, "{page:?} is published in a frame that is out");
            self.file.store(page.file.0, Ordering::Relaxed);
            self.index.store(page.index, Ordering::Relaxed);
        }
        let fresh = u64::from(generation) << GENERATION_SHIFT | PUBLISHED | marker;
        self.change(|bits| fresh | bits & PINS_MAX);
        if before { Published::Before } else { Published::Anew }
    }

    /// Lets the page be found no longer, if nobody holds it or it is `gone`.
    pub(crate) fn retract(&self, gone: bool) -> Retracted {
        let answer = self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |bits| {
            let may = bits & PUBLISHED != 0 && (gone || Word(bits).pins() == 0);
            may.then_some(bits & !(PUBLISHED | MARKER))
        });
        match answer {
            Ok(bits) => Retracted { page: Some(self.page()), loose: Word(bits).pins() == 0 },
            Err(bits) => Retracted { page: None, loose: Word(bits).pins() == 0 },
        }
    }

    fn page(&self) -> PageId {
        let file = FileId(self.file.load(Ordering::Relaxed));
        PageId { file, index: self.index.load(Ordering::Relaxed) }
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        let changed =
            self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| Some(change(bits)));
        assert!(changed.is_ok(), "a change without a condition");
    }
}

/// A word as it was at a moment.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    fn pins(self) -> u64 {
        self.0 & PINS_MAX
    }

    fn generation(self) -> u32 {
        u32::try_from(self.0 >> GENERATION_SHIFT).expect("the upper half")
    }

    fn describe(self) -> &'static str {
        if self.0 & OUT != 0 {
            "it is out"
        } else if self.0 & PUBLISHED != 0 {
            "it is published"
        } else {
            "it is pinned"
        }
    }
}

/// As many pins as a frame can have at once: more than any system has threads.
const PINS_MAX: u64 = (1 << 29) - 1;
const OUT: u64 = 1 << 29;
const MARKER: u64 = 1 << 30;
const PUBLISHED: u64 = 1 << 31;
const GENERATION_SHIFT: u32 = 32;

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Label>() == 32);
