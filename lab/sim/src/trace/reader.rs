//! What reads a format.
//!
//! # Invariants
//! - A reader that appends fewer requests than a batch has is at the end of its trace.

use super::input::Input;
use super::records::Fault;
use super::{Facts, Request};

/// A format that reads.
pub(super) trait Reader: Send {
    /// Appends requests to `out` until it holds [`BATCH_REQUESTS`] or the trace is at its end.
    fn fill(&mut self, input: &mut Input, out: &mut Vec<Request>) -> Result<(), Fault>;

    /// The facts about its requests; certain after the first batch.
    fn facts(&self) -> Facts;

    /// The name of a device of the requests so far.
    fn device_name(&self, device: u32) -> Option<&str>;
}
