//! Walks: which entries of a directory tree a program uses next, and how much of each.
//!
//! A driver registers directories, gives their listings, and tells of each use of an entry that it
//! sees. Core recognises programs that go over a tree in some order, and requests the entries
//! ahead of them: listings, inodes, heads of files, whole files.
//!
//! ```text
//!   driver --directory, listed--> directories, each entry with its rank in every order
//!   driver --touch, list--------> walks: candidate, active, resting
//!   driver <--issue-------------- requests, in the order of the walk
//!   driver --complete-----------> waiting to be used --touch--> used; passed by --> unused
//! ```
//! A walk is recognised after three entries that follow each other in one order; what the program
//! never uses may lie between. It goes on in the directories that the program enters, and in those
//! that it came from. Any process may go on with it: a walk belongs to the tree, not to a process.
//! A driver that polls misses uses of what is there already, so a jump ahead within what was
//! requested is progress.
//!
//! # Invariants
//! - The same calls give the same requests; there is no clock.
//! - `requested = used + passed + unused + failed + in_flight + waiting`, after each call.
//! - A call costs as much as the windows of the walks, whatever the size of a directory; listing
//!   one costs as much as sorting it.
//! - Every table has a bound in [`WalkSettings`].
//! # Sources
//! Lustre's statahead (`llite/statahead.c`): windows that grow, the share of hits below which it
//! stops. Learning from the last entries is ours.

mod cursor;
pub mod depth;
mod directories;
mod habits;
mod issue;
mod order;
mod tree;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use cursor::{Progress, Verdict, WalkCursor, WalkState};
use directories::{Directories, Level, Lookup, hash};
use issue::StepEnd;
pub use order::NAMES as ORDERS;

/// A directory. Dense from 0; a number that is given again belongs to another directory then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(pub u32);

/// The name of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalkRequestId(pub u64);

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file with bytes.
    File,
    /// A directory.
    Directory,
    /// A link, device, socket or pipe.
    Other,
}

/// An entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name, without a path.
    pub name: &'a [u8],
    /// Its inode's number.
    pub inode: u64,
    /// What it is.
    pub kind: EntryKind,
}

/// How a program uses an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It asks for the inode's facts, or opens the entry.
    Stat,
    /// It reads or maps bytes.
    Read {
        /// Whether it has read up to the end of the file.
        to_end: bool,
    },
}

/// What is requested of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Its inode.
    Inode,
    /// The entries of the directory: the driver registers it and gives its listing before it
    /// completes the request.
    Listing,
    /// Inode and bytes, up to [`WalkSettings::head_bytes`].
    Head,
    /// Inode and bytes, up to [`WalkSettings::whole_bytes`].
    Whole,
}

/// An entry to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkRequest {
    /// Its name.
    pub id: WalkRequestId,
    /// The directory.
    pub dir: DirectoryId,
    /// The entry, by its place in the listing; `None` for the directory itself.
    pub index: Option<u32>,
    /// How much of it.
    pub want: Want,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkOutcome {
    /// It is there.
    Fetched {
        /// Bytes of the file that were fetched.
        bytes: u64,
    },
    /// It could not be fetched, or is no longer there.
    Failed,
}

/// The bounds of [`Walks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkSettings {
    /// Directories that are known.
    pub directories_max: u32,
    /// Entries that are followed in a directory; at most 65,536.
    pub entries_max: u32,
    /// Entries in all.
    pub entries_all_max: u32,
    /// Walks and candidates; at most 255.
    pub walks_max: u8,
    /// Entries ahead of a walk at first.
    pub window_min: u32,
    /// Entries ahead of a walk at most.
    pub window_max: u32,
    /// Bytes that are requested and not used yet, of a walk.
    pub ahead_bytes_max: u64,
    /// The same, of all walks.
    pub budget_bytes: u64,
    /// Bytes of a file of which the program reads the head.
    pub head_bytes: u64,
    /// Bytes of a file of which the program reads all.
    pub whole_bytes: u64,
    /// Whether the driver reports every use; one that polls misses those of what is cached.
    pub sees_all: bool,
}

