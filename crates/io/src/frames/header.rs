//! The header of one frame, for all threads: what may touch the frame, and which page lies in it.
//!
//! ```text
//!   word     63..32       31        30         29            28        27..0
//!          generation  published  marker  checked out  retracting      pins
//!
//!              check out               publish              retract
//!    checked out <----- cached, unpinned ------> published --------> retracting
//!                ----->    (pin)                  (find)  <--------      |
//!              check in      ^                        pinned: stays      | pinned, but the page
//!                            |                                           | is gone: until the
//!                            +-------------------------------------------+ last pin is released
//!
//!    finder      1 set its hazard pointer   2 load the word: still published?
//!    retraction  1 published -> retracting  2 does a hazard pointer name the frame?  3 count pins
//! ```
//!
//! A pin is in the count or in its thread's hazard pointer (`hazard.rs`), and moves from the
//! pointer to the count only.
//!
//! # Invariants
//! - A frame is never checked out and published, checked out and retracting, or checked out and
//!   pinned. While a hazard pointer holds a pin, its frame is published or retracting: so
//!   `check_out` looks at the word alone.
//! - File and index change only while the frame is neither published nor retracting. A finder
//!   compares them before it pins, so that it seldom delays the retraction of another page (for a
//!   moment, if that comes between its steps), and again with the pin, which is what counts.
//! - Of a retraction that reports "unpinned" and a pin of what it retracted, one fails. With a
//!   counted pin both change the word as it was seen. With a hazard pointer the steps of the
//!   picture have one order: if step 2 of the retraction did not see the pointer, step 2 of the
//!   finder comes later than its step 1, and the finder backs out; or it finds the page published
//!   anew, where the next retraction sees the pointer. A pin that moved on between the steps 2 and
//!   3 is in the count by then.
//! - Pins are counted up to [`PINS_MAX`]; at the bound a finder finds nothing.
//! # Locking
//! None. `publish`, `retract`, `check_out` and `check_in` of one frame are called by one thread at
//! a time. The release of a pin happens before the `check_out` that follows it: readers have
//! copied before the frame is filled anew. Releases and retractions are sequentially consistent,
//! so a reader that releases its pin, or backs out, and then loads a flag, and a writer that
//! raises the flag and then retracts, cannot miss each other.
//! # Sources
//! `docs/decisions/0004`: pins and generations in one word; Michael 2004 for hazard pointers.

use forerun_core::units::{FileId, FrameId, PageId};

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// See the module. In one half of a cache line.
#[repr(align(32))]
pub(crate) struct FrameHeader {
    word: AtomicU64,
    index: AtomicU64,
    file: AtomicU32,
}

/// What a finder learns of the page that it pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    pub(crate) generation: u32,
    pub(crate) marker: bool,
}

/// What a call of `publish` changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishOutcome {
    /// The page can be found from now on.
    New,
    /// The page was published already; its marker is the new one.
    Marker,
}

/// What came of a retraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetractOutcome {
    /// The page that can be found no longer, if it could before.
    pub(crate) page: Option<PageId>,
    /// The frame has no pin.
    pub(crate) unpinned: bool,
}

