//! LIRS: what is kept is what came back soon, by the pages used in between.
//!
//! ```text
//!   S, by last use   top [ H L n H L L n L ] bottom, always L   n: the name of a page that left
//!   Q, of H          end [ H H H ] front, the next to leave
//! ```
//! *LIR* pages (L) have the shortest distances between their last two uses and most of the cache. A
//! *HIR* page (H) is resident while it is in Q, a hundredth of the cache. S holds whatever was used
//! more recently than the L at its bottom: a use of an H, or of an n, that is still in S shows a
//! distance shorter than that one's age, so the two change places. What lies below the lowest L is
//! cut off.
//!
//! A use of the page that was used last is the same use: the authors' program skips those.
//!
//! The paper does not bound the names. Here the oldest leave beyond `ghost` times the capacity.
//!
//! # Invariants
//! - The bottom of S is L, or S is empty; every name is in S; Q holds every H that is resident.
//! - There are `capacity` less Q's share of L at most.
//! # Sources
//! Jiang and Zhang, "LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy"
//! (SIGMETRICS 2002), section 3; Jiang's lirs.c (2002) for the smallest Q and for uses that repeat.
//! Pages read ahead: `ahead.rs`.

use alloc::vec::Vec;

use super::Eviction;
use super::ahead::Ahead;
use super::ghosts::Ghosts;
use crate::params::Share;
use crate::queue::{Links, PassingQueue, Table};
use crate::units::{FrameId, PageId};

/// See the module.
pub type Lirs = Ahead<Recency>;

/// S, Q and the names.
pub struct Recency {
    params: LirsParams,
    capacity: u32,
    /// S: of frames and of slots of names, see [`Node`].
    stack: PassingQueue,
    stack_links: Links,
    /// Q: frames, the front at the tail.
    hirs: PassingQueue,
    hir_links: Links,
    rows: Table<Row>,
    ghosts: Ghosts,
    /// L pages.
    lir_count: u32,
    /// Nothing was evicted yet: new pages are L as long as there is room for L.
    filling: bool,
    /// The frame that was used last.
    last: Option<FrameId>,
}

crate::params! {
    /// The share of Q, and how many names are kept.
    pub struct LirsParams {
        /// The share of the cache that is Q's. A hundredth, and two pages at least: Jiang and
        /// Zhang 2002, section 4.1, and lirs.c.
        hirs: Share = Share::percent(1),
        /// Names that S may hold, as a share of the capacity. The paper does not bound them; with
        /// forty times the capacity its results stay within a hundredth of a point on traces of
        /// files, blocks and databases, with ten times not within a tenth.
        ghost: Share = Share::percent(4_000),
        /// Names that S may hold in any case: they are few in a small cache. So many that traces of
        /// the paper's size lose none.
        least: u32 = 4_096,
    }
}

impl LirsParams {
    fn names_max(&self, capacity: u32) -> u32 {
        self.ghost.of(capacity).max(self.least)
    }
}

#[derive(Clone, Copy, Default)]
struct Row {
    page: PageId,
    is_lir: bool,
}

/// What lies in S: a frame or the slot of a name, in one number.
enum Node {
    Frame(u32),
    Name(u32),
}

impl Node {
    fn index(self) -> u32 {
        match self {
            Self::Frame(frame) => frame * 2,
            Self::Name(slot) => slot * 2 + 1,
        }
    }

    fn of(index: u32) -> Self {
        if index.is_multiple_of(2) { Self::Frame(index / 2) } else { Self::Name(index / 2) }
    }
}

impl Eviction for Recency {
    const NAME: &'static str = "lirs";
    type Params = LirsParams;

    fn new(capacity: u32, params: LirsParams) -> Self {
        let ghosts = Ghosts::growing(params.names_max(capacity));
        Self {
            params,
            capacity,
            stack: PassingQueue::new(),
            stack_links: Links::new(0),
            hirs: PassingQueue::new(),
            hir_links: Links::new(capacity),
            rows: Table::new(capacity),
            ghosts,
            lir_count: 0,
            filling: true,
            last: None,
        }
    }

    fn insert(&mut self, frame: FrameId, page: PageId, _: bool) {
        self.last = Some(frame);
        let slot = self.ghosts.take(page);
        if let Some(slot) = slot {
            self.stack.remove(&mut self.stack_links, Node::Name(slot).index());
        }
        self.stack.push_front(&mut self.stack_links, Node::Frame(frame.0).index());
        let fills = self.filling && self.lir_count + self.hirs.len() < self.lir_max();
        let is_lir = slot.is_some() || fills || self.lir_count == 0;
        *self.rows.at(frame.0) = Row { page, is_lir };
        if is_lir {
            self.lir_count += 1;
            self.shrink_lirs();
        } else {
            self.hirs.push_front(&mut self.hir_links, frame.0);
        }
        self.trim();
    }

