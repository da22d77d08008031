//! The observing process: a thread that polls the program, and one that answers for it.
//!
//! # Invariants
//! - A file system may block the poller; the other thread reads a socket and what was published,
//!   and waits for the poller no longer than that runs.
//! - The process ends with the one that it observes for.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use forerun_core::units::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::process::{Pid, Signal, getppid, kill_process};
use rustix::thread::gettid;

use super::{Poller, Report};
use crate::aside::descriptors;
use crate::aside::is_readable;
use crate::clock::{Clock, thread_time, timespec};
use crate::memory::Memory;
use crate::observe::Observers;
use crate::observe::poll::{PAUSE_MAX, Pause, SCAN_PAUSE_MAX};
use crate::observe::processes::ProcessTree;
use crate::observe::procfs::text;
use crate::observe::shim::Ring;
use crate::open::is_listing;
use crate::wire::{Wire, to_bytes};

/// Observes the program `pid`, a child of the parent of this process, until a message comes by
/// `socket`, and answers with what was seen. The first poll comes after `first_pause`; polls come
/// while there is `room`, if that is given.
pub(super) fn run<P: Poller, S: Wire>(
    mut socket: UnixStream,
    pid: Pid,
    ring: Option<Ring>,
    make: impl FnOnce(Observers) -> P + Send + 'static,
    seen: impl Fn() -> (S, u64),
    first_pause: Nanos,
    room: Option<Memory>,
) {
    let Ok(wake) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else { return };
    let shared = Arc::new(Shared { wake, is_over: AtomicBool::new(false), tid: 0.into() });
    let bug = Arc::new(Mutex::new(None));
    keep_panics(Arc::clone(&bug));
    let (has_finished, finished) = mpsc::channel::<()>();
    let for_poller = Arc::clone(&shared);
    let parent = getppid();
    let poller = move || {
        for_poller.tid.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        descriptors::detach();
        let tree = ProcessTree::new(pid, parent);
        let mut room = room.map(GroupRoom::of);
        if for_poller.finds_room(&tree, &mut room) {
            for_poller.poll(make(Observers::new(tree, ring)), first_pause, room);
        }
        drop(has_finished);
    };
    if thread::Builder::new().name("poller".into()).spawn(poller).is_err() {
        return;
    }
    if !ends(&mut socket, pid, parent) {
        return;
    }
    shared.is_over.store(true, Ordering::Relaxed);
    let _ = rustix::io::write(&shared.wake, &1_u64.to_ne_bytes());
    let is_blocked = !shared.finishes(&finished);
    let bug = bug.lock().unwrap_or_else(PoisonError::into_inner).take();
    let _ = socket.write_all(&to_bytes(&Report::new(seen(), is_blocked, bug)));
}

/// Has the parent of this process go on once `program` does, while both are stopped, and until a
/// message comes by `socket` that they go on.
pub(super) fn wake(mut socket: UnixStream, program: Pid) {
    descriptors::detach();
    ends(&mut socket, program, getppid());
}

/// Waits for the end of `program`; false where that of the other process comes first, `parent`, and
/// nothing reads an answer. While the program is stopped the other is as well, and is woken once
/// the program goes on, whatever had it do so.
fn ends(socket: &mut UnixStream, program: Pid, parent: Option<Pid>) -> bool {
    let (mut is_stopped, mut message) = (false, [0]);
    loop {
        if is_stopped && !is_readable(socket.as_fd(), STOPPED_LOOKS_EVERY) {
            let stat = fs::read_to_string(format!("/proc/{}/stat", program.as_raw_nonzero()));
            let state = stat.ok().and_then(|stat| text::state(&stat));
            if !state.is_some_and(|state| matches!(state.letter, b'T' | b't'))
                && let Some(parent) = parent.filter(|parent| getppid() == Some(*parent))
            {
                let _ = kill_process(parent, Signal::CONT);
            }
            continue;
        }
        if !socket.read(&mut message).is_ok_and(|count| count == 1) {
            return false;
        }
        match message[0] {
            STOPPED => is_stopped = true,
            CONTINUED => is_stopped = false,
            _ => return true,
        }
    }
}

