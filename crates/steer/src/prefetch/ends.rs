//! Files are closed at the end of the last process that reads them, by a thread that does nothing
//! else: a poll may be under way then, or wait for a processor, and what waits for the process may
//! unmount at once what it has left.
//!
//! ```text
//!   prefetcher --begins, ends--> readers: cursor --> process, source
//!                                   |
//!   ends of processes --epoll--> thread --no reader in a process that lives--> Source::release
//! ```
//! # Invariants
//! - A source with a reader in a process that lives is not released, and one that is released gets
//!   no reader more: both are decided with the lock, also while there is no thread.
//! - Neither thread makes a call with the lock that a file system can block.
//! - It does nothing that the poll after the end would not do: while there is no thread, for want
//!   of room or as the system refuses it, that does.
//! # Sources
//! Linux `kernel/exit.c`, `kernel/signal.c` (`do_notify_parent`): a process has closed its files
//! before it has ended, and descriptors of it are told first.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use forerun_core::units::Nanos;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::workers::Source;
use crate::aside::{descriptors, is_readable};
use crate::clock::timespec;
use crate::observe::access::CursorId;
use crate::tasks::ThreadRoom;

/// See the module.
#[derive(Debug)]
pub(super) struct Ends(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    room: ThreadRoom,
    readers: Mutex<Readers>,
}

#[derive(Debug, Default)]
struct Readers {
    of: BTreeMap<CursorId, (i32, Arc<Source>)>,
    /// Those that are waited for.
    processes: Vec<Process>,
    /// While there is a thread, what that waits with.
    epoll: Option<Arc<OwnedFd>>,
}

#[derive(Debug)]
struct Process {
    pid: i32,
    /// Becomes readable at its end.
    end: OwnedFd,
    readers: usize,
}

impl Ends {
    /// One whose thread finds its room in `room`.
    pub(super) fn new(room: ThreadRoom) -> Self {
        Self(Arc::new(Shared { room, readers: Mutex::default() }))
    }

    /// A reader of the process `pid` begins, which `open` gives with its source: one that is not
    /// closed, and is not released before this returns.
    pub(super) fn begins(
        &self,
        pid: i32,
        open: impl FnOnce() -> Option<(CursorId, Arc<Source>)>,
    ) -> Option<CursorId> {
        let mut readers = self.0.lock();
        if readers.epoll.is_none() {
            readers.epoll = self.0.start();
        }
        let (cursor, source) = open()?;
        assert!(!source.is_closed(), "a source that is read is open");
        readers.begins(cursor, pid, source);
        Some(cursor)
    }

    /// The reader of `cursor` has ended.
    pub(super) fn ends(&self, cursor: CursorId) {
        let gone = self.0.lock().ends(cursor);
        drop(gone); // Not with the lock: its last owner closes the file.
    }

    /// All readers have ended.
    pub(super) fn clear(&self) {
        let mut readers = self.0.lock();
        let gone = (std::mem::take(&mut readers.of), std::mem::take(&mut readers.processes));
        drop(readers);
        drop(gone);
    }
}

impl Shared {
    /// Starts the thread; `None` where there is no room, or the system refuses what it takes.
    fn start(self: &Arc<Self>) -> Option<Arc<OwnedFd>> {
        // Where there is little room, all of it is to fetch.
        let granted = self.room.take(ROOM_MIN);
        self.room.give_back(granted.min(ROOM_MIN - 1));
        if granted < ROOM_MIN {
            return None;
        }
        let started = self.start_granted();
        if started.is_none() {
            self.room.give_back(1);
        }
        started
    }

    fn start_granted(self: &Arc<Self>) -> Option<Arc<OwnedFd>> {
        let nothing = descriptors::placeholder()?;
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC).ok()?);
        let (shared, awaited) = (Arc::clone(self), Arc::clone(&epoll));
        let thread = thread::Builder::new().name("ends".into()).stack_size(STACK_BYTES);
        thread.spawn(move || shared.watch(&awaited, &nothing)).ok()?;
        Some(epoll)
    }

    fn lock(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases what ended processes have read, as long as there is room for the thread.
    fn watch(&self, epoll: &OwnedFd, nothing: &OwnedFd) {
        let mut events = Vec::with_capacity(AT_ONCE);
        loop {
            let time = timespec(self.room.wait(IDLE_MAX).into());
            let sheds = match epoll::wait(epoll, spare_capacity(&mut events), Some(&time)) {
                Ok(_) | Err(Errno::INTR) => events.is_empty() && self.room.shed(),
                Err(_) => {
                    self.room.give_back(1);
                    true
                }
            };
            if sheds {
                let mut readers = self.lock();
                readers.epoll = None;
                readers.processes.clear();
                return;
            }
            for event in events.drain(..) {
                let pid = i32::try_from(event.data.u64()).expect("the number of a process");
                let released = self.lock().ended(pid);
                for source in released {
                    source.release(nothing);
                }
            }
        }
    }
}

