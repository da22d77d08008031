//! A reader's ring: takes operations, waits for all of them, and is empty again.
//!
//! ```text
//!   transfers --> entries --enter--> completions --> settled: done
//!      ^                                  |
//!      \------- the next call -----------/
//! ```
//!
//! A thread that has a ring for itself (`port.rs`) may poll its completions instead of waiting in
//! the kernel, or wait there for a time. Polling makes no system call, unless the kernel has set a
//! flag in the ring's memory: then the thread is to enter and work its completions off.
//!
//! Where the kernel has no thread for an operation, it cancels it: that is then carried out here,
//! and the ring is not used again.
//!
//! # Invariants
//! - A transfer stays in its slot until the kernel is done with its entry; dropping a ring waits.
//! - A ring that the kernel bound to a thread is used by that thread only.

#![expect(unsafe_code, reason = "entries point to memory, which the slots own")]

use std::{
    collections::VecDeque,
    fs::File,
    mem,
    os::fd::AsRawFd,
    thread::{self, ThreadId},
    time::Duration,
};

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

use super::{
    entry::{answer, entry},
    in_flight::{InFlight, Ticket},
    registered::Registered,
};
use crate::{
    frames::Frame,
    process::OwnerProcess,
    store::{
        Completion,
        file::{Next, Route, Transfer},
    },
};

/// The way that a ring reports completions to its thread: the newest that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// Completions are worked off when the thread asks (6.1). Bound to one thread.
    Deferred,
    /// When the thread enters the kernel next (5.19).
    Cooperative,
    /// The thread is interrupted.
    Plain,
    /// The thread that enters polls the device, which does not interrupt.
    Polled,
}

/// See the module.
pub(super) struct Ring {
    io: IoUring,
    transfers: InFlight<Transfer>,
    /// Tickets of entries that the kernel has not been seen to take, in order.
    pushed: VecDeque<Ticket>,
    broken: bool,
    /// The kernel has no thread for what it cannot do at once.
    workerless: bool,
    flavour: Flavour,
    registered: Registered,
    /// The ring has tried to copy another ring's pinned memory.
    pub(super) copied: bool,
    home: OwnerProcess,
    pub(super) owner: ThreadId,
    /// The number of its last lease.
    pub(super) last_lease: u64,
}

impl Flavour {
    /// The newest one of those with interrupts.
    pub(super) fn newest() -> Self {
        Self::Deferred
    }

    /// The next older one.
    fn older(self) -> Option<Self> {
        match self {
            Self::Deferred => Some(Self::Cooperative),
            Self::Cooperative => Some(Self::Plain),
            Self::Plain | Self::Polled => None,
        }
    }
}

impl Ring {
    /// A ring of this thread, tried once, of the newest flavour that the kernel has from
    /// `flavour` on, which is then that one.
    pub(super) fn newest(entries: u32, flavour: &mut Flavour) -> Result<Self, Errno> {
        loop {
            let made = Self::new(entries, *flavour);
            match (&made, flavour.older()) {
                (Err(Errno::INVAL), Some(older)) => *flavour = older,
                _ => return made,
            }
        }
    }

