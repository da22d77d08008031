//! Where in directory trees a program waited, and what walks would have spared it.
//!
//! ```text
//!   Entries --aside, after the end--> by walk (walks) | by directory | by file system: its traps
//! ```
//! # Invariants
//! - What a file system may block is done in a process of its own, and left where it takes longer
//!   than [`WITHIN`].
//! - Tables are bounded; what is left out is counted.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use forerun_core::units::Nanos;
use rustix::fs::{AtFlags, CWD, StatxFlags, statfs, statx};

use super::causes::{Cause, CauseTimes};
use super::entries::Entries;
use super::sums::share;
use super::timeline::SmallReads;
use super::walks::{Replayed, WalkSummary, replay};
use crate::aside::descriptors::detach;
use crate::aside::within;
use crate::kernel::Stat;
use crate::open::entries::Root;
use crate::wire::{Wire, from_bytes, to_bytes, wire};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct TreeSummary {
    /// Walks that `run` would follow, first by the time that the program waited for their entries.
    pub walks: Vec<WalkSummary>,
    /// Walks that are not in the table.
    pub walks_left_out: u64,
    /// Directories, by the time that the program waited for their entries and their listings.
    pub directories: Vec<DirectorySummary>,
    /// Directories that are not in the table.
    pub directories_left_out: u64,
    /// File systems on which walks gain less than elsewhere.
    pub traps: Vec<TrapSummary>,
    /// The time of all waits for entries.
    pub waited: Nanos,
    /// What walks would spare of that.
    pub spared: Nanos,
}

/// A directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectorySummary {
    /// Its path, as the program has named it.
    pub path: PathBuf,
    /// Calls that were met on it and on its entries.
    pub calls: u64,
    /// The time that the program waited in them.
    pub waited: CauseTimes,
}

/// A file system on which walks gain less than elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrapSummary {
    /// Its kind.
    pub kind: Trap,
    /// A directory on it.
    pub path: PathBuf,
    /// The time that the program waited for entries on it.
    pub waited: Nanos,
}

/// Why walks gain less on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trap {
    /// NFS: the server is asked at each open.
    Nfs,
    /// FUSE: no walks.
    Fuse,
    /// overlayfs: what is cached belongs to a file of a layer.
    Overlay,
}

wire! {
    TreeSummary {
        walks, walks_left_out, directories, directories_left_out, traps, waited, spared,
    }
    DirectorySummary { path, calls, waited }
    TrapSummary { kind, path, waited }
}

impl Wire for Trap {
    fn put(&self, bytes: &mut Vec<u8>) {
        (*self as u8).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let number = u8::take(bytes)?;
        Self::ALL.into_iter().find(|&trap| trap as u8 == number)
    }
}

impl Trap {
    const ALL: [Self; 3] = [Self::Nfs, Self::Fuse, Self::Overlay];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nfs => "nfs",
            Self::Fuse => "fuse",
            Self::Overlay => "overlayfs",
        }
    }

    /// That of a file system by the number that `statfs(2)` tells.
    fn of(file_system: u32) -> Option<Self> {
        match file_system {
            0x6969 => Some(Self::Nfs),
            0x6573_5546 => Some(Self::Fuse),
            0x794c_7630 => Some(Self::Overlay),
            _ => None,
        }
    }

    /// Whether a wait in a call of this kind stays, though the entry was fetched ahead.
    fn keeps(self, cause: Cause) -> bool {
        match self {
            Self::Nfs => cause == Cause::Open,
            Self::Fuse => true,
            Self::Overlay => false,
        }
    }
}

impl TreeSummary {
    /// Of `entries`, whose waits are scaled from `sampled` to `waited`, on a device with these
    /// `small` reads. `None` where file systems did not answer in time.
    pub(super) fn of(
        entries: &Entries,
        [waited, sampled]: [Nanos; 2],
        small: Option<SmallReads>,
    ) -> Option<Self> {
        if entries.rows.is_empty() {
            return Some(Self::default());
        }
        let bytes = within(WITHIN, || {
            detach();
            to_bytes(&Self::found(entries, small))
        });
        let mut summary: Self = from_bytes(&bytes?)?;
        summary.scale(waited, sampled);
        Some(summary)
    }

    fn found(entries: &Entries, small: Option<SmallReads>) -> Self {
        let mut by_directory: BTreeMap<&[u8], DirectorySummary> = BTreeMap::new();
        for (at, row) in entries.rows.iter().enumerate() {
            let directory = by_directory.entry(directory(entries, at)).or_default();
            directory.calls += 1;
            directory.waited.add(row.cause, row.waited);
        }
        let places = Places::of(entries);
        let stays = |at: usize| {
            let trap = places.trap(directory(entries, at));
            trap.is_some_and(|trap| trap.keeps(entries.rows[at].cause))
        };
        let root = File::open("/proc/self").ok().and_then(|own| Root::of(own.as_fd()).ok());
        let Replayed { walks, spared } =
            root.map(|root| replay(entries, &root, small, stays)).unwrap_or_default();
        let (walks, walks_left_out) = cut(walks, WALKS_MAX);
        let waited = Nanos(entries.rows.iter().map(|row| row.waited.0).sum());
        assert!(spared <= waited, "what is spared was waited for");
        let mut directories: Vec<DirectorySummary> = by_directory
            .into_iter()
            .map(|(path, directory)| DirectorySummary { path: as_path(path), ..directory })
            .filter(|directory| directory.waited.total() > Nanos(0))
            .collect();
        directories.sort_by(|a, b| {
            (b.waited.total(), b.calls, &a.path).cmp(&(a.waited.total(), a.calls, &b.path))
        });
        let (directories, directories_left_out) = cut(directories, DIRECTORIES_MAX);
        let traps = places.traps();
        Self { walks, walks_left_out, directories, directories_left_out, traps, waited, spared }
    }