impl Default for WalkSettings {
    fn default() -> Self {
        Self {
            directories_max: 4_096,
            entries_max: 1 << 16,
            entries_all_max: 1 << 18,
            walks_max: 64,
            window_min: 4,
            window_max: 256,
            ahead_bytes_max: 64 << 20,
            budget_bytes: 128 << 20,
            head_bytes: 128 << 10,
            whole_bytes: 256 << 10,
            sees_all: false,
        }
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkStats {
    /// Walks that were recognised.
    pub walks: u64,
    /// Entries that were requested.
    pub requested: u64,
    /// Those that were used.
    pub used: u64,
    /// Of these, those that were in flight when they were used.
    pub late: u64,
    /// Those that were there when the walk went past them, where a use of them is not seen.
    pub passed: u64,
    /// Those that were passed by unused, or whose walk or directory was dropped.
    pub unused: u64,
    /// Those that did not come.
    pub failed: u64,
    /// Those in flight.
    pub in_flight: u64,
    /// Those that are there and wait to be used.
    pub waiting: u64,
    /// Bytes of files among the unused.
    pub unused_bytes: u64,
    /// Predictions that were right.
    pub hits: u64,
    /// Predictions that were wrong.
    pub misses: u64,
    /// Listings that were requested for themselves, before a walk was recognised.
    pub listings: u64,
    /// Entries of listings beyond the bounds.
    pub refused: u64,
    /// Uses of names that a listing does not have.
    pub unknown: u64,
}

/// A walk, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkView {
    /// Its number: no other walk has it.
    pub number: u64,
    /// The highest directory that it was seen in.
    pub top: DirectoryId,
    /// The order that it is followed in, of [`ORDERS`].
    pub order: &'static str,
}

/// An entry by its directory and its place in the listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    dir: u32,
    index: u16,
}

/// See the module.
#[derive(Debug)]
pub struct Walks {
    settings: WalkSettings,
    directories: Directories,
    cursors: Vec<Option<WalkCursor>>,
    /// Directories whose listing is requested next.
    unlisted: VecDeque<u32>,
    /// Listings in flight that belong to no walk.
    listings: BTreeMap<WalkRequestId, u32>,
    /// Requests in flight that are settled: whether the entry was used.
    settled: BTreeMap<WalkRequestId, bool>,
    /// Bytes ahead of all walks.
    ahead_bytes: u64,
    /// The same, where what is in flight counts as much as it is expected to bring.
    expected_bytes: u64,
    /// Bytes of requests that were used or passed.
    proven_bytes: u64,
    /// What a file is expected to have.
    file_bytes: u64,
    /// Walks that went wrong since one was right eight times: so many more entries does it take to
    /// recognise the next.
    failures: u8,
    requests: u64,
    touches: u64,
    counts: WalkStats,
}

impl Walks {
    /// No directories, no walks.
    ///
    /// # Panics
    /// A setting is out of its bounds.
    #[must_use]
    pub fn new(settings: WalkSettings) -> Self {
        assert!(settings.directories_max >= 2, "a directory and its parent have room");
        assert!(settings.entries_max <= 1 << 16, "an index fits 16 bits");
        assert!(settings.entries_max <= settings.entries_all_max, "one listing has room");
        assert!((1..=settings.window_max).contains(&settings.window_min), "windows grow");
        assert!(settings.walks_max > 0, "a walk has room");
        assert!(settings.head_bytes <= settings.whole_bytes, "the head is a part of the whole");
        Self {
            settings,
            directories: Directories::default(),
            cursors: Vec::new(),
            unlisted: VecDeque::new(),
            listings: BTreeMap::new(),
            settled: BTreeMap::new(),
            ahead_bytes: 0,
            expected_bytes: 0,
            proven_bytes: 0,
            file_bytes: issue::FILE_BYTES_FIRST,
            failures: 0,
            requests: 0,
            touches: 0,
            counts: WalkStats::default(),
        }
    }

