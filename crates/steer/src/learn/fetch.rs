//! What a worker does for a path of a list: it looks it up, and has the kernel read its ranges.
//!
//! ```text
//!   path --handle that opens nothing--> kind, version --> listing | readahead
//!                                  `--> its directory: a watch
//! ```
//! A path is resolved by the rights that forerun and the program share; what is fetched, without
//! links of other users. A path that is only looked at is resolved as the program resolves it, to
//! see where the program is; by such a link nothing is opened, and nothing learned.
//!
//! # Invariants
//! - Regular files and directories alone are opened, of no file system of the kernel's own,
//!   whatever a list says; and of those none that has a lease.
//! - No byte of a file is read into this process.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forerun_core::learned::{LearnedEntry, LearnedKind, Version, WHOLE_BYTES, charged};
use forerun_core::units::Nanos;
use rustix::fs::{CWD, FileType, Mode, RawDir, ResolveFlags, openat2};
use rustix::io::Errno;

use super::watches::Watches;
use crate::clock::Clock;
use crate::kernel::{self, DeviceFacts, Devices, Stat};
use crate::open::entries::{listable, on_a_safe_way, on_the_way};
use crate::open::{HANDLE, LeaseList, Refusal, is_in_memory, is_regular, open_found, path_of};
use crate::watch::WatchQueue;

/// What workers share.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) watches: Watches,
    leases: LeaseList,
    devices: Devices,
    clock: Clock,
}

/// A path to be fetched, or to be looked up alone.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) tools: Arc<Tools>,
    pub(super) what: What,
}

/// See [`Job`].
#[derive(Debug)]
pub(super) enum What {
    /// The entry of a list, by its place there, and the bytes that may be fetched.
    Fetch(u32, Arc<LearnedEntry>, u64),
    /// An entry whose bytes are waited for, and how many these may be.
    Warm(Arc<LearnedEntry>, u64),
    /// A path that the program was seen to use.
    Look(Box<[u8]>),
    /// Entries of which nothing is wanted but the kind of device that they lie on.
    Devices(Vec<Arc<LearnedEntry>>),
}

impl What {
    fn path(&self) -> &[u8] {
        match self {
            Self::Fetch(_, entry, _) | Self::Warm(entry, _) => &entry.path,
            Self::Look(path) => path,
            Self::Devices(entries) => &entries.first().expect("entries are asked about").path,
        }
    }
}

/// What became of a job.
#[derive(Debug)]
pub(super) struct JobResult {
    pub(super) what: What,
    pub(super) found: Result<PathFacts, Refusal>,
    /// How long it took.
    pub(super) took: Nanos,
    /// The watch of its directory reports reads of the file from now on.
    pub(super) is_watched: bool,
    /// Whether its device turns, as the system says; of several, whether most do. None where that
    /// is not known.
    pub(super) is_rotational: Option<bool>,
}

/// What lies at a path.
#[derive(Debug)]
pub(super) struct PathFacts {
    pub(super) kind: FileType,
    pub(super) version: Version,
    /// Its path without links, where that is another.
    pub(super) real: Option<Box<[u8]>>,
    /// No link on its way is another user's; of what is looked up alone.
    pub(super) is_safe: bool,
    /// Bytes that were requested, or are cached: those of whole pages.
    pub(super) bytes: u64,
    /// All that was wanted was cached.
    pub(super) is_cached: bool,
    /// It lies on a file system that keeps all in memory; of what is looked up alone.
    pub(super) is_in_memory: bool,
    device: u64,
}

impl Tools {
    pub(super) fn new() -> Self {
        Self {
            watches: Watches::new(WatchQueue::new()),
            leases: LeaseList::new(),
            devices: Devices::default(),
            clock: Clock::start(),
        }
    }

    /// Whether most of `entries` lie on devices that turn, as the system says: of those that are
    /// not in memory, by the nearest folder above that is, so that no device is waited for. None
    /// where that is not known.
    fn are_rotational(&self, entries: &[Arc<LearnedEntry>]) -> Option<bool> {
        let mut folders = BTreeMap::new();
        let (mut turning, mut others) = (0, 0);
        for entry in entries {
            let path = Path::new(OsStr::from_bytes(&entry.path));
            if in_memory(path).err() != Some(Errno::AGAIN) {
                continue;
            }
            let Some(folder) = path.parent() else { continue };
            match *folders.entry(folder).or_insert_with(|| self.is_rotational(folder)) {
                Some(true) => turning += 1,
                Some(false) => others += 1,
                None => {}
            }
        }
        (turning + others > 0).then_some(turning > others)
    }