impl Readers {
    fn begins(&mut self, cursor: CursorId, pid: i32, source: Arc<Source>) {
        let before = self.of.insert(cursor, (pid, source));
        assert!(before.is_none(), "{cursor:?} begins once");
        let Some(epoll) = &self.epoll else { return };
        // The number of one that has ended may be another's by now.
        if let Some(at) = self.process(pid) {
            let known = &mut self.processes[at];
            if !known.has_ended() {
                known.readers += 1;
                return;
            }
        }
        // A process that cannot be waited for keeps what it reads until the poll after its end.
        let end = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let data = EventData::new_u64(pid.unsigned_abs().into());
        if let Some(end) = end
            && epoll::add(epoll, &end, data, EventFlags::IN).is_ok()
        {
            let readers = self.of.values().filter(|(of, _)| *of == pid).count();
            self.processes.retain(|process| process.pid != pid);
            self.processes.push(Process { pid, end, readers });
        }
    }

    /// Where among the processes `pid` is.
    fn process(&self, pid: i32) -> Option<usize> {
        self.processes.iter().position(|process| process.pid == pid)
    }

    /// Forgets the reader of `cursor`; returns its source.
    fn ends(&mut self, cursor: CursorId) -> Option<Arc<Source>> {
        let (pid, source) = self.of.remove(&cursor)?;
        if let Some(at) = self.process(pid) {
            let process = &mut self.processes[at];
            assert!(process.readers > 0, "what ends was counted");
            process.readers -= 1;
            if process.readers == 0 {
                self.processes.swap_remove(at);
            }
        }
        Some(source)
    }

    /// The process `pid` may have ended: forgets its readers, and returns the sources that no other
    /// process reads, each marked as closed.
    fn ended(&mut self, pid: i32) -> Vec<Arc<Source>> {
        // Its number may be another's by now.
        let Some(at) = self.process(pid).filter(|&at| self.processes[at].has_ended()) else {
            return Vec::new();
        };
        self.processes.swap_remove(at);
        let mut sources = Vec::new();
        self.of.retain(|_, (of, source)| {
            let ends = *of == pid;
            sources.extend(ends.then(|| Arc::clone(source)));
            !ends
        });
        sources.retain(|source| !self.of.values().any(|(_, other)| Arc::ptr_eq(source, other)));
        for source in &sources {
            source.close();
        }
        sources
    }
}

impl Process {
    fn has_ended(&self) -> bool {
        is_readable(self.end.as_fd(), Nanos(0))
    }
}

const STACK_BYTES: usize = 64 << 10;
/// The thread starts where there is room for so many.
const ROOM_MIN: usize = 4;
/// Without an end, the thread looks whether there is room for it.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// Ends that one call takes in.
const AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use forerun_testkit::{Scratch, until};

    use super::super::tests::Sleeping;
    use super::*;

    #[test]
    fn readers_from_before_there_is_room_for_the_thread_keep_their_sources() {
        let machine = Scratch::of(
            "ends",
            &[
                ("proc/self/cgroup", "0::/all\n"),
                ("proc/self/mountinfo", "41 31 0:38 / /two rw - cgroup2 cgroup2 rw\n"),
                ("two/all/pids.current", "4\n"),
                ("two/all/pids.max", "16\n"),
            ],
        );
        let limit = |tasks: &str| std::fs::write(machine.join("two/all/pids.max"), tasks).unwrap();
        let ends = Ends::new(ThreadRoom::in_groups_of(&machine));
        let has_thread = || ends.0.lock().epoll.is_some();
        let file = std::env::current_exe().and_then(std::fs::File::open).unwrap();
        let source = Arc::new(Source::new(file, 0, 4096));
        let mut cursors = (0..).map(CursorId);
        let mut begin = |process: &Sleeping, source: &Arc<Source>| {
            let opened = (cursors.next().unwrap(), Arc::clone(source));
            ends.begins(process.pid(), || Some(opened)).unwrap()
        };
        let (mut one, mut other) = (Sleeping::start(), Sleeping::start());
        let first = begin(&one, &source);
        assert!(!has_thread(), "there is room for three threads");
        limit("max");
        until(|| {
            begin(&other, &source);
            has_thread()
        });
        other.end();
        until(|| !ends.0.lock().processes.iter().any(|it| it.pid == other.pid()));
        assert!(!source.is_closed(), "the first reader lives");
        ends.ends(first);
        begin(&one, &source);
        // As if it had ended for want of room, and there were some again.
        limit("4");
        until(|| !has_thread());
        limit("max");
        let late = Arc::new(Source::new(std::fs::File::open("/dev/null").unwrap(), 0, 4096));
        until(|| {
            begin(&one, &late);
            has_thread()
        });
        one.end();
        until(|| source.is_closed() && late.is_closed());
    }
}
