//! The background's ring: one for all files. Any thread submits, and a thread that reaps sleeps in
//! it.
//!
//! ```text
//!   submit --> queue --\                         /--> the leader among the reapers, in the kernel
//!   submit --> queue ---> scheduler --> ring ----
//!   close ---> cancel -------------------/       \--> marks: woken, cancelled
//! ```
//!
//! The first reaper that finds nothing ready leads: it sleeps in the kernel, and only it takes
//! completions meanwhile. The others sleep on `changed`. What completes without the kernel (on a
//! closed queue) wakes the leader by an operation that does nothing.
//!
//! # Invariants
//! - Operations, cancellations and the one that wakes are together no more than the completion
//!   queue takes.
//! - The submission queue is empty whenever `submission` is free, but in a broken ring, to which
//!   nothing is submitted again.
//! - A child of the process never touches the ring (`process.rs`): for it the ring is broken.
//! - The ring is dropped only when nothing is in it.
//! - What is in the ring is what the scheduler has in flight.
//! # Locking
//! `submission`, then `state`. System calls are made under `submission` alone, or under neither.

#![expect(unsafe_code, reason = "entries point to memory, which the slots own")]

use std::{
    os::fd::AsRawFd,
    sync::{Arc, OnceLock},
    thread,
};

use io_uring::{IoUring, Probe, opcode, squeue};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use super::{
    Refusal,
    entry::{answer, entry},
    in_flight::{InFlight, Ticket},
    registered::{Region, Registered},
    ring::{GET_EVENTS, Ring, TRIES_MAX, errno_of},
};
use crate::{
    process::OwnerProcess,
    scheduler::{QueueId, Scheduler},
    store::{
        Completion, ECANCELED, Op, Queue, QueueKind, Wait,
        file::{Next, OpenFile, Route, Transfer},
    },
};

/// See the module.
pub(super) struct Shared {
    io: IoUring,
    submission: Mutex<()>,
    state: Mutex<State>,
    changed: Arc<Condvar>,
    registered: OnceLock<Registered>,
    cancels_max: usize,
    home: OwnerProcess,
}

struct State {
    scheduler: Scheduler<Transfer>,
    /// The queue whose reapers take all that is done.
    root: QueueId,
    /// What the ring has, and the queues that it is of.
    in_ring: InFlight<(QueueId, Transfer)>,
    /// A reaper is in the kernel, or on its way.
    led: bool,
    /// An operation that wakes the leader is in flight.
    waking: bool,
    cancels: usize,
    broken: Option<Errno>,
    /// Operations through the page cache that still fail, as the kernel had no thread for one.
    resting: u32,
}

/// One queue of it.
struct SharedQueue {
    shared: Arc<Shared>,
    file: Arc<OpenFile>,
    id: QueueId,
}

/// A queue of `file` on `shared`.
pub(super) fn queue(shared: &Arc<Shared>, file: Arc<OpenFile>, kind: QueueKind) -> Arc<dyn Queue> {
    let id = {
        let mut state = shared.lock();
        let root = state.root;
        state.scheduler.open_beside(kind, root)
    };
    Arc::new(SharedQueue { shared: Arc::clone(shared), file, id })
}

