//! How many threads the pools may have, so that the program's `fork` finds room in its limits.
//!
//! ```text
//!   group     pids.max - pids.current        its own, and each one it lies in
//!   user      RLIMIT_NPROC - its tasks       where that bounds this process
//!             least of all, and what the pools have
//!                 `--a quarter--> threads of all pools together
//! ```
//! # Invariants
//! - A pool begins a thread after it was granted one here, and gives it back as it ends.
//! - Threads are granted within what the limits left at most [`LOOK_EVERY`] ago.
//! - What cannot be read or parsed is unknown, never a limit and never an error.
//! # Sources
//! Linux `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/pids.rst`; `setrlimit(2)`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forerun_core::units::Nanos;
use rustix::process::{Resource, getrlimit, getuid};

use crate::clock::monotonic;
use crate::memory::groups;
use crate::memory::text::number;

/// The threads that pools may have; clones are of the same.
#[derive(Clone, Debug)]
pub(crate) struct ThreadRoom(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `/`, but for tests.
    root: PathBuf,
    /// The limit of the tasks of this user, but for one that has none.
    user: fn() -> Option<UserLimit>,
    state: Mutex<State>,
}

/// The limit of the tasks of a user.
#[derive(Clone, Copy, Debug)]
struct UserLimit {
    user: u32,
    tasks_max: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Its own group and each one around it; found with the first look.
    groups: Option<Vec<PathBuf>>,
    /// Threads of all pools.
    threads: usize,
    /// What they may be.
    threads_max: usize,
    /// When the limits are looked at again.
    look_at: Nanos,
    /// The tasks of the user, and when these are counted again.
    tasks: u64,
    count_at: Nanos,
}

impl ThreadRoom {
    /// The room in the limits of this process, in the groups that it is in by the first look.
    pub(crate) fn here() -> Self {
        Self::below(Path::new("/"), own_limit)
    }

    /// The room in the groups of a machine whose `/` is `root`.
    #[cfg(test)]
    pub(crate) fn in_groups_of(root: &Path) -> Self {
        Self::below(root, || None)
    }

    fn below(root: &Path, user: fn() -> Option<UserLimit>) -> Self {
        let state = Mutex::new(State::default());
        Self(Arc::new(Shared { root: root.to_owned(), user, state }))
    }

    /// Grants up to `wanted` threads: how many.
    pub(crate) fn take(&self, wanted: usize) -> usize {
        if wanted == 0 {
            return 0;
        }
        let mut state = self.looked_at();
        let granted = wanted.min(state.threads_max.saturating_sub(state.threads));
        state.threads += granted;
        assert!(granted == 0 || state.threads <= state.threads_max, "threads are granted in room");
        granted
    }

    /// So many threads end, or did not begin.
    pub(crate) fn give_back(&self, count: usize) {
        let mut state = self.0.lock();
        assert!(count <= state.threads, "what is given back was taken");
        state.threads -= count;
    }

    /// Takes one back where there are more threads than there may be: the one that asks is to end.
    pub(crate) fn shed(&self) -> bool {
        let mut state = self.looked_at();
        let is_exceeded = state.threads > state.threads_max;
        state.threads -= usize::from(is_exceeded);
        is_exceeded
    }

    /// How long a thread without a job may wait for one before it looks at the room, `longest`
    /// where that is wide.
    pub(crate) fn wait(&self, longest: Duration) -> Duration {
        let is_wide = self.0.lock().threads_max >= WIDE;
        if is_wide { longest } else { longest.min(Duration::from_nanos(LOOK_EVERY.0)) }
    }

