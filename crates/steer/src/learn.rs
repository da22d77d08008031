//! Learned lists, live: what the program used in its last runs is fetched before it asks, and what
//! it uses now is learned.
//!
//! ```text
//!   store --list--> core::learned::Replay --> workers: look up, list, read ahead
//!                        ^ used                  |
//!   observers, watches --+--> what was seen <----+ versions
//!                                  `--at the end--> merge --> store
//! ```
//! | module | what |
//! |---|---|
//! | `program` | what a list is learned of, and its name |
//! | `interpreters` | what an interpreter runs |
//! | `lists` | the lists of a start |
//! | `format`, `store` | lists as files, and the folder of them |
//! | `seen` | what a run was seen to use |
//! | `watches` | directories whose files are read |
//! | `told` | which of these reads teach |
//! | `fetch` | what a worker does for a path |
//! | `warm` | all of a list, for a machine that is new |
//!
//! # Invariants
//! - Whatever becomes of lists, the program runs on; the statistics say why one was
//!   not used or saved.
//! - Nothing is learned of processes with another root or mount namespace, or with fewer rights
//!   than this one, nor of what its file system keeps in memory.
//! - At most 192 paths are with workers; a file system that does not answer holds these.

pub(crate) mod fetch;
pub mod format;
mod interpreters;
mod lists;
mod program;
mod seen;
pub mod store;
mod told;
mod warm;
mod watches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forerun_core::learned::replay::{Replay, ReplayEntry, ReplayStats};
use forerun_core::learned::{
    ENTRIES_MAX, LearnedEntry, LearnedKind, LearnedList, Observed, WHOLE_BYTES,
};
use forerun_core::units::{FileId, Nanos};
use forerun_core::walk::depth::{WalkDepth, was_cached};

use crate::kernel::Stat;
use crate::observe::access::{CursorId, EntryAccess, EntryCall};
use crate::open::is_in_memory;
use crate::open::views::Views;
use crate::pool::{Pool, PoolBounds};
use crate::tasks::ThreadRoom;
use crate::wire::wire;
use fetch::{Job, JobResult, PathFacts, Tools, What, work};
use format::LearnedFile;
pub use lists::{PlannedLists, planned, read_file};
use lists::{Target, lists_of};
use seen::{Listed, UsedPaths};
pub use warm::{ListReport, rebased, warm};

/// What is learned, and what of it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Learning {
    /// Nothing; no list of the user's is read or written.
    #[default]
    Off,
    /// The list of the program that runs.
    Auto,
    /// The list of this name.
    Named(String),
}

/// The settings of learning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnSettings {
    /// Which list is learned.
    pub learning: Learning,
    /// Files of lists that are used besides, and not changed.
    pub files: Vec<PathBuf>,
}

impl LearnSettings {
    /// Whether nothing is learned or used.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.learning == Learning::Off && self.files.is_empty()
    }
}

/// What a run starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    /// A program and its arguments.
    words: Vec<OsString>,
    /// Where that is; none where the folder is gone.
    folder: Option<PathBuf>,
}

impl Started {
    /// `words` in the folder of this process, which leaves it once the program runs.
    pub(crate) fn here(words: &[OsString]) -> Self {
        Self { words: words.to_vec(), folder: env::current_dir().ok() }
    }
}

/// What became of a learned list in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedStats {
    /// The name of the list; empty where nothing is learned.
    pub name: String,
    /// Entries of the list that were expected to be used.
    pub entries: u64,
    /// Entries that were requested.
    pub requested: u64,
    /// Paths that the program was seen to use.
    pub seen: u64,
    /// Of the requested ones, those that it was seen to use.
    pub used: u64,
    /// Requested entries of which a use would have been seen, and was not.
    pub unused: u64,
    /// Their bytes.
    pub unused_bytes: u64,
    /// Bytes of files that were requested of the kernel.
    pub bytes: u64,
    /// Why the list was not used, or not saved; empty where it was.
    pub trouble: String,
}

