//! Leases and locks that notice when a file is opened once more.
//!
//! A lease for writing is granted to the only opener of a file, and broken by the next; a lock of
//! an open file description is of a program that counts descriptors. Locks of processes (`flock`,
//! POSIX) notice nothing.
//!
//! To list the locks the kernel waits until each processor has been at rest once, unless another
//! process has just had it do so.
//!
//! # Invariants
//! - A list that is too long to be read, or is not there, counts as one with a lease on each file.
//! - One thread reads the list at a time, and holds no lock meanwhile; others wait for what it
//!   finds.
//! - No more than a thousand lists are read in a second for entries of directories.
//! # Sources
//! `fcntl(2)`, proc(5) (`/proc/locks`, `fdinfo`); Linux `fs/locks.c` (`lock_get_status`).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use forerun_core::units::Nanos;
use rustix::fs::{Mode, OFlags, openat};

use super::{READING, Refusal};
use crate::clock::{Clock, monotonic};
use crate::observe::procfs::read_whole;

/// The files with leases, for many that are opened one after the other: the list is read again
/// once it is a millisecond old, and [`READ_ONE_IN`] times as old as reading it takes.
#[derive(Debug)]
pub(crate) struct LeaseList {
    clock: Clock,
    state: Mutex<State>,
    /// A thread has read the list.
    read: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// When it is read again, and what it has.
    last: Option<(Nanos, Leases)>,
    /// A thread reads it.
    is_being_read: bool,
}

#[derive(Debug)]
enum Leases {
    /// The files with one, of a list of so many bytes.
    Of { noticed: BTreeSet<u64>, bytes: u64 },
    /// The list cannot be read, or is too long.
    Unknown,
}

impl LeaseList {
    pub(crate) fn new() -> Self {
        let (state, read) = (Mutex::default(), Condvar::new());
        Self { clock: Clock::start(), state, read }
    }

    /// Whether a lease or lock on a file with the number `inode` would notice that it is opened.
    pub(crate) fn has(&self, inode: u64) -> bool {
        self.has_by(self.clock.now(), inode, Leases::now)
    }

    /// The same of a thread that asks at `now`, and reads the list by `read` where it has to.
    fn has_by(&self, now: Nanos, inode: u64, read: impl FnOnce() -> Leases) -> bool {
        let mut state = self.lock();
        loop {
            match &state.last {
                Some((until, leases)) if now < *until => return leases.have(inode),
                _ if !state.is_being_read => break,
                _ => state = self.read.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        state.is_being_read = true;
        drop(state);
        // Also where it panics: others go on to read it themselves.
        let reading = Reading(self);
        let began = self.clock.now();
        let leases = read();
        let lasts = leases.last(self.clock.now().since(began));
        let has = leases.have(inode);
        self.lock().last = Some((began + lasts, leases));
        drop(reading);
        has
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The list is being read, until this is dropped.
struct Reading<'a>(&'a LeaseList);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.lock().is_being_read = false;
        self.0.read.notify_all();
    }
}

/// Whether a thread waits for the kernel's list, which may take 50 ms and comes for certain.
pub(crate) fn is_listing() -> bool {
    LISTING.load(Ordering::Relaxed) > 0
}

impl Leases {
    fn now() -> Self {
        LISTING.fetch_add(1, Ordering::Relaxed);
        let mut noticed = BTreeSet::new();
        let read = each_line(|line| {
            if is_noticed(line) {
                noticed.extend(inodes(line));
            }
        });
        LISTING.fetch_sub(1, Ordering::Relaxed);
        read.map_or(Self::Unknown, |bytes| Self::Of { noticed, bytes })
    }

    /// For how long it is used, as reading it `took` so long.
    fn last(&self, took: Nanos) -> Nanos {
        let longest = LIST_LASTS_MAX + Nanos(LONG_LASTS.0 * (self.bytes() / SHORT_BYTES));
        let lasts = Nanos(took.0 * READ_ONE_IN).clamp(LIST_LASTS, longest);
        assert!(lasts <= longest, "a list grows old");
        lasts
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Of { bytes, .. } => *bytes,
            Self::Unknown => LIST_BYTES_MAX,
        }
    }