impl Shared {
    /// A ring of `entries` operations, tried once.
    pub(super) fn new(entries: u32) -> Result<Self, Refusal> {
        let refused = |what| move |error: std::io::Error| (what, errno_of(&error));
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(4 * entries);
        let io = builder.build(entries).map_err(refused("io_uring_setup"))?;
        let mut probe = Probe::new();
        io.submitter().register_probe(&mut probe).map_err(refused("io_uring_register"))?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(("io_uring read and write", Errno::OPNOTSUPP));
        }
        let (entries, completions) = (io.params().sq_entries(), io.params().cq_entries());
        let (slots, completions) = (entries as usize, completions as usize);
        let cancels_max = completions.saturating_sub(slots + 1).min(slots / 2);
        assert!(slots + cancels_max < completions, "completions have room");
        let changed = Arc::new(Condvar::new());
        let mut scheduler = Scheduler::new(entries);
        let root = scheduler.open(QueueKind::Caller, Arc::clone(&changed));
        let state = State {
            scheduler,
            root,
            in_ring: InFlight::new(slots),
            led: false,
            waking: false,
            cancels: 0,
            broken: None,
            resting: 0,
        };
        let shared = Self {
            io,
            submission: Mutex::new(()),
            state: Mutex::new(state),
            changed,
            registered: OnceLock::new(),
            cancels_max,
            home: OwnerProcess::current(),
        };
        shared.try_out().map_err(|errno| ("io_uring_enter", errno))?;
        Ok(shared)
    }

    /// Registers as much of `region` as the system allows; of a second region nothing.
    pub(super) fn register(&self, region: Region) {
        let _submitting = self.submission.lock();
        if self.registered.get().is_some() || region.bytes == 0 {
            return;
        }
        let mut bytes = region.bytes;
        while bytes >= REGISTERED_BYTES_MIN.min(region.bytes) {
            let chunks: Vec<_> = (0..bytes)
                .step_by(CHUNK_BYTES_MAX)
                .map(|from| libc::iovec {
                    iov_base: std::ptr::with_exposed_provenance_mut(region.addr + from),
                    iov_len: CHUNK_BYTES_MAX.min(bytes - from),
                })
                .collect();
            // SAFETY: the region stays mapped as long as its keeper lives, which stays in
            // `registered` until the ring is dropped; only operations that own frames in it have
            // the kernel write there.
            let pinned = unsafe { self.io.submitter().register_buffers(&chunks) };
            if pinned.is_ok() {
                let mut part = region;
                part.bytes = bytes;
                let registered = Registered::new(part, CHUNK_BYTES_MAX, chunks.len());
                assert!(self.registered.set(registered).is_ok(), "registered once");
                return;
            }
            bytes /= 2;
        }
    }

    /// Bytes pinned.
    pub(super) fn registered_bytes(&self) -> u64 {
        self.registered.get().map_or(0, |registered| registered.bytes() as u64)
    }

    /// Lets `ring` have the same memory pinned.
    pub(super) fn share_registered(&self, ring: &mut Ring) {
        if let Some(registered) = self.registered.get() {
            ring.copy_registered(self.io.as_raw_fd(), registered);
        }
    }

    /// Takes the lock. In a child of its process the ring is given up first: it is the parent's,
    /// and so is all that is in it.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if self.home.is_forked() {
            state.abandon();
        }
        state
    }

    fn submit(&self, id: QueueId, op: Op, file: &Arc<OpenFile>) {
        let begun = Transfer::begin(op, file);
        let mut state = self.lock();
        let before = state.scheduler.open_count(id);
        match begun {
            Ok(transfer) => state.scheduler.submit(id, transfer),
            Err(done) => state.scheduler.submit_done(id, done),
        }
        state.fail_if_broken();
        let done = state.scheduler.open_count(id) == before;
        let start = state.scheduler.can_start();
        drop(state);
        if done {
            self.wake();
        } else if start {
            self.pump();
        }
    }

    fn set_depth(&self, id: QueueId, depth: u32) {
        let mut state = self.lock();
        state.scheduler.set_depth(id, depth);
        let start = state.scheduler.can_start();
        drop(state);
        if start {
            self.pump();
        }
    }

    fn close(&self, id: QueueId) {
        let tickets = {
            let mut state = self.lock();
            state.scheduler.close(id);
            let mut tickets = state.in_ring.tickets(|(of, _)| *of == id);
            assert!(state.cancels <= self.cancels_max, "cancellations have room in the ring");
            tickets.truncate(self.cancels_max - state.cancels);
            state.cancels += tickets.len();
            tickets
        };
        {
            let submitting = self.submission.lock();
            for ticket in tickets {
                let entry = opcode::AsyncCancel::new(ticket).build().user_data(CANCELLED);
                self.push_bare(&submitting, &entry);
            }
        }
        self.wake();
    }

    /// Starts all that may start.
    fn pump(&self) {
        let mut submitting = self.submission.lock();
        loop {
            let mut state = self.lock();
            let none = Registered::default();
            let registered = self.registered.get().unwrap_or(&none);
            let mut started = Vec::new();
            let mut failed = false;
            let State { scheduler, in_ring, resting, broken, .. } = &mut *state;
            while broken.is_none()
                && let Some((id, transfer)) = scheduler.next(|_| 1)
            {
                if *resting > 0 && transfer.route() == Route::Buffered {
                    scheduler.freed(1);
                    scheduler.complete(id, transfer.done(Err(Errno::AGAIN)));
                    *resting -= 1;
                    failed = true;
                    continue;
                }
                let (ticket, (_, transfer)) = in_ring.insert((id, transfer));
                let mut call = entry(transfer, registered).user_data(ticket);
                if transfer.route() == Route::Buffered {
                    // Or the bytes that the kernel holds are copied here and now.
                    call = call.flags(squeue::Flags::ASYNC);
                }
                // SAFETY: this thread holds `submission`, so no other pushes. What the entry points
                // to is the transfer's, which stays in `in_ring` until its completion was taken.
                let pushed = unsafe { self.io.submission_shared().push(&call) };
                pushed.expect("the queue was empty and has an entry for each slot");
                started.push(ticket);
            }
            let in_flight = scheduler.in_flight() as usize;
            assert_eq!(in_ring.len(), in_flight, "the ring has what the scheduler started");
            if !started.is_empty() {
                self.changed.notify_one(); // A reaper that found the ring empty may lead now.
            }
            drop(state);
            if !started.is_empty()
                && let Err(errno) = self.enter_all(&submitting)
            {
                self.break_off(&submitting, &started, errno);
            }
            if failed {
                MutexGuard::unlocked(&mut submitting, || self.wake());
            } else if started.is_empty() {
                return;
            }
        }
    }

    /// Hands all that was pushed to the kernel.
    fn enter_all(&self, _submitting: &MutexGuard<'_, ()>) -> Result<(), Errno> {
        for _ in 0..TRIES_MAX {
            match self.io.submit() {
                Ok(_) if self.unsent() == 0 => return Ok(()),
                Ok(_) => {}
                Err(error) => match errno_of(&error) {
                    Errno::INTR => {}
                    Errno::AGAIN | Errno::BUSY => thread::yield_now(),
                    errno => return Err(errno),
                },
            }
        }
        Err(Errno::AGAIN)
    }

    /// Entries that the kernel has not taken. Called with `submission` held.
    fn unsent(&self) -> usize {
        // SAFETY: the caller holds `submission`, so no other thread has the queue.
        unsafe { self.io.submission_shared() }.len()
    }

    /// The system refuses a ring that it made: what it has not taken fails, like all later.
    fn break_off(&self, _submitting: &MutexGuard<'_, ()>, started: &[Ticket], errno: Errno) {
        let sent = started.len() - self.unsent().min(started.len());
        let mut state = self.lock();
        state.broken = Some(errno);
        state.fail_in_ring(&started[sent..], errno);
        state.fail_if_broken();
        self.changed.notify_all();
    }

    /// Submits an entry that points to nothing.
    fn push_bare(&self, submitting: &MutexGuard<'_, ()>, entry: &squeue::Entry) {
        let mut state = self.lock();
        if state.broken.is_none() {
            // SAFETY: this thread holds `submission`, so no other pushes; the entry has no
            // pointers.
            let pushed = unsafe { self.io.submission_shared().push(entry) };
            pushed.expect("the queue is empty whenever it is free");
            drop(state);
            if let Err(errno) = self.enter_all(submitting) {
                self.break_off(submitting, &[], errno);
            }
        } else {
            state.cancels = 0; // Its completion will not come.
        }
    }

    /// Wakes the reapers: something is ready without a completion of the ring.
    fn wake(&self) {
        {
            let mut state = self.lock();
            self.changed.notify_all();
            if !state.led || state.waking || state.broken.is_some() {
                return;
            }
            state.waking = true;
        }
        let submitting = self.submission.lock();
        self.push_bare(&submitting, &opcode::Nop::new().build().user_data(WOKEN));
    }

    /// Takes the completions there are. Called by the leader, or when there is none.
    fn collect(&self, state: &mut MutexGuard<'_, State>) {
        if self.home.is_forked() {
            return;
        }
        let mut ended = Vec::new();
        {
            // SAFETY: this thread holds `state`, and only its holder takes completions.
            let completions = unsafe { self.io.completion_shared() };
            for entry in completions {
                match entry.user_data() {
                    WOKEN => state.waking = false,
                    CANCELLED => state.cancels = state.cancels.saturating_sub(1),
                    ticket => ended.push((state.take(ticket), entry.result())),
                }
            }
        }
        if ended.is_empty() {
            return;
        }
        let settled: Vec<_> = MutexGuard::unlocked(state, || {
            let settle = |((id, mut transfer), result): ((QueueId, Transfer), i32)| match transfer
                .settle(answer(result))
            {
                Next::Done(result) => (Ok(transfer.done(result)), id),
                Next::Again => (Err(transfer), id),
            };
            ended.into_iter().map(settle).collect()
        });
        for (settled, id) in settled {
            match settled {
                Ok(done) => {
                    if done.result == Err(ECANCELED) && !state.scheduler.is_closed(id) {
                        state.resting = OPS_A_REST;
                    }
                    state.scheduler.complete(id, done);
                }
                Err(transfer) => state.scheduler.again(id, transfer),
            }
        }
        state.fail_if_broken();
        if state.scheduler.can_start() {
            MutexGuard::unlocked(state, || self.pump());
        }
    }

    /// Sleeps until there is a completion.
    fn sleep(&self) {
        // SAFETY: no memory goes along, and nothing is submitted.
        let entered =
            unsafe { self.io.submitter().enter::<libc::sigset_t>(0, 1, GET_EVENTS, None) };
        if entered.is_err() {
            thread::yield_now(); // A signal; or a broken ring, which is tried again and again.
        }
    }

    /// One operation that does nothing, all the way through.
    fn try_out(&self) -> Result<(), Errno> {
        let submitting = self.submission.lock();
        let entry = opcode::Nop::new().build().user_data(WOKEN);
        // SAFETY: this thread holds `submission`, so no other pushes; the entry has no pointers.
        let pushed = unsafe { self.io.submission_shared().push(&entry) };
        pushed.expect("a new ring is empty");
        self.enter_all(&submitting)?;
        loop {
            // SAFETY: only this thread has the ring yet.
            match unsafe { self.io.completion_shared() }.next().map(|entry| entry.result()) {
                Some(0) => return Ok(()),
                Some(result) => return Err(Errno::from_raw_os_error(-result)),
                None => self.sleep(),
            }
        }
    }
}

