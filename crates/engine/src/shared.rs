//! The state that handles, readers and reapers share: the index, the hit buffer, the locked state,
//! and the operations that any of these threads carries out.
//!
//! # Invariants
//! - Before the core gets the result of a fetch, its frames are checked in, and the file's version
//!   was compared after the bytes arrived: arrived pages are of the version that the handle opened.
//! - A fetch that a closed background refuses fails at once, so no read waits for it.
//! - Unpinning a frame while a read waits for one retries the allocation. So does a lookup that
//!   misses: its hazard pointer may have blocked a victim for a moment.
//! - The last pin of a page that has left its file frees the frame.

use std::sync::Arc;

use forerun_core::{
    cache,
    event::{Event, Hit},
};
use forerun_io::{
    frames::{Frames, Pin},
    index::Index,
    store::{Completion, Op},
    sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering},
};

use crate::{
    ahead::Ahead,
    background::{Backgrounds, Completions, Refused},
    clock::Clock,
    file::{Fetch, File, FileState, Job, Unsubmitted, Writeback, Written},
    hits::{Full, HitBuffer},
    settings::Settings,
    shares::Shares,
    state::State,
    waiters::SlotId,
};

/// See the module.
pub(crate) struct Shared {
    pub(crate) index: Arc<Index>,
    pub(crate) hit_buffer: HitBuffer,
    pub(crate) state: Mutex<State>,
    /// Wakes the flusher: what is due may have changed.
    pub(crate) dirty_due: Condvar,
    /// Wakes a closing thread: a write or a flush has its answer.
    pub(crate) writer_left: Condvar,
    /// Whether a read waits for a frame to be unpinned.
    pub(crate) starving: Arc<AtomicBool>,
    /// Whether the readahead policy needs every read as an event, hits too.
    pub(crate) sees_requests: bool,
    /// What requests of each partition fit into.
    pub(crate) shares: Arc<Shares>,
    /// What the core was built from.
    pub(crate) core_settings: cache::Settings,
    /// The most pages that may be dirty.
    pub(crate) dirty_pages_max: u32,
    pub(crate) backgrounds: Backgrounds<Job>,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
}

impl Shared {
    pub(crate) fn frames(&self) -> &Frames {
        self.index.frames()
    }

    /// Records a hit without the lock ([`HitBuffer::record`]); drains the hit buffer when a stripe
    /// is full.
    #[inline]
    pub(crate) fn record(self: &Arc<Self>, hit: Hit, bytes: usize, ends: bool) {
        match self.hit_buffer.record(hit, bytes, ends) {
            Full::No => {}
            full @ (Full::May | Full::Must) => self.take_hits(full),
        }
    }

    #[cold]
    fn take_hits(self: &Arc<Self>, full: Full) {
        let state = match full {
            Full::Must => Some(self.state.lock()),
            Full::No | Full::May => self.state.try_lock(),
        };
        if let Some(mut state) = state {
            state.take_hits(&self.hit_buffer);
            self.settle(state);
        }
    }

    /// Retries the allocation of a waiting read, after frames were unpinned.
    #[inline]
    pub(crate) fn frames_unpinned(self: &Arc<Self>) {
        if self.starving.load(Ordering::SeqCst) {
            self.retry_allocation();
        }
    }

    /// Releases a pin of a page that may have left its file meanwhile.
    #[inline]
    pub(crate) fn unpin(self: &Arc<Self>, pin: Pin<'_>) {
        if pin.release() {
            self.retry_allocation();
        }
    }

    #[cold]
    fn retry_allocation(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.send(None, Event::Tick);
        self.settle(state);
    }

