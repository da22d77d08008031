//! A store around a store that records its operations: time, offset, length, and whether a reader
//! waits for them.
//!
//! ```text
//!   engine -> meter -> latency -> pattern        a model: it says when a request was served
//!   engine -> meter -> threads                   a file: the times are those seen here
//! ```
//!
//! # Invariants
//! - The notes are bounded; operations beyond the bound are counted.
//! # Locking
//! One lock for the notes, one a queue for what it has in flight; never both.

use std::collections::BTreeMap;
use std::sync::Arc;

use forerun_console::machine;
use forerun_core::units::Nanos;
use forerun_io::store::{Completion, Op, OpKind, Queue, QueueKind, Store, StoreError, Wait};
use forerun_report::{DeviceRequest, RequestKind};
use parking_lot::{Mutex, MutexGuard};

/// See the module.
pub(crate) struct Meter {
    inner: Arc<dyn Store>,
    notes: Arc<Mutex<Notes>>,
    before_calls: Arc<BeforeCalls>,
}

/// What a reader's own thread does before it calls the store.
type BeforeCalls = dyn Fn() + Send + Sync;

/// The requests.
#[derive(Default)]
pub(crate) struct Notes {
    /// Requests to read.
    pub(crate) reads: u64,
    /// Their bytes.
    pub(crate) read_bytes: u64,
    /// Requests to write.
    pub(crate) writes: u64,
    /// Their bytes.
    pub(crate) written_bytes: u64,
    /// Requests that are in flight, and since when there is one.
    under_way: (u64, Nanos),
    /// How long there was one before that.
    busy: Nanos,
    noted: Vec<Noted>,
    noted_max: usize,
}

struct Noted {
    token: u64,
    kind: RequestKind,
    offset: u64,
    bytes: u64,
    at: Nanos,
    /// `None` while the operation is in flight.
    done: Option<Nanos>,
}

impl Meter {
    /// Notes the first `noted_max` reads of `inner`.
    pub(crate) fn new(inner: Arc<dyn Store>, noted_max: usize) -> Self {
        let notes = Notes { noted_max, ..Notes::default() };
        Self { inner, notes: Arc::new(Mutex::new(notes)), before_calls: Arc::new(|| ()) }
    }

    /// Has a reader's own thread call `hook` just before it calls the store.
    pub(crate) fn before_calls(self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        Self { before_calls: Arc::new(hook), ..self }
    }

    /// Counts operations of another store among those of this one.
    pub(crate) fn beside(&self, inner: Arc<dyn Store>) -> Self {
        let (notes, before_calls) = (Arc::clone(&self.notes), Arc::clone(&self.before_calls));
        Self { inner, notes, before_calls }
    }

    /// The notes so far.
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock()
    }
}

impl Notes {
    /// How long there was a request in flight, until the last one ended.
    #[must_use]
    pub(crate) fn busy(&self) -> Nanos {
        self.busy
    }

    /// Counts `op`; its place among what is noted, if it is.
    fn submitted(&mut self, op: &Op, kind: RequestKind, at: Nanos) -> Option<usize> {
        let (token, offset, bytes) = (op.token, op.offset, op.bytes as u64);
        self.begin(at);
        match op.kind {
            OpKind::Read => {
                self.reads += 1;
                self.read_bytes += bytes;
                let number = self.noted.len();
                let room = number < self.noted_max;
                room.then(|| {
                    self.noted.push(Noted { token, kind, offset, bytes, at, done: None });
                    number
                })
            }
            OpKind::Write => {
                self.writes += 1;
                self.written_bytes += bytes;
                None
            }
            OpKind::Sync => None,
        }
    }

    fn begin(&mut self, now: Nanos) {
        if self.under_way.0 == 0 {
            self.under_way.1 = now;
        }
        self.under_way.0 += 1;
    }

    fn end(&mut self, now: Nanos) {
        self.under_way.0 -= 1;
        if self.under_way.0 == 0 {
            self.busy += now.since(self.under_way.1);
        }
    }

    /// The requests that are done, their times since `start`.
    #[must_use]
    pub(crate) fn requests(&self, start: Nanos) -> Vec<DeviceRequest> {
        let micros = |at: Nanos| at.since(start).0 / 1_000;
        let request = |noted: &Noted| {
            Some(DeviceRequest {
                at_us: micros(noted.at),
                done_us: micros(noted.done?),
                offset: noted.offset,
                bytes: noted.bytes,
                kind: noted.kind,
            })
        };
        self.noted.iter().filter_map(request).collect()
    }