    /// Registers the directory of this name in `parent`, or the top of a tree. One that is known
    /// keeps its number. The number of the least recently used one may be taken: what the driver
    /// has of that directory is void then.
    ///
    /// # Panics
    /// The parent is not registered.
    pub fn directory(&mut self, parent: Option<(DirectoryId, &[u8])>) -> DirectoryId {
        let parent = parent.map(|(DirectoryId(dir), name)| (dir, name));
        let (dir, is_taken) = self.directories.register(parent, &self.settings);
        if is_taken {
            self.forget(dir);
        }
        DirectoryId(dir)
    }

    /// Takes in the entries of `dir`, in the order of readdir. An earlier listing is dropped, as
    /// are those of `dropped`, least recently used, where there are too many entries in all.
    pub fn listed(
        &mut self,
        dir: DirectoryId,
        entries: &[Entry<'_>],
        dropped: &mut Vec<DirectoryId>,
    ) {
        if !self.directories.is_known(dir.0) {
            return;
        }
        self.changed(dir);
        let count = entries.len().min(self.settings.entries_max as usize);
        self.counts.refused += (entries.len() - count) as u64;
        while self.directories.entries() + count > self.settings.entries_all_max as usize {
            let oldest = self.directories.least_recent(dir.0);
            let oldest = DirectoryId(oldest.expect("entries are those of listings"));
            self.changed(oldest);
            dropped.push(oldest);
        }
        self.directories.list(dir.0, &entries[..count]);
        for walk in self.cursors.iter_mut().flatten() {
            walk.is_open = true;
        }
    }

    /// The entries of `dir` are other ones now: its listing is dropped.
    pub fn changed(&mut self, dir: DirectoryId) {
        if self.directories.unlist(dir.0) {
            self.forget(dir.0);
        }
    }

    /// The program uses the entry `name` of `dir`.
    pub fn touch(&mut self, dir: DirectoryId, name: &[u8], usage: Use) {
        let level = match usage {
            Use::Stat => Level::Inode,
            Use::Read { to_end: false } => Level::Head,
            Use::Read { to_end: true } => Level::Whole,
        };
        self.meet(dir.0, hash(name), level);
    }

    /// The program reads bytes of the file `name` in `dir`, of which each read is told from now on.
    pub fn told(&mut self, dir: DirectoryId, name: &[u8]) {
        self.directories.tell(dir.0, hash(name));
        self.meet(dir.0, hash(name), Level::Head);
    }

    /// Reads of files in `dir` are not told any more.
    pub fn untold(&mut self, dir: DirectoryId) {
        self.directories.untell(dir.0);
    }

    /// The program lists `dir`.
    pub fn list(&mut self, dir: DirectoryId) {
        if !self.directories.is_known(dir.0) {
            return;
        }
        if self.directories.request(dir.0) {
            self.unlisted.push_back(dir.0);
        }
        match self.directories.parent(dir.0) {
            Some((parent, hash)) => self.meet(parent, hash, Level::Head),
            None => self.directories.renew(dir.0),
        }
    }

    /// Forgets all; requests in flight are not answered any more.
    pub fn clear(&mut self) {
        *self = Self { requests: self.requests, ..Self::new(self.settings.clone()) };
    }

    /// Bytes that were requested and are not used yet; what is in flight counts as much as it may
    /// bring.
    #[must_use]
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes
    }

