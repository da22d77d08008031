//! The ring that the shim in a program writes to: the reader's side.
//!
//! ```text
//!   Ring::create -> Ring        drained here       memory that only the program's side writes
//!              `--> RingWriter  for the program    its descriptor, the variables that name it
//! ```
//!
//! The program, its children, or any other process that has the descriptor may write any bytes
//! there. So a record is a hint: an observer that acts on one opens the file by itself and
//! compares.
//!
//! # Invariants
//! - The memory has a fixed size, sealed: it cannot be cut away under the reader, which maps it
//!   read-only.
//! - One call of [`Ring::drain`] visits at most as many slots as the ring has, and those of records
//!   that are late.
//! - Each record is delivered once or counted as lost. They come in the order of their numbers, but
//!   for those that are still being written, by a thread that lost its processor meanwhile: these
//!   come late, as long as the ring has not gone round and no more than `LATE_MAX` are awaited.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fmt,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    ptr::{self, NonNull},
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    io::{Errno, FdFlags},
    mm::{MapFlags, ProtFlags},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

pub use layout::{Kind, Record, SLOTS};
use layout::{Ring as Shared, SlotState};
use library::named;
pub use library::{NoLibrary, find as library};

#[path = "../../../preload/src/ring.rs"]
pub mod layout;
mod library;

/// The reader's side of the ring.
pub struct Ring {
    map: NonNull<Shared>,
    /// The number of the next record.
    next: u64,
    /// The numbers below it of records that were not there yet, in their order.
    late: VecDeque<u64>,
    lost: u64,
}

/// The program's side of the ring, kept until the program runs.
#[derive(Debug)]
pub struct RingWriter {
    fd: OwnedFd,
}

// SAFETY: the mapping belongs to the ring and to no thread, and is of atomic words.
unsafe impl Send for Ring {}

impl Ring {
    /// Records that one call delivers at most.
    pub const AT_ONCE_MAX: usize = SLOTS + LATE_MAX;

    /// A ring without a record, and its other side for a program.
    ///
    /// # Errors
    /// The system has no descriptor or no memory for it.
    pub fn create() -> Result<(Self, RingWriter), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("forerun-ring", flags)?;
        let [magic, layout] = Shared::HEADER.map(u64::to_ne_bytes);
        let bytes = size_of::<Shared>() as u64;
        in_limit_of(bytes, || {
            rustix::fs::ftruncate(&fd, bytes)?;
            rustix::io::pwrite(&fd, &[magic, layout].concat(), 0)
        })?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        let (bytes, read) = (size_of::<Shared>(), ProtFlags::READ);
        // SAFETY: a new mapping at a place that the kernel chooses; it changes no memory in use.
        let map =
            unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, read, MapFlags::SHARED, &fd, 0)? };
        let map = NonNull::new(map.cast()).expect("the kernel maps nothing at null");
        let ring = Self { map, next: 0, late: VecDeque::new(), lost: 0 };
        // Out of the way of the numbers that shells and scripts choose for themselves.
        let copied = |least| rustix::io::fcntl_dupfd_cloexec(&fd, least);
        let fd = copied(WRITER_FD_MIN).or_else(|_| copied(0))?;
        rustix::io::fcntl_setfd(&fd, FdFlags::empty())?;
        Ok((ring, RingWriter { fd }))
    }

    /// Delivers the records that came since the last call.
    pub fn drain(&mut self, mut each: impl FnMut(Record)) {
        let head = self.shared().head();
        for _ in 0..self.late.len() {
            let Some(number) = self.late.pop_front() else { break };
            if head.wrapping_sub(number) > SLOTS as u64 {
                self.lose(1);
            } else {
                self.deliver(number, &mut each);
            }
        }
        let behind = head.wrapping_sub(self.next);
        if behind > SLOTS as u64 {
            self.lose(behind - SLOTS as u64);
            self.next = head.wrapping_sub(SLOTS as u64);
        }
        while self.next != head {
            self.deliver(self.next, &mut each);
            self.next = self.next.wrapping_add(1);
        }
        assert!(self.late.len() <= LATE_MAX, "more are awaited than are allowed");
    }

    /// Records that were not delivered, so far: also those that may come late.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.saturating_add(self.late.len() as u64)
    }

    fn deliver(&mut self, number: u64, each: &mut impl FnMut(Record)) {
        match self.shared().read(number) {
            SlotState::Written(Some(record)) => each(record),
            SlotState::Written(None) | SlotState::Overwritten => self.lose(1),
            SlotState::Missing => {
                // The oldest is the one that may never come: its writer died, or found its slot
                // taken.
                if self.late.len() == LATE_MAX {
                    self.late.pop_front();
                    self.lose(1);
                }
                self.late.push_back(number);
            }
        }
    }

    fn lose(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
    }

    fn shared(&self) -> &Shared {
        // SAFETY: `create` maps it for the life of `self`, in its full size, which is sealed. All
        // of it is atomic words, for which any value is valid, from any writer at any time.
        unsafe { self.map.as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping of `create`; references to it borrow `self`, and are gone.
        // Where the call fails the mapping stays until the process ends.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), size_of::<Shared>()) };
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { map: _, next, late, lost } = self;
        write!(f, "Ring {{ next: {next}, late: {}, lost: {lost} }}", late.len())
    }
}

impl RingWriter {
    /// The variables that make a program load the shim and find the ring. `library` is that of
    /// [`library()`], and `preloaded` the value of `LD_PRELOAD` before, which stays in front: a
    /// sanitizer requires it.
    #[must_use]
    pub fn variables(
        &self,
        library: &Path,
        preloaded: Option<&OsStr>,
    ) -> [(OsString, OsString); 2] {
        let mut list = preloaded.map(OsStr::to_os_string).unwrap_or_default();
        if !list.is_empty() {
            list.push(":");
        }
        list.push(named(library, Path::new(library::FOLDER)));
        let (number, ring) = (self.fd.as_raw_fd().to_string(), layout::VARIABLE.to_bytes());
        [("LD_PRELOAD".into(), list), (OsStr::from_bytes(ring).into(), number.into())]
    }
}

/// Does `act`, which makes a file of so many `bytes`, with a limit for these that it does not
/// exceed: that would be a signal.
///
/// # Errors
/// The limit may not be raised for that time, or `act` fails.
fn in_limit_of<T>(bytes: u64, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let before = getrlimit(Resource::Fsize);
    if before.current.is_none_or(|most| most >= bytes) {
        return act();
    }
    let maximum = before.maximum.map(|most| most.max(bytes));
    setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum })
        .map_err(|_| Errno::FBIG)?;
    let done = act();
    setrlimit(Resource::Fsize, before)?;
    done
}

/// Records that are awaited at once: about the threads that can lose their processor in a write.
const LATE_MAX: usize = 64;
/// The least number of the program's descriptor, unless fewer are allowed. Shells number their own
/// from 10 on.
const WRITER_FD_MIN: i32 = 200;

#[cfg(test)]
mod tests;
