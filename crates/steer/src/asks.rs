//! The threads that ask the kernel: a call may have to wait until the device's queue has room.
//!
//! ```text
//!   drive --push--> queue --(threads)--> kernel::ask
//! ```
//! # Invariants
//! - The asks of one file are carried out in their order, one at a time: two threads would mix them
//!   up on the way to the device.
//! - At most [`QUEUE_MAX`] asks wait and [`THREADS_MAX`] are under way; a thread is started when
//!   one is missing, the first with the first ask.
//! - What was withdrawn ([`Source::close`]) is not asked for any more.
//! - Nobody waits for the threads: they end with the process.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use crate::kernel::{self, Probe};

/// A file of the program, by a descriptor of our own that can only read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    /// Bytes of one call.
    pub(crate) chunk_bytes: u64,
    /// Opened with the first question that only a probe answers.
    probe: OnceLock<Option<Probe>>,
    closed: AtomicBool,
    /// A thread asks for some of it; changed with the queue locked.
    is_asked: AtomicBool,
}

impl Source {
    pub(crate) fn new(file: File, chunk_bytes: u64) -> Self {
        let (closed, is_asked) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { file, chunk_bytes, probe: OnceLock::new(), closed, is_asked }
    }

    /// A descriptor that tells whether a page is there, where one can be had.
    pub(crate) fn probe(&self) -> Option<&Probe> {
        self.probe.get_or_init(|| Probe::new(&self.file)).as_ref()
    }

    /// The program is done with it. The descriptor is closed as soon as no call has it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// Bytes to be asked for.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) source: Arc<Source>,
    pub(crate) range: Range<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    shared: Arc<Shared>,
    threads: usize,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    asks: VecDeque<Ask>,
    idle: usize,
}

impl Asks {
    /// Whether one more may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.shared.lock().asks.len() < QUEUE_MAX
    }

    /// Has `ask` carried out soon.
    pub(crate) fn push(&mut self, ask: Ask) {
        let mut queue = self.shared.lock();
        queue.asks.push_back(ask);
        let is_short = queue.idle < queue.asks.len() && self.threads < THREADS_MAX;
        drop(queue);
        if is_short {
            let shared = Arc::clone(&self.shared);
            let name = thread::Builder::new().name("ask".into()).stack_size(STACK_BYTES);
            // Without a thread nothing is read ahead, and the program reads as ever.
            self.threads += usize::from(name.spawn(move || shared.work()).is_ok());
        }
        self.shared.more.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> ! {
        let mut queue = self.lock();
        loop {
            let Some(Ask { source, range }) = queue.take() else {
                queue.idle += 1;
                queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            if !source.closed.load(Ordering::Relaxed) {
                // What cannot be had never arrives, and is given up then.
                let _ = kernel::ask(&source.file, &range, source.chunk_bytes);
            }
            queue = self.lock();
            source.is_asked.store(false, Ordering::Relaxed);
        }
    }
}

impl Queue {
    /// The first ask of a file that nobody asks for; it is asked for from now on.
    fn take(&mut self) -> Option<Ask> {
        let is_free = |ask: &Ask| !ask.source.is_asked.load(Ordering::Relaxed);
        let ask = self.asks.remove(self.asks.iter().position(is_free)?)?;
        ask.source.is_asked.store(true, Ordering::Relaxed);
        Some(ask)
    }
}

/// Asks that wait.
const QUEUE_MAX: usize = 256;
/// Calls under way: one that waits for a slow device does not hold up all others.
const THREADS_MAX: usize = 4;
const STACK_BYTES: usize = 64 << 10;
