//! Caches, stores and readers for tests.

use std::{collections::VecDeque, path::PathBuf, sync::Arc};

use forerun_core::{prng::Prng, readahead};
use forerun_engine::{Cache, Handle, ReadError, Settings};
use forerun_io::store::{
    Completion, ECANCELED, Op, Queue, QueueKind, Store, StoreError, Wait, pattern,
};
use forerun_testkit::Scratch;
use parking_lot::{Condvar, Mutex};

/// The pages of these tests: small, so that reads span many.
pub(crate) const PAGE_BYTES: u32 = 512;
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
/// Pages of the largest window in these tests.
pub(crate) const WINDOW: u32 = 16;

/// A file of the pattern's first `bytes`.
pub(crate) fn pattern_file(scratch: &Scratch, bytes: usize) -> PathBuf {
    let mut contents = vec![0; bytes];
    pattern::fill(0, &mut contents);
    scratch.file("data", contents)
}

/// Every readahead policy, with windows of at most [`WINDOW`] pages.
pub(crate) fn readaheads() -> Vec<String> {
    let bytes = WINDOW * PAGE_BYTES;
    let keys = [format!("max={bytes},io={bytes}"), format!("max={bytes}"), format!("size={bytes}")];
    let spec = |name: &&str| {
        let specs = keys.iter().map(|keys| format!("{name}:{keys}"));
        let known = specs.into_iter().find(|spec| readahead::make(spec, PAGE_BYTES).is_ok());
        known.unwrap_or_else(|| (*name).to_owned())
    };
    readahead::NAMES.iter().map(spec).collect()
}

/// A cache of `frames` small pages.
pub(crate) fn settings(frames: u32, readahead: &str) -> Settings {
    Settings {
        cache_bytes: u64::from(frames) * PAGE,
        page_bytes: PAGE_BYTES,
        readahead: readahead.into(),
        request_bytes_max: 8 * PAGE_BYTES,
        background_depth: 2,
        ..Settings::default()
    }
}

pub(crate) fn fixed() -> String {
    format!("fixed:size={}", WINDOW * PAGE_BYTES)
}

/// Reads and checks; returns the cache's error.
pub(crate) fn read(file: &Handle, offset: u64, bytes: usize) -> Result<usize, ReadError> {
    let mut buf = vec![0xee; bytes];
    let count = file.read_at(&mut buf, offset)?;
    let left = file.len().saturating_sub(offset);
    assert_eq!(count as u64, left.min(bytes as u64), "{bytes} at {offset}");
    assert_eq!(pattern::verify(offset, &buf[..count]), Ok(()), "{bytes} at {offset}");
    assert!(buf[count..].iter().all(|&byte| byte == 0xee), "nothing beyond the end is touched");
    Ok(count)
}

/// A read of a few pages, often where the last one ended.
pub(crate) fn next_read(random: &mut Prng, file_bytes: u64, at: &mut u64) -> (u64, usize) {
    if random.below(4) == 0 {
        *at = random.below(file_bytes);
    }
    let (offset, bytes) = (*at, 1 + random.below(6 * PAGE));
    *at = (offset + bytes) % file_bytes;
    (offset, usize::try_from(bytes).unwrap())
}

/// Checks the counts of an idle cache.
pub(crate) fn check_quiet(cache: &Cache, settings: &Settings) {
    let stats = cache.stats();
    assert!(stats.core.balanced(), "{stats:?}");
    assert_eq!(stats.latency.count(), stats.requests - stats.unlocked);
    let (frames, free) = cache.frames();
    assert_eq!(u64::from(frames), settings.cache_bytes / PAGE);
    assert!(free <= frames);
}

/// A pattern behind a gate: operations complete when the test opens it.
pub(crate) struct Gated {
    bytes: u64,
    gate: Arc<Gate>,
}

#[derive(Default)]
pub(crate) struct Gate {
    inside: Mutex<Inside>,
    changed: Condvar,
}

#[derive(Default)]
struct Inside {
    /// Whether demand and background operations complete.
    open: [bool; 2],
    /// Demands that complete though the gate is shut.
    passes: u32,
    /// The errno of background operations.
    fails: Option<i32>,
    /// All that was submitted: whether in the background, and where.
    log: Vec<(bool, u64)>,
    queues: Vec<Waiting>,
}

#[derive(Default)]
struct Waiting {
    ops: VecDeque<Op>,
    closed: bool,
}

struct GatedQueue {
    gate: Arc<Gate>,
    at: usize,
    background: bool,
}

impl Gated {
    pub(crate) fn new(bytes: u64) -> (Arc<Self>, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        (Arc::new(Self { bytes, gate: Arc::clone(&gate) }), gate)
    }
}

impl Gate {
    /// Lets demand, background operations, or both through from now on.
    pub(crate) fn set(&self, demand: bool, background: bool) {
        self.inside.lock().open = [demand, background];
        self.changed.notify_all();
    }

    /// Lets `count` demands through a shut gate.
    pub(crate) fn let_through(&self, count: u32) {
        self.inside.lock().passes += count;
        self.changed.notify_all();
    }

    pub(crate) fn fail_background(&self, errno: i32) {
        self.inside.lock().fails = Some(errno);
    }

    /// What was submitted so far.
    pub(crate) fn log(&self) -> Vec<(bool, u64)> {
        self.inside.lock().log.clone()
    }

    pub(crate) fn submitted(&self, background: bool) -> usize {
        self.inside.lock().log.iter().filter(|op| op.0 == background).count()
    }
}

impl Store for Gated {
    fn bytes(&self) -> Result<u64, StoreError> {
        Ok(self.bytes)
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let mut inside = self.gate.inside.lock();
        inside.queues.push(Waiting::default());
        let background = kind != QueueKind::Caller;
        Arc::new(GatedQueue {
            gate: Arc::clone(&self.gate),
            at: inside.queues.len() - 1,
            background,
        })
    }
}

impl Queue for GatedQueue {
    fn submit(&self, op: Op) {
        let mut inside = self.gate.inside.lock();
        inside.log.push((self.background, op.offset));
        inside.queues[self.at].ops.push_back(op);
        self.gate.changed.notify_all();
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        let mut inside = self.gate.inside.lock();
        loop {
            let (open, fails) = (inside.open[usize::from(self.background)], inside.fails);
            let passes = !open && !self.background && inside.passes > 0;
            let Waiting { ops, closed } = &mut inside.queues[self.at];
            let (open, passes) = (open || passes, passes && !ops.is_empty() && !*closed);
            if *closed {
                out.extend(ops.drain(..).map(|op| Completion { op, result: Err(ECANCELED) }));
            } else if open {
                let fails = fails.filter(|_| self.background);
                out.extend(ops.pop_front().map(|op| carry(op, fails)));
            }
            let is_done = !out.is_empty() || ops.is_empty() || wait == Wait::Never;
            inside.passes -= u32::from(passes);
            if is_done {
                return;
            }
            self.gate.changed.wait(&mut inside);
        }
    }

    fn close(&self) {
        self.gate.inside.lock().queues[self.at].closed = true;
        self.gate.changed.notify_all();
    }
}

fn carry(mut op: Op, fails: Option<i32>) -> Completion {
    if let Some(errno) = fails {
        return Completion { op, result: Err(errno) };
    }
    let (mut at, bytes) = (op.offset, op.bytes);
    for piece in op.pieces_mut() {
        pattern::fill(at, piece);
        at += piece.len() as u64;
    }
    op.zero_past(bytes);
    Completion { op, result: Ok(bytes) }
}
