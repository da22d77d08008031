//! First in, first out: the floor that every other policy has to beat.
//!
//! # Sources
//! Folklore. Use does not matter; neither does prefetching.

use super::one_queue::{OneQueue, Uses};

/// See the module.
pub type Fifo = OneQueue<Ignored>;

/// A use moves nothing.
pub struct Ignored;

impl Uses for Ignored {
    const NAME: &'static str = "fifo";
    const MOVE: bool = false;
}