    /// Checks in the frames of a completed fetch and sends its result to the core; `me` is the
    /// reader that reaped it. `None`: the store has panicked and not given it back.
    pub(crate) fn report(
        &self,
        me: Option<SlotId>,
        fetch: &Fetch,
        done: Option<Completion>,
    ) -> MutexGuard<'_, State> {
        let outcome = done.as_ref().map_or_else(Fetch::lost, |done| fetch.outcome(done));
        if let Some(done) = done {
            fetch.put_back(done.op, self.frames());
        }
        let mut state = self.state.lock();
        state.store_bytes += outcome.bytes;
        state.store_requests += 1;
        if let Some(file_state) = outcome.file_state {
            state.changed(&fetch.file, file_state);
        }
        let (whole, count) = (outcome.whole, fetch.count());
        if whole > 0 {
            state.send(me, Event::Arrived { first: fetch.frames[0], count: whole });
        }
        if fetch.is_kept_by_store(self.frames()) {
            // The frames never come free; their pages do.
            let (file, first) = (fetch.file.id, fetch.first);
            state.send(me, Event::Invalidate { file, first, count: count.into() });
        } else if whole < count {
            let (first, count) = (fetch.frames[whole as usize], count - whole);
            state.send(me, Event::Failed { first, count, errno: outcome.errno });
        }
        state.ended(fetch);
        state
    }

    /// Releases the lock and submits the readahead of its events.
    pub(crate) fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let ahead = state.take_ahead();
        drop(state);
        self.submit_ahead(ahead);
    }

    /// Submits operations to the backgrounds of their files.
    pub(crate) fn submit_ahead(self: &Arc<Self>, mut ahead: Ahead) {
        while !ahead.is_empty() {
            let Ahead { fetches, writes, depth } = ahead;
            let mut later = Ahead { fetches: Vec::new(), writes: Vec::new(), depth };
            for write in writes {
                later.append(self.submit_write(write));
            }
            for fetch in fetches {
                let file = Arc::clone(&fetch.file);
                file.ahead.set_depth(depth);
                let op = fetch.op(u64::from(fetch.frames[0].0), self.frames());
                let refused = file.background.submit(self, &*file.ahead, op, Job::Fetch(fetch));
                if let Err(Refused { op, job: Job::Fetch(fetch) }) = refused {
                    let done = op.map(Op::cancelled);
                    later.append(Some(self.report(None, &fetch, done).take_ahead()));
                }
            }
            ahead = later;
        }
    }

    /// Submits a write or a sync. Returns the operations that the core issues where the background
    /// refuses it.
    fn submit_write(self: &Arc<Self>, write: Unsubmitted) -> Option<Ahead> {
        let Unsubmitted { writeback, op } = write;
        let file = Arc::clone(&writeback.file);
        self.compare(&file);
        file.version.begin_write();
        let writer = file.writer.get().expect("a file with dirty pages has its writer");
        let job = Job::Write(writeback);
        match writer.background.submit(self, &*writer.queue, op, job) {
            Err(Refused { op, job: Job::Write(writeback) }) => {
                let mut state = self.report_write(&writeback, op.map(Op::cancelled));
                Some(state.take_ahead())
            }
            Ok(()) | Err(_) => None,
        }
    }

    /// Compares the version of `file`, and ends the file if it has changed.
    pub(crate) fn compare(self: &Arc<Self>, file: &Arc<File>) {
        // A store that fails is queried again by the next comparison.
        if let Ok(file_state) = file.compare()
            && file_state != FileState::Current
        {
            let mut state = self.state.lock();
            state.changed(file, file_state);
            self.settle(state);
        }
    }

    /// Reports the result of a write or a sync to the core. `None`: the store has panicked and not
    /// given it back.
    fn report_write(
        self: &Arc<Self>,
        writeback: &Writeback,
        done: Option<Completion>,
    ) -> MutexGuard<'_, State> {
        let file = &writeback.file;
        let written = writeback.outcome(done);
        file.version.end_write(|| file.store_version().ok());
        let mut state = self.state.lock();
        match written {
            Written::Pages { first, whole, count, errno } => {
                let failed = writeback.frame(whole);
                if whole > 0 {
                    state.send(None, Event::Written { first, count: whole });
                }
                if let Some(first) = failed {
                    let count = count - whole;
                    state.send(None, Event::WriteFailed { first, count, errno });
                }
            }
            Written::Sync { errno } => state.send(None, Event::Synced { file: file.id, errno }),
        }
        if state.is_due_before_flusher(file.id) {
            self.dirty_due.notify_all();
        }
        if let Some(file) = state.write_ended(file) {
            self.settle(state);
            file.close();
            state = self.state.lock();
        }
        state
    }
}

impl Completions<Job> for Shared {
    fn take(self: &Arc<Self>, job: Job, done: Option<Completion>) {
        let state = match &job {
            Job::Fetch(fetch) => self.report(None, fetch, done),
            Job::Write(writeback) => self.report_write(writeback, done),
        };
        self.settle(state);
    }
}
