//! The cache and its handles: what programs see.
//!
//! A file is known to the cache from its first handle to its last; its pages go with the last
//! one. A handle reads the file as long as it was when it was opened.
//!
//! # Invariants
//! - Handles keep what they need: they may outlive the [`Cache`], but read nothing after it.
//! - When a file's last handle is gone, so are its threads and all its fetches.
//! # Locking
//! Nothing but the state's lock, never over a call of a store or the end of a thread.

use std::sync::{Arc, atomic::AtomicU64};

use forerun_core::{
    cache,
    event::Event,
    units::{FileId, HandleId, PartitionId},
};
use forerun_io::{frames::Frames, store::Store};
use parking_lot::Mutex;

use crate::{
    background::Background,
    clock::Clock,
    error::{OpenError, ReadError},
    fetch::File,
    journal::Recorder,
    queues::Queues,
    read::{NEVER_READ, Read},
    settings::{Settings, SettingsError},
    shared::Shared,
    state::{Row, State},
    stats::Stats,
};

/// A live cache. It is closed when it goes.
///
/// ```
/// use std::sync::Arc;
/// use forerun_engine::{Cache, Settings};
/// use forerun_io::store::pattern::{self, Pattern};
///
/// let cache = Cache::new(Settings::default()).expect("the defaults work");
/// let file = cache.open(Arc::new(Pattern::new(1 << 20))).expect("it has a length");
/// let mut buf = [0; 10_000];
/// assert_eq!(file.read_at(123, &mut buf), Ok(10_000));
/// assert_eq!(pattern::verify(123, &buf), Ok(()));
/// assert_eq!(cache.stats().bytes, 10_000);
/// ```
pub struct Cache {
    shared: Arc<Shared>,
}

impl Cache {
    /// A cache with all frames free.
    ///
    /// # Errors
    /// A setting cannot work, or the memory cannot be had.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Self::build(settings, None)
    }

    /// As [`Cache::new`]; `recorder` sees all events.
    ///
    /// # Errors
    /// As for `new`.
    pub fn recorded(
        settings: Settings,
        recorder: Box<dyn Recorder>,
    ) -> Result<Self, SettingsError> {
        Self::build(settings, Some(recorder))
    }

    fn build(
        settings: Settings,
        recorder: Option<Box<dyn Recorder>>,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        let (core, page_bytes) = (settings.core()?, settings.page_bytes as usize);
        // The core's tables are in proportion, and who cannot have those does not live to say so.
        Frames::check(core.frames, page_bytes)?;
        let core = cache::Cache::new(core)?;
        let frames = Frames::new(core.settings().frames, page_bytes)?;
        let clock = Clock::start();
        let state = Mutex::new(State::new(core, clock, settings.readers_max, recorder));
        Ok(Self { shared: Arc::new(Shared { frames, state, clock, settings }) })
    }

    /// Opens what `store` holds. Each call makes a file of its own; a second handle on a file
    /// comes from [`Handle::again`].
    ///
    /// # Errors
    /// The store does not know its length, or a bound of the settings is reached.
    pub fn open(&self, store: Arc<dyn Store>) -> Result<Handle, OpenError> {
        let bytes = store.bytes()?;
        let settings = &self.shared.settings;
        let background = Background::new(&*store, settings.background_depth);
        let queues = Queues::new(Arc::clone(&store), settings.demand_queues_max);
        let page_bytes = settings.page_bytes;
        let mut state = self.shared.state.lock();
        let id = state.free_file()?;
        let file = Arc::new(File { id, store, bytes, page_bytes, queues, background });
        let opened = open_handle(&self.shared, &mut state, &file);
        drop(state); // Before a file that was refused, and its store with it.
        opened
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let state = self.shared.state.lock();
        Stats { core: *state.core.stats(), ..state.stats.clone() }
    }

    /// Frames there are, and how many of them hold nothing.
    #[must_use]
    pub fn frames(&self) -> (u32, u32) {
        (self.shared.frames.count(), self.shared.state.lock().core.free_frames())
    }

    /// Refuses new reads and ends all background work. Reads under way end with their answer.
    /// Idempotent.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let rows = state.live.files.iter().flatten();
        let files: Vec<_> = rows.map(|row| Arc::clone(&row.file)).collect();
        drop(state);
        for file in files {
            file.background.close();
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.close();
    }
}

