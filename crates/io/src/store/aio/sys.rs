//! Contexts of linux-aio, and the operations that they have in flight.
//!
//! ```text
//!   in flight:  [ - ][ transfer ][ transfer ][ - ]     a ticket is the event's `data`
//!                         ^ the kernel writes to its frames until its event was taken
//! ```
//!
//! # Invariants
//! - A transfer lies in its slot from before the kernel learns of it until its event was taken.
//! - A context goes only once the kernel is done with all that it was given.
//! - No more is in flight than the context was made for, so an event always has room.
//! # Locking
//! The lock of what is in flight is held over no system call.
//! # Sources
//! Linux `include/uapi/linux/aio_abi.h`, for `Control` and `Event`; `fs/aio.c`, for `RingHead`.

#![expect(unsafe_code, reason = "linux-aio is system calls that no library wraps")]

use std::{
    ffi::c_long,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use libc::{SYS_io_destroy, SYS_io_getevents, SYS_io_setup, SYS_io_submit, syscall};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::{
    process::OwnerProcess,
    store::{
        OpKind,
        file::{Call, Transfer},
        in_flight::{InFlight, Ticket},
    },
};

/// A context and what is in flight on it, each transfer with its owner. Any thread may submit and
/// wait.
pub(super) struct Context<O> {
    id: usize,
    home: OwnerProcess,
    in_flight: Mutex<InFlight<(Transfer, O)>>,
}

/// A transfer whose call the kernel is done with.
pub(super) struct Answer<O> {
    pub(super) transfer: Transfer,
    pub(super) owner: O,
    /// The bytes that moved, or an errno.
    pub(super) result: Result<usize, Errno>,
}

impl<O> Context<O> {
    /// A context for `events` operations at once; for fewer, where the system has no more.
    ///
    /// # Errors
    /// It has none at all.
    pub(super) fn new(events: u32) -> Result<Self, Errno> {
        assert!(events > 0, "a context for nothing");
        let mut events = events;
        loop {
            let mut id = 0_usize;
            // SAFETY: the kernel writes the context's id to `id`, which outlives the call.
            let answer = check(unsafe { syscall(SYS_io_setup, c_long::from(events), &raw mut id) });
            match answer {
                Ok(_) => {
                    let in_flight = Mutex::new(InFlight::new(events as usize));
                    return Ok(Self { id, home: OwnerProcess::current(), in_flight });
                }
                Err(Errno::AGAIN) if events > 1 => events /= 2,
                Err(errno) => return Err(errno),
            }
        }
    }

    /// How many operations it was made for.
    pub(super) fn events(&self) -> usize {
        self.in_flight.lock().capacity()
    }

    /// Hands `batch` to the kernel; returns what it does not take.
    pub(super) fn submit(
        &self,
        batch: impl ExactSizeIterator<Item = (Transfer, O)>,
    ) -> Vec<(Transfer, O)> {
        let mut refused = Vec::new();
        let mut controls = Vec::with_capacity(batch.len());
        let mut in_flight = self.in_flight.lock();
        for item in batch {
            if in_flight.len() == in_flight.capacity() {
                refused.push(item);
                continue;
            }
            let (ticket, (transfer, _)) = in_flight.insert(item);
            match Control::new(ticket, transfer) {
                Ok(control) => controls.push(control),
                Err(_) => refused.push(in_flight.take(ticket)),
            }
        }
        drop(in_flight);
        self.submit_controls(&controls, &mut refused);
        refused
    }

    fn submit_controls(&self, controls: &[Control], refused: &mut Vec<(Transfer, O)>) {
        let mut left = controls;
        while !left.is_empty() {
            let pointers: Vec<_> = left.iter().map(ptr::from_ref).collect();
            // SAFETY: `pointers` are as many as said, to controls that outlive the call. What they
            // point to, runs and frames, belongs to transfers in `in_flight`, which stay there
            // until `wait` has taken their event: the kernel has copied the runs by then, and has
            // touched the frames for the last time.
            let answer = check(unsafe {
                syscall(SYS_io_submit, self.id, pointers.len(), pointers.as_ptr())
            });
            let taken = answer.unwrap_or(0);
            assert!(taken <= left.len(), "the kernel takes what it was given");
            left = &left[taken..];
            if taken == 0 {
                // The kernel refused the first: it never knew of it.
                refused.push(self.in_flight.lock().take(left[0].data));
                left = &left[1..];
            }
        }
    }

    /// Polls the memory that the kernel shares: whether something is done.
    pub(super) fn is_done(&self) -> bool {
        if self.home.is_forked() {
            return false;
        }
        let ring = ptr::with_exposed_provenance::<RingHead>(self.id);
        // SAFETY: a context's id is the address of its ring, which the kernel maps, aligned to a
        // page, for as long as the context lives, but not in a child of the process. Head and tail
        // are written by the kernel as atomics of this size.
        let (head, tail) = unsafe { (&(*ring).head, &(*ring).tail) };
        head.load(Ordering::Relaxed) != tail.load(Ordering::Acquire)
    }

    /// Waits until `least` operations are done, for `time` at most or until a signal comes, and
    /// appends what is done to `out`, up to [`EVENTS_A_CALL`]. Without a time something has to be
    /// in flight, or this waits until it is.
    pub(super) fn wait(&self, least: usize, time: Option<Duration>, out: &mut Vec<Answer<O>>) {
        let least = least.min(EVENTS_A_CALL);
        let mut events = [Event::default(); EVENTS_A_CALL];
        let time = time.map(|time| libc::timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let limit = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = loop {
            // SAFETY: the kernel writes at most as many events as `events` holds, which outlives
            // the call, as does the time that `limit` points to. A null pointer means to wait
            // without a limit of time.
            let answer = check(unsafe {
                syscall(
                    SYS_io_getevents,
                    self.id,
                    c_long::try_from(least).expect("at most a call's events"),
                    events.len(),
                    events.as_mut_ptr(),
                    limit,
                )
            });
            match answer {
                Ok(count) => break count,
                Err(Errno::INTR) if time.is_some() => return,
                Err(Errno::INTR) => {}
                Err(errno) => panic!("a context that is alive can be waited for: {errno}"),
            }
        };
        assert!(count <= events.len(), "the kernel writes the events that fit");
        let mut in_flight = self.in_flight.lock();
        out.extend(events[..count].iter().map(|event| {
            let result = usize::try_from(event.result).map_err(|_| errno_of(event.result));
            let (transfer, owner) = in_flight.take(event.data);
            Answer { transfer, owner, result }
        }));
    }
}

impl<O> Drop for Context<O> {
    /// A child of the process does not have it.
    fn drop(&mut self) {
        if self.home.is_forked() {
            return;
        }
        // SAFETY: the id is of a context that `new` made and that is dropped now. The call returns
        // once all that is in flight is done; `in_flight`, and with it the frames that the kernel
        // writes to, is freed only after this.
        let answer = check(unsafe { syscall(SYS_io_destroy, self.id) });
        assert!(answer.is_ok(), "a context ends once: {answer:?}");
    }
}

/// The beginning of the kernel's `struct aio_ring`.
#[repr(C)]
struct RingHead {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
}

/// The kernel's `struct iocb`.
#[repr(C)]
#[derive(Default)]
struct Control {
    data: u64,
    /// Two numbers whose order depends on the machine; both zero.
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: u32,
    vector: u64,
    spans: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

impl Control {
    /// For the next call of `transfer`, if there is one.
    fn new(ticket: Ticket, transfer: &mut Transfer) -> Result<Self, Errno> {
        let opcode = match transfer.kind() {
            OpKind::Read => IOCB_CMD_PREADV,
            OpKind::Write => IOCB_CMD_PWRITEV,
            OpKind::Sync => unreachable!("a sync moves no bytes: it is carried out blocking"),
        };
        let Call { fd, offset, runs } = transfer.prepare()?;
        Ok(Self {
            data: ticket,
            opcode,
            fd: u32::try_from(fd).expect("a file that is open has a number"),
            vector: runs.as_ptr() as u64,
            spans: runs.len() as u64,
            offset,
            ..Self::default()
        })
    }
}

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    data: u64,
    control: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<Control>() == 64 && size_of::<Event>() == 32);

const _: () = assert!(size_of::<RingHead>() == 16, "the first words of the kernel's ring");

const IOCB_CMD_PREADV: u16 = 7;
const IOCB_CMD_PWRITEV: u16 = 8;

/// Events taken with one call: a kilobyte of stack.
const EVENTS_A_CALL: usize = 32;

/// What a system call said: a count, or why not.
fn check(answer: c_long) -> Result<usize, Errno> {
    usize::try_from(answer).map_err(|_| {
        let errno = std::io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(errno.expect("the last error is the system's"))
    })
}

/// The errno in an event's negative result.
fn errno_of(result: i64) -> Errno {
    i32::try_from(-result)
        .ok()
        .filter(|errno| (1..4096).contains(errno))
        .map_or(Errno::IO, Errno::from_raw_os_error)
}