    /// Sets the bytes that may be ahead of all walks. What is ahead already stays.
    pub fn set_budget(&mut self, bytes: u64) {
        self.settings.budget_bytes = bytes;
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> WalkStats {
        let steps = || self.cursors.iter().flatten().flat_map(|walk| &walk.ahead);
        let waiting = steps().filter(|step| step.is_complete).count() as u64;
        let in_flight = steps().count() as u64 - waiting;
        let stats = WalkStats { in_flight, waiting, ..self.counts };
        let settled = stats.used + stats.passed + stats.unused + stats.failed;
        assert_eq!(stats.requested, settled + in_flight + waiting, "the counts balance");
        stats
    }

    /// The walk that went on to the entry `name` of `dir` last, if one was recognised.
    #[must_use]
    pub fn walk_at(&self, dir: DirectoryId, name: &[u8]) -> Option<WalkView> {
        if !self.directories.is_known(dir.0) {
            return None;
        }
        let Lookup::Found(spot) = self.directories.look_up(dir.0, hash(name)) else { return None };
        let is_here = |walk: &&WalkCursor| walk.at == spot && walk.state != WalkState::Candidate;
        let walks = self.cursors.iter().flatten().filter(is_here);
        let walk = walks.max_by_key(|walk| walk.last_use)?;
        let (top, order) = (DirectoryId(walk.top), ORDERS[walk.order]);
        Some(WalkView { number: walk.born, top, order })
    }

    /// Requests that have not been used so far and the bytes of files that they brought: those that
    /// were passed by, and those that wait.
    #[must_use]
    pub fn not_used(&self) -> (u64, u64) {
        let steps = self.cursors.iter().flatten().flat_map(|walk| &walk.ahead);
        let waiting = steps.filter(|step| step.is_complete);
        let sum = |(count, bytes), step: &cursor::Step| (count + 1, bytes + step.bytes);
        waiting.fold((self.counts.unused, self.counts.unused_bytes), sum)
    }

    /// A use in `dir` is one of every directory above it, too. The walk goes by the lowest that is
    /// listed.
    fn meet(&mut self, dir: u32, hash: u64, level: Level) {
        if !self.directories.is_known(dir) {
            return;
        }
        self.touches += 1;
        self.directories.renew(dir);
        let (mut met, mut next) = (None, Some((dir, hash, level)));
        while let Some((dir, hash, level)) = next {
            match self.directories.look_up(dir, hash) {
                Lookup::Found(spot) if met.is_none() => met = Some((spot, level)),
                Lookup::Found(spot) => self.enter(spot),
                Lookup::Absent if met.is_none() => {
                    self.counts.unknown += 1;
                    return;
                }
                Lookup::Absent => {}
                Lookup::Unlisted => {
                    if self.directories.note_unlisted(dir, hash) {
                        self.unlisted.push_back(dir);
                    }
                }
            }
            next = self.directories.parent(dir).map(|(dir, hash)| (dir, hash, Level::Head));
        }
        if let Some((spot, level)) = met {
            self.visit(spot, level);
        }
    }

    /// The program is in the directory at `spot`.
    fn enter(&mut self, spot: Spot) {
        let row = self.directories.row_mut(spot);
        row.used = row.used.max(Level::Head);
        if row.owner.is_some() {
            self.use_requested(spot);
        }
    }

    /// The program uses the entry at `spot`: the walks that it belongs to go on.
    fn visit(&mut self, spot: Spot, level: Level) {
        let row = self.directories.row_mut(spot);
        let (is_new, is_deeper) = (row.used == Level::Nothing, level > row.used);
        row.used = row.used.max(level);
        let owner = row.owner;
        if owner.is_some() {
            self.use_requested(spot);
        }
        // What a walk has requested belongs to that walk.
        let tried = match owner.map(usize::from) {
            Some(owner) if self.is_active(owner) => owner..owner + 1,
            _ => 0..self.cursors.len(),
        };
        let mut is_known = false;
        let mut moved: Option<usize> = None;
        for which in tried {
            let Some(walk) = &mut self.cursors[which] else { continue };
            let is_own = owner.is_some_and(|owner| usize::from(owner) == which);
            let progress = walk.advance(&self.directories, (spot, level), is_own, &self.settings);
            if progress == Progress::None {
                continue;
            }
            (is_known, walk.last_use) = (true, self.touches);
            if walk.state == WalkState::Candidate && walk.is_recognised(self.failures) {
                walk.start(&self.settings);
                self.counts.walks += 1;
            }
            self.pass(which);
            moved = match moved {
                Some(other) if progress == Progress::Moves => Some(self.join(other, which)),
                None if progress == Progress::Moves => Some(which),
                other => other,
            };
        }
        if is_known || !is_deeper {
            return;
        }
        for which in 0..self.cursors.len() {
            let is_here = |walk: &WalkCursor| self.directories.is_within(spot.dir, walk.top);
            if is_new && self.cursors[which].as_ref().is_some_and(is_here) {
                self.judge(which, false);
            }
        }
        let which = self.free_walk();
        self.cursors[which] = Some(WalkCursor::new(&self.directories, spot, self.touches));
    }

    fn is_active(&self, which: usize) -> bool {
        self.cursors[which].as_ref().is_some_and(|walk| walk.state == WalkState::Active)
    }

    /// Two walks that went on to the same entry are one, if they go on alike: that which is further
    /// goes on. Returns it.
    fn join(&mut self, a: usize, b: usize) -> usize {
        let worth = |which: usize| {
            let walk = self.cursors[which].as_ref().expect("a walk that went on is there");
            let state = match walk.state {
                WalkState::Active => 2,
                WalkState::Resting { .. } => 1,
                WalkState::Candidate => 0,
            };
            (state, walk.ahead.len())
        };
        let (kept, joined) = if worth(a) >= worth(b) { (a, b) } else { (b, a) };
        let Some(other) = self.cursors[joined].take() else { return kept };
        let owner = u8::try_from(kept).expect("walks are bounded");
        for step in &other.ahead {
            self.directories.row_mut(step.spot).owner = Some(owner);
        }
        let walk = self.cursors[kept].as_mut().expect("a walk that went on is there");
        walk.join(other);
        kept
    }

    /// A place for a candidate: a free one, or that of the least recently used candidate or walk.
    fn free_walk(&mut self) -> usize {
        let is_candidate = |walk: &&WalkCursor| walk.state == WalkState::Candidate;
        let candidates = self.cursors.iter().flatten().filter(is_candidate).count();
        let max = usize::from(self.settings.walks_max);
        let candidates_max = CANDIDATES_MAX.min(max);
        if candidates < candidates_max {
            if let Some(free) = self.cursors.iter().position(Option::is_none) {
                return free;
            }
            if self.cursors.len() < max {
                self.cursors.push(None);
                return self.cursors.len() - 1;
            }
        }
        let age = |which: &usize| {
            let walk = self.cursors[*which].as_ref();
            walk.map(|walk| (!is_candidate(&walk), walk.last_use))
        };
        let places = (0..self.cursors.len()).filter(|which| age(which).is_some());
        let oldest = places.min_by_key(age).expect("there are candidates or walks");
        self.close(oldest);
        oldest
    }

    /// Ends a walk; what is ahead of it is unused.
    fn close(&mut self, which: usize) {
        let Some(walk) = &self.cursors[which] else { return };
        for at in (0..walk.ahead.len()).rev() {
            self.settle_step(which, at, StepEnd::Unused);
        }
        let walk = self.cursors[which].take().expect("it was there");
        assert!(walk.ahead.is_empty() && walk.ahead_bytes == 0, "every request is settled");
    }

    /// What was requested in `dir` is unused, and walks that are there end.
    fn forget(&mut self, dir: u32) {
        for which in 0..self.cursors.len() {
            let Some(walk) = &self.cursors[which] else { continue };
            if walk.at.dir == dir || walk.top == dir {
                self.close(which);
                continue;
            }
            let mut at = walk.ahead.len();
            while at > 0 {
                at -= 1;
                if self.cursors[which].as_ref().is_some_and(|walk| walk.ahead[at].spot.dir == dir) {
                    self.settle_step(which, at, StepEnd::Unused);
                }
            }
        }
    }

    fn judge(&mut self, which: usize, is_hit: bool) {
        let Some(walk) = &mut self.cursors[which] else { return };
        if walk.state != WalkState::Active {
            return;
        }
        self.counts.hits += u64::from(is_hit);
        self.counts.misses += u64::from(!is_hit);
        self.failures = match walk.judge(is_hit, &self.settings) {
            Verdict::Open => self.failures,
            Verdict::Right => 0,
            Verdict::Wrong => (self.failures + 1).min(FAILURES_MAX),
        };
    }
}

/// Walks that went wrong one after the other, as far as they count.
const FAILURES_MAX: u8 = 13;
/// Candidates among the walks.
const CANDIDATES_MAX: usize = 16;

use WalkSettings as Settings;