/// What a wait ended for.
enum Woken {
    ToPoll {
        some_ended: bool,
    },
    /// A process has ended whose files are open, in a pause that goes on for the time `left`.
    ToReap {
        left: Nanos,
    },
}

/// What both threads know.
struct Shared {
    /// Readable once the program has ended.
    wake: OwnedFd,
    is_over: AtomicBool,
    /// The poller's thread.
    tid: AtomicI32,
}

impl Shared {
    /// Waits until there is room; false where the program has ended by then.
    fn finds_room(&self, tree: &ProcessTree, room: &mut Option<GroupRoom>) -> bool {
        while let Some(pause) = room.as_mut().and_then(GroupRoom::pause) {
            self.wait(tree, pause);
            if self.is_over.load(Ordering::Relaxed) {
                return false;
            }
        }
        true
    }

    /// Polls until the program has ended, while there is `room`, if that is given.
    fn poll(&self, mut poller: impl Poller, first_pause: Nanos, mut room: Option<GroupRoom>) {
        let mut pause = Pause::of(first_pause);
        let mut has_given_up = false;
        loop {
            let woken = self.wait(&poller.observers().tree, pause);
            let is_over = self.is_over.load(Ordering::Relaxed);
            if has_given_up {
                // A poller that has panicked is not polled again: what it knows may be wrong.
                if is_over {
                    return;
                }
                continue;
            }
            // The panic's message reports a bug of forerun; the program runs on.
            let next = panic::catch_unwind(AssertUnwindSafe(|| match woken {
                _ if is_over => {
                    poller.finish();
                    None
                }
                Woken::ToPoll { some_ended } => {
                    let pause = room.as_mut().and_then(GroupRoom::pause);
                    Some(pause.unwrap_or_else(|| poller.poll(some_ended)))
                }
                Woken::ToReap { left } => {
                    poller.reap();
                    Some(Pause { time: left, is_paying: true })
                }
            }));
            match next {
                Ok(None) => return,
                Ok(Some(next)) => pause = next,
                Err(_) => {
                    poller.give_up();
                    (has_given_up, pause) = (true, Pause::of(PAUSE_MAX));
                }
            }
            assert!(pause.time <= SCAN_PAUSE_MAX, "a pause has a bound");
        }
    }

    /// Waits for the end of a process, or until `pause` is over.
    fn wait(&self, tree: &ProcessTree, pause: Pause) -> Woken {
        let mut time = pause.time;
        if pause.is_paying {
            let clock = Clock::start();
            if self.ends_within(time, tree.ends_of_holders()) {
                let left = time.since(clock.now());
                assert!(left <= SCAN_PAUSE_MAX, "what is left of a pause has its bound");
                return Woken::ToReap { left };
            }
            time = Nanos(0);
        }
        Woken::ToPoll { some_ended: self.ends_within(time, tree.ends()) }
    }

    /// Whether one of `ends` comes within `time`, unless the program's comes first.
    fn ends_within<'a>(&self, time: Nanos, ends: impl Iterator<Item = BorrowedFd<'a>>) -> bool {
        let mut awaited = vec![PollFd::new(&self.wake, PollFlags::IN)];
        let ends = ends.take(ENDS_MAX);
        awaited.extend(ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)));
        let _ = rustix::event::poll(&mut awaited, Some(&timespec(time)));
        awaited[1..].iter().any(|end| !end.revents().is_empty())
    }

    /// Whether the poller finishes. It is given up once it was seen so many times in a row to
    /// sleep, as it does in a call that does not return; while it runs, could, or has the kernel
    /// list locks, it is waited for.
    fn finishes(&self, finished: &mpsc::Receiver<()>) -> bool {
        let mut slept = 0;
        while slept < SLEEPS_MAX {
            match finished.recv_timeout(LOOKS_EVERY) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return true,
            }
            let tid = self.tid.load(Ordering::Relaxed);
            let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
            let runs =
                stat.ok().and_then(|stat| text::state(&stat)).is_some_and(|s| s.letter == b'R');
            slept = if runs || is_listing() { 0 } else { slept + 1 };
        }
        false
    }
}

