//! The cache: opens files, counts, resizes, closes.
//!
//! A file opened by path keeps its pages after its last handle closes; the next open serves them if
//! the file is unchanged. The pages of other stores last as long as a handle.
//!
//! # Invariants
//! - A cache ends with its last clone and handle, or when it is closed.
//! - The end of a cache is the end of its threads and fetches.
//! # Locking
//! The state's lock alone, never over a call of a store or the end of a thread.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use forerun_core::{
    cache::{self, SettingsError},
    device::remembered::DeviceRecord,
    event::Event,
    units::PartitionId,
};
use forerun_io::{
    files::{ChosenBackend, Files},
    frames::Frames,
    index::Index,
    process::OwnerProcess,
    store::{QueueKind, Store, Version, file::Access},
    sync::{AtomicBool, Condvar, Mutex, MutexGuard},
};

use crate::{
    background::Backgrounds,
    clock::Clock,
    error::{BuildError, OpenError, WriteError},
    file::{File, FileState, FileStateCell, Length, Writer},
    flusher::Flusher,
    handle::Handle,
    hits::HitBuffer,
    journal::Recorder,
    owner::{DeviceMemory, Owner},
    queues::Queues,
    settings::Settings,
    shared::Shared,
    shares::Shares,
    state::{Place, State},
    stats::{Stats, Windows},
    version::VersionCell,
    watch::Watch,
};

mod shares;

/// A live cache. Clones are the same cache.
///
/// ```
/// use std::sync::Arc;
/// use forerun_engine::{Cache, Settings};
/// use forerun_io::store::pattern::{self, Pattern};
///
/// let cache = Cache::new(Settings::default()).expect("the defaults work");
/// let file = cache.open_store(Arc::new(Pattern::new(1 << 20))).expect("it has a length");
/// let mut buf = [0; 10_000];
/// assert_eq!(file.read_at(&mut buf, 123), Ok(10_000));
/// assert_eq!(pattern::verify(123, &buf), Ok(()));
/// assert_eq!(cache.stats().bytes, 10_000);
/// ```
#[derive(Clone)]
pub struct Cache {
    owner: Arc<Owner>,
    /// The client whose files this clone opens.
    client: Arc<str>,
}

impl Cache {
    /// A cache with all frames free.
    ///
    /// # Errors
    /// A setting cannot work, or the system refuses the memory.
    pub fn new(settings: Settings) -> Result<Self, BuildError> {
        Self::build(settings, None, None)
    }

    /// As [`Cache::new`], with a recorder of all events.
    ///
    /// # Errors
    /// As for `new`.
    pub fn recorded(settings: Settings, recorder: Box<dyn Recorder>) -> Result<Self, BuildError> {
        Self::build(settings, Some(recorder), None)
    }

    pub(crate) fn build(
        settings: Settings,
        recorder: Option<Box<dyn Recorder>>,
        memory: Option<DeviceMemory>,
    ) -> Result<Self, BuildError> {
        settings.check()?;
        let (core, page_bytes) = (settings.core()?, settings.page_bytes as usize);
        // The core's tables are in proportion to the frames, and a failed allocation of theirs
        // aborts the process: so the frames' memory is checked first.
        Frames::check(core.frames, page_bytes)?;
        let core = cache::Cache::new(core)?;
        let frames = Arc::new(Frames::new(core.settings().frames, page_bytes)?);
        let files = Files::new(settings.files.clone())?;
        files.register(&frames);
        let (index, publisher) = Index::new(frames)?;
        let (clock, hit_buffer) = (Clock::start(), HitBuffer::new());
        let starving = Arc::new(AtomicBool::new(false));
        let (sees_requests, parts) = (core.sees_requests(), Arc::new(Shares::new(&core)));
        let dirty_pages_max = core.settings().dirty_pages_max;
        let core_settings = core.settings().clone();
        let (starves, hits_max) = (Arc::clone(&starving), hit_buffer.capacity());
        let shared_with = (starves, Arc::clone(&parts));
        let state = State::new(core, clock, publisher, shared_with, hits_max, &settings, recorder);
        let shared = Arc::new(Shared {
            index,
            hit_buffer,
            state: Mutex::new(state),
            dirty_due: Condvar::new(),
            writer_left: Condvar::new(),
            starving,
            sees_requests,
            shares: parts,
            core_settings,
            dirty_pages_max,
            backgrounds: Backgrounds::default(),
            clock,
            settings,
        });
        let (watch, flusher) = (Watch::default(), Flusher::default());
        let home = OwnerProcess::current();
        let owner = Arc::new(Owner { shared, files, watch, flusher, memory, home });
        Ok(Self { owner, client: "".into() })
    }

