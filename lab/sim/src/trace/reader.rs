//! A format's entry in the list of formats, and its reader.
//!
//! # Invariants
//! - A reader that appends fewer requests than a batch has is at the end of its trace.

use forerun_core::params::{ParamError, Params};

use super::input::Input;
use super::records::Fault;
use super::{Facts, Request};

/// A format's entry in the list.
pub(super) trait Entry: Sized {
    /// The name on the command line. Never changed once released.
    const NAME: &'static str;
    /// One line of help.
    const SUMMARY: &'static str;
    /// What may be set.
    type Params: Params;
    /// A reader of this format, if the parameters fit each other.
    fn reader(params: Self::Params) -> Result<Box<dyn Reader>, ParamError>;
}

/// A format that reads.
pub(super) trait Reader: Send {
    /// Appends requests to `out` until it holds [`BATCH_REQUESTS`] or the trace is at its end.
    fn fill(&mut self, input: &mut Input, out: &mut Vec<Request>) -> Result<(), Fault>;

    /// The facts about its requests; certain after the first batch.
    fn facts(&self) -> Facts;
}