/// Whether the control groups of the program have room for polls. Where they have none a poll takes
/// the pages of its code from the program, which takes them back, at a device's speed.
struct GroupRoom {
    memory: Memory,
    clock: Clock,
    /// When it is looked at again.
    at: Nanos,
    was_short: bool,
    /// How long nothing is polled where it is short.
    pause: Nanos,
}

impl GroupRoom {
    fn of(memory: Memory) -> Self {
        let (clock, at) = (Clock::start(), Nanos(0));
        Self { memory, clock, at, was_short: false, pause: SCAN_PAUSE_MAX }
    }

    /// The pause where there is too little now; looked at no more often than that costs little.
    fn pause(&mut self) -> Option<Pause> {
        let (now, began) = (self.clock.now(), thread_time());
        if now >= self.at {
            let free = self.memory.group_free_bytes();
            self.was_short = free.is_some_and(|bytes| bytes < ROOM_BYTES_MIN);
            let cost = thread_time().since(began);
            self.at = now + ROOM_EVERY.max(Nanos(cost.0.saturating_mul(ROOM_ONE_IN)));
        }
        self.was_short.then_some(Pause { time: self.pause, is_paying: true })
    }
}

/// Keeps the message of the first panic, which nothing could read on stderr.
fn keep_panics(bug: Arc<Mutex<Option<String>>>) {
    panic::set_hook(Box::new(move |panic| {
        let mut bug = bug.lock().unwrap_or_else(PoisonError::into_inner);
        bug.get_or_insert_with(|| panic.to_string());
    }));
}