impl FrameHeader {
    /// The header of a frame that is cached, without a page.
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), index: AtomicU64::new(0), file: AtomicU32::new(0) }
    }

    /// Checks the frame out.
    pub(crate) fn check_out(&self, id: FrameId) {
        let result = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
            let free = Word(bits).pins() == 0 && bits & STATE == 0;
            free.then_some(bits | CHECKED_OUT)
        });
        if let Err(bits) = result {
            panic!("{id:?} cannot be checked out: {}", Word(bits).describe());
        }
    }

    /// Checks the frame in.
    pub(crate) fn check_in(&self, id: FrameId) {
        let before = self.word.fetch_and(!CHECKED_OUT, Ordering::AcqRel);
        assert!(before & CHECKED_OUT != 0, "{id:?} was not checked out");
        assert!(
            before & (PUBLISHED | RETRACTING | PINS_MAX) == 0,
            "{id:?}: {}",
            Word(before).describe()
        );
    }

    /// Counts a pin, whatever lies in the frame.
    pub(crate) fn pin(&self, id: FrameId) {
        let result = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
            (Word(bits).pins() < PINS_MAX && bits & CHECKED_OUT == 0).then(|| bits + 1)
        });
        if let Err(bits) = result {
            panic!("{id:?} cannot be pinned: {}", Word(bits).describe());
        }
    }

    /// Whether `page` is published in the frame. Pins nothing.
    #[inline]
    pub(crate) fn peek(&self, page: PageId) -> Option<Publication> {
        self.publication(self.word.load(Ordering::SeqCst), page)
    }

    /// The page that is published in the frame. For the thread that publishes and retracts.
    pub(crate) fn published(&self) -> Option<(PageId, Publication)> {
        let (bits, page) = (self.word.load(Ordering::Acquire), self.page());
        let publication =
            Publication { generation: Word(bits).generation(), marker: bits & MARKER != 0 };
        (bits & PUBLISHED != 0).then_some((page, publication))
    }

    /// Counts a pin if `page` is published in the frame.
    pub(crate) fn pin_page(&self, page: PageId) -> Option<Publication> {
        let mut bits = self.word.load(Ordering::Acquire);
        loop {
            let publication = self.publication(bits, page)?;
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self.word.compare_exchange_weak(bits, bits + 1, success, failure) {
                Ok(_) if self.page() == page => return Some(publication),
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
    fn publication(&self, bits: u64, page: PageId) -> Option<Publication> {
        let word = Word(bits);
        let may = bits & PUBLISHED != 0 && word.pins() < PINS_MAX && self.page() == page;
        may.then(|| Publication { generation: word.generation(), marker: bits & MARKER != 0 })
    }

    /// Releases one counted pin.
    #[inline]
    pub(crate) fn unpin(&self) {
        let before = self.word.fetch_sub(1, Ordering::SeqCst);
        assert!(Word(before).pins() > 0, "a pin is released once");
        debug_assert!(before & CHECKED_OUT == 0, "a pinned frame is not checked out");
    }

    /// Whether its page was retracted while it was pinned, and no retraction has found it unpinned
    /// since. A thread that released its pin before sees the retraction, or that sees the release.
    #[inline]
    pub(crate) fn is_retracting(&self) -> bool {
        self.word.load(Ordering::SeqCst) & RETRACTING != 0
    }

    /// Whether the frame is checked out.
    pub(crate) fn is_checked_out(&self) -> bool {
        self.word.load(Ordering::Acquire) & CHECKED_OUT != 0
    }

    /// Whether pins are counted.
    pub(crate) fn is_pinned(&self) -> bool {
        Word(self.word.load(Ordering::SeqCst)).pins() > 0
    }

    /// Lets `page`, which lies in the frame, be found, or changes its marker.
    pub(crate) fn publish(&self, page: PageId, generation: u32, marker: bool) -> PublishOutcome {
        let marker = if marker { MARKER } else { 0 };
        let bits = self.word.load(Ordering::Acquire);
        let before = bits & PUBLISHED != 0;
        if before {
            assert_eq!((self.page(), Word(bits).generation()), (page, generation), "published");
        } else {
            let free = bits & (CHECKED_OUT | RETRACTING) == 0;
            assert!(free, "{page:?} cannot be published: {}", Word(bits).describe());
            self.file.store(page.file.0, Ordering::Relaxed);
            self.index.store(page.index, Ordering::Relaxed);
        }
        let fresh = u64::from(generation) << GENERATION_SHIFT | PUBLISHED | marker;
        self.change(bits, |bits| fresh | bits & PINS_MAX);
        if before { PublishOutcome::Marker } else { PublishOutcome::New }
    }

    /// Lets the page be found no longer, if the frame has no pin or the page is `gone`;
    /// `is_hazard`: whether a hazard pointer names the frame.
    pub(crate) fn retract(&self, gone: bool, is_hazard: impl FnOnce() -> bool) -> RetractOutcome {
        let answer = self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |bits| {
            let may = bits & PUBLISHED != 0 && (gone || Word(bits).pins() == 0);
            may.then_some(bits & !(PUBLISHED | MARKER) | RETRACTING)
        });
        let before = match answer {
            Ok(bits) => bits,
            Err(bits) if bits & RETRACTING != 0 => bits, // It was gone and pinned before.
            Err(bits) => {
                return RetractOutcome { page: None, unpinned: bits & (PUBLISHED | PINS_MAX) == 0 };
            }
        };
        // A pin that is kept meanwhile moves from its hazard pointer to the count.
        let unpinned = !is_hazard() && !self.is_pinned();
        let stays = before & PUBLISHED != 0 && !gone && !unpinned;
        if stays {
            self.change(RETRACTING, |bits| bits & !RETRACTING | before & (PUBLISHED | MARKER));
        } else if unpinned {
            self.change(RETRACTING, |bits| bits & !RETRACTING);
        }
        let page = (before & PUBLISHED != 0 && !stays).then(|| self.page());
        RetractOutcome { page, unpinned }
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
        assert!(changed.is_ok(), "one thread at a time changes the state of a frame");
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
        if self.0 & CHECKED_OUT != 0 {
            "it is checked out"
        } else if self.0 & PUBLISHED != 0 {
            "it is published"
        } else if self.0 & RETRACTING != 0 {
            "it was pinned when its page was retracted"
        } else {
            "it is pinned"
        }
    }
}

/// As many pins as a frame can have at once: more than any system has threads.
const PINS_MAX: u64 = (1 << 28) - 1;
/// The page is being retracted, or was while pins were left.
const RETRACTING: u64 = 1 << 28;
const CHECKED_OUT: u64 = 1 << 29;
const MARKER: u64 = 1 << 30;
const PUBLISHED: u64 = 1 << 31;
const STATE: u64 = CHECKED_OUT | RETRACTING | PUBLISHED;
const GENERATION_SHIFT: u32 = 32;

const _: () = assert!(PINS_MAX & (STATE | MARKER) == 0, "pins and flags share no bit");
const _: () = assert!(PINS_MAX | STATE | MARKER == u32::MAX as u64, "flags fill the lower half");
#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<FrameHeader>() == 32);
