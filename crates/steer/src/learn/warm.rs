//! Fetches all of a learned list, as for a machine, container or volume that is new.
//!
//! # Invariants
//! - What is requested fits the budget: a path is charged all that it may fetch until that is
//!   known. At most 64 paths are with workers.
//! - The report counts every entry once: fetched, cached, absent, gone, failed or beyond the
//!   budget.

use std::sync::Arc;
use std::time::Duration;

use forerun_core::learned::{LearnedEntry, LearnedKind, LearnedList};
use rustix::io::Errno;

use super::fetch::{Job, JobResult, Tools, What, work};
use super::format::check_path;
use crate::open::Refusal;
use crate::pool::{Pool, PoolBounds};
use crate::tasks::ThreadRoom;

/// What became of the entries of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListReport {
    /// Entries that are expected to be used.
    pub entries: u64,
    /// Entries that are in memory now and were not before, and the bytes of their files.
    pub fetched: u64,
    /// See `fetched`.
    pub bytes_fetched: u64,
    /// Entries that were in memory before.
    pub cached: u64,
    /// Paths where nothing is, and was not.
    pub absent: u64,
    /// Paths of files that are gone.
    pub gone: u64,
    /// Paths that could not be fetched.
    pub failed: u64,
    /// Entries that did not fit the budget.
    pub beyond: u64,
}

/// Fetches what is trusted of `list`, files up to `budget_bytes` in all, and waits until it is
/// there. `progress` is called with what was done so far.
#[must_use]
pub fn warm(
    list: &LearnedList,
    budget_bytes: u64,
    progress: &mut dyn FnMut(&ListReport),
) -> ListReport {
    let bounds = PoolBounds { jobs_max: JOBS_MAX, threads_max: JOBS_MAX, name: "warm-list" };
    let mut pool = Pool::new(bounds, Arc::default(), ThreadRoom::here(), work);
    let tools = Arc::new(Tools::new());
    let mut entries: Vec<Arc<LearnedEntry>> = list.trusted().map(Arc::new).collect();
    // Directories and lookups are small and lead to the rest.
    entries.sort_by_key(|entry| entry.kind == LearnedKind::Read);
    let mut report = ListReport { entries: entries.len() as u64, ..ListReport::default() };
    let (mut left, mut next, mut waiting) = (budget_bytes, entries.into_iter(), None);
    loop {
        while pool.room() > 0
            && let Some(entry) = waiting.take().or_else(|| next.next())
        {
            if entry.bytes_charged() > left {
                if pool.outstanding() > 0 {
                    // What is given back may be enough.
                    waiting = Some(entry);
                    break;
                }
                report.beyond += 1;
                continue;
            }
            let allowed = entry.bytes_max().min(left);
            assert!(allowed >= entry.bytes_charged(), "a file that has not changed is allowed");
            left -= allowed;
            pool.push(Job { tools: Arc::clone(&tools), what: What::Warm(entry, allowed) });
        }
        if pool.outstanding() == 0 {
            break;
        }
        if let Some(done) = pool.wait(PROGRESS_EVERY) {
            left += report.note(&done);
            assert!(left <= budget_bytes, "what is fetched fits the budget");
        }
        progress(&report);
    }
    report
}

impl ListReport {
    /// Takes in what became of an entry: the bytes that were charged for it and not fetched.
    fn note(&mut self, done: &JobResult) -> u64 {
        let What::Warm(entry, allowed) = &done.what else { return 0 };
        match (&done.found, entry.kind) {
            (Err(Refusal::Absent(Errno::NOENT)), LearnedKind::Absent) => self.absent += 1,
            (Err(Refusal::Absent(Errno::NOENT)), _) => self.gone += 1,
            (Err(_), _) => self.failed += 1,
            (Ok(found), LearnedKind::Read) if !found.is_cached => {
                self.fetched += 1;
                self.bytes_fetched += found.bytes;
            }
            (Ok(_), _) => self.cached += 1,
        }
        let fetched = done.found.as_ref().map_or(0, |found| found.bytes);
        assert!(fetched <= *allowed, "no more is fetched than is charged");
        allowed - fetched
    }
}

/// `list` with the paths below `old` taken from below `new`; the others stay.
///
/// # Errors
/// One of both, or a path that comes of them, is no full path of a length that can be looked up.
pub fn rebased(list: &LearnedList, old: &[u8], new: &[u8]) -> Result<LearnedList, String> {
    for path in [old, new] {
        check_path(path)?;
    }
    let (old, new) = (without_slash(old), without_slash(new));
    let mut entries = list.entries().to_vec();
    for entry in &mut entries {
        let rest = entry.path.strip_prefix(old).filter(|rest| rest.first() == Some(&b'/'));
        if let Some(rest) = rest {
            entry.path = [new, rest].concat().into();
            check_path(&entry.path)?;
        }
    }
    Ok(LearnedList::new(list.runs(), entries).with_poor(list.poor()))
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

const JOBS_MAX: usize = 64;
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use forerun_core::learned::Version;
    use forerun_core::units::Nanos;

    use super::*;

    #[test]
    fn a_list_from_below_another_folder_is_the_same_but_for_its_paths() {
        let list = |path: &[u8]| {
            let entry = LearnedEntry {
                path: path.into(),
                kind: LearnedKind::Stat,
                first: Nanos(0),
                ranges: Vec::new(),
                version: Version::default(),
                history: 3,
                histories: Vec::new(),
            };
            LearnedList::new(5, [entry]).with_poor(0b011)
        };
        let from = list(b"/old/file");
        assert_eq!(rebased(&from, b"/old/", b"/new"), Ok(list(b"/new/file")));
        assert_eq!(rebased(&from, b"/elsewhere", b"/new"), Ok(from));
    }
}