    fn is_rotational(&self, folder: &Path) -> Option<bool> {
        let place = folder.ancestors().map(in_memory).find_map(Result::ok)?;
        let device = kernel::stat(&place).ok()?.st_dev;
        Some(self.devices.facts(device).is_rotational)
    }

    /// Fetches what is learned of `entry`, no more than `allowed` bytes; where it `waits`, until
    /// these are there.
    fn fetch(&self, entry: &LearnedEntry, allowed: u64, waits: bool) -> Result<PathFacts, Refusal> {
        let (place, stat) = on_a_safe_way(&entry.path)?;
        let mut found = PathFacts::of(&stat, None);
        match entry.kind {
            LearnedKind::Read if is_regular(&stat) && stat.st_size > 0 => {
                let wanted = entry.ranges_of(version(&stat), allowed);
                let file = self.read_ahead(&place, &stat, &wanted, &mut found)?;
                if waits {
                    self.wait(&file, &wanted, self.devices.facts(stat.st_dev));
                }
            }
            LearnedKind::Directory if found.kind == FileType::Directory => list(&place)?,
            _ => {}
        }
        Ok(found)
    }

    /// Waits until `ranges` of `file` have arrived.
    fn wait(&self, file: &File, ranges: &[Range<u64>], device: DeviceFacts) {
        let began = self.clock.now();
        let is_absent = |range: &Range<u64>| {
            kernel::absent(file, range).ok().flatten().is_some_and(|absent| !absent.is_empty())
        };
        for range in ranges.iter().flat_map(|range| kernel::written_parts(file, range, device)) {
            while is_absent(&range) && self.clock.now().since(began) < ARRIVES_WITHIN {
                thread::sleep(ARRIVED_EVERY);
            }
        }
    }

    /// Has the kernel read those of `ranges` that are not cached: the file.
    fn read_ahead(
        &self,
        place: &OwnedFd,
        stat: &Stat,
        ranges: &[Range<u64>],
        found: &mut PathFacts,
    ) -> Result<File, Refusal> {
        let (file, stat) = open_found(place, stat, &self.leases, None)?;
        assert!(ranges.iter().all(|it| it.end <= stat.st_size), "what is fetched lies in the file");
        let device = self.devices.facts(stat.st_dev);
        found.is_cached = !ranges.is_empty();
        found.bytes = charged(ranges);
        for range in ranges {
            if kernel::cached_untouched(&file, range) == Some(kernel::pages(range)) {
                continue;
            }
            found.is_cached = false;
            let bytes = kernel::prefetch_written(&file, range, device).map_err(|error| {
                Refusal::Closed(Errno::from_io_error(&error).unwrap_or(Errno::IO))
            })?;
            // Its pages are charged.
            found.bytes = found.bytes.saturating_sub(range.end - range.start - bytes);
        }
        Ok(file)
    }

    /// Looks at what the program uses at `path`.
    fn look(&self, path: &[u8]) -> Result<PathFacts, Refusal> {
        let safe = on_a_safe_way(path);
        let is_safe = safe.is_ok();
        let (place, stat) = match safe {
            Err(Refusal::Rights) => on_the_way(path)?,
            found => found?,
        };
        let real = path_of(&place).filter(|real| **real != *path);
        let mut found = PathFacts { is_safe, ..PathFacts::of(&stat, real) };
        found.is_in_memory = is_in_memory(&place, &stat);
        if is_safe && is_regular(&stat) && !found.is_in_memory && stat.st_size > WHOLE_BYTES {
            let (file, stat) = open_found(&place, &stat, &self.leases, None)?;
            found.is_cached = is_mostly_cached(&file, stat.st_size);
        }
        Ok(found)
    }

    /// Watches the directory of `path`.
    fn watch_above(&self, path: &[u8]) -> bool {
        let above = Path::new(OsStr::from_bytes(path)).parent().map(|it| it.as_os_str().as_bytes());
        let Some(above) = above.filter(|above| above.len() > 1) else { return false };
        if self.watches.has(above) {
            return true;
        }
        on_a_safe_way(above).is_ok_and(|(place, stat)| {
            stat.kind() == FileType::Directory && self.watches.watch(above, &place)
        })
    }
}