impl State {
    /// Ends all that was in flight, and begins nothing again.
    fn abandon(&mut self) {
        let errno = Errno::CANCELED;
        self.broken = Some(errno);
        self.led = false;
        let tickets = self.in_ring.tickets(|_| true);
        self.fail_in_ring(&tickets, errno);
        self.fail_if_broken();
    }

    /// The kernel is done with what `ticket` names.
    fn take(&mut self, ticket: Ticket) -> (QueueId, Transfer) {
        self.scheduler.freed(1);
        self.in_ring.take(ticket)
    }

    /// What these tickets name never comes back from the ring.
    fn fail_in_ring(&mut self, tickets: &[Ticket], errno: Errno) {
        for ticket in tickets {
            let (id, transfer) = self.take(*ticket);
            self.scheduler.complete(id, transfer.done(Err(errno)));
        }
    }

    /// What waits for a broken ring fails.
    fn fail_if_broken(&mut self) {
        if let Some(errno) = self.broken {
            self.scheduler.fail_waiting(errno.raw_os_error());
        }
    }
}

impl Queue for Shared {
    /// Cancels `op`: there is no file that it could be for.
    fn submit(&self, op: Op) {
        op.check();
        let mut state = self.lock();
        let root = state.root;
        state.scheduler.submit_done(root, op.cancelled());
        drop(state);
        self.wake();
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        let mut state = self.lock();
        let root = state.root;
        loop {
            if !state.led {
                self.collect(&mut state);
            }
            let any = state.scheduler.take(root, out);
            if any || wait == Wait::Never || state.scheduler.open_count(root) == 0 {
                // Another has to lead now, or there is nothing left to wait for.
                self.changed.notify_all();
                return;
            }
            if state.led || state.in_ring.len() == 0 {
                self.changed.wait(&mut state);
                continue;
            }
            state.led = true;
            MutexGuard::unlocked(&mut state, || self.sleep());
            state.led = false;
        }
    }

