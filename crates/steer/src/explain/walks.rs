//! The walks of a program, recognised after it has ended: what `run` would have fetched ahead.
//!
//! ```text
//!   calls that were met --touch, list--> core::walk --requests--> listings, read now
//!         |                                               `--> timeline: when it would be there
//!         `--> waits: as they were, less what is there before
//! ```
//! # Invariants
//! - The rules are those of `run`; what is fetched here are listings alone, no byte of a file, and
//!   only after the program's end.
//! - A wait is shorter only where the entry was requested before its call.
//! - Calls of several threads come in the order in which they were met; each is there to be seen
//!   for as long as its thread is blocked, and costs the program what it lost by it.
//! - Processes in another root than this one's have no walks here.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use forerun_core::units::Nanos;
use forerun_core::walk::{
    DirectoryId, Entry, EntryKind, Use, WalkOutcome, WalkRequest, WalkRequestId, WalkSettings,
    Walks, Want,
};
use rustix::fs::{FileType, RawDir};

use super::causes::{Cause, CauseTimes};
use super::entries::Entries;
use super::sums::share;
use super::timeline::{SmallReads, Timeline};
use crate::open::entries::{Root, listable, subdirectory};
use crate::wire::wire;

/// A walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkSummary {
    /// The highest directory that it was seen in.
    pub directory: PathBuf,
    /// Its order.
    pub order: String,
    /// Entries that it went over, as far as they were met.
    pub entries: u64,
    /// Of these, those that were predicted.
    pub predicted: u64,
    /// The time that the program waited for them.
    pub waited: CauseTimes,
    /// Of that, the time for what was predicted.
    pub waited_predicted: Nanos,
}

wire! { WalkSummary { directory, order, entries, predicted, waited, waited_predicted } }

/// What a replay found.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) walks: Vec<WalkSummary>,
    /// The time that the program waits less.
    pub(super) spared: Nanos,
}

/// Replays `entries`, as this process sees the tree, on a device with these `small` reads.
/// `stays` tells of a call's place whether its wait stays whatever was fetched before.
pub(super) fn replay(
    entries: &Entries,
    root: &Root,
    small: Option<SmallReads>,
    stays: impl Fn(usize) -> bool,
) -> Replayed {
    let mut replay = Replay::new(entries, root, small);
    let mut spared = Nanos(0);
    for at in 0..entries.rows.len() {
        spared += replay.step(at, stays(at));
    }
    let found = replay.found.into_values();
    let mut walks: Vec<WalkSummary> = found.filter(|walk| walk.predicted > 0).collect();
    walks.sort_by_key(|walk| std::cmp::Reverse((walk.waited.total(), walk.entries)));
    Replayed { walks, spared }
}

/// The time that threads were blocked for each path: for its inode, and for what is in it.
fn costs(entries: &Entries) -> BTreeMap<&[u8], [Nanos; 2]> {
    let mut costs: BTreeMap<&[u8], [Nanos; 2]> = BTreeMap::new();
    for (at, row) in entries.rows.iter().enumerate() {
        if let Some(depth) = Depth::of(row.cause) {
            costs.entry(entries.path(at)).or_default()[depth as usize] += row.blocked;
        }
    }
    costs
}

/// An entry by its directory and its name.
type Key = (DirectoryId, Box<[u8]>);

/// The driver of core's walks.
struct Replay<'a> {
    walks: Walks,
    root: &'a Root,
    entries: &'a Entries,
    costs: BTreeMap<&'a [u8], [Nanos; 2]>,
    timeline: Timeline,
    /// Where the program was, waits left out, when it came to the last call.
    ran: Nanos,
    /// Calls that threads are blocked in, each with its end, which no poll has seen.
    unseen: Vec<(Nanos, usize)>,
    directories: Vec<Option<Directory>>,
    /// What was requested of an entry, and when it is there.
    requested: BTreeMap<Key, (Depth, Nanos)>,
    /// Requests in flight, by the time when they end.
    arriving: BTreeMap<(Nanos, u64), Arrival>,
    requests: u64,
    used: BTreeSet<Key>,
    /// By the number of the walk.
    found: BTreeMap<u64, WalkSummary>,
    /// The walk that was in a directory last.
    in_directory: BTreeMap<DirectoryId, u64>,
    last_walk: Option<u64>,
}