    /// Whether one on a file with the number `inode` may be among them.
    fn have(&self, inode: u64) -> bool {
        match self {
            Self::Of { noticed, .. } => noticed.contains(&inode),
            Self::Unknown => true,
        }
    }
}

/// Whether the descriptor `number` of a process, of the file `inode`, is one that reads through the
/// page cache, without a lease.
pub(super) fn check_descriptor(
    process: BorrowedFd<'_>,
    number: i32,
    inode: u64,
) -> Result<(), Refusal> {
    let info = openat(process, format!("fdinfo/{number}"), READING, Mode::empty());
    let text = read(info.map_err(Refusal::Absent)?.into())?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let flags = field("flags").and_then(|flags| u32::from_str_radix(flags, 8).ok());
    if !flags.is_some_and(reads_page_cache) {
        return Err(Refusal::Unread);
    }
    // Present since Linux 5.14.
    if field("ino").is_some_and(|found| found.parse() != Ok(inode)) {
        return Err(Refusal::Changed);
    }
    let mut locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
    if locks.any(is_noticed) { Err(Refusal::Locked) } else { Ok(()) }
}

/// Whether there is no lease on any file with the number `inode`; devices are called by several
/// names, and are not compared.
pub(super) fn check_file(inode: u64) -> Result<(), Refusal> {
    /// The last list that was long, and until when it is used. Another thread may have it, or have
    /// had it as this process was forked: the list is read anew then.
    static LAST: Mutex<Option<(Nanos, Leases)>> = Mutex::new(None);
    let began = monotonic();
    if let Ok(last) = LAST.try_lock()
        && let Some((until, leases)) = &*last
        && began < *until
    {
        return if leases.have(inode) { Err(Refusal::Locked) } else { Ok(()) };
    }
    let leases = Leases::now();
    let has = leases.have(inode);
    if leases.bytes() >= SHORT_BYTES
        && let Ok(mut last) = LAST.try_lock()
    {
        *last = Some((began + leases.last(monotonic().since(began)), leases));
    }
    if has { Err(Refusal::Locked) } else { Ok(()) }
}

/// Whether a descriptor with these flags of `open(2)` reads through the page cache.
pub(crate) fn reads_page_cache(flags: u32) -> bool {
    let flags = OFlags::from_bits_retain(flags);
    let mode = flags & OFlags::ACCMODE;
    mode != OFlags::WRONLY && !flags.intersects(OFlags::DIRECT | OFlags::PATH)
}

/// Whether a descriptor with these flags of `open(2)` writes.
pub(crate) fn writes(flags: u32) -> bool {
    OFlags::from_bits_retain(flags) & OFlags::ACCMODE != OFlags::RDONLY
}

/// Whether the holder of the lock in `line` notices that the file is opened once more.
fn is_noticed(line: &str) -> bool {
    line.split_ascii_whitespace().any(|word| matches!(word, "LEASE" | "DELEG" | "OFDLCK"))
}

/// The numbers in the line of a lock that may be the inode's.
fn inodes(line: &str) -> impl Iterator<Item = u64> {
    let files = line.split_ascii_whitespace().filter(|word| word.contains(':'));
    files.filter_map(|word| word.rsplit(':').next()?.parse().ok())
}

/// Has `visit` see each line of the kernel's list, and tells its bytes. Without the list nothing is
/// known of any lease: some mounts of `/proc` leave it out (`subset=pid`).
fn each_line(mut visit: impl FnMut(&str)) -> Result<u64, Refusal> {
    let list = File::open("/proc/locks").map_err(|_| Refusal::Locked)?;
    let mut list = BufReader::with_capacity(READ_BYTES, list).take(LIST_BYTES_MAX);
    let mut line = Vec::new();
    while list.read_until(b'\n', &mut line).map_err(|_| Refusal::Locked)? > 0 {
        visit(&String::from_utf8_lossy(&line));
        line.clear();
    }
    match list.limit() {
        0 => Err(Refusal::Locked),
        left => Ok(LIST_BYTES_MAX - left),
    }
}