    /// Opens the file or block device at `path`: past the kernel's page cache where that works,
    /// by the best interface that the system offers ([`Cache::chosen`]). Handles on the same file
    /// share its pages.
    ///
    /// # Errors
    /// The file is missing, not readable or not a file, or a bound of the settings is reached.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Handle, OpenError> {
        self.open_with(path, Access::Read)
    }

    /// As [`Cache::open`], to be written too where `access` says so.
    ///
    /// ```
    /// use forerun_engine::{Access, Cache};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("forerun-{}", std::process::id()));
    /// # std::fs::write(&path, "before")?;
    /// let cache = Cache::builder().memory(16 << 20).build()?;
    /// let file = cache.open_with(&path, Access::ReadWrite)?;
    /// file.write_at(b"after!", 0)?; // Other handles read it from now on.
    /// file.flush()?; // It survives a crash from now on.
    /// assert_eq!(std::fs::read(&path)?, b"after!");
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of `open`; the file may not be written.
    pub fn open_with(&self, path: impl AsRef<Path>, access: Access) -> Result<Handle, OpenError> {
        let store = self.owner.files.open(path.as_ref(), access)?;
        self.owner.watch.begin(&self.owner.shared);
        let version = store.settled_version()?;
        self.open_as(store, version.bytes, version, Some(path.as_ref()), access)
    }

    /// Opens the contents of `store`. Each call creates a separate file; [`Handle::try_clone`]
    /// opens a second handle on it.
    ///
    /// # Errors
    /// The store does not know its length, or a bound of the settings is reached.
    pub fn open_store(&self, store: Arc<dyn Store>) -> Result<Handle, OpenError> {
        self.open_store_with(store, Access::Read)
    }

    /// As [`Cache::open_store`], to be written too where `access` says so and the store takes it.
    ///
    /// # Errors
    /// As of `open_store`.
    pub fn open_store_with(
        &self,
        store: Arc<dyn Store>,
        access: Access,
    ) -> Result<Handle, OpenError> {
        let (version, bytes) = (store.settled_version()?, store.bytes()?);
        self.open_as(store, bytes, version, None, access)
    }

    fn open_as(
        &self,
        store: Arc<dyn Store>,
        bytes: u64,
        version: Version,
        path: Option<&Path>,
        access: Access,
    ) -> Result<Handle, OpenError> {
        let (writable, found_again) = (access == Access::ReadWrite, path.is_some());
        let partition = self.partition_of(path);
        let (shared, settings) = (&self.owner.shared, &self.owner.shared.settings);
        let queues = Queues::new(Arc::clone(&store), settings.demand_queues_max);
        let depth = settings.background_depth.min(settings.background_depth_max);
        let ahead = store.queue(QueueKind::Background { depth });
        let background = shared.backgrounds.of(&ahead);
        let writer = writable.then(|| {
            self.owner.flusher.begin(shared);
            let queue = store.queue(QueueKind::Background { depth });
            Writer { background: shared.backgrounds.of(&queue), queue }
        });
        let (page_bytes, bytes_max) = (settings.page_bytes, store.bytes_max().unwrap_or(u64::MAX));
        let (mut state, version, bytes) = if found_again {
            let (state, version) = self.newest(&*store, version)?;
            (state, version, version.bytes)
        } else {
            (shared.state.lock(), version, bytes)
        };
        if state.closed {
            return Err(OpenError::Closed);
        }
        let found_by = found_again.then_some(version);
        let id = match state.place(found_by)? {
            Place::Open(file) => {
                if let Some(writer) = writer {
                    // A file that was opened to be written before keeps what writes it.
                    let _ = file.writer.set(writer);
                }
                let file = (&file, None);
                return Handle::open(&self.owner, &mut state, file, writable, partition);
            }
            Place::Free(id) => id,
        };
        let file = Arc::new(File {
            id,
            bytes_max,
            store,
            version: VersionCell::new(version),
            length: Length::new(bytes),
            page_bytes,
            queues,
            ahead,
            background,
            writer: writer.map_or_else(OnceLock::new, OnceLock::from),
            state: FileStateCell::default(),
        });
        let file = (&file, found_by);
        let opened = Handle::open(&self.owner, &mut state, file, writable, partition);
        shared.settle(state); // Before a refused file is dropped, and its store with it.
        opened
    }

    /// The lock, and the version of `store`, which was `version` a moment ago. Where the cache
    /// knows another version, the store is queried again after that one was seen: the result is
    /// newer, even if a later open of the file took the lock first.
    fn newest(
        &self,
        store: &dyn Store,
        mut version: Version,
    ) -> Result<(MutexGuard<'_, State>, Version), OpenError> {
        let (shared, mut seen) = (&self.owner.shared, None);
        loop {
            let state = shared.state.lock();
            let known = state.live.files.find(&version);
            let Some((id, newer)) = known.filter(|(_, known)| *known != version) else {
                return Ok((state, version));
            };
            let written = state.live.files.file(id).filter(|file| file.writer.get().is_some());
            let written = written.cloned();
            if known == seen && written.is_none() {
                return Ok((state, version));
            }
            drop(state);
            if let Some(file) = written
                && file.compare() == Ok(FileState::Current)
            {
                // The cache's own writes made the difference: the file is the one that is open.
                let state = shared.state.lock();
                let known = state.live.files.find(&newer);
                return Ok((state, known.map_or(newer, |(_, known)| known)));
            }
            seen = known;
            version = store.settled_version()?;
        }
    }

    /// What the cache has learnt of its device, or still remembers of it, for
    /// [`Settings::remembered`] of the next run; `None` where that is nothing, or the device was
    /// given.
    #[must_use]
    pub fn device_record(&self) -> Option<DeviceRecord> {
        self.owner.shared.state.lock().core.device_record()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.owner.shared;
        let mut state = shared.state.lock();
        state.sweep_hits(&shared.hit_buffer);
        let total = shared.hit_buffer.total();
        let counted = Stats {
            core: *state.core.stats(),
            requests: total.locked.requests + total.unlocked,
            unlocked: total.unlocked,
            failures: total.locked.failures,
            bytes: total.locked.bytes + total.bytes,
            dropped_hits: total.dropped,
            store_bytes: state.store_bytes,
            store_requests: state.store_requests,
            waits: total.locked.waits,
            waited: total.locked.waited.into(),
            files_changed: state.files_changed,
            latency: total.locked.latency,
        };
        shared.settle(state);
        counted
    }

    /// The first [`Settings::windows_max`] readahead windows: the cause of each and the outcomes of
    /// its pages so far.
    #[must_use]
    pub fn windows(&self) -> Windows {
        let shared = &self.owner.shared;
        let mut state = shared.state.lock();
        state.sweep_hits(&shared.hit_buffer);
        let windows = state.windows();
        shared.settle(state);
        windows
    }

    /// The number of frames, and how many of them are free.
    #[must_use]
    pub fn frames(&self) -> (u32, u32) {
        let shared = &self.owner.shared;
        (shared.frames().count(), shared.state.lock().core.free_frames())
    }

    /// Bytes that were written and are not known to be durable, in whole pages.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        let shared = &self.owner.shared;
        let pages = shared.state.lock().core.dirty_pages();
        u64::from(pages) * u64::from(shared.settings.page_bytes)
    }

    /// The system interface that reads files, and why no better one does.
    #[must_use]
    pub fn chosen(&self) -> ChosenBackend {
        self.owner.files.chosen()
    }

    /// Limits pages to `bytes` from now on: at most the size that the cache was built with, at
    /// least a window of its readahead. Pages beyond the limit are evicted; pinned ones when they
    /// are unpinned. Partitions keep their shares: what changes is the rest.
    ///
    /// # Errors
    /// `bytes` is too large or too small; nothing changes then.
    pub fn resize(&self, bytes: u64) -> Result<(), SettingsError> {
        let shared = &self.owner.shared;
        let mut state = shared.state.lock();
        let others = state.core.partitions().skip(1).map(|view| view.frames).sum::<u32>();
        let frames = self.pages(bytes).saturating_sub(others);
        state.core.check_resize(0, frames)?;
        state.send(None, Event::Resize { partition: PartitionId(0), frames });
        shared.settle(state);
        Ok(())
    }

    /// Refuses new reads and writes, makes durable what was written, and ends all background work.
    /// Reads in flight end with their answer. A call beside or after another waits for its end and
    /// returns `Ok`: the first has the error. Not to be called by a store, whose operations it
    /// waits for.
    ///
    /// # Errors
    /// Bytes of a file cannot be made durable: the error of the first such file. They are lost with
    /// the cache. Dropping the last clone and handle of a cache closes it, and panics in place of
    /// this error.
    pub fn close(&self) -> Result<(), WriteError> {
        self.owner.close()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use forerun_io::store::{pattern::Pattern, threads::Threads};
    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn a_version_queried_too_early_does_not_end_the_newest() {
        let scratch = Scratch::new("cache");
        let path = scratch.file("data", [1; 100]);
        let cache = Cache::builder().memory(4 << 20).build().unwrap();
        let early = Arc::new(Threads::open(&path, Access::Read).unwrap());
        let version = early.version().unwrap();
        fs::write(&path, vec![2; 200]).unwrap();
        let (newest, mut buf) = (cache.open(&path).unwrap(), [0; 300]);
        assert_eq!(newest.read_at(&mut buf, 0), Ok(200));
        let late = cache.open_as(early, version.bytes, version, Some(&path), Access::Read).unwrap();
        assert_eq!((late.len(), late.read_at(&mut buf, 0), buf[199]), (200, Ok(200), 2));
        assert_eq!(newest.read_at(&mut buf, 0), Ok(200));
        assert_eq!((cache.stats().store_requests, cache.stats().files_changed), (1, 0));
    }

    #[test]
    fn where_no_thread_is_to_be_had_the_submitter_reaps_until_all_is_back() {
        let settings = Settings { readahead: "fixed:size=64K".into(), ..Settings::default() };
        let cache = Cache::new(Settings { request_bytes_max: 8 << 10, ..settings }).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(1 << 20))).unwrap();
        let background = &file.file.background;
        background.refuse_thread();
        let mut buf = [0; 10];
        assert_eq!(file.read_at(&mut buf, 0), Ok(10));
        assert_eq!(background.reap_here(&cache.owner.shared), 7);
        assert_eq!(cache.stats().store_requests, 8);
        assert_eq!(cache.stats().core.ahead_failed, 0);
    }
}
