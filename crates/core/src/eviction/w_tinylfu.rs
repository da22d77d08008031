//! W-TinyLFU: a small window for what is new, and a main part that asks how popular it is.
//!
//! ```text
//!   demanded  -> window (LRU, a hundredth) --overflow--> is it used more than main's victim?
//!                                                           yes: it enters, the victim leaves
//!   main: probation --used--> protected, four fifths          no: it leaves
//!             ^----- overflow ----/
//! ```
//! How often a page was used lately, resident or not, a [`Sketch`] tells. The window lets bursts
//! through that the sketch has not seen yet.
//!
//! While there are free frames, what leaves the window enters main unasked.
//!
//! # Invariants
//! - A frame is in one of the three queues; the window and the protected one keep to their shares.
//! - Between a page's miss and its arrival the window may be one short: an eviction asks for the
//!   candidate before the page comes that pushes it out.
//! # Sources
//! Einziger, Friedman, Manes, "`TinyLFU`: A Highly Efficient Cache Admission Policy" (ACM
//! Transactions on Storage 2017), sections 4.1 and 5: W-TinyLFU with a main part of SLRU. Pages
//! read ahead: `ahead.rs`.

use alloc::vec::Vec;

use super::Eviction;
use super::ahead::Ahead;
use crate::params::Share;
use crate::queue::{Links, PassingQueue, Table};
use crate::sketch::Sketch;
use crate::units::{FrameId, PageId};

/// See the module.
pub type WTinyLfu = Ahead<WindowMain>;

/// The queues and the sketch.
pub struct WindowMain {
    params: WTinyLfuParams,
    capacity: u32,
    links: Links,
    window: PassingQueue,
    probation: PassingQueue,
    protected: PassingQueue,
    rows: Table<Row>,
    sketch: Sketch,
}

crate::params! {
    /// The shares of the queues, and how long uses are remembered.
    pub struct WTinyLfuParams {
        /// The share of the window in the cache; one page at least. A hundredth: Einziger et al.
        /// 2017, section 5.
        window: Share = Share::percent(1),
        /// The share of the protected queue in the main part. Four fifths: Einziger et al. 2017,
        /// section 5.
        protected: Share = Share::percent(80),
        /// Uses after which counts are halved, in turns of the cache; one at least. Ten:
        /// Einziger et al. 2017, section 5.
        sample: u32 = 10,
    }
}

#[derive(Clone, Copy, Default)]
struct Row {
    page: PageId,
    place: Place,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Window,
    Probation,
    Protected,
}

impl WTinyLfuParams {
    fn sample_uses(&self, capacity: u32) -> u64 {
        u64::from(capacity) * u64::from(self.sample.max(1))
    }
}

impl Eviction for WindowMain {
    const NAME: &'static str = "w-tinylfu";
    type Params = WTinyLfuParams;

    fn new(capacity: u32, params: WTinyLfuParams) -> Self {
        let sketch = Sketch::new(capacity, params.sample_uses(capacity));
        Self {
            params,
            capacity,
            links: Links::new(capacity),
            window: PassingQueue::new(),
            probation: PassingQueue::new(),
            protected: PassingQueue::new(),
            rows: Table::new(capacity),
            sketch,
        }
    }

    fn missed(&mut self, page: PageId) {
        self.sketch.record(page);
    }

    fn insert(&mut self, frame: FrameId, page: PageId, _: bool) {
        self.window.push_front(&mut self.links, frame.0);
        *self.rows.at(frame.0) = Row { page, place: Place::Window };
        self.balance();
    }

    fn renew(&mut self, frame: FrameId) {
        let Row { page, place } = self.rows.get(frame.0);
        self.sketch.record(page);
        match place {
            Place::Window => self.window.move_to_front(&mut self.links, frame.0),
            Place::Protected => self.protected.move_to_front(&mut self.links, frame.0),
            Place::Probation => {
                self.probation.remove(&mut self.links, frame.0);
                self.protected.push_front(&mut self.links, frame.0);
                self.rows.at(frame.0).place = Place::Protected;
                self.balance();
            }
        }
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        for left in (1..=count).rev() {
            // As many pages are about to enter the window.
            let overflows = self.window.len().saturating_add(left) > self.window_max();
            let Some(victim) = self.victim(overflows, evictable) else { break };
            out.push(victim);
        }
    }

