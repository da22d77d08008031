//! The live cache on stores that misbehave: right bytes or one error, bounds, and no hang.

mod content;
mod ends;
mod faults;
mod journals;
mod odd;
mod pressure;
mod replay;
mod rig;
mod storm;