/// A request in flight.
struct Arrival {
    id: WalkRequestId,
    /// The directory that is listed, with the entry that it is.
    listing: Option<(Option<DirectoryId>, Option<Key>)>,
}

#[derive(Debug)]
struct Directory {
    above: Option<(DirectoryId, Box<[u8]>)>,
    names: Vec<Box<[u8]>>,
    /// The program has been in it.
    is_entered: bool,
}

/// How much of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    Inode,
    Bytes,
}

impl Depth {
    fn of(cause: Cause) -> Option<Self> {
        match cause {
            Cause::Stat | Cause::Open => Some(Self::Inode),
            Cause::List | Cause::Read => Some(Self::Bytes),
            Cause::Fault | Cause::Other => None,
        }
    }
}

impl<'a> Replay<'a> {
    fn new(entries: &'a Entries, root: &'a Root, small: Option<SmallReads>) -> Self {
        let mut walks = Walks::new(WalkSettings::default());
        walks.set_seeks(small.is_some_and(|small| small.seeks));
        Self {
            walks,
            root,
            entries,
            costs: costs(entries),
            timeline: Timeline::new(small),
            ran: Nanos(0),
            unseen: Vec::new(),
            directories: Vec::new(),
            requested: BTreeMap::new(),
            arriving: BTreeMap::new(),
            requests: 0,
            used: BTreeSet::new(),
            found: BTreeMap::new(),
            in_directory: BTreeMap::new(),
            last_walk: None,
        }
    }

    /// The program comes to the call at `at`. The time that it waits less; none where the wait
    /// `stays`.
    fn step(&mut self, at: usize, stays: bool) -> Nanos {
        let row = &self.entries.rows[at];
        let computed = row.ran.since(self.ran);
        self.ran += computed;
        self.advance(self.timeline.now + computed);
        let key = self.key(at).filter(|_| row.is_ours);
        let there = key.as_ref().and_then(|key| {
            let &(depth, there) = self.requested.get(key)?;
            (depth >= Depth::of(row.cause)?).then_some(there)
        });
        let (is_predicted, began) = (there.is_some(), self.timeline.now);
        let blocked = match there.filter(|_| !stays) {
            Some(there) => there.since(began).min(row.blocked),
            None => self.timeline.demand(row.blocked, Depth::of(row.cause) == Some(Depth::Bytes)),
        };
        let lost = share(row.waited, blocked, row.blocked);
        if key.is_some() {
            self.unseen.push((began + blocked, at));
        }
        self.advance(began + lost);
        if let Some(key) = key {
            self.note(at, key, is_predicted);
        }
        assert!(lost <= row.waited, "a wait is never longer than it was");
        row.waited.since(lost)
    }

    /// The directory and the name of the call at `at`; none where there are no walks.
    fn key(&mut self, at: usize) -> Option<Key> {
        let entries = self.entries;
        let path = entries.path(at);
        if KERNELS_OWN.iter().any(|own| path.starts_with(own)) {
            return None;
        }
        Depth::of(entries.rows[at].cause)?;
        let names: Vec<&[u8]> =
            path.split(|&byte| byte == b'/').filter(|it| !it.is_empty()).collect();
        let (&name, above) = names.split_last()?;
        Some((self.directory(above)?, name.into()))
    }

    /// Time goes on to `until`; polls on the way see the calls that threads are blocked in.
    fn advance(&mut self, until: Nanos) {
        if self.arriving.is_empty() && self.unseen.is_empty() {
            self.timeline.skip(until);
        }
        while let Some(now) = self.timeline.poll(until) {
            while let Some(first) = self.arriving.first_entry().filter(|it| it.key().0 <= now) {
                let arrival = first.remove();
                self.arrive(arrival);
            }
            for (end, at) in std::mem::take(&mut self.unseen) {
                if end >= now {
                    self.touch(at);
                }
            }
            self.issue(now);
        }
        assert!(self.timeline.now <= until, "time does not go back");
        self.timeline.now = until;
    }