    fn looked_at(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.lock();
        let now = monotonic();
        if now >= state.look_at {
            let left = self.0.left(&mut state, now);
            state.threads_max = threads_max(left, state.threads);
            state.look_at = now + LOOK_EVERY;
        }
        state
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tasks that the tightest limit leaves; none without one.
    fn left(&self, state: &mut State, now: Nanos) -> Option<u64> {
        let folders = state.groups.get_or_insert_with(|| self.groups());
        let in_groups = folders.iter().filter_map(|folder| {
            let read = |name| number(&fs::read_to_string(folder.join(name)).ok()?);
            Some(read("pids.max")?.saturating_sub(read("pids.current")?))
        });
        let in_groups = in_groups.min();
        let of_user = (self.user)().map(|limit| self.left_to(limit, state, now));
        in_groups.into_iter().chain(of_user).min()
    }

    fn groups(&self) -> Vec<PathBuf> {
        let groups = groups::of_own(&self.root, "pids");
        groups.into_iter().map(|group| group.folder).collect()
    }

    /// The tasks that `limit` leaves. All tasks of the machine are no fewer than the user's; these
    /// are counted, which is expensive, where it is those that decide.
    fn left_to(&self, limit: UserLimit, state: &mut State, now: Nanos) -> u64 {
        let all = fs::read_to_string(self.root.join("proc/loadavg")).ok();
        let all = all.and_then(|text| tasks_of_all(&text));
        let wide = 4 * WIDE as u64;
        if let Some(left) = all.and_then(|all| limit.tasks_max.checked_sub(all))
            && left >= wide
        {
            return left;
        }
        if now >= state.count_at {
            state.tasks = self.tasks_of(limit.user);
            let took = monotonic().since(now);
            state.count_at = now + Nanos(took.0.saturating_mul(COUNT_ONE_IN)).max(LOOK_EVERY);
        }
        limit.tasks_max.saturating_sub(state.tasks)
    }

    /// The tasks of `user`, of the processes that this one sees.
    fn tasks_of(&self, user: u32) -> u64 {
        let Ok(folders) = fs::read_dir(self.root.join("proc")) else { return 0 };
        let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        let folders =
            folders.flatten().filter(|it| it.file_name().to_str().is_some_and(is_process));
        let status = folders.filter_map(|it| fs::read_to_string(it.path().join("status")).ok());
        status.map(|status| tasks_in(&status, user)).sum()
    }
}

/// The threads of all pools where limits leave `left` tasks besides `threads` of them.
fn threads_max(left: Option<u64>, threads: usize) -> usize {
    let Some(left) = left else { return usize::MAX };
    let all = left.saturating_add(threads as u64);
    usize::try_from(all / PART_ONE_IN).unwrap_or(usize::MAX)
}

/// The limit of the user of this process; none for root, which it does not bound.
fn own_limit() -> Option<UserLimit> {
    let user = getuid();
    let tasks_max = getrlimit(Resource::Nproc).current?;
    (!user.is_root()).then_some(UserLimit { user: user.as_raw(), tasks_max })
}

/// The tasks of the machine, by `/proc/loadavg`.
fn tasks_of_all(loadavg: &str) -> Option<u64> {
    number(loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.1)
}

/// The tasks of a process with this `status`, if its real user is `user`.
fn tasks_in(status: &str, user: u32) -> u64 {
    let field = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        number(line.split_ascii_whitespace().next()?)
    };
    let is_of_user = field("Uid:") == Some(u64::from(user));
    if is_of_user { field("Threads:").unwrap_or(1) } else { 0 }
}

/// The pools have one of so many tasks that limits leave.
const PART_ONE_IN: u64 = 4;
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// Counting the tasks of a user takes one part in so many of the time.
const COUNT_ONE_IN: u64 = 100;
/// More threads than all pools together begin.
const WIDE: usize = 1_024;

#[cfg(test)]
mod tests {
    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn pools_have_a_quarter_of_what_limits_leave_without_them() {
        #[rustfmt::skip]
        let rows = [ // why                    left               threads  most
            ("no limit",                       None,              100,     usize::MAX),
            ("none yet",                       Some(60),          0,       15),
            ("what they have counts as left",  Some(45),          15,      15),
            ("the program has grown",          Some(5),           15,      5),
            ("too few for one",                Some(3),           0,       0),
            ("nothing",                        Some(0),           0,       0),
            ("the largest",                    Some(u64::MAX),    9,       usize::MAX / 4),
        ];
        for (why, left, threads, most) in rows {
            assert_eq!(threads_max(left, threads), most, "{why}");
        }
    }

