//! The cache, behaviour by behaviour: events in, actions out as short text.
//!
//! [`World`] is the driver of the cache. It carries actions out, keeps the index of
//! published pages, and checks on the way what must always hold.

#[path = "cache/changes.rs"]
mod changes;
#[path = "cache/flushes.rs"]
mod flushes;
#[path = "cache/frames.rs"]
mod frames;
#[path = "cache/invalidate.rs"]
mod invalidate;
#[path = "cache/outcomes.rs"]
mod outcomes;
#[path = "cache/partitions.rs"]
mod partitions;
#[path = "cache/prefetch.rs"]
mod prefetch;
#[path = "cache/protocol.rs"]
mod protocol;
#[path = "cache/reads.rs"]
mod reads;
#[path = "cache/sizing.rs"]
mod sizing;
#[path = "cache/spied.rs"]
mod spied;
#[path = "cache/streams.rs"]
mod streams;
#[path = "cache/world.rs"]
mod world;
#[path = "cache/writes.rs"]
mod writes;

use world::World;