    /// Does nothing: its queues are closed one by one, and it is dropped after all of them.
    fn close(&self) {}
}

impl Queue for SharedQueue {
    fn submit(&self, op: Op) {
        op.check();
        self.shared.submit(self.id, op, &self.file);
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        self.shared.reap(wait, out);
    }

    fn close(&self) {
        self.shared.close(self.id);
    }

    fn set_depth(&self, depth: u32) {
        self.shared.set_depth(self.id, depth);
    }

    fn reaper(&self) -> Option<Arc<dyn Queue>> {
        Some(Arc::clone(&self.shared) as Arc<dyn Queue>)
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        self.shared.close(self.id);
        self.shared.lock().scheduler.release(self.id);
    }
}

impl Drop for Shared {
    /// Waits: what is in the ring still writes to memory that `in_ring` owns.
    fn drop(&mut self) {
        if self.home.is_forked() {
            return; // Nothing of it is ours.
        }
        while self.state.get_mut().in_ring.len() > 0 {
            self.sleep();
            // SAFETY: only this thread has the ring any more.
            for entry in unsafe { self.io.completion_shared() } {
                if !matches!(entry.user_data(), WOKEN | CANCELLED) {
                    drop(self.state.get_mut().in_ring.take(entry.user_data()));
                }
            }
        }
    }
}

/// The completion of what wakes the leader. No ticket is as high.
const WOKEN: u64 = u64::MAX;
/// The completion of a cancellation.
const CANCELLED: u64 = u64::MAX - 1;
/// What fails after an operation that the kernel had no thread for, before another is tried: each
/// such try takes the kernel tens of milliseconds.
const OPS_A_REST: u32 = 1024;
/// What a registered buffer holds at most.
const CHUNK_BYTES_MAX: usize = 1 << 30;
/// Below this, pinning is not tried further.
const REGISTERED_BYTES_MIN: usize = 64 << 10;
