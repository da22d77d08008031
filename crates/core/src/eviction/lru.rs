//! Least recently used: the page that was left alone longest leaves first.
//!
//! ```text
//!   arrives, is used -> head (newest) <-> ... <-> tail (oldest) -> leaves
//! ```
//!
//! A page read ahead arrives at the head like any other, and its first use is a use like any
//! other: the policy has no place where a guess would wait apart from what was demanded.
//!
//! # Sources
//! Folklore; first measured by Belady (IBM Systems Journal 1966).

use super::one_queue::{OneQueue, Uses};

/// See the module.
pub type Lru = OneQueue<Renewed>;

/// A use moves a page to the head.
pub struct Renewed;

impl Uses for Renewed {
    const NAME: &'static str = "lru";
    const MOVE: bool = true;
}
