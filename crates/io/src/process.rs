//! Which process made a value: the child of a `fork` has its memory, and nothing else of it.
//!
//! ```text
//!   parent:  threads   ring in the kernel   memory
//!   child:      -      the parent's         a copy; but the memory that a ring shares with the
//!                                           kernel is the parent's
//! ```
//!
//! A child that used a ring of its parent would put its own operations into it, and take the
//! answers to the parent's out. A child that waited for a thread of its parent would wait for ever.
//!
//! # Invariants
//! - What is made in one process is used in that one: in a child, queues and rings that were
//!   inherited begin nothing, and dropping them waits for nothing.
//! - Locks are not covered: a lock that another thread held at the time of the `fork` stays locked
//!   in the child.
//! # Sources
//! Linux `fork(2)`; `io_uring_setup(2)`: its memory is mapped shared.

use std::process;

/// The process that made a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerProcess(u32);

impl OwnerProcess {
    /// This process.
    #[must_use]
    pub fn current() -> Self {
        Self(process::id())
    }

    /// Whether this is another process by now, a child of it.
    #[must_use]
    pub fn is_forked(self) -> bool {
        process::id() != self.0
    }
}
