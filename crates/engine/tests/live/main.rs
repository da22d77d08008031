//! The live cache on stores that misbehave: right bytes or one error, bounds, and no hang.

mod ahead;
mod cancel;
mod content;
mod counts;
mod ends;
mod faults;
mod journals;
mod odd;
mod panics;
mod partitions;
mod pins;
mod position;
mod pressure;
mod remembered;
mod reopen;
mod replay;
mod rig;
mod size;
mod storm;
mod streams;
#[cfg(feature = "futures")]
mod tasks;