    /// The program is seen in the call at `at`.
    fn touch(&mut self, at: usize) {
        let Some((dir, name)) = self.key(at) else { return };
        let row = &self.entries.rows[at];
        match row.cause {
            Cause::List => {
                let Some(listed) = self.below(dir, &name) else { return };
                self.enter(listed);
                self.walks.list(listed);
            }
            Cause::Read => self.walks.touch(dir, &name, Use::Read { to_end: row.to_end }),
            _ => self.walks.touch(dir, &name, Use::Stat),
        }
        if let Some(view) = self.walks.walk_at(dir, &name) {
            self.in_directory.insert(dir, view.number);
            self.last_walk = Some(view.number);
            let directory = self.path(view.top);
            let walk = self.found.entry(view.number).or_default();
            (walk.directory, walk.order) = (directory, view.order.to_owned());
        }
    }

    /// Counts the call for the walk that it belongs to.
    fn note(&mut self, at: usize, key: Key, is_predicted: bool) {
        let in_directory = self.in_directory.get(&key.0).copied();
        let number = in_directory.or(self.last_walk.filter(|_| is_predicted));
        let is_new = self.used.insert(key);
        let Some(walk) = number.and_then(|number| self.found.get_mut(&number)) else { return };
        let row = &self.entries.rows[at];
        walk.entries += u64::from(is_new);
        walk.predicted += u64::from(is_new && is_predicted);
        walk.waited.add(row.cause, row.waited);
        walk.waited_predicted += if is_predicted { row.waited } else { Nanos(0) };
    }

    /// Submits what the walks request.
    fn issue(&mut self, now: Nanos) {
        let room = ROOM.saturating_sub(self.arriving.len());
        let mut requests = Vec::new();
        self.walks.issue(room, &mut requests);
        for request in requests {
            self.submit(now, &request);
        }
    }