    fn may_leave(&mut self, frame: FrameId) {
        let (queue, links) = self.queue(self.rows.get(frame.0).place);
        queue.may_leave(links, frame.0);
    }

    fn forget(&mut self, frame: FrameId) {
        let place = self.rows.get(frame.0).place;
        self.remove(frame.0, place);
    }

    fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.sketch.resize(capacity, self.params.sample_uses(capacity));
        self.balance();
    }

    fn bytes(frames: u32, _: u32, _: &WTinyLfuParams) -> u64 {
        let row = Links::ROW_BYTES + Table::<Row>::ROW_BYTES;
        u64::from(frames) * row + Sketch::bytes(frames)
    }
}

impl WindowMain {
    fn window_max(&self) -> u32 {
        self.params.window.of(self.capacity).max(1)
    }

    fn protected_max(&self) -> u32 {
        self.params.protected.of(self.capacity.saturating_sub(self.window_max()))
    }

    /// Moves what is beyond the shares on: from the window and from the protected queue to the head
    /// of probation.
    fn balance(&mut self) {
        while self.window.len() > self.window_max() {
            let oldest = self.window.pop_back(&mut self.links).expect("it is not empty");
            self.put_on_probation(oldest);
        }
        while self.protected.len() > self.protected_max() {
            let oldest = self.protected.pop_back(&mut self.links).expect("it is not empty");
            self.put_on_probation(oldest);
        }
        let kept = self.window.len() <= self.window_max();
        assert!(kept && self.protected.len() <= self.protected_max(), "each has its share");
    }

    fn put_on_probation(&mut self, frame: u32) {
        self.probation.push_front(&mut self.links, frame);
        self.rows.at(frame).place = Place::Probation;
    }

    /// The candidate of the window if it `overflows` and is not more popular than main's victim,
    /// else main's victim; whichever there is if only one may leave.
    fn victim(&mut self, overflows: bool, evictable: &dyn Fn(FrameId) -> bool) -> Option<FrameId> {
        let candidate = self.window.oldest(&mut self.links, evictable);
        let mut of_main = self.probation.oldest(&mut self.links, evictable);
        if of_main.is_none() {
            of_main = self.protected.oldest(&mut self.links, evictable);
        }
        let (leaves, place) = match (candidate, of_main) {
            (Some(candidate), Some(of_main)) if overflows => {
                if self.estimate(candidate) > self.estimate(of_main) {
                    self.window.remove(&mut self.links, candidate);
                    self.put_on_probation(candidate);
                    (of_main, self.rows.get(of_main).place)
                } else {
                    (candidate, Place::Window)
                }
            }
            (_, Some(of_main)) => (of_main, self.rows.get(of_main).place),
            (Some(candidate), None) => (candidate, Place::Window),
            (None, None) => return None,
        };
        self.remove(leaves, place);
        Some(FrameId(leaves))
    }

    fn estimate(&self, frame: u32) -> u32 {
        self.sketch.estimate(self.rows.get(frame).page)
    }

    fn remove(&mut self, frame: u32, place: Place) {
        assert!(self.rows.get(frame).place == place, "frame {frame} lies in another queue");
        let (queue, links) = self.queue(place);
        queue.remove(links, frame);
    }

    /// The queue of `place`, with the links that it lies on.
    fn queue(&mut self, place: Place) -> (&mut PassingQueue, &mut Links) {
        let queue = match place {
            Place::Window => &mut self.window,
            Place::Probation => &mut self.probation,
            Place::Protected => &mut self.protected,
        };
        (queue, &mut self.links)
    }
}