    #[test]
    fn the_kernels_texts_are_read_or_unknown() {
        assert_eq!(tasks_of_all("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        for text in ["", "0.20 0.18 0.12 1 11206", "0.20 0.18 0.12 1/x 9"] {
            assert_eq!(tasks_of_all(text), None, "{text}");
        }
        let status = "Name:\tx\nUid:\t7\t8\t8\t8\nThreads:\t12\n";
        assert_eq!((tasks_in(status, 7), tasks_in(status, 8)), (12, 0));
        assert_eq!((tasks_in("Uid:\t7\t7", 7), tasks_in("", 0)), (1, 0));
    }

    /// A machine whose files in `/proc` and groups are those of a folder.
    fn machine(test: &str) -> Scratch {
        let root = Scratch::new(test);
        let files = [
            ("proc/self/cgroup", "4:pids:/job\n0::/all\n"),
            (
                "proc/self/mountinfo",
                "36 31 0:37 / /one rw - cgroup cgroup rw,pids\n\
                 41 31 0:38 / /two rw - cgroup2 cgroup2 rw\n",
            ),
            ("proc/loadavg", "0.20 0.18 0.12 1/5000 11206\n"),
            ("proc/12/status", "Uid:\t7\t7\t7\t7\nThreads:\t30\n"),
            ("proc/13/status", "Uid:\t7\t7\t7\t7\nThreads:\t10\n"),
            ("proc/14/status", "Uid:\t0\t7\t7\t7\nThreads:\t900\n"),
        ];
        for (name, text) in files {
            write(&root, name, text);
        }
        root
    }

    fn write(root: &Scratch, name: &str, text: &str) {
        fs::create_dir_all(root.join(name).parent().expect("a folder")).unwrap();
        fs::write(root.join(name), text).unwrap();
    }

    fn group(root: &Scratch, folder: &str, max: &str, current: &str) {
        write(root, &format!("{folder}/pids.max"), max);
        write(root, &format!("{folder}/pids.current"), current);
    }

    /// As if the time until the next look were over.
    fn look(room: &ThreadRoom) -> &ThreadRoom {
        room.0.lock().look_at = Nanos(0);
        room
    }

    #[test]
    fn threads_are_granted_in_the_tightest_of_all_limits_as_it_is_now() {
        let files = machine("tasks-groups");
        let room = ThreadRoom::in_groups_of(&files);
        assert_eq!(room.take(300), 300, "no group has a limit");
        room.give_back(300);
        group(&files, "one", "max\n", "400\n");
        group(&files, "one/job", "64\n", "4\n");
        assert_eq!(look(&room).take(300), 15, "a quarter of 60");
        assert_eq!(room.take(1), 0);
        assert!(!room.shed());
        // As the kernel counts these.
        group(&files, "one/job", "64\n", "19\n");
        assert_eq!(look(&room).take(300), 0);
        assert!(!room.shed());
        group(&files, "two/all", "40\n", "36\n");
        look(&room);
        let shed = (0..300).filter(|_| room.shed()).count();
        assert_eq!(shed, 11, "a group around the other one leaves 4 and these 15");
        assert_eq!(room.take(300), 0, "it is looked at ten times a second, no more");
        group(&files, "two/all", "40\n", "16\n");
        assert_eq!(look(&room).take(300), 3, "a quarter of 24 and the 4");
        assert_eq!(room.wait(Duration::from_secs(1)), Duration::from_millis(100));
    }

    #[test]
    fn a_users_tasks_are_counted_where_they_decide() {
        let files = machine("tasks-user");
        let wide = ThreadRoom::below(&files, || Some(UserLimit { user: 7, tasks_max: 100_000 }));
        assert_eq!(wide.take(300), 300);
        assert_eq!(wide.wait(Duration::from_secs(1)), Duration::from_secs(1));
        let room = ThreadRoom::below(&files, || Some(UserLimit { user: 7, tasks_max: 100 }));
        assert_eq!(room.take(300), 15, "a quarter of 60");
        let full = ThreadRoom::below(&files, || Some(UserLimit { user: 7, tasks_max: 40 }));
        assert_eq!(full.take(1), 0);
    }
}