    fn renew(&mut self, frame: FrameId) {
        if self.last.replace(frame) == Some(frame) {
            return;
        }
        let node = Node::Frame(frame.0).index();
        let in_stack = self.stack_links.is_linked(node);
        if in_stack {
            self.stack.move_to_front(&mut self.stack_links, node);
        } else {
            self.stack.push_front(&mut self.stack_links, node);
        }
        let row = self.rows.at(frame.0);
        if row.is_lir {
            self.prune();
        } else if in_stack || self.lir_count == 0 {
            row.is_lir = true;
            self.hirs.remove(&mut self.hir_links, frame.0);
            self.lir_count += 1;
            self.shrink_lirs();
        } else {
            self.hirs.move_to_front(&mut self.hir_links, frame.0);
        }
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        self.filling = false;
        let first = out.len();
        let taken = self.hirs.take_from_tail(&mut self.hir_links, count, evictable, out);
        for frame in &out[first..] {
            self.leave_name(*frame);
        }
        if taken < count {
            self.evict_lirs(count - taken, evictable, out);
        }
    }

    fn may_leave(&mut self, frame: FrameId) {
        if self.rows.get(frame.0).is_lir {
            self.stack.may_leave(&self.stack_links, Node::Frame(frame.0).index());
        } else {
            self.hirs.may_leave(&self.hir_links, frame.0);
        }
    }

    fn forget(&mut self, frame: FrameId) {
        let node = Node::Frame(frame.0).index();
        if self.rows.get(frame.0).is_lir {
            assert!(self.lir_count > 0, "an L page is counted");
            self.lir_count -= 1;
        } else {
            self.hirs.remove(&mut self.hir_links, frame.0);
        }
        if self.stack_links.is_linked(node) {
            self.stack.remove(&mut self.stack_links, node);
            self.prune();
        }
    }

    fn resize(&mut self, capacity: u32) {
        self.filling |= capacity > self.capacity;
        self.capacity = capacity;
        self.ghosts.set_limit(self.params.names_max(capacity));
        self.shrink_lirs();
        self.trim();
    }

    fn number_pages(&mut self) {
        self.ghosts.number_pages();
    }

    fn bytes(frames: u32, pages: u32, params: &LirsParams) -> u64 {
        let names = params.names_max(frames).min(pages);
        // A frame and a slot of the same number stand side by side in S.
        let stack = 2 * u64::from(frames.max(names)) * Links::ROW_BYTES;
        let row = Links::ROW_BYTES + Table::<Row>::ROW_BYTES;
        stack + u64::from(frames) * row + Ghosts::bytes(names, pages)
    }
}

impl Recency {
    /// How many pages may be L.
    fn lir_max(&self) -> u32 {
        let hirs = self.params.hirs.of(self.capacity).max(HIRS_MIN);
        // One L at least, where there is a frame besides for an H.
        self.capacity.saturating_sub(hirs).max(u32::from(self.capacity > 1))
    }

    /// L pages beyond what there may be become H, from the bottom of S.
    fn shrink_lirs(&mut self) {
        while self.lir_count > self.lir_max() {
            self.prune();
            let bottom = self.stack.pop_back(&mut self.stack_links).expect("an L is in S");
            let Node::Frame(frame) = Node::of(bottom) else { unreachable!("the bottom is L") };
            self.rows.at(frame).is_lir = false;
            self.lir_count -= 1;
            self.hirs.push_front(&mut self.hir_links, frame);
        }
        self.prune();
        assert!(self.lir_count <= self.lir_max(), "{} pages are L", self.lir_count);
    }

    /// What left `frame` of Q is remembered where it is in S, if it is there.
    fn leave_name(&mut self, frame: FrameId) {
        assert!(!self.rows.get(frame.0).is_lir, "{frame:?} left Q, which has no L");
        let node = Node::Frame(frame.0).index();
        if !self.stack_links.is_linked(node) {
            return;
        }
        match self.ghosts.remember(self.rows.get(frame.0).page) {
            Some(slot) => {
                self.stack.replace(&mut self.stack_links, node, Node::Name(slot).index());
            }
            None => self.stack.remove(&mut self.stack_links, node),
        }
    }

    /// Up to `count` L pages leave, from the bottom of S: Q has none that may.
    fn evict_lirs(
        &mut self,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) {
        let rows = &self.rows;
        let leaves = |index| match Node::of(index) {
            Node::Frame(frame) => rows.get(frame).is_lir && evictable(FrameId(frame)),
            Node::Name(_) => false,
        };
        for _ in 0..count {
            let Some(index) = self.stack.oldest_of(&mut self.stack_links, leaves) else { break };
            let Node::Frame(frame) = Node::of(index) else { unreachable!("no name may leave") };
            assert!(self.lir_count > 0, "an L page is counted");
            self.stack.remove(&mut self.stack_links, index);
            self.lir_count -= 1;
            out.push(FrameId(frame));
        }
        self.prune();
    }

    /// Forgets the oldest names beyond the limit.
    fn trim(&mut self) {
        while let Some(slot) = self.ghosts.surplus() {
            self.stack.remove(&mut self.stack_links, Node::Name(slot).index());
            self.ghosts.release(slot);
        }
    }

    /// Cuts off what is below the lowest L.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.tail() {
            match Node::of(bottom) {
                Node::Frame(frame) if self.rows.get(frame).is_lir => return,
                Node::Frame(_) => {}
                Node::Name(slot) => self.ghosts.release(slot),
            }
            self.stack.remove(&mut self.stack_links, bottom);
        }
    }
}

/// Pages of Q at least.
const HIRS_MIN: u32 = 2;
