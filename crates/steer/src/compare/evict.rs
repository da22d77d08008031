//! Eviction: the files that a program reads leave the page cache, so that a run is cold.
//!
//! ```text
//!   advise that the pages are not wanted --> count what is left --> write out what is dirty, again
//! ```
//! # Invariants
//! - Nothing is counted as evicted that the kernel does not tell.
//! - What stays has a reason, found out where it can be and a guess nowhere.
//! # Sources
//! `posix_fadvise(2)`, `proc_sys_vm(5)`; Linux `mm/fadvise.c`, `mm/truncate.c`
//! (`mapping_evict_folio`: dirty, locked and mapped pages stay).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, Mode, OFlags, fadvise, fdatasync, fstatfs, open};
use rustix::io::Errno;
use rustix::param::page_size;

use super::ReadFile;
use crate::kernel::{self, Residency, stat};
use crate::open::is_regular;

/// What an eviction came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eviction {
    /// Files that are still there.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, bytes that stay in memory.
    pub bytes_kept: u64,
    /// The files that they are of, the largest part first.
    pub kept: Vec<RetainedFile>,
    /// Files of which the kernel does not tell this user what is in memory. They were advised.
    pub files_unknown: u64,
    /// Their bytes.
    pub bytes_unknown: u64,
}

/// A file that stays in memory, whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedFile {
    /// Its path.
    pub path: PathBuf,
    /// So much of it.
    pub bytes: u64,
    /// Why.
    pub why: RetainedReason,
}

/// Why a file stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetainedReason {
    /// A program that runs, or a library of one: it is in memory as long as that runs.
    Program,
    /// A running program has it mapped, to read it.
    Mapped,
    /// Its file system has no other place.
    InMemory,
    /// It may not be opened.
    NotPermitted,
    /// The kernel keeps it: it is being written, locked, or mapped where this user cannot see it.
    InUse,
}

impl fmt::Display for RetainedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "programs and libraries that run already",
            Self::Mapped => "mapped by running programs",
            Self::InMemory => "on a file system in memory",
            Self::NotPermitted => "not permitted",
            Self::InUse => "dirty, locked, or mapped out of sight",
        })
    }
}

/// Evicts `files` from the page cache, and tells what stays; the rest is left where `is_given_up`
/// says so.
#[must_use]
pub fn evict(files: &[ReadFile], is_given_up: impl Fn() -> bool) -> Eviction {
    let mut eviction = Eviction::default();
    for file in files.iter().take_while(|_| !is_given_up()) {
        match evict_one(file) {
            Ok(Left::Bytes(0)) => {}
            Ok(Left::Bytes(bytes)) => eviction.keep(file, bytes, RetainedReason::InUse),
            Ok(Left::InMemory) => eviction.keep(file, file.bytes, RetainedReason::InMemory),
            Ok(Left::Unknown) => {
                eviction.files_unknown += 1;
                eviction.bytes_unknown += file.bytes;
            }
            Ok(Left::Gone) | Err(Errno::NOENT) => continue,
            Err(_) => eviction.keep(file, file.bytes, RetainedReason::NotPermitted),
        }
        eviction.files += 1;
        eviction.bytes += file.bytes;
    }
    if eviction.kept.iter().any(|kept| kept.why == RetainedReason::InUse) {
        let mapped = mapped();
        for kept in eviction.kept.iter_mut().filter(|kept| kept.why == RetainedReason::InUse) {
            match mapped.get(&kept.path) {
                Some(true) => kept.why = RetainedReason::Program,
                Some(false) => kept.why = RetainedReason::Mapped,
                None => {}
            }
        }
    }
    eviction.kept.sort_by(|a, b| (b.bytes, &a.path).cmp(&(a.bytes, &b.path)));
    assert!(eviction.kept.len() as u64 <= eviction.files, "a file is kept once");
    assert!(
        eviction.bytes_kept + eviction.bytes_unknown <= eviction.bytes,
        "what stays is a part of the files"
    );
    eviction
}

impl Eviction {
    fn keep(&mut self, file: &ReadFile, bytes: u64, why: RetainedReason) {
        // Pages are counted whole.
        let bytes = bytes.min(file.bytes);
        assert!(bytes > 0, "what is kept has bytes");
        self.bytes_kept += bytes;
        self.kept.push(RetainedFile { path: file.path.clone(), bytes, why });
    }
}

/// What is left of a file in memory.
enum Left {
    Bytes(u64),
    InMemory,
    Unknown,
    /// Another file has its path.
    Gone,
}

fn evict_one(file: &ReadFile) -> Result<Left, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = File::from(open(&file.path, flags, Mode::empty())?);
    let Ok(found) = stat(&opened) else { return Ok(Left::Gone) };
    if !is_regular(&found) || (found.st_dev, found.st_ino) != file.inode {
        return Ok(Left::Gone);
    }
    if is_in_memory(&opened) {
        return Ok(Left::InMemory);
    }
    let range = 0..found.st_size;
    let mut left = Left::Bytes(0);
    for round in 0..ROUNDS {
        if round > 0 {
            // What is dirty leaves once it is written; a device that fails keeps it.
            let _ = fdatasync(&opened);
        }
        fadvise(&opened, 0, None, Advice::DontNeed)?;
        left = match kernel::cached(&opened, &range) {
            Ok(Residency::Pages(0)) => return Ok(Left::Bytes(0)),
            Ok(Residency::Pages(pages)) => Left::Bytes(pages * page_size() as u64),
            Ok(Residency::Unknown) | Err(_) => Left::Unknown,
        };
    }
    Ok(left)
}

fn is_in_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| IN_MEMORY.contains(&found.f_type))
}

/// The files that running programs have mapped, as far as this user may look, and whether one of
/// them executes it.
fn mapped() -> BTreeMap<PathBuf, bool> {
    let mut mapped = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_process = process.file_name().to_str().is_some_and(|it| it.parse::<i32>().is_ok());
        for (path, is_executed) in if is_process { mapped_by(&process.path()) } else { Vec::new() }
        {
            *mapped.entry(path).or_insert(false) |= is_executed;
        }
    }
    mapped
}

/// The files that the process with this folder in `/proc` has mapped, a row a mapping, and whether
/// it executes it.
pub(super) fn mapped_by(process: &Path) -> Vec<(PathBuf, bool)> {
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let mut rows: Vec<(PathBuf, bool)> = maps
        .lines()
        .filter_map(|line| {
            let is_executed = line.split(' ').nth(1).is_some_and(|rights| rights.contains('x'));
            Some((PathBuf::from(&line[line.find('/')?..]), is_executed))
        })
        .collect();
    rows.dedup();
    rows
}

/// Empties the page cache of the whole machine, with inodes and directory entries; what is dirty is
/// written before.
///
/// # Errors
/// This user may not.
pub fn drop_everything() -> io::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// `tmpfs`, `ramfs` and `hugetlbfs`: Linux `include/uapi/linux/magic.h`.
const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
/// The second one is after what was dirty is written; more for what was being read or written.
const ROUNDS: u32 = 3;
