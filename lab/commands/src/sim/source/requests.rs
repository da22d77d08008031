//! The requests of a source: what the flags leave of them, in batches.
//!
//! # Invariants
//! - A batch has requests, but for the last.
//! - Without the writes, a limit counts the reads alone.

use forerun_console::failure::note;
use forerun_sim::trace::{BATCH_REQUESTS, Facts, Op, Request, Trace, TraceError};

use super::{Reading, is_stopped};
use crate::given::Control;
use crate::specs::PAGE_BYTES;

/// Requests, in batches.
pub(crate) struct Requests {
    from: Origin,
    /// Of the trace, for notes and errors.
    name: String,
    /// Pages that may still be sent.
    left: u64,
    /// Whether those that write are left out.
    reads: bool,
    control: Option<Control>,
}

/// Where they come from.
pub(super) enum Origin {
    Trace(Box<Trace>),
    /// With the facts about them.
    Made(Box<dyn Iterator<Item = Request> + Send>, Facts),
}

impl Requests {
    /// Those of `from` that `reading` asks for.
    pub(super) fn new(from: Origin, name: String, reading: &Reading) -> Self {
        let (left, reads) = (reading.accesses_max(), reading.reads);
        Self { from, name, left, reads, control: reading.control.clone() }
    }

    /// Puts the next requests into `batch`; false when there are no more.
    pub(crate) fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        while self.left > 0 && !is_stopped(self.control.as_ref()) {
            self.read(batch)?;
            if batch.is_empty() {
                return Ok(false);
            }
            if self.reads {
                batch.retain(|request| request.op != Op::Write);
            }
            self.cut(batch);
            if self.reads {
                batch.iter().try_for_each(|&request| told(request, &self.name).map(|_| ()))?;
            }
            if !batch.is_empty() {
                return Ok(true);
            }
        }
        batch.clear();
        Ok(false)
    }

    /// Puts the next of its origin into `batch`; none when there are no more.
    fn read(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        match &mut self.from {
            Origin::Trace(trace) => {
                let is_more = trace.next_batch(batch)?;
                if !is_more && trace.skipped() > 0 && self.control.is_none() {
                    note(&format!("{}: {} broken records passed over", self.name, trace.skipped()));
                }
            }
            Origin::Made(requests, _) => {
                batch.clear();
                batch.extend(requests.take(BATCH_REQUESTS));
            }
        }
        Ok(())
    }

    /// Leaves what the limit allows of `batch`.
    fn cut(&mut self, batch: &mut Vec<Request>) {
        let pages: u64 = batch.iter().map(|request| u64::from(request.count)).sum();
        if pages <= self.left {
            self.left -= pages;
            return;
        }
        let mut kept = 0;
        for request in batch.iter_mut() {
            if self.left == 0 {
                break;
            }
            let count = u32::try_from(self.left).map_or(request.count, |l| l.min(request.count));
            if count < request.count {
                let bytes = u64::from(count) * u64::from(PAGE_BYTES) - u64::from(request.skew);
                (request.bytes, request.count) = (bytes.min(request.bytes), count);
            }
            self.left -= u64::from(count);
            kept += 1;
        }
        batch.truncate(kept);
    }

    /// The facts about the requests; certain after the first batch.
    pub(crate) fn facts(&self) -> Facts {
        match &self.from {
            Origin::Trace(trace) => trace.facts(),
            Origin::Made(_, facts) => *facts,
        }
    }

    /// The name of a device of the requests so far, where the trace has names.
    pub(crate) fn device_name(&self, device: u32) -> Option<&str> {
        match &self.from {
            Origin::Trace(trace) => trace.device_name(device),
            Origin::Made(..) => None,
        }
    }

    /// The guessed format; none where it was given.
    pub(crate) fn guess(&self) -> Option<&str> {
        match &self.from {
            Origin::Trace(trace) => trace.guess(),
            Origin::Made(..) => None,
        }
    }

    /// Broken records passed over so far.
    pub(crate) fn skipped(&self) -> u64 {
        match &self.from {
            Origin::Trace(trace) => trace.skipped(),
            Origin::Made(..) => 0,
        }
    }
}

/// `request`, if the trace called `name` says whether it writes.
pub(super) fn told(request: Request, name: &str) -> Result<Request, TraceError> {
    if request.op == Op::Unknown {
        return Err(TraceError::NoOperations { name: name.to_owned() });
    }
    Ok(request)
}
