//! The rights of a program, where this process has more: a file is opened with the program's user,
//! groups and capabilities, by a thread that takes them on and ends with them.
//!
//! ```text
//!   this process has no more   act here
//!   it has more                thread: groups, fsgid, fsuid, capabilities --> checked --> act, end
//!   for many files             a worker keeps them, and opens by these rights alone
//! ```
//! The ids of the file system are those that count for opening. Those of the process stay, so the
//! program may not send that thread a signal.
//!
//! # Invariants
//! - No thread that has taken on rights opens anything by others afterwards.
//! - What was taken on is compared with what was to be before anything is opened.
//! # Sources
//! credentials(7), capabilities(7), `setfsuid(2)`; `user_namespaces(7)`: capabilities of another
//! namespace are worth nothing here.

#![expect(unsafe_code, reason = "the ids of the file system have no safe wrapper")]

use std::ffi::CString;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::thread;

use rustix::fs::{CWD, Mode, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::{Gid, getgroups};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups};

use super::{READING, Refusal};
use crate::observe::procfs::read_whole;

/// What decides which files a process may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    user: u32,
    group: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

impl Rights {
    /// Those of the process with this folder in `/proc`.
    ///
    /// # Errors
    /// The process has ended, or they are not to be seen.
    pub(super) fn of(process: BorrowedFd<'_>) -> Result<Self, Refusal> {
        // This process stays in its own.
        static OWN: OnceLock<Option<CString>> = OnceLock::new();
        let mut rights = Self::in_folder(process, "status")?;
        let name_space = |folder, name| readlinkat(folder, name, Vec::new()).ok();
        let own = || OWN.get_or_init(|| name_space(CWD, "/proc/thread-self/ns/user"));
        if rights.capabilities != 0 && name_space(process, "ns/user") != *own() {
            rights.capabilities = 0;
        }
        Ok(rights)
    }

    /// What `act` returns, which is done with these rights, or with fewer.
    pub(super) fn act<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, Refusal> {
        let own = Self::in_folder(CWD, "/proc/thread-self/status")?;
        if own.is_within(self) {
            return Ok(act());
        }
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("open".into()).stack_size(STACK_BYTES);
            let acting = thread.spawn_scoped(scope, || self.take_on().then(act));
            let done = acting.ok().and_then(|acting| acting.join().ok().flatten());
            done.ok_or(Refusal::Rights)
        })
    }

    /// Whether this thread has rights that these do not have.
    ///
    /// # Errors
    /// Its own are not to be seen.
    pub(super) fn are_less_than_own(&self) -> Result<bool, Refusal> {
        Ok(!Self::in_folder(CWD, "/proc/thread-self/status")?.is_within(self))
    }

    /// Takes on these rights for all that the thread which calls this does from now on. Whether it
    /// has them then; if not, it has to end.
    pub(crate) fn keep(&self) -> bool {
        self.take_on()
    }

    fn in_folder(folder: BorrowedFd<'_>, name: &str) -> Result<Self, Refusal> {
        let file = File::from(openat(folder, name, READING, Mode::empty()).map_err(unseen)?);
        let bytes = read_whole(file, STATUS_BYTES_MAX)
            .map_err(|error| Errno::from_io_error(&error).map_or(Refusal::Rights, unseen))?;
        Self::parse(&String::from_utf8_lossy(&bytes)).ok_or(Refusal::Rights)
    }

    /// The rights in the text of `status`: the last of four users and groups is the file system's.
    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let last = |name| field(name)?.split_ascii_whitespace().nth(3)?.parse().ok();
        let groups = field("Groups")?.split_ascii_whitespace().map(str::parse);
        Some(Self {
            user: last("Uid")?,
            group: last("Gid")?,
            groups: groups.collect::<Result<_, _>>().ok()?,
            capabilities: u64::from_str_radix(field("CapEff")?, 16).ok()?,
        })
    }

    /// Whether all that is allowed with these rights is allowed with `others`.
    pub(super) fn is_within(&self, others: &Self) -> bool {
        let has = |group: &u32| others.group == *group || others.groups.contains(group);
        self.user == others.user
            && self.capabilities & !others.capabilities == 0
            && has(&self.group)
            && self.groups.iter().all(has)
    }

    /// Takes on these rights for the thread that calls this. Whether it has them then.
    fn take_on(&self) -> bool {
        let groups: Vec<Gid> = self.groups.iter().map(|&group| Gid::from_raw(group)).collect();
        // What fails shows below.
        let _ = set_thread_groups(&groups);
        // SAFETY: the calls take a number, and change the ids of this thread alone.
        unsafe {
            libc::setfsgid(self.group);
            libc::setfsuid(self.user);
        }
        if let Ok(mut sets) = capabilities(None) {
            sets.effective &= CapabilitySet::from_bits_retain(self.capabilities);
            let _ = set_capabilities(None, sets);
        }
        // SAFETY: as above; no user and no group has this number, so that nothing changes.
        let [user, group] = unsafe { [libc::setfsuid(NONE), libc::setfsgid(NONE)] };
        let has_groups = getgroups().is_ok_and(|mut has| {
            let mut groups = groups;
            has.sort_unstable_by_key(|group| group.as_raw());
            groups.sort_unstable_by_key(|group| group.as_raw());
            has == groups
        });
        let has_no_more =
            capabilities(None).is_ok_and(|sets| sets.effective.bits() & !self.capabilities == 0);
        has_groups
            && has_no_more
            && [user, group].map(i32::cast_unsigned) == [self.user, self.group]
    }
}

/// Why the rights of a process cannot be read.
fn unseen(error: Errno) -> Refusal {
    let has_ended = matches!(error, Errno::NOENT | Errno::SRCH);
    if has_ended { Refusal::Absent(error) } else { Refusal::Rights }
}

const NONE: u32 = u32::MAX;
/// The text with the most groups that a process may have is shorter.
const STATUS_BYTES_MAX: u64 = 1 << 20;
const STACK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\n\
        Groups:\t24 25 \nCapPrm:\tff\nCapEff:\t00000000000000a1\n";

    #[test]
    fn the_ids_of_the_file_system_count() {
        let rights = Rights { user: 4, group: 8, groups: vec![24, 25], capabilities: 0xa1 };
        assert_eq!(Rights::parse(STATUS), Some(rights));
        let without = STATUS.replace("24 25 ", "");
        assert_eq!(Rights::parse(&without).unwrap().groups, [0; 0]);
        for cut in ["", "Uid:\t1\n", "Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n"] {
            assert_eq!(Rights::parse(cut), None, "{cut}");
        }
    }

    #[test]
    fn rights_are_compared_by_all_that_allows() {
        let of = |user, group, groups: &[u32], capabilities| Rights {
            user,
            group,
            groups: groups.to_vec(),
            capabilities,
        };
        let program = of(7, 8, &[24, 25], 0b10);
        #[rustfmt::skip]
        let rows = [ // these, within
            (of(7, 8, &[24, 25], 0b10), true,  "the same"),
            (of(7, 24, &[8], 0),        true,  "fewer, in another order"),
            (of(6, 8, &[], 0),          false, "another user"),
            (of(7, 9, &[], 0),          false, "another group"),
            (of(7, 8, &[9], 0),         false, "a group more"),
            (of(7, 8, &[], 0b11),       false, "a capability more"),
        ];
        for (own, within, why) in rows {
            assert_eq!(own.is_within(&program), within, "{why}");
        }
    }
}