    /// A ring of this thread, tried once.
    fn new(entries: u32, flavour: Flavour) -> Result<Self, Errno> {
        let mut builder = IoUring::builder();
        match flavour {
            Flavour::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            }
            Flavour::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            Flavour::Plain => {}
            Flavour::Polled => {
                builder.setup_iopoll();
            }
        }
        let io = builder.setup_clamp().build(entries).map_err(|error| errno_of(&error))?;
        let (entries, completions) = (io.params().sq_entries(), io.params().cq_entries());
        assert!(completions >= entries, "a completion queue has room for every entry");
        let mut ring = Self {
            io,
            transfers: InFlight::new(entries as usize),
            pushed: VecDeque::new(),
            broken: false,
            workerless: false,
            flavour,
            registered: Registered::default(),
            copied: false,
            home: OwnerProcess::current(),
            owner: thread::current().id(),
            last_lease: 0,
        };
        ring.try_out(None)?;
        Ok(ring)
    }

    /// Operations that it takes at once.
    pub(super) fn capacity(&self) -> usize {
        self.transfers.capacity()
    }

    /// Whether it may be used again.
    pub(super) fn is_sound(&self) -> bool {
        self.in_flight() == 0 && !self.broken && !self.workerless
    }

    /// Takes `batch`, which the next [`Ring::finish`] hands to the kernel.
    pub(super) fn begin(&mut self, batch: impl Iterator<Item = Transfer>) {
        assert!(self.is_sound(), "a ring is checked out empty");
        batch.for_each(|transfer| self.start(transfer));
        assert!(self.in_flight() <= self.capacity(), "a ring takes what it has entries for");
    }

    /// Hands what was begun to the kernel without waiting; what it does not take now is handed
    /// over again by [`Ring::finish`].
    pub(super) fn submit(&mut self) {
        let _ = self.io.submit();
    }

    /// Operations that are in the ring.
    pub(super) fn in_flight(&self) -> usize {
        self.transfers.len()
    }

    /// Whether a wait for completions may have an end in time (5.11).
    pub(super) fn is_timed(&self) -> bool {
        self.io.params().is_feature_ext_arg()
    }

    /// Polls: takes the completions that are there.
    pub(super) fn poll(&mut self, out: &mut Vec<Completion>) {
        let is_called = {
            let submission = self.io.submission();
            submission.taskrun() || submission.cq_overflow() || !submission.is_empty()
        };
        if is_called || self.flavour == Flavour::Polled {
            // The kernel works off what the flags call for. `finish` deals with what it refuses.
            let _ = self.io.submit();
        }
        self.take_completions(out);
    }

    /// Waits in the kernel until all that was begun is complete, for `time` at most.
    pub(super) fn wait_for(&mut self, time: Duration, out: &mut Vec<Completion>) {
        let time = types::Timespec::from(time);
        let args = types::SubmitArgs::new().timespec(&time);
        // Whether the time is over, or a signal came, the caller's clock tells.
        let _ = self.io.submitter().submit_with_args(self.in_flight(), &args);
        self.take_completions(out);
    }

    /// Waits for all that was begun.
    pub(super) fn finish(&mut self, out: &mut Vec<Completion>) {
        while self.in_flight() > 0 {
            if self.enter().is_err() {
                self.take_back(out);
            }
            self.take_completions(out);
        }
    }

    fn take_completions(&mut self, out: &mut Vec<Completion>) {
        while let Some((ticket, result)) = self.next_completion() {
            let mut transfer = self.transfers.take(ticket);
            if result == -Errno::CANCELED.raw_os_error() {
                // Only the kernel cancels what is in a reader's ring.
                self.workerless = true;
                out.push(transfer.carry());
                continue;
            }
            match transfer.settle(answer(result)) {
                Next::Done(result) => out.push(transfer.done(result)),
                Next::Again if !self.takes(&transfer) => out.push(transfer.carry()),
                Next::Again => self.start(transfer),
            }
        }
        if self.in_flight() == 0 {
            self.pushed.clear();
        }
    }

    /// Copies the pinned memory of the ring `from`; without that it works as well.
    pub(super) fn copy_registered(&mut self, from: i32, registered: &Registered) {
        self.copied = true;
        if self.io.submitter().register_buffers_clone(from).is_ok() {
            self.registered = registered.clone();
        }
    }

    /// Whether the ring takes the next call of `transfer`.
    fn takes(&self, transfer: &Transfer) -> bool {
        let fits = self.flavour != Flavour::Polled || transfer.route() == Route::Direct;
        fits && !self.broken && !self.workerless
    }

    fn start(&mut self, transfer: Transfer) {
        let (ticket, transfer) = self.transfers.insert(transfer);
        let entry = entry(transfer, &self.registered).user_data(ticket);
        self.pushed.push_back(ticket);
        // SAFETY: the entry's buffers, runs and descriptor are those of a transfer that stays in
        // `transfers` until its completion was seen; `drop` waits for that as well.
        let pushed = unsafe { self.io.submission().push(&entry) };
        pushed.expect("the queue has an entry for each slot");
    }

    /// Submits what was pushed and waits for all that is in flight.
    fn enter(&mut self) -> Result<(), Errno> {
        for _ in 0..TRIES_MAX {
            match self.io.submit_and_wait(self.in_flight()) {
                Ok(_) => return Ok(()),
                Err(error) => match errno_of(&error) {
                    Errno::INTR => return Ok(()),
                    Errno::AGAIN | Errno::BUSY => thread::yield_now(),
                    errno => return Err(errno),
                },
            }
        }
        Err(Errno::AGAIN)
    }

    /// The system refuses a ring that it made: what it has not taken is carried out blocking.
    fn take_back(&mut self, out: &mut Vec<Completion>) {
        if self.broken {
            thread::yield_now();
            return;
        }
        self.broken = true;
        let left = self.io.submission().len();
        assert!(left <= self.pushed.len(), "what the kernel has not taken was pushed");
        for ticket in self.pushed.split_off(self.pushed.len() - left) {
            out.push(self.transfers.take(ticket).carry());
        }
    }

    fn next_completion(&mut self) -> Option<(Ticket, i32)> {
        let entry = self.io.completion().next()?;
        Some((entry.user_data(), entry.result()))
    }

    /// Puts one operation all the way through: one that does nothing, or a read of the first page
    /// of `file`, which is open past the page cache.
    pub(super) fn try_out(&mut self, file: Option<&File>) -> Result<(), Errno> {
        assert!(self.in_flight() == 0, "a ring is tried out empty");
        let mut page = Frame::new(PAGE_BYTES).map_err(|_| Errno::NOMEM)?;
        let entry = match file.map(|file| types::Fd(file.as_raw_fd())) {
            Some(fd) => opcode::Read::new(fd, page.as_mut_ptr(), 4096).offset(0).build(),
            None => opcode::Nop::new().build(),
        };
        // SAFETY: `page` and `file` outlive the call, which returns once the kernel is done with
        // them; after a wait that failed (`broken`) the page is leaked, so that it lives for ever.
        let pushed = unsafe { self.io.submission().push(&entry) };
        pushed.expect("the ring is empty");
        let result = loop {
            match self.io.submit_and_wait(1).map_err(|error| errno_of(&error)) {
                Ok(_) => break self.next_completion().ok_or(Errno::IO),
                Err(Errno::INTR) => {}
                Err(errno) => break Err(errno),
            }
        };
        self.broken = result.is_err();
        if self.broken {
            mem::forget(page);
        }
        answer(result?.1).map(drop)
    }
}

impl Drop for Ring {
    /// Only a panic leaves something in it: it must not free what the kernel writes to. In a child
    /// of its process that is the parent's memory, and the ring is not to be touched.
    fn drop(&mut self) {
        if self.in_flight() == 0 || self.home.is_forked() {
            return;
        }
        let unsent = if self.broken { 0 } else { self.io.submission().len() };
        let mut left = self.in_flight().saturating_sub(unsent);
        while left > 0 {
            // SAFETY: no memory goes along; nothing new is submitted.
            let entered =
                unsafe { self.io.submitter().enter::<libc::sigset_t>(0, 1, GET_EVENTS, None) };
            if entered.is_err() {
                thread::yield_now();
            }
            left -= self.io.completion().count().min(left);
        }
    }
}

/// The errno of an error of the ring.
pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// `IORING_ENTER_GETEVENTS`: wait for completions.
pub(super) const GET_EVENTS: u32 = 1;

/// What is read to try a ring out.
const PAGE_BYTES: usize = 4096;

/// How often the system may put a ring off before the ring is given up.
pub(super) const TRIES_MAX: u32 = 10_000;
