//! A reader's ring: takes operations, waits for all of them, and is empty again.
//!
//! ```text
//!   carry:  flights --> entries --enter--> completions --> done
//!              ^                                |
//!              \------- taken up again ---------/
//! ```
//!
//! Where the kernel has no thread for an operation, it cancels it: that is then carried out here,
//! and the ring is not used again.
//!
//! # Invariants
//! - A flight stays in its slot until the kernel is done with its entry; a ring that goes waits.
//! - A ring that was bound to a thread by the kernel is used by that thread only.

#![expect(unsafe_code, reason = "entries point to memory, which the slots own")]

use std::{
    collections::VecDeque,
    thread::{self, ThreadId},
};

use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;

use super::{flight::Flight, registered::Registered};
use crate::{
    process::Home,
    store::{Done, file::Next},
};

/// How a ring reports completions to its thread: the newest way that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// Completions are worked off when the thread asks (6.1). Bound to one thread.
    Deferred,
    /// When the thread enters the kernel next (5.19).
    Cooperative,
    /// The thread is interrupted.
    Plain,
}

/// See the module.
pub(super) struct Ring {
    io: IoUring,
    slots: Vec<Option<Flight>>,
    /// Slots whose entries the kernel has not been seen to take, in order.
    pushed: VecDeque<usize>,
    in_flight: usize,
    broken: bool,
    /// The kernel has no thread for what it cannot do at once.
    workerless: bool,
    registered: Registered,
    /// It was tried to copy another ring's pinned memory.
    pub(super) copied: bool,
    home: Home,
    pub(super) owner: ThreadId,
    /// When it was lent last, in lends.
    pub(super) lent: u64,
}

impl Flavour {
    /// The next older one.
    pub(super) fn older(self) -> Option<Self> {
        match self {
            Self::Deferred => Some(Self::Cooperative),
            Self::Cooperative => Some(Self::Plain),
            Self::Plain => None,
        }
    }
}

impl Ring {
    /// A ring of this thread, tried once.
    pub(super) fn new(entries: u32, flavour: Flavour) -> Result<Self, Errno> {
        let mut builder = IoUring::builder();
        match flavour {
            Flavour::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            }
            Flavour::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            Flavour::Plain => {}
        }
        let io = builder.setup_clamp().build(entries).map_err(|error| errno_of(&error))?;
        let mut ring = Self {
            io,
            slots: Vec::new(),
            pushed: VecDeque::new(),
            in_flight: 0,
            broken: false,
            workerless: false,
            registered: Registered::default(),
            copied: false,
            home: Home::here(),
            owner: thread::current().id(),
            lent: 0,
        };
        ring.slots.resize_with(ring.io.params().sq_entries() as usize, || None);
        assert!(ring.io.params().cq_entries() >= ring.io.params().sq_entries());
        ring.try_out()?;
        Ok(ring)
    }

    /// Operations that it takes at once.
    pub(super) fn room(&self) -> usize {
        self.slots.len()
    }

    /// Whether it may be used again.
    pub(super) fn is_sound(&self) -> bool {
        self.in_flight == 0 && !self.broken && !self.workerless
    }

    /// Takes `batch`, which the next [`Ring::finish`] hands to the kernel.
    pub(super) fn begin(&mut self, batch: impl Iterator<Item = Flight>) {
        assert!(self.is_sound(), "a ring is lent empty");
        for (slot, flight) in batch.enumerate() {
            self.start(slot, flight);
        }
    }

    /// Hands what was begun to the kernel without waiting; what it does not take now is handed
    /// over again by [`Ring::finish`].
    pub(super) fn submit(&mut self) {
        let _ = self.io.submit();
    }

    /// Waits for all that was begun.
    pub(super) fn finish(&mut self, out: &mut Vec<Done>) {
        while self.in_flight > 0 {
            if self.enter().is_err() {
                self.take_back(out);
            }
            while let Some((slot, result)) = self.next_completion() {
                let mut flight = self.slots[slot].take().expect("it was in the kernel");
                self.in_flight -= 1;
                if result == -Errno::CANCELED.raw_os_error() {
                    // Nobody else cancels what is in a reader's ring.
                    self.workerless = true;
                    out.push(flight.carry());
                    continue;
                }
                match flight.settle(result) {
                    Next::Done(result) => out.push(flight.done(result)),
                    Next::Again if self.broken || self.workerless => out.push(flight.carry()),
                    Next::Again => self.start(slot, flight),
                }
            }
        }
        self.pushed.clear();
    }

    /// Copies the pinned memory of the ring `from`; without that it works as well.
    pub(super) fn copy_registered(&mut self, from: i32, registered: &Registered) {
        self.copied = true;
        if self.io.submitter().register_buffers_clone(from).is_ok() {
            self.registered = registered.clone();
        }
    }

    fn start(&mut self, slot: usize, mut flight: Flight) {
        let entry = flight.entry(&self.registered).user_data(slot as u64);
        assert!(self.slots[slot].replace(flight).is_none(), "a slot holds one flight");
        self.in_flight += 1;
        self.pushed.push_back(slot);
        // SAFETY: the entry's buffers, runs and descriptor are those of the flight in `slot`,
        // where it stays until its completion was seen; `drop` waits for that as well.
        let pushed = unsafe { self.io.submission().push(&entry) };
        pushed.expect("the queue has an entry for each slot");
    }

    /// Submits what was pushed and waits for all that is in flight.
    fn enter(&mut self) -> Result<(), Errno> {
        for _ in 0..TRIES_MAX {
            match self.io.submit_and_wait(self.in_flight) {
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

    /// The system refuses the ring that it gave us: what it has not taken is done without.
    fn take_back(&mut self, out: &mut Vec<Done>) {
        if self.broken {
            thread::yield_now();
            return;
        }
        self.broken = true;
        let left = self.io.submission().len();
        for slot in self.pushed.split_off(self.pushed.len() - left) {
            let flight = self.slots[slot].take().expect("it was pushed");
            self.in_flight -= 1;
            out.push(flight.carry());
        }
    }

    fn next_completion(&mut self) -> Option<(usize, i32)> {
        let entry = self.io.completion().next()?;
        let slot = usize::try_from(entry.user_data()).expect("a slot's number");
        Some((slot, entry.result()))
    }

    /// One operation that does nothing, all the way through.
    fn try_out(&mut self) -> Result<(), Errno> {
        let entry: squeue::Entry = opcode::Nop::new().build();
        // SAFETY: it points to nothing.
        let pushed = unsafe { self.io.submission().push(&entry) };
        pushed.expect("a new ring is empty");
        loop {
            match self.io.submit_and_wait(1) {
                Ok(_) => break,
                Err(error) if errno_of(&error) == Errno::INTR => {}
                Err(error) => return Err(errno_of(&error)),
            }
        }
        match self.io.completion().next().map(|entry| entry.result()) {
            Some(0) => Ok(()),
            Some(result) => Err(Errno::from_raw_os_error(-result)),
            None => Err(Errno::IO),
        }
    }
}

impl Drop for Ring {
    /// Only a panic leaves something in it: it must not free what the kernel writes to. In a child
    /// of its process that is the parent's memory, and the ring is not to be touched.
    fn drop(&mut self) {
        if self.in_flight == 0 || self.home.is_left() {
            return;
        }
        let unsent = if self.broken { 0 } else { self.io.submission().len() };
        let mut left = self.in_flight.saturating_sub(unsent);
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

/// How often the system may put us off before the ring is given up.
pub(super) const TRIES_MAX: u32 = 10_000;
