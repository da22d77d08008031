//! The roots of the processes whose entries are reported, and the rights that they go by.
//!
//! # Invariants
//! - Of a process nothing is kept from one call to the next: each may have another root and other
//!   rights, whatever its process number.
//! - Processes that see the same tree by the same rights share a root; at most [`ROOTS_MAX`] roots.
//! - A handle of a root, which holds its mount, is kept for [`HANDLE_LASTS`] after the last use of
//!   an entry below that root, whatever is used below others: a program can unmount what it left.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use forerun_core::units::Nanos;

use crate::open::entries::{Root, View};
use crate::prefetch::entries::place::Place;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Roots {
    tops: Vec<Top>,
}

#[derive(Debug)]
struct Top {
    place: Arc<Place>,
    /// When an entry below it was last used; none while no handle is kept.
    used: Option<Nanos>,
}

impl Roots {
    /// The top of the tree that the process, or thread, with this folder in `/proc` sees now, and
    /// uses by the rights that it has now; none where it may not be looked into. Of another root
    /// than this process's, handles are had from that folder as long as it lasts.
    pub(super) fn top(&mut self, now: Nanos, process: BorrowedFd<'_>) -> Option<Arc<Place>> {
        let view = View::of(process).ok()?;
        if let Some(top) = self.tops.iter_mut().find(|top| top.place.root().is_of(&view)) {
            top.used = Some(now);
            let root = top.place.root();
            root.renew(process).ok()?;
            root.keep();
            return Some(Arc::clone(&top.place));
        }
        let root = Root::seen(process, view).ok()?;
        if self.tops.len() >= ROOTS_MAX {
            self.tops.remove(0).place.root().release();
        }
        let place = Place::top(Arc::new(root));
        self.tops.push(Top { place: Arc::clone(&place), used: Some(now) });
        assert!(self.tops.len() <= ROOTS_MAX, "roots are bounded");
        Some(place)
    }

    /// An entry below `root` is used.
    pub(super) fn used(&mut self, now: Nanos, root: &Arc<Root>) {
        if let Some(top) = self.tops.iter_mut().find(|top| Arc::ptr_eq(top.place.root(), root)) {
            top.used = Some(now);
            root.keep();
        }
    }

    /// Gives up the handles of roots that were not used for a time.
    pub(super) fn expire(&mut self, now: Nanos) {
        for top in &mut self.tops {
            if top.used.is_some_and(|at| now.since(at) >= HANDLE_LASTS) {
                top.used = None;
                top.place.root().release();
            }
        }
        let is_young = |top: &Top| top.used.is_none_or(|at| now.since(at) < HANDLE_LASTS);
        assert!(self.tops.iter().all(is_young), "no handle is kept for longer");
    }

    /// Forgets all roots; a job that is not done may have its place.
    pub(super) fn clear(&mut self) {
        for top in self.tops.drain(..) {
            top.place.root().release();
        }
    }
}

const HANDLE_LASTS: Nanos = Nanos::from_millis(50);
const ROOTS_MAX: usize = 16;
