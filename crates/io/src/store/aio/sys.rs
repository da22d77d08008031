//! Contexts of linux-aio, and the operations that the kernel has.
//!
//! ```text
//!   slots:  [ - ][ transfer ][ transfer ][ - ]     a slot's number is the event's `data`
//!                     ^ the kernel writes to its frames until its event was taken
//! ```
//!
//! # Invariants
//! - A transfer lies in its slot from before the kernel learns of it until its event was taken.
//! - A context goes only once the kernel is done with all that it was given.
//! - No more is in flight than the context was made for, so an event always has room.
//! # Locking
//! The slots' lock is held over no system call.
//! # Sources
//! Linux `include/uapi/linux/aio_abi.h`, for `Control` and `Event`; `fs/aio.c`, for `RingHead`.

#![expect(unsafe_code, reason = "linux-aio is system calls that nobody wraps")]

use std::{
    ffi::c_long,
    os::fd::AsRawFd,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use libc::{SYS_io_destroy, SYS_io_getevents, SYS_io_setup, SYS_io_submit, iovec, syscall};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::transfer::Transfer;
use crate::{process::Home, store::OpKind};

/// A context and what is in flight on it. Any thread may submit and wait.
#[derive(Debug)]
pub(super) struct Context {
    id: usize,
    home: Home,
    slots: Mutex<Slots>,
}

/// A transfer that the kernel is done with, and what it said: bytes or an errno.
pub(super) type Landed = (Transfer, Result<usize, Errno>);

#[derive(Debug)]
struct Slots {
    all: Vec<Option<Transfer>>,
    free: Vec<usize>,
}

impl Context {
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
                    let all = (0..events).map(|_| None).collect();
                    let free = (0..events as usize).rev().collect();
                    return Ok(Self {
                        id,
                        home: Home::here(),
                        slots: Mutex::new(Slots { all, free }),
                    });
                }
                Err(Errno::AGAIN) if events > 1 => events /= 2,
                Err(errno) => return Err(errno),
            }
        }
    }

    /// How many operations it was made for.
    pub(super) fn events(&self) -> usize {
        self.slots.lock().all.len()
    }

    /// Hands `batch` to the kernel. What it does not take is given back.
    pub(super) fn submit(&self, batch: Vec<Transfer>) -> Vec<Transfer> {
        let mut given_back = Vec::new();
        let mut spans = Vec::with_capacity(batch.len());
        let mut controls = Vec::with_capacity(batch.len());
        let mut slots = self.slots.lock();
        for mut transfer in batch {
            let (Some(offset), Some(slot)) = (transfer.offset(), slots.free.pop()) else {
                given_back.push(transfer);
                continue;
            };
            let vector = transfer.spans();
            controls.push(Control::new(&transfer, slot, offset, &vector));
            spans.push(vector);
            slots.all[slot] = Some(transfer);
        }
        drop(slots);
        self.submit_controls(&controls, &mut given_back);
        drop(spans);
        given_back
    }

    fn submit_controls(&self, controls: &[Control], given_back: &mut Vec<Transfer>) {
        let mut left = controls;
        while !left.is_empty() {
            let pointers: Vec<_> = left.iter().map(ptr::from_ref).collect();
            // SAFETY: `pointers` are as many as said, to controls that outlive the call, as do
            // the vectors that they point to (`submit`): the kernel copies both. The memory that
            // the vectors name is that of frames of transfers in `slots`, which owns them; nobody
            // refers to it until `wait` has taken the event, after the kernel's last access.
            let answer = check(unsafe {
                syscall(SYS_io_submit, self.id, pointers.len(), pointers.as_ptr())
            });
            let taken = answer.unwrap_or(0);
            left = &left[taken..];
            if taken == 0 {
                // The kernel refused the first: it never knew of it.
                given_back.push(self.take(left[0].data));
                left = &left[1..];
            }
        }
    }

    /// Waits until something is done and appends it to `out`. Something has to be in flight, or
    /// this waits until it is.
    pub(super) fn wait(&self, out: &mut Vec<Landed>) {
        self.take_events(1, None, out);
    }

    /// Waits until `least` operations are done, for `time` at most or until a signal comes, and
    /// appends what is done to `out`, up to [`EVENTS_A_CALL`].
    pub(super) fn wait_for(&self, least: usize, time: Duration, out: &mut Vec<Landed>) {
        self.take_events(least.min(EVENTS_A_CALL), Some(time), out);
    }

    /// Whether something is done, by a look at the memory that the kernel shares.
    pub(super) fn is_done(&self) -> bool {
        if self.home.is_left() {
            return false;
        }
        let ring = ptr::with_exposed_provenance::<RingHead>(self.id);
        // SAFETY: a context's id is the address of its ring, which the kernel maps, aligned to a
        // page, for as long as the context lives, but not in a child of the process. Head and tail
        // are written by the kernel as atomics of this size.
        let (head, tail) = unsafe { (&(*ring).head, &(*ring).tail) };
        head.load(Ordering::Relaxed) != tail.load(Ordering::Acquire)
    }

    fn take_events(&self, least: usize, time: Option<Duration>, out: &mut Vec<Landed>) {
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
                Err(errno) => panic!("a context of ours cannot be waited for: {errno}"),
            }
        };
        out.extend(events[..count].iter().map(|event| {
            let result = usize::try_from(event.result).map_err(|_| errno_of(event.result));
            (self.take(event.data), result)
        }));
    }

    /// Takes the transfer out of its slot: the kernel is done with it.
    fn take(&self, slot: u64) -> Transfer {
        let slot = usize::try_from(slot).expect("a slot's number");
        let mut slots = self.slots.lock();
        let transfer = slots.all[slot].take().expect("an event comes once, for a slot in use");
        slots.free.push(slot);
        transfer
    }
}

impl Drop for Context {
    /// A child of the process does not have it.
    fn drop(&mut self) {
        if self.home.is_left() {
            return;
        }
        // SAFETY: the id is of a context that we made and nobody can use any more. The call comes
        // back once all that is in flight is done; the slots, and with them the frames that the
        // kernel writes to, are freed only after this.
        let answer = check(unsafe { syscall(SYS_io_destroy, self.id) });
        assert!(answer.is_ok(), "a context of ours cannot be ended: {answer:?}");
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
#[derive(Debug, Default)]
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
    /// For `transfer`, whose frames are in `vector`.
    fn new(transfer: &Transfer, slot: usize, offset: i64, vector: &[iovec]) -> Self {
        let direct = transfer.opened.direct.as_ref().expect("only such files have contexts");
        Self {
            data: slot as u64,
            opcode: match transfer.op.kind {
                OpKind::Read => IOCB_CMD_PREADV,
                OpKind::Write => IOCB_CMD_PWRITEV,
                OpKind::Sync => unreachable!("a sync moves no bytes: it is carried out blocking"),
            },
            fd: u32::try_from(direct.as_raw_fd()).expect("a file that is open has a number"),
            vector: vector.as_ptr() as u64,
            spans: vector.len() as u64,
            offset,
            ..Self::default()
        }
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
