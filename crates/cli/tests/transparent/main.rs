//! What a program is given, and what others see of it, under `forerun run` and `explain` is what it
//! is without them.
//!
//! ```text
//!   a state --> [forerun run --] --> the program --> what it saw, its output, errors, exit status
//! ```
//! Each row is a program in an inherited state; each column a way to run it, and all of a row are
//! equal to the first, where it runs alone. A row that is not prints what differs.
//!
//! # Invariants
//! - What the manual names as a difference is left out by the probe, and by nothing else.

mod programs;
mod starters;
mod states;
mod table;
