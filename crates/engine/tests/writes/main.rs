//! Writes of the live cache: what reads see, what the store gets and when, and what a failure
//! leaves.

mod batches;
mod changes;
mod content;
mod crashes;
mod ends;
mod faults;
mod order;
mod races;
mod rig;
mod shares;
mod traced;