/// The message that the program has ended.
pub(super) const END: u8 = 1;
/// The program is stopped, and so is the process that waits for it, until it is continued.
pub(super) const STOPPED: u8 = 2;
pub(super) const CONTINUED: u8 = 3;
/// Some times what a poll uses of memory.
const ROOM_BYTES_MIN: u64 = 32 << 20;
const ROOM_EVERY: Nanos = Nanos::from_millis(20);
/// The part of a processor that looks at the room may use.
const ROOM_ONE_IN: u64 = 200;
const STOPPED_LOOKS_EVERY: Nanos = Nanos::from_millis(10);
/// Processes whose end cuts a pause short.
const ENDS_MAX: usize = 64;
const LOOKS_EVERY: Duration = Duration::from_millis(5);
const SLEEPS_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::{Child, Command};

    use rustix::process::getpid;

    use forerun_testkit::Scratch;

    use super::*;
    use crate::observe::access::recording::RecordingSink;
    use crate::observe::poll::Allowance;

    /// Panics in each poll, and ends the run once it was waited for so many times.
    struct Faulty<'a> {
        observers: Observers,
        shared: &'a Shared,
        waits_left: Cell<u32>,
        polls: &'a Cell<u32>,
    }

    impl Poller for Faulty<'_> {
        fn observers(&self) -> &Observers {
            self.waits_left.set(self.waits_left.get() - 1);
            if self.waits_left.get() == 0 {
                self.shared.is_over.store(true, Ordering::Relaxed);
                rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes()).unwrap();
            }
            &self.observers
        }

        fn poll(&mut self, _some_ended: bool) -> Pause {
            self.polls.set(self.polls.get() + 1);
            panic!("a fault of this test");
        }

        fn reap(&mut self) {}

        fn finish(&mut self) {}

        fn give_up(&mut self) {}
    }

    /// Pays for its polls with long pauses.
    struct Paying {
        observers: Observers,
        shared: Arc<Shared>,
        /// Holds a file, and ends in such a pause.
        process: Child,
        calls: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Paying {
        fn holders(&self) -> usize {
            self.observers.tree.ends_of_holders().count()
        }
    }

    impl Poller for Paying {
        fn observers(&self) -> &Observers {
            &self.observers
        }

        fn poll(&mut self, some_ended: bool) -> Pause {
            let now = self.observers.clock.now();
            self.observers.poll(
                now,
                some_ended,
                Allowance::endless(),
                &mut RecordingSink::default(),
            );
            let mut time = Nanos(0);
            if self.holders() > 0 {
                self.calls.lock().unwrap().push("holds");
                self.process.kill().unwrap();
                time = PAUSE_MAX;
            }
            Pause { time, is_paying: true }
        }

        fn reap(&mut self) {
            self.calls.lock().unwrap().push("reaps");
            let now = self.observers.clock.now();
            self.observers.reap(now, Allowance::endless(), &mut RecordingSink::default());
            assert_eq!(self.holders(), 0, "its file is closed");
            self.shared.is_over.store(true, Ordering::Relaxed);
            rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes()).unwrap();
        }

        fn finish(&mut self) {
            self.calls.lock().unwrap().push("finishes");
            self.process.wait().unwrap();
        }

        fn give_up(&mut self) {}
    }

    #[test]
    fn what_a_process_held_is_closed_at_its_end_while_polls_pause() {
        let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let shared = Arc::new(Shared { wake, is_over: AtomicBool::new(false), tid: 0.into() });
        let held = fs::File::open(std::env::current_exe().unwrap()).unwrap();
        // A file counts as held once its position moves.
        let reads = ["-c", "while read -r line; do :; done"];
        let process = Command::new("sh").args(reads).stdin(held).spawn().unwrap();
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw).unwrap();
        let observers = Observers::new(ProcessTree::new(pid, Some(getpid())), None);
        let calls = Arc::default();
        let poller =
            Paying { observers, shared: Arc::clone(&shared), process, calls: Arc::clone(&calls) };
        shared.poll(poller, Nanos(0), None);
        assert_eq!(*calls.lock().unwrap(), ["holds", "reaps", "finishes"]);
    }

    /// How often a poller is polled that has a fault, in four waits for its next poll.
    fn polls_of_faulty(room: Option<GroupRoom>) -> u32 {
        let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let shared = Shared { wake, is_over: AtomicBool::new(false), tid: 0.into() };
        let (observers, polls) =
            (Observers::new(ProcessTree::new(getpid(), None), None), Cell::new(0));
        let faulty = Faulty { observers, shared: &shared, waits_left: Cell::new(4), polls: &polls };
        shared.poll(faulty, Nanos(0), room);
        polls.get()
    }

    #[test]
    fn a_poller_that_has_panicked_is_not_polled_again() {
        assert_eq!(polls_of_faulty(None), 1);
    }

    #[test]
    fn a_group_that_has_no_room_is_not_polled_in_and_soon_is_again() {
        let used = |mib: u64| (mib << 20).to_string();
        let limit = used(100);
        let files = [
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n"),
            ("cg/a/memory.max", &limit),
        ];
        let fake = Scratch::of("group-room", &files);
        let of = |mib: u64| {
            fs::write(fake.join("cg/a/memory.current"), used(mib)).unwrap();
            GroupRoom::of(Memory::below(&fake))
        };
        let mut room = of(69);
        assert!(room.pause().is_some());
        assert!(of(68).pause().is_none());
        // It counts until it is looked at again.
        fs::write(fake.join("cg/a/memory.current"), used(0)).unwrap();
        room.at = Nanos(u64::MAX);
        assert!(room.pause().is_some());
        room.at = Nanos(0);
        assert!(room.pause().is_none());
        assert_eq!(polls_of_faulty(Some(of(68))), 1);
        let short = || Some(GroupRoom { pause: Nanos(0), ..of(69) });
        assert_eq!(polls_of_faulty(short()), 0);
        let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let shared = Shared { wake, is_over: AtomicBool::new(true), tid: 0.into() };
        let tree = ProcessTree::new(getpid(), None);
        assert!(shared.finds_room(&tree, &mut None) && shared.finds_room(&tree, &mut Some(of(68))));
        assert!(!shared.finds_room(&tree, &mut short()), "the program has ended meanwhile");
    }
}
