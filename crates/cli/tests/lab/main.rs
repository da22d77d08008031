//! The lab's commands, end to end: what the built binary prints, what it refuses, how it ends.

mod bench;
mod browser;
mod cli;
mod demo;
mod journal;
mod learned;
mod memory;
mod page;
mod partitions;
mod plot;
mod prefetch;
mod reap;
mod reference;
mod replay;
mod replay_programs;
mod replay_writes;
mod signals;
mod soak;
mod sweeps;
mod trace;
mod walks;