impl PathFacts {
    fn of(stat: &Stat, real: Option<Box<[u8]>>) -> Self {
        Self {
            kind: stat.kind(),
            version: version(stat),
            real,
            is_safe: false,
            bytes: 0,
            is_cached: false,
            is_in_memory: false,
            device: stat.st_dev,
        }
    }
}

/// What lies at `path`, where that is found without a device.
fn in_memory(path: &Path) -> Result<OwnedFd, Errno> {
    openat2(CWD, path, HANDLE, Mode::empty(), ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED)
}

/// Does `job`.
pub(super) fn work(job: Job) -> JobResult {
    let Job { tools, what } = job;
    let began = tools.clock.now();
    assert!(what.path().starts_with(b"/"), "a path begins at the root");
    let mut is_watched = false;
    let found = match &what {
        What::Fetch(_, entry, allowed) => {
            // Before it is looked up, so that no read after that is missed.
            is_watched = entry.kind == LearnedKind::Read && tools.watch_above(&entry.path);
            tools.fetch(entry, *allowed, false)
        }
        What::Warm(entry, allowed) => tools.fetch(entry, *allowed, true),
        What::Look(path) => tools.look(path),
        What::Devices(_) => Err(Refusal::Absent(Errno::NOENT)),
    };
    let took = tools.clock.now().since(began);
    is_watched &= found.is_ok();
    let is_rotational = match &what {
        What::Devices(entries) => tools.are_rotational(entries),
        What::Fetch(..) | What::Warm(..) | What::Look(_) => {
            found.as_ref().ok().map(|found| tools.devices.facts(found.device).is_rotational)
        }
    };
    JobResult { what, found, took, is_watched, is_rotational }
}

/// Whether at least a half of the file is in memory, as far as the kernel tells.
pub(super) fn is_mostly_cached(file: &File, bytes: u64) -> bool {
    let all = 0..bytes;
    kernel::cached_untouched(file, &all).is_none_or(|pages| pages * 2 >= kernel::pages(&all))
}

/// Has the directory's blocks read, by reading its names.
fn list(place: &OwnedFd) -> Result<(), Refusal> {
    let directory = listable(place, None)?;
    let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
    let mut entries = RawDir::new(&directory, &mut buffer);
    for _ in 0..ENTRIES_MAX {
        match entries.next() {
            Some(Ok(_)) => {}
            Some(Err(why)) => return Err(Refusal::Closed(why)),
            None => break,
        }
    }
    Ok(())
}

/// The version that `stat` tells of.
pub(super) fn version(stat: &Stat) -> Version {
    let (seconds, nanos) = stat.st_mtime;
    let modified = seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanos));
    Version { inode: stat.st_ino, bytes: stat.st_size, modified }
}

/// A device that takes longer for a file has failed.
const ARRIVES_WITHIN: Nanos = Nanos::from_millis(30_000);
const ARRIVED_EVERY: Duration = Duration::from_millis(1);
const LISTING_BYTES: usize = 32 << 10;
const ENTRIES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;

    use super::*;

    #[test]
    fn the_device_of_what_is_not_in_memory_is_known_by_what_is_above_it() {
        let tools = Tools::new();
        let here = fs::canonicalize(env::temp_dir()).unwrap();
        let device = kernel::stat(File::open(&here).unwrap()).unwrap().st_dev;
        let expected = tools.devices.facts(device).is_rotational;
        assert_eq!(tools.is_rotational(&here), Some(expected));
        assert_eq!(tools.is_rotational(&here.join("never looked up/nor this")), Some(expected));
        let entry = |path: &Path| {
            let path = path.as_os_str().as_bytes().into();
            let ranges = Vec::new();
            let (first, version) = (Nanos(0), Version::default());
            let (kind, histories) = (LearnedKind::Stat, Vec::new());
            Arc::new(LearnedEntry { path, kind, first, ranges, version, history: 1, histories })
        };
        assert_eq!(tools.are_rotational(&[entry(&here)]), None, "it is in memory");
        let unknown = format!("forerun never looked this up {}", std::process::id());
        let entries = [entry(&here), entry(&here.join(unknown))];
        assert_eq!(tools.are_rotational(&entries), Some(expected));
    }
}