    /// The reasons of operations, by token and first byte.
    #[must_use]
    pub(crate) fn kinds(&self) -> Kinds {
        let key = |noted: &Noted| ((noted.token, noted.offset), (noted.bytes, noted.kind));
        Kinds(self.noted.iter().map(key).collect())
    }
}

/// See [`Notes::kinds`].
pub(crate) struct Kinds(BTreeMap<(u64, u64), (u64, RequestKind)>);

impl Kinds {
    /// The reason of the operation of `token` that contains the request at `offset`.
    #[must_use]
    pub(crate) fn of(&self, token: u64, offset: u64) -> RequestKind {
        let before = self.0.range((token, 0)..=(token, offset)).next_back();
        let found = before.filter(|((_, at), (bytes, _))| offset - at < *bytes);
        // An operation beyond the bound most likely has the most frequent reason.
        found.map_or(RequestKind::Readahead, |(_, (_, kind))| *kind)
    }
}

impl Store for Meter {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let inner = self.inner.queue(kind);
        // The engine fetches demands on the reader's own thread and readahead on others.
        let kind = match kind {
            QueueKind::Caller => RequestKind::Demand,
            QueueKind::Background { .. } => RequestKind::Readahead,
        };
        let (notes, in_flight) = (Arc::clone(&self.notes), Mutex::default());
        let before_calls = Arc::clone(&self.before_calls);
        Arc::new(Metered { inner, kind, notes, before_calls, in_flight })
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

struct Metered {
    inner: Arc<dyn Queue>,
    kind: RequestKind,
    notes: Arc<Mutex<Notes>>,
    before_calls: Arc<BeforeCalls>,
    /// The notes of operations in flight, by token.
    in_flight: Mutex<BTreeMap<u64, usize>>,
}

impl Queue for Metered {
    fn submit(&self, op: Op) {
        let number = self.notes.lock().submitted(&op, self.kind, machine::now());
        if let Some(number) = number {
            self.in_flight.lock().insert(op.token, number);
        }
        self.inner.submit(op);
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        let before = out.len();
        if self.kind == RequestKind::Demand {
            (self.before_calls)();
        }
        self.inner.reap(wait, out);
        let now = machine::now();
        let done = out.len() - before;
        if done > 0 {
            let mut notes = self.notes.lock();
            (0..done).for_each(|_| notes.end(now));
        }
        for done in out[before..].iter().filter(|done| done.op.kind == OpKind::Read) {
            let number = self.in_flight.lock().remove(&done.op.token);
            if let Some(number) = number {
                self.notes.lock().noted[number].done = Some(now);
            }
        }
    }

    fn set_depth(&self, depth: u32) {
        self.inner.set_depth(depth);
    }

    fn start(&self) {
        self.inner.start();
    }

    fn close(&self) {
        self.inner.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_core::units::FrameId;
    use forerun_io::frames::Frames;
    use forerun_io::store::pattern::Pattern;

    #[test]
    fn reads_are_counted_noted_up_to_the_bound_and_told_apart() {
        let meter = Meter::new(Arc::new(Pattern::new(1 << 20)), 3);
        let frames = Frames::new(8, 4096).unwrap();
        let demand = meter.queue(QueueKind::Caller);
        let ahead = meter.queue(QueueKind::Background { depth: 2 });
        let order = [(&demand, 0, 0), (&ahead, 1, 4096), (&demand, 0, 8192), (&ahead, 3, 16384)];
        for (frame, (queue, token, offset)) in (0..).zip(order) {
            let frames = vec![frames.check_out(FrameId(frame))];
            queue.submit(Op { token, kind: OpKind::Read, offset, bytes: 4000, frames });
            let mut out = Vec::new();
            queue.reap(Wait::One, &mut out);
            assert_eq!((out.len(), &out[0].result), (1, &Ok(4000)));
        }
        let notes = meter.notes();
        assert_eq!((notes.reads, notes.read_bytes), (4, 16_000));
        let requests = notes.requests(Nanos(0));
        let seen: Vec<_> = requests.iter().map(|r| (r.offset, r.bytes, r.kind)).collect();
        let (demand, ahead) = (RequestKind::Demand, RequestKind::Readahead);
        assert_eq!(seen, [(0, 4000, demand), (4096, 4000, ahead), (8192, 4000, demand)]);
        assert!(requests.iter().all(|r| r.at_us <= r.done_us));
        let kinds = notes.kinds();
        assert_eq!((kinds.of(0, 9000), kinds.of(1, 4096)), (demand, ahead));
        assert_eq!(kinds.of(0, 4000), ahead, "past the end of what was noted");
    }
}
