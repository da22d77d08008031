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
//! requested, or what requests may have brought besides, is progress.
//!
//! # Invariants
//! - The same calls give the same requests; there is no clock.
//! - `requested = used + passed + unused + failed + in_flight + waiting`, after each call.
//! - A call costs as much as the windows of the walks, or 1,024 entries of each, whatever the size
//!   of a directory; listing one costs as much as sorting it.
//! - Every table has a bound in [`WalkSettings`].
//! # Sources
//! Lustre's statahead (`llite/statahead.c`): windows that grow, the share of hits below which it
//! stops. Learning from the last entries is ours.

mod cursor;
pub mod depth;
mod directories;
mod entry;
mod habits;
mod issue;
pub(crate) mod order;
mod path;
mod settings;
mod stats;
mod tree;
mod visit;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::units::Nanos;
use cursor::{WalkCursor, WalkState};
use directories::{Directories, Level, Lookup, hash};
pub use entry::{
    DirectoryId, Entry, EntryKind, Use, WalkOutcome, WalkRequest, WalkRequestId, Want,
};
pub use order::NAMES as ORDERS;
pub use settings::WalkSettings;
pub use stats::{WalkStats, WalkView};

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
    /// Directories whose listing is requested next, each once: no more than a window has.
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
    /// What uses have saved since that was taken last.
    gained: Nanos,
    /// The device seeks: see [`Walks::set_seeks`].
    seeks: bool,
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
            gained: Nanos(0),
            seeks: false,
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
            self.unlisted.retain(|&other| other != dir);
            self.listings.retain(|_, other| *other != dir);
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
    /// Whether it was there by a walk, which has fetched it from its device: the program has not
    /// waited for it.
    pub fn told(&mut self, dir: DirectoryId, name: &[u8]) -> bool {
        let hash = hash(name);
        self.directories.tell(dir.0, hash);
        let is_saved = self.has_fetched(dir.0, hash);
        self.meet(dir.0, hash, Level::Head);
        is_saved
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
            self.want_listing(dir.0);
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

    /// What programs were saved since the last call, by what was there as they came to it.
    pub fn take_gained(&mut self) -> Nanos {
        core::mem::take(&mut self.gained)
    }

    /// Sets the bytes that may be ahead of all walks. What is ahead already stays.
    pub fn set_budget(&mut self, bytes: u64) {
        self.settings.budget_bytes = bytes;
    }

    /// Sets whether entries lie on devices that seek. There nothing is requested ahead of a walk
    /// that goes by place itself: requests beside it take the arm away.
    pub fn set_seeks(&mut self, seeks: bool) {
        self.seeks = seeks;
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
}

use WalkSettings as Settings;