/// An open file. Any thread may read through it; each handle is a reader of its own to the
/// readahead.
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) file: Arc<File>,
    id: HandleId,
    /// The byte after the previous read; `NEVER_READ` before the first. Changed under the
    /// state's lock alone.
    previous_end: AtomicU64,
}

impl Handle {
    /// Reads from `offset` on into `buf`, and returns how many bytes: all of `buf`, but for the
    /// end of the file. At or past the end that is 0.
    ///
    /// # Errors
    /// See [`ReadError`]; a failed readahead is none.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, ReadError> {
        let left = self.file.bytes.saturating_sub(offset);
        let bytes = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let mut done = 0;
        while done < bytes {
            let at = offset + done as u64;
            let piece = self.piece(at).min(bytes - done);
            let read = Read {
                shared: &self.shared,
                file: &self.file,
                handle: self.id,
                offset: at,
                previous_end: &self.previous_end,
            };
            read.run(&mut buf[done..done + piece])?;
            done += piece;
        }
        Ok(bytes)
    }

    /// The length of the file, as it was when it was opened.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file.bytes
    }

    /// Another handle on the same file: they share its pages.
    ///
    /// # Errors
    /// The cache is closed, or a bound of the settings is reached.
    pub fn again(&self) -> Result<Self, OpenError> {
        let mut state = self.shared.state.lock();
        open_handle(&self.shared, &mut state, &self.file)
    }

    /// How much is read at once from `offset` on: to the end of the last of as many pages as half
    /// the cache holds, so that a read of any length gets frames and waiters.
    fn piece(&self, offset: u64) -> usize {
        let (frames, waiters) = (self.shared.frames.count(), self.shared.settings.waiters_max);
        let pages = u64::from((frames / 2).clamp(1, PIECE_PAGES_MAX).min(waiters));
        let page_bytes = u64::from(self.file.page_bytes);
        let end = (offset / page_bytes).saturating_add(pages).saturating_mul(page_bytes);
        usize::try_from(end - offset).unwrap_or(usize::MAX)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.send(None, Event::Close { handle: self.id });
        state.handle_closed(self.id);
        let row = row_of(&mut state, self.file.id).as_mut().expect("open until its last handle");
        row.handles -= 1;
        let last = row.handles == 0;
        if last {
            let (file, count) = (self.file.id, self.file.pages());
            state.send(None, Event::Invalidate { file, first: 0, count });
        }
        let ahead = state.take_ahead();
        drop(state);
        self.shared.submit_ahead(ahead);
        if last {
            self.file.background.close();
            *row_of(&mut self.shared.state.lock(), self.file.id) = None;
        }
    }
}

/// Opens a handle on `file`, which has its number but may be new.
fn open_handle(
    shared: &Arc<Shared>,
    state: &mut State,
    file: &Arc<File>,
) -> Result<Handle, OpenError> {
    if state.closed {
        return Err(OpenError::Closed);
    }
    let id = state.free_handle()?;
    let row =
        row_of(state, file.id).get_or_insert_with(|| Row { file: Arc::clone(file), handles: 0 });
    row.handles += 1;
    let (partition, file_pages) = (PartitionId(0), file.pages());
    state.send(None, Event::Open { handle: id, file: file.id, partition, file_pages });
    let previous_end = AtomicU64::new(NEVER_READ);
    Ok(Handle { shared: Arc::clone(shared), file: Arc::clone(file), id, previous_end })
}

/// The row of an open file, or of one that is being opened.
fn row_of(state: &mut State, file: FileId) -> &mut Option<Row> {
    let (files, at) = (&mut state.live.files, file.0 as usize);
    if files.len() <= at {
        files.resize_with(at + 1, || None);
    }
    &mut files[at]
}

/// Pages of one request at most: its count is a `u32`, and a reader gets its turn.
const PIECE_PAGES_MAX: u32 = 1 << 16;
