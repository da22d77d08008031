//! What a program waits for storage in: the kind of its system call, or a page fault.
//!
//! # Invariants
//! - Every wait has one cause; one that is not known is `other`.

use forerun_core::units::Nanos;

use super::sums::share;
use crate::observe::access::EntryCall;
use crate::wire::{Wire, wire};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A file or a directory is opened.
    Open,
    /// Facts of an inode are asked for.
    Stat,
    /// A directory is listed.
    List,
    /// Bytes of a file are read, or a program is started.
    Read,
    /// A page of a mapped file.
    Fault,
    /// Another call, or one that could not be observed.
    Other,
}

/// A time for each cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseTimes {
    times: [Nanos; Cause::ALL.len()],
}

impl Cause {
    /// Each of them.
    pub const ALL: [Self; 6] =
        [Self::Open, Self::Stat, Self::List, Self::Read, Self::Fault, Self::Other];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Stat => "stat",
            Self::List => "readdir",
            Self::Read => "read",
            Self::Fault => "fault",
            Self::Other => "other",
        }
    }

    pub(super) fn of(call: EntryCall) -> Self {
        match call {
            EntryCall::Open => Self::Open,
            EntryCall::Stat => Self::Stat,
            EntryCall::List => Self::List,
            EntryCall::Read { .. } => Self::Read,
        }
    }
}

impl CauseTimes {
    /// The time of `cause`.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Nanos {
        self.times[cause as usize]
    }

    /// The time of all.
    #[must_use]
    pub fn total(&self) -> Nanos {
        Nanos(self.times.iter().map(|time| time.0).sum())
    }

    pub(super) fn add(&mut self, cause: Cause, time: Nanos) {
        self.times[cause as usize] += time;
    }

    /// Times that sum up to `sampled` are scaled to `waited`.
    pub(super) fn scale(&mut self, waited: Nanos, sampled: Nanos) {
        for time in &mut self.times {
            *time = share(waited, *time, sampled);
        }
    }
}

wire! { CauseTimes { times } }

impl Wire for [Nanos; Cause::ALL.len()] {
    fn put(&self, bytes: &mut Vec<u8>) {
        for time in self {
            time.put(bytes);
        }
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let mut times = Self::default();
        for time in &mut times {
            *time = Nanos::take(bytes)?;
        }
        Some(times)
    }
}

impl Wire for Cause {
    fn put(&self, bytes: &mut Vec<u8>) {
        (*self as u8).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let number = u8::take(bytes)?;
        Self::ALL.into_iter().find(|&cause| cause as u8 == number)
    }
}
