//! The roots of the processes whose entries are reported, and the rights that they go by.
//!
//! # Invariants
//! - What is known of a process is asked again after [`LASTS`]: it may have another root or other
//!   rights by then.
//! - Processes that see the same tree by the same rights share a root; at most [`ROOTS_MAX`] roots.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use forerun_core::units::Nanos;

use crate::open::entries::Root;
use crate::prefetch::entries::place::Place;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Roots {
    tops: Vec<Arc<Place>>,
    /// The top of each process, and when it is asked again; none where it may not be looked into.
    processes: BTreeMap<i32, (Option<Arc<Place>>, Nanos)>,
}

impl Roots {
    /// The top of the tree that the process `pid`, with this folder in `/proc`, sees.
    pub(super) fn top(
        &mut self,
        now: Nanos,
        pid: i32,
        process: BorrowedFd<'_>,
    ) -> Option<Arc<Place>> {
        if let Some((top, until)) = self.processes.get(&pid)
            && now < *until
        {
            return top.clone();
        }
        let top = Root::of(process).ok().map(|root| self.shared(root));
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        self.processes.insert(pid, (top.clone(), now + LASTS));
        top
    }

    /// The top of the tree below `root`.
    fn shared(&mut self, root: Root) -> Arc<Place> {
        if let Some(top) = self.tops.iter().find(|top| top.root().is_same(&root)) {
            return Arc::clone(top);
        }
        if self.tops.len() >= ROOTS_MAX {
            self.tops.remove(0);
        }
        let top = Place::top(Arc::new(root));
        self.tops.push(Arc::clone(&top));
        assert!(self.tops.len() <= ROOTS_MAX, "roots are bounded");
        top
    }
}

const LASTS: Nanos = Nanos::from_millis(20);
const ROOTS_MAX: usize = 16;
const PROCESSES_MAX: usize = 256;