    fn scale(&mut self, waited: Nanos, sampled: Nanos) {
        for walk in &mut self.walks {
            walk.waited.scale(waited, sampled);
            walk.waited_predicted = share(waited, walk.waited_predicted, sampled);
        }
        for directory in &mut self.directories {
            directory.waited.scale(waited, sampled);
        }
        for trap in &mut self.traps {
            trap.waited = share(waited, trap.waited, sampled);
        }
        self.waited = share(waited, self.waited, sampled);
        self.spared = share(waited, self.spared, sampled);
    }
}

/// The device that entries were waited for most on, and a directory there.
pub(super) fn place(entries: &Entries) -> Option<(u64, PathBuf)> {
    if entries.rows.is_empty() {
        return None;
    }
    let bytes = within(WITHIN, || {
        detach();
        let place = Places::of(entries).device();
        to_bytes(&place.map(|(device, path)| (device, as_path(path))))
    });
    from_bytes(&bytes?)?
}

/// The file systems of directories.
struct Places<'a> {
    by_directory: BTreeMap<&'a [u8], Place>,
    waited: BTreeMap<&'a [u8], Nanos>,
}

#[derive(Clone, Copy)]
struct Place {
    device: u64,
    trap: Option<Trap>,
}

impl<'a> Places<'a> {
    /// Those of the directories that were waited for most, which this process sees.
    fn of(entries: &'a Entries) -> Self {
        let mut waited: BTreeMap<&[u8], Nanos> = BTreeMap::new();
        for (at, row) in entries.rows.iter().enumerate().filter(|(_, row)| row.is_ours) {
            *waited.entry(directory(entries, at)).or_default() += row.waited;
        }
        let mut waits: Vec<(&[u8], Nanos)> =
            waited.into_iter().filter(|&(_, waited)| waited > Nanos(0)).collect();
        waits.sort_by_key(|&(_, waited)| std::cmp::Reverse(waited));
        waits.truncate(PLACES_MAX);
        let by_directory =
            waits.iter().filter_map(|&(path, _)| Some((path, Place::of(path)?))).collect();
        Self { by_directory, waited: waits.into_iter().collect() }
    }

    fn trap(&self, directory: &[u8]) -> Option<Trap> {
        self.by_directory.get(directory)?.trap
    }

    fn traps(&self) -> Vec<TrapSummary> {
        let mut traps: BTreeMap<Trap, TrapSummary> = BTreeMap::new();
        for (&path, place) in &self.by_directory {
            let Some(kind) = place.trap else { continue };
            let new = || TrapSummary { kind, path: as_path(path), waited: Nanos(0) };
            traps.entry(kind).or_insert_with(new).waited += self.waited[path];
        }
        traps.into_values().collect()
    }

    /// The device that was waited for most, and a directory on it.
    fn device(&self) -> Option<(u64, &'a [u8])> {
        let mut devices: BTreeMap<u64, (Nanos, &'a [u8])> = BTreeMap::new();
        for (&path, place) in &self.by_directory {
            devices.entry(place.device).or_insert((Nanos(0), path)).0 += self.waited[path];
        }
        let most = devices.into_iter().max_by_key(|&(_, (waited, _))| waited);
        most.map(|(device, (_, path))| (device, path))
    }
}

impl Place {
    fn of(path: &[u8]) -> Option<Self> {
        let path = Path::new(OsStr::from_bytes(path));
        let how = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let stat = Stat::from(statx(CWD, path, how, StatxFlags::BASIC_STATS).ok()?);
        // The type's width differs between machines, its numbers do not.
        #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "32 bits")]
        let kind = statfs(path).ok()?.f_type as u32;
        Some(Self { device: stat.st_dev, trap: Trap::of(kind) })
    }
}

/// The directory of the call at `at`: the one that is listed, or that the entry lies in.
fn directory(entries: &Entries, at: usize) -> &[u8] {
    let path = entries.path(at);
    if entries.rows[at].cause == Cause::List {
        return path;
    }
    match path.iter().rposition(|&byte| byte == b'/') {
        None | Some(0) => b"/",
        Some(end) => &path[..end],
    }
}

fn as_path(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

/// The first `max` of `rows`, and how many more there are.
fn cut<T>(mut rows: Vec<T>, max: usize) -> (Vec<T>, u64) {
    let more = rows.len().saturating_sub(max) as u64;
    rows.truncate(max);
    assert!(rows.len() <= max, "tables are bounded");
    (rows, more)
}

/// Longer than it takes to list a hundred thousand directories that are cached.
const WITHIN: Nanos = Nanos::from_millis(5_000);
const WALKS_MAX: usize = 256;
const DIRECTORIES_MAX: usize = 256;
/// Directories whose file system is asked for.
const PLACES_MAX: usize = 4096;