wire! {
    LearnedStats {
        name, entries, requested, seen, used, unused, unused_bytes, bytes, trouble,
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Learner {
    /// The list that is learned; none where the lists of files alone are used.
    target: Option<Target>,
    entries: Vec<Arc<LearnedEntry>>,
    /// The places of entries, by path.
    places: BTreeMap<Box<[u8]>, u32>,
    replay: Replay,
    depth: WalkDepth,
    /// The time of the last call.
    now: Nanos,
    submitted: u64,
    /// New paths that no worker was given yet.
    unlooked: VecDeque<Box<[u8]>>,
    /// Files that were learned as directories of walks are watched.
    files_read: usize,
    /// The program's processes, as far as they were met.
    processes: BTreeSet<i32>,
    /// Whether most of what is fetched lies on a device that seeks, once that is known.
    seeks: Option<bool>,
    /// That was told of the whole list, and no more by each fetch.
    seeks_told: bool,
    /// Entries of which a use would be seen.
    watched: Vec<bool>,
    seen: UsedPaths,
    cursors: BTreeMap<CursorId, Box<[u8]>>,
    /// The paths of files that are prefetched for readers.
    files: BTreeMap<FileId, Box<[u8]>>,
    views: Views,
    /// Some used paths by another view than that of this process.
    has_others: bool,
    /// Whether the file systems of these devices keep all in memory.
    in_memory: BTreeMap<u64, bool>,
    /// Whether what was fetched comes of the list that is learned alone.
    is_judged: bool,
    tools: Arc<Tools>,
    pool: Pool<Job, JobResult>,
    stats: LearnedStats,
}

impl Learner {
    /// The learner of the program that is `started`; none where nothing is to be learned or used.
    /// Calls of workers that have not returned are counted in `running`; their threads find their
    /// room in `room`.
    pub(crate) fn start(
        settings: &LearnSettings,
        started: &Started,
        running: Arc<AtomicU64>,
        room: ThreadRoom,
    ) -> Option<Self> {
        if settings.is_off() {
            return None;
        }
        let (target, list, stats) = lists_of(settings, started);
        let is_judged = settings.files.is_empty();
        Some(Self { is_judged, ..Self::new(target, &list, stats, running, room) })
    }

    fn new(
        target: Option<Target>,
        list: &LearnedList,
        stats: LearnedStats,
        running: Arc<AtomicU64>,
        room: ThreadRoom,
    ) -> Self {
        let entries: Vec<Arc<LearnedEntry>> = list.trusted().map(Arc::new).collect();
        assert!(entries.len() <= ENTRIES_MAX, "a list has a bound");
        let places = entries.iter().zip(0..).map(|(entry, at)| (entry.path.clone(), at)).collect();
        let bounds = PoolBounds { jobs_max: JOBS_MAX, threads_max: JOBS_MAX, name: "learned" };
        let replay = Replay::new(entries.iter().map(|entry| ReplayEntry {
            first: entry.first,
            bytes: entry.bytes_charged(),
            bytes_max: entry.bytes_max(),
            ranges: entry.ranges.len() as u64,
            place: entry.version.inode,
            is_judged: entry.kind == LearnedKind::Read,
        }));
        let mut learner = Self {
            target,
            watched: vec![false; entries.len()],
            stats: LearnedStats { entries: entries.len() as u64, ..stats },
            entries,
            places,
            replay,
            depth: WalkDepth::default(),
            now: Nanos(0),
            submitted: 0,
            unlooked: VecDeque::new(),
            files_read: 0,
            processes: BTreeSet::new(),
            seeks: None,
            seeks_told: false,
            seen: UsedPaths::default(),
            cursors: BTreeMap::new(),
            files: BTreeMap::new(),
            views: Views::new(),
            has_others: false,
            in_memory: BTreeMap::new(),
            is_judged: true,
            tools: Arc::new(Tools::new()),
            pool: Pool::new(bounds, running, room, work),
        };
        if !learner.entries.is_empty() {
            learner.push(What::Devices(learner.entries.clone()));
        }
        learner
    }

    /// Whether entries are fetched, or will be as the program goes on: one that has used none for
    /// some time does something else.
    pub(crate) fn is_busy(&self) -> bool {
        let used_at = self.replay.used_at().unwrap_or_default();
        let is_followed = self.now.since(used_at) < FOLLOWED_WITHIN;
        !self.replay.is_over() && is_followed || self.replay.in_flight() > 0
    }

    /// See [`Replay::take_gained`].
    pub(crate) fn take_gained(&mut self) -> Nanos {
        self.replay.take_gained()
    }

    /// See [`Replay::pays`].
    pub(crate) fn pays(&self, cost: Nanos) -> bool {
        self.replay.pays(cost)
    }

    /// Entries and paths that workers have, and that they were given so far.
    pub(crate) fn requests(&self) -> (usize, u64) {
        (self.pool.outstanding(), self.submitted)
    }

    /// Bytes that were requested and not used yet.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        if self.is_busy() { self.replay.ahead_bytes() } else { 0 }
    }

    pub(crate) fn stats(&self) -> LearnedStats {
        let ReplayStats { requested, used_requested, unused, unused_bytes, .. } =
            self.replay.stats();
        let seen = self.seen.count() as u64;
        LearnedStats {
            requested,
            seen,
            used: used_requested,
            unused,
            unused_bytes,
            ..self.stats.clone()
        }
    }

    /// Takes in what was read and fetched since the last call, and has more fetched: with all that
    /// is ahead no more than `budget_bytes`.
    pub(crate) fn advance(&mut self, now: Nanos, budget_bytes: u64) {
        self.now = now;
        self.take_all(now);
        let depth = self.depth.requests() as usize;
        let room = depth.saturating_sub(self.replay.in_flight()).min(self.pool.room());
        let mut next = Vec::new();
        self.replay.issue(room, budget_bytes, self.seeks, &mut next);
        assert!(next.len() <= self.pool.room(), "no more requests than there is room for");
        for index in next {
            let entry = Arc::clone(&self.entries[index as usize]);
            self.push(What::Fetch(index, entry, self.replay.allowed_bytes(index)));
        }
    }

    fn push(&mut self, what: What) {
        assert!(self.pool.room() > 0, "a path is pushed where there is room");
        self.submitted += 1;
        self.pool.push(Job { tools: Arc::clone(&self.tools), what });
    }

    /// Takes in what was read and fetched since the last call.
    fn take_all(&mut self, now: Nanos) {
        self.take_told(now, &[]);
        self.look();
    }

    fn take_done(&mut self, now: Nanos) {
        while let Some(done) = self.pool.completed() {
            self.take_in(now, done);
        }
    }

    fn take_in(&mut self, now: Nanos, done: JobResult) {
        let JobResult { what, found, took, is_watched, is_rotational } = done;
        match what {
            What::Fetch(index, entry, _) => {
                assert!((index as usize) < self.watched.len(), "a job is of an entry");
                let needs_bytes =
                    found.as_ref().is_ok_and(|found| found.bytes > 0 && !found.is_cached);
                let was_there = was_cached(took, needs_bytes);
                if !was_there && !self.seeks_told {
                    self.seeks = is_rotational.or(self.seeks);
                }
                let is_full = self.replay.in_flight() >= self.depth.requests() as usize;
                let bytes = found.as_ref().map_or(0, |it| it.bytes);
                self.depth.answered(now, was_there, is_full, bytes);
                // What was cached by then the program may have read before it was watched.
                let is_cached = found.as_ref().is_ok_and(|it| it.is_cached);
                let is_judged = is_watched && !was_there && !is_cached;
                self.watched[index as usize] = is_judged;
                self.replay.complete(index, (!was_there).then_some(took), bytes, is_judged);
                if let Ok(PathFacts { version, bytes, is_cached, .. }) = found {
                    self.stats.bytes += if is_cached { 0 } else { bytes };
                    self.seen.found(&entry.path, version);
                }
            }
            What::Devices(_) => {
                self.seeks_told = is_rotational.is_some();
                self.seeks = is_rotational.or(self.seeks);
            }
            What::Warm(..) => unreachable!("a run waits for no bytes"),
            What::Look(path) => match found {
                Ok(found) => {
                    if let Some(real) = found.real.clone() {
                        // Another user may have put a link there a moment ago.
                        if !found.is_in_memory && found.is_safe {
                            self.seen.link(now, &path, &real);
                        }
                        self.use_place(now, &real);
                    }
                    self.seen.looked(&path, &found);
                }
                Err(_) => self.seen.absent(&path),
            },
        }
    }

    /// The program uses `path`. Whether that is the first time.
    fn note(&mut self, now: Nanos, path: &[u8], kind: LearnedKind) -> bool {
        if format::check_path(path).is_err() || KERNELS_OWN.iter().any(|own| path.starts_with(own))
        {
            return false;
        }
        let is_new = self.sighted(now, path, kind);
        if is_new && self.target.is_some() && self.unlooked.len() < UNLOOKED_MAX {
            self.unlooked.push_back(path.into());
        }
        self.look();
        is_new
    }

    /// Has workers look at paths that are new, as far as there is room.
    fn look(&mut self) {
        while self.pool.room() > LOOKS_LEFT
            && let Some(path) = self.unlooked.pop_front()
        {
            self.push(What::Look(path));
        }
    }

    /// The program was seen to use `path`. Whether that is the first time.
    fn sighted(&mut self, now: Nanos, path: &[u8], kind: LearnedKind) -> bool {
        self.use_place(now, path);
        let is_new = self.seen.note(now, path, kind);
        if is_new && !self.places.contains_key(path) {
            self.replay.missed();
        }
        is_new
    }

    fn use_place(&mut self, now: Nanos, path: &[u8]) {
        if let Some(&place) = self.places.get(path) {
            self.replay.used(now, place);
        }
    }

    /// Whether `file` lies on a file system that keeps all in memory.
    fn is_in_memory(&mut self, stat: &Stat, file: Option<&File>) -> bool {
        let Some(file) = file else { return false };
        if self.in_memory.len() >= DEVICES_MAX {
            self.in_memory.clear();
        }
        *self.in_memory.entry(stat.st_dev).or_insert_with(|| is_in_memory(file, stat))
    }

    /// The program uses an entry of a directory tree.
    pub(crate) fn entry(&mut self, now: Nanos, access: &EntryAccess<'_>) {
        if !self.views.own().is_some_and(|own| access.has_view(own)) {
            self.has_others = true;
            return;
        }
        let kind = match access.call {
            EntryCall::Stat => LearnedKind::Stat,
            EntryCall::Open | EntryCall::Read { .. } => LearnedKind::Read,
            EntryCall::List => LearnedKind::Directory,
        };
        self.note(now, access.path, kind);
    }

    /// The program has the file at `path` open or mapped, with this cursor.
    pub(crate) fn opened(
        &mut self,
        now: Nanos,
        cursor: CursorId,
        path: Box<[u8]>,
        stat: &Stat,
        (id, file): (Option<FileId>, Option<&File>),
    ) {
        if self.is_in_memory(stat, file) {
            return;
        }
        if !self.views.is_own_process() {
            self.has_others = true;
            return;
        }
        let is_new = self.sighted(now, &path, LearnedKind::Read);
        if self.target.is_some() {
            self.seen.found(&path, fetch::version(stat));
            assert!(self.seen.count() <= ENTRIES_MAX, "what is seen has a bound");
            if is_new && stat.st_size > WHOLE_BYTES {
                let is_cached = file.is_none_or(|it| fetch::is_mostly_cached(it, stat.st_size));
                self.seen.was_cached(&path, is_cached);
            }
            if let Some(id) = id {
                self.files.insert(id, path.clone());
                if self.files.len() > FILES_MAX {
                    // Numbers ascend: the file that was met longest ago.
                    self.files.pop_first();
                }
            }
            if self.cursors.len() < CURSORS_MAX {
                self.cursors.insert(cursor, path);
            }
            assert!(self.cursors.len() <= CURSORS_MAX, "cursors have a bound");
        }
    }

    /// A second reader of the file of `from`.
    pub(crate) fn opened_again(&mut self, from: CursorId, cursor: CursorId) {
        if let Some(path) = self.cursors.get(&from).cloned()
            && self.cursors.len() < CURSORS_MAX
        {
            self.cursors.insert(cursor, path);
        }
    }

    /// The reader of `cursor` has read `range`.
    pub(crate) fn read(&mut self, cursor: CursorId, range: &Range<u64>) {
        if let Some(path) = self.cursors.get(&cursor) {
            self.seen.read(path, range);
        }
    }

    /// `range` of `file` was requested ahead of a reader.
    pub(crate) fn requested(&mut self, file: FileId, range: &Range<u64>) {
        if let Some(path) = self.files.get(&file) {
            self.seen.requested(path, range);
        }
    }

    pub(crate) fn closed(&mut self, cursor: CursorId) {
        self.cursors.remove(&cursor);
    }

    /// The program has ended, and what was seen is not saved yet; the time may end before it is.
    pub(crate) fn end(&mut self, now: Nanos) {
        self.take_all(now);
        let notes = self.tools.watches.end();
        self.take_notes(now, notes);
        self.replay.finish();
        if self.stats.trouble.is_empty() && self.saves() {
            UNSAVED.clone_into(&mut self.stats.trouble);
        } else if self.stats.trouble.is_empty() && self.target.is_some() && self.has_others {
            OF_OTHERS.clone_into(&mut self.stats.trouble);
        }
    }

    fn saves(&self) -> bool {
        self.target.is_some() && self.seen.count() > 0
    }

    /// What was seen is learned, after [`Learner::end`].
    pub(crate) fn save(&mut self) {
        let Some(target) = self.target.as_ref().filter(|_| self.saves()) else { return };
        let run = self.run();
        let precision = self.replay.stats().precision().filter(|_| self.is_judged);
        let saved = target.store.update(&target.name, SAVE_PATIENCE, |before| {
            let mut file = before.unwrap_or_default();
            file.list.judge(precision);
            file.list.merge(run);
            LearnedFile { program: target.program.clone(), list: file.list }
        });
        match saved {
            Ok(()) if self.stats.trouble == UNSAVED => self.stats.trouble.clear(),
            Ok(()) => {}
            Err(why) => self.stats.trouble = why.to_string(),
        }
    }

    /// What this run tells.
    fn run(&self) -> Vec<Observed> {
        let is_wrong = self.replay.is_wrong();
        let listed = |path: &[u8], version| {
            let Some(&at) = self.places.get(path) else { return Listed::Nothing };
            let entry = &*self.entries[at as usize];
            if entry.ranges.is_empty() || !self.replay.is_requested(at) {
                Listed::Nothing
            } else if entry.version.has_changed(version) {
                Listed::Other(entry)
            } else if is_wrong {
                Listed::Wrong(&entry.ranges)
            } else {
                // Of what was fetched no use is visible.
                Listed::Same(&entry.ranges)
            }
        };
        let mut run = self.seen.observed(listed);
        let unseen = self.entries.iter().zip(&self.watched).filter(|(entry, is_watched)| {
            let is_judged = entry.kind == LearnedKind::Read && **is_watched;
            !is_judged && !is_wrong && !self.seen.has(&entry.path)
        });
        run.extend(unseen.map(|(entry, _)| {
            let (entry, unseen) = (LearnedEntry::clone(entry), Vec::new());
            Observed { entry, unseen, is_seen: false }
        }));
        run
    }
}

/// Paths that workers have: a file system that has proved parallel is given 128 requests.
const JOBS_MAX: usize = 192;
/// Of these, so many are for entries of the list.
const LOOKS_LEFT: usize = 128;
/// Paths that wait to be looked at.
const UNLOOKED_MAX: usize = 4_096;
const CURSORS_MAX: usize = 4_096;
/// A program that starts uses an entry within a few round trips of its device.
const FOLLOWED_WITHIN: Nanos = Nanos::from_millis(250);
/// Files whose requests are followed.
const FILES_MAX: usize = 4_096;
const DEVICES_MAX: usize = 256;
/// The trouble of a run whose time ends before all is saved.
const UNSAVED: &str = "not saved: the file system took too long";
/// That of a run without a process that teaches.
const OF_OTHERS: &str = "nothing learned: the program has fewer rights than forerun, or another \
    root or mount namespace";
/// How long others may save before this run is not learned.
const SAVE_PATIENCE: Duration = Duration::from_millis(30);
/// What lies there is not on a device, wherever else it may be mounted.
const KERNELS_OWN: [&[u8]; 3] = [b"/proc/", b"/sys/", b"/dev/"];

#[cfg(test)]
mod tests;
