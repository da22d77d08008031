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
//!   no reader more: both are decided with the lock.
//! - The thread makes no call with the lock that a file system can block.
//! - It does nothing that the poll after the end would not do: where it is refused, that does.
//! # Sources
//! Linux `kernel/exit.c`, `kernel/signal.c` (`do_notify_parent`): a process has closed its files
//! before it has ended, and descriptors of it are told first.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use forerun_core::units::Nanos;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::workers::Source;
use crate::aside::{descriptors, is_readable};
use crate::observe::access::CursorId;
use crate::tasks::ThreadRoom;

/// See the module.
#[derive(Debug)]
pub(super) struct Ends {
    room: ThreadRoom,
    /// From the first reader on that there is a thread for.
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    epoll: OwnedFd,
    readers: Mutex<Readers>,
}

#[derive(Debug, Default)]
struct Readers {
    of: BTreeMap<CursorId, (i32, Arc<Source>)>,
    /// What becomes readable at the end of a process, and how many readers that has.
    processes: BTreeMap<i32, (OwnedFd, usize)>,
}

impl Ends {
    /// One whose thread finds its room in `room`.
    pub(super) fn new(room: ThreadRoom) -> Self {
        Self { room, shared: None }
    }

    /// A reader of the process `pid` begins, which `open` gives with its source: one that is not
    /// closed, and is not released before this returns.
    pub(super) fn begins(
        &mut self,
        pid: i32,
        open: impl FnOnce() -> Option<(CursorId, Arc<Source>)>,
    ) -> Option<CursorId> {
        if self.shared.is_none() {
            self.shared = Shared::start(&self.room);
        }
        let Some(shared) = &self.shared else { return open().map(|opened| opened.0) };
        let mut readers = shared.lock();
        let (cursor, source) = open()?;
        assert!(!source.is_closed(), "a source that is read is open");
        readers.begins(cursor, pid, source, &shared.epoll);
        Some(cursor)
    }

    /// The reader of `cursor` has ended.
    pub(super) fn ends(&self, cursor: CursorId) {
        let gone = self.shared.as_ref().and_then(|shared| shared.lock().ends(cursor));
        drop(gone); // Not with the lock: its last owner closes the file.
    }

    /// All readers have ended.
    pub(super) fn clear(&self) {
        let gone = self.shared.as_ref().map(|shared| std::mem::take(&mut *shared.lock()));
        drop(gone);
    }
}

impl Shared {
    /// Starts the thread; `None` where the system refuses it or what it needs.
    fn start(room: &ThreadRoom) -> Option<Arc<Self>> {
        let (epoll, nothing) =
            (epoll::create(CreateFlags::CLOEXEC).ok()?, descriptors::placeholder()?);
        let shared = Arc::new(Self { epoll, readers: Mutex::default() });
        // Where there is room for one thread alone, that is to fetch.
        let granted = room.take(2);
        room.give_back(granted.min(1));
        if granted < 2 {
            return None;
        }
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("ends".into()).stack_size(STACK_BYTES);
        if thread.spawn(move || of_thread.watch(&nothing)).is_err() {
            room.give_back(1);
            return None;
        }
        Some(shared)
    }

    fn lock(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases what ended processes have read, for ever.
    fn watch(&self, nothing: &OwnedFd) {
        let mut events = Vec::with_capacity(AT_ONCE);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
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
    fn begins(&mut self, cursor: CursorId, pid: i32, source: Arc<Source>, epoll: &OwnedFd) {
        let before = self.of.insert(cursor, (pid, source));
        assert!(before.is_none(), "{cursor:?} begins once");
        if let Some((_, readers)) = self.processes.get_mut(&pid) {
            *readers += 1;
            return;
        }
        // A process that cannot be waited for keeps what it reads until the poll after its end.
        let end = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let data = EventData::new_u64(pid.unsigned_abs().into());
        if let Some(end) = end
            && epoll::add(epoll, &end, data, EventFlags::IN).is_ok()
        {
            self.processes.insert(pid, (end, 1));
        }
    }

    /// Forgets the reader of `cursor`; returns its source.
    fn ends(&mut self, cursor: CursorId) -> Option<Arc<Source>> {
        let (pid, source) = self.of.remove(&cursor)?;
        if let Some((_, readers)) = self.processes.get_mut(&pid) {
            assert!(*readers > 0, "what ends was counted");
            *readers -= 1;
            if *readers == 0 {
                self.processes.remove(&pid);
            }
        }
        Some(source)
    }

    /// The process `pid` may have ended: forgets its readers, and returns the sources that no other
    /// process reads, each marked as closed.
    fn ended(&mut self, pid: i32) -> Vec<Arc<Source>> {
        // Its number may be another's by now.
        let is_it = |(end, _): &(OwnedFd, usize)| is_readable(end.as_fd(), Nanos(0));
        if !self.processes.get(&pid).is_some_and(is_it) {
            return Vec::new();
        }
        self.processes.remove(&pid);
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

const STACK_BYTES: usize = 64 << 10;
/// Ends that one call takes in.
const AT_ONCE: usize = 16;