/// The record of a descriptor, with its locks.
fn read(record: File) -> Result<String, Refusal> {
    let bytes = read_whole(record, RECORD_BYTES_MAX).map_err(|_| Refusal::Locked)?;
    if bytes.len() as u64 >= RECORD_BYTES_MAX {
        return Err(Refusal::Locked);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Threads that wait for the list.
static LISTING: AtomicU32 = AtomicU32::new(0);
/// A program that takes a lease has it unnoticed from so much later on.
const LIST_LASTS: Nanos = Nanos::from_millis(1);
/// The same, where it takes long to be read; and longer for each so many bytes of it.
const LIST_LASTS_MAX: Nanos = Nanos::from_millis(10);
const LONG_LASTS: Nanos = Nanos::from_millis(25);
const SHORT_BYTES: u64 = 64 << 10;
/// The part of the time that lists are read in.
const READ_ONE_IN: u64 = 100;
/// Some sixty thousand locks.
const LIST_BYTES_MAX: u64 = 4 << 20;
const READ_BYTES: usize = 64 << 10;
/// Some four thousand of a descriptor.
const RECORD_BYTES_MAX: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    fn of(inodes: &[u64]) -> Leases {
        Leases::Of { noticed: inodes.iter().copied().collect(), bytes: 0 }
    }

    #[test]
    fn no_lock_is_held_while_the_list_is_read_and_one_thread_reads_it_for_all() {
        let (list, reads) = (&LeaseList::new(), &AtomicU32::new(0));
        let ((began, begins), (go, goes)) = (channel(), channel());
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                list.has_by(Nanos(0), 7, || {
                    began.send(()).unwrap();
                    goes.recv().unwrap();
                    of(&[7])
                })
            });
            begins.recv().unwrap();
            let is_free = list.state.try_lock().is_ok();
            let read = || {
                reads.fetch_add(1, Ordering::Relaxed);
                Leases::Unknown
            };
            let ask = |inode| scope.spawn(move || list.has_by(Nanos(0), inode, read));
            let others = [7, 8].map(ask);
            go.send(()).unwrap();
            assert!(reader.join().unwrap());
            assert_eq!(others.map(|it| it.join().unwrap()), [true, false]);
            assert!(is_free, "no lock is held");
            assert_eq!(reads.load(Ordering::Relaxed), 0, "others wait for what it finds");
        });
        // Once it is old it is read again.
        let late = list.clock.now() + LIST_LASTS_MAX;
        assert!(list.has_by(late, 9, || of(&[9])));
    }

    #[test]
    fn a_thread_that_fails_to_read_the_list_keeps_no_other_from_it() {
        let list = LeaseList::new();
        let fails = || -> Leases { panic!("as a bug in it") };
        let failed = thread::scope(|scope| scope.spawn(|| list.has_by(Nanos(0), 7, fails)).join());
        assert!(failed.is_err(), "it has panicked");
        assert!(list.has_by(Nanos(0), 7, || Leases::Unknown), "of what is not known each is one");
    }

    #[test]
    fn leases_and_locks_of_descriptions_are_noticed() {
        #[rustfmt::skip]
        let rows = [ // line, noticed, of the file 131
            ("1: LEASE  ACTIVE    WRITE 812 fe:00:131 0 EOF",          true,  true),
            ("1: LEASE  BREAKING  READ  812 fe:00:131 0 EOF",          true,  true),
            ("2: OFDLCK ADVISORY  READ  -1 fe:00:131 0 EOF",           true,  true),
            ("3: FLOCK  ADVISORY  WRITE 812 fe:00:131 0 EOF",          false, true),
            ("4: POSIX  ADVISORY  WRITE 812 00:1b:1131 128 EOF",       false, false),
            ("5: -> OFDLCK ADVISORY  WRITE -1 fe:00:13 0 131",         true,  false),
            ("",                                                       false, false),
        ];
        for (line, noticed, of) in rows {
            let is_of = inodes(line).any(|number| number == 131);
            assert_eq!((is_noticed(line), is_of), (noticed, of), "{line}");
        }
    }
}