    fn submit(&mut self, now: Nanos, &WalkRequest { id, dir, index, want }: &WalkRequest) {
        let name = index.and_then(|index| {
            let names = &self.directories.get(dir.0 as usize)?.as_ref()?.names;
            names.get(index as usize).cloned()
        });
        let mut path = self.path(dir).into_os_string().into_vec();
        if let Some(name) = &name {
            if path != b"/" {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        let [inode, bytes] = self.costs.get(&path[..]).copied().unwrap_or_default();
        let depth = if want == Want::Inode { Depth::Inode } else { Depth::Bytes };
        let cost = if depth == Depth::Inode { inode } else { inode + bytes };
        let there =
            self.timeline.request(now, cost, depth == Depth::Bytes && want != Want::Listing);
        let key = name.map(|name| (dir, name));
        if let Some(key) = &key {
            let requested = self.requested.entry(key.clone()).or_insert((depth, there));
            if depth > requested.0 {
                *requested = (depth, there);
            }
        }
        let listing = (want == Want::Listing).then(|| {
            let listed = match &key {
                Some((_, name)) => self.below(dir, name),
                None => Some(dir),
            };
            (listed, key)
        });
        self.requests += 1;
        self.arriving.insert((there, self.requests), Arrival { id, listing });
    }

    fn arrive(&mut self, Arrival { id, listing }: Arrival) {
        let mut outcome = WalkOutcome::Fetched { bytes: 0, saves: Nanos(0) };
        if let Some((listed, key)) = listing
            && listed.and_then(|listed| self.list(listed)).is_none()
        {
            outcome = WalkOutcome::Failed;
            // On such a file system, or of what is gone, nothing is fetched.
            if let Some(key) = key {
                self.requested.remove(&key);
            }
        }
        self.walks.complete(id, outcome);
    }

    /// Reads the listing of `dir`, and gives it to core.
    fn list(&mut self, dir: DirectoryId) -> Option<()> {
        let row = self.directories.get(dir.0 as usize)?.as_ref()?;
        let place = match &row.above {
            Some((above, name)) if !row.is_entered => {
                subdirectory(self.root.directory(&self.relative(*above)).ok()?.0, name).ok()?.0
            }
            Some(_) | None => self.root.directory(&self.relative(dir)).ok()?.0,
        };
        let opened = listable(&place, None).ok()?;
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
        let mut listing = RawDir::new(&opened, &mut buffer);
        let mut rows: Vec<(Box<[u8]>, u64, EntryKind)> = Vec::new();
        while let Some(entry) = listing.next() {
            let entry = entry.ok()?;
            let name = entry.file_name().to_bytes();
            if rows.len() == WalkSettings::default().entries_max as usize {
                break;
            }
            if !matches!(name, b"." | b"..") {
                rows.push((name.into(), entry.ino(), kind(entry.file_type())));
            }
        }
        // Core drops what it requested in a directory that is listed anew.
        let known = &self.directories[dir.0 as usize].as_ref()?.names;
        if !known.is_empty() && known.iter().eq(rows.iter().map(|(name, ..)| name)) {
            return Some(());
        }
        let entries: Vec<Entry<'_>> =
            rows.iter().map(|&(ref name, inode, kind)| Entry { name, inode, kind }).collect();
        let mut dropped = Vec::new();
        self.walks.listed(dir, &entries, &mut dropped);
        for dir in dropped {
            if let Some(Some(row)) = self.directories.get_mut(dir.0 as usize) {
                row.names.clear();
            }
        }
        let names = rows.into_iter().map(|(name, ..)| name).collect();
        self.directories[dir.0 as usize].as_mut()?.names = names;
        Some(())
    }

    /// The directory that the program goes to by `names`, from the root.
    fn directory(&mut self, names: &[&[u8]]) -> Option<DirectoryId> {
        if self.directories.is_empty() {
            let top = self.walks.directory(None);
            self.set(top, None);
        }
        let mut dir = TOP;
        for name in names {
            dir = self.below(dir, name)?;
            self.enter(dir);
        }
        Some(dir)
    }

    fn below(&mut self, parent: DirectoryId, name: &[u8]) -> Option<DirectoryId> {
        if self.relative(parent).len() + name.len() > PATH_BYTES_MAX {
            return None;
        }
        let dir = self.walks.directory(Some((parent, name)));
        let known = self.directories.get(dir.0 as usize).and_then(Option::as_ref);
        let is_known = known.is_some_and(|row| {
            row.above.as_ref().is_some_and(|(above, own)| *above == parent && **own == *name)
        });
        if !is_known {
            if known.is_some() {
                // The number was another directory's.
                self.requested.retain(|(of, _), _| *of != dir);
                self.used.retain(|(of, _)| *of != dir);
            }
            self.set(dir, Some((parent, name.into())));
        }
        Some(dir)
    }

    fn set(&mut self, dir: DirectoryId, above: Option<(DirectoryId, Box<[u8]>)>) {
        let at = dir.0 as usize;
        if self.directories.len() <= at {
            self.directories.resize_with(at + 1, || None);
        }
        self.directories[at] = Some(Directory { above, names: Vec::new(), is_entered: false });
    }

    fn enter(&mut self, dir: DirectoryId) {
        if let Some(Some(row)) = self.directories.get_mut(dir.0 as usize) {
            row.is_entered = true;
        }
    }

    /// The path of `dir` from the root on.
    fn relative(&self, dir: DirectoryId) -> Vec<u8> {
        let (mut names, mut at) = (Vec::new(), dir);
        while let Some(Some(Directory { above: Some((above, name)), .. })) =
            self.directories.get(at.0 as usize)
        {
            if names.len() == DEPTH_MAX {
                break;
            }
            names.push(&**name);
            at = *above;
        }
        names.reverse();
        names.join(&b'/')
    }

    fn path(&self, dir: DirectoryId) -> PathBuf {
        let mut path = vec![b'/'];
        path.extend(self.relative(dir));
        std::ffi::OsString::from_vec(path).into()
    }
}

fn kind(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile | FileType::Unknown => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        _ => EntryKind::Other,
    }
}

const TOP: DirectoryId = DirectoryId(0);
/// Requests in flight and queued, as under `run` on a device at its first depth.
const ROOM: usize = 64;
const LISTING_BYTES: usize = 64 << 10;
const PATH_BYTES_MAX: usize = 4_000;
/// Directories above a directory; core compares no more.
const DEPTH_MAX: usize = 64;
/// What lies there is on no device.
const KERNELS_OWN: [&[u8]; 2] = [b"/proc/", b"/sys/"];

#[cfg(test)]
mod tests;
