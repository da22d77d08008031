//! Changes of a file that its store makes without moving bytes: another length, zeros, discards.
//!
//! ```text
//!   lock: slot, Event::Change --> no write of the file in progress --> Action::Change
//!     unlock: the thread calls the store; lock: Event::Changed --> the pages leave; the answer
//! ```
//!
//! # Invariants
//! - While the store makes a change, no other write of the file is in progress; reads go on.
//! - A cut takes effect for readers before the store makes it, and is undone where that fails: no
//!   read is short of bytes that it was promised.
//! - An own change never ends the version of its file.

use forerun_core::{
    event::{Error, Event},
    units::{HandleId, PageIndex},
};
use forerun_io::{
    frames::OwnedPin,
    store::{Change, EOPNOTSUPP},
};

use crate::{
    carry::{Carrier, Copied, Pages},
    error::{EIO, WriteError},
    guard::unless_panics,
    state::State,
    waiters::Fill,
    write,
};

/// One change.
pub(crate) struct Alter<'a> {
    pub(crate) carrier: Carrier<'a>,
    pub(crate) handle: HandleId,
    pub(crate) change: Change,
    /// Answered when the change, and all that was written before, is durable.
    pub(crate) durable: bool,
}

/// The pages that an event names.
struct Extent {
    first: PageIndex,
    count: u64,
    keeps_first: bool,
    file_pages: Option<u64>,
}

/// Why a change was not made.
pub(crate) enum AlterError {
    /// It was to end with the file, which a write has extended meanwhile.
    Extended,
    /// It failed.
    Write(WriteError),
}

impl From<WriteError> for AlterError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl Alter<'_> {
    pub(crate) fn run(&self) -> Result<(), AlterError> {
        let Carrier { shared, file } = self.carrier;
        let mut state = shared.state.lock();
        if !self.is_whole() {
            return Err(AlterError::Extended);
        }
        let me = write::admit_without_pages(&mut state, file)?;
        let request = state.live.slots.of(me).request;
        let Extent { first, count, keeps_first, file_pages } = self.extent();
        let (handle, durable) = (self.handle, self.durable);
        state.send(
            Some(me),
            Event::Change { request, handle, first, count, keeps_first, file_pages, durable },
        );
        let answer = self.carrier.carry_on(state, me, &mut Altering { alter: self, before: None });
        let told = |error| match error {
            Error::Store { errno: EOPNOTSUPP, .. } => WriteError::Unsupported,
            Error::Store { errno, .. } => WriteError::Change { errno },
            error => WriteError::of(error, file.page_bytes),
        };
        answer.map_err(|error| told(error).into())
    }

    /// Whether its last page has no bytes beyond it, those of writes that have begun too; under
    /// the state's lock, so that a later write is made after it.
    fn is_whole(&self) -> bool {
        let file = self.carrier.file;
        match self.change {
            Change::Length(_) => true,
            Change::Zero { offset, bytes, .. } | Change::Discard { offset, bytes } => {
                let end = offset + bytes;
                end.is_multiple_of(u64::from(file.page_bytes)) || end >= file.length.extent()
            }
        }
    }

    /// Has the store make the change.
    fn change_store(&self) -> Result<(), i32> {
        let file = self.carrier.file;
        if let Change::Zero { offset, bytes, .. } | Change::Discard { offset, bytes } = self.change
            && offset + bytes > file.length.stored()
        {
            // Pages that would have extended the store leave the cache unwritten.
            let file_bytes = file.bytes();
            file.store.change(Change::Length(file_bytes))?;
            file.length.write_stored(file_bytes);
        }
        file.store.change(self.change)
    }

    /// Zeros and discards are of whole pages, or end with the file.
    fn extent(&self) -> Extent {
        let page_bytes = u64::from(self.carrier.file.page_bytes);
        match self.change {
            Change::Length(bytes) => Extent {
                first: bytes / page_bytes,
                count: u64::MAX,
                keeps_first: !bytes.is_multiple_of(page_bytes),
                file_pages: Some(bytes.div_ceil(page_bytes)),
            },
            Change::Zero { offset, bytes, .. } | Change::Discard { offset, bytes } => {
                assert!(offset.is_multiple_of(page_bytes) && bytes > 0, "{:?}", self.change);
                let (first, count) = (offset / page_bytes, bytes.div_ceil(page_bytes));
                Extent { first, count, keeps_first: false, file_pages: None }
            }
        }
    }
}

/// A change in progress.
struct Altering<'a> {
    alter: &'a Alter<'a>,
    /// The lengths before a cut.
    before: Option<(u64, u64)>,
}

impl Pages for Altering<'_> {
    fn serve(&mut self, page: PageIndex, _: OwnedPin) {
        unreachable!("a change is served no page: {page}")
    }

    fn fill(&mut self, fill: Fill) -> Copied {
        unreachable!("a change fills no page: {:?}", fill.frame)
    }

    fn change_begins(&mut self) {
        if let Change::Length(bytes) = self.alter.change {
            self.before = Some(self.alter.carrier.file.length.cut_begins(bytes));
        }
    }

    fn change(&mut self) -> i32 {
        let Carrier { shared, file } = self.alter.carrier;
        shared.compare(file);
        match self.alter.change {
            Change::Length(bytes) => file.version.begin_cut(bytes),
            Change::Zero { .. } | Change::Discard { .. } => file.version.begin_write(),
        }
        let changed = unless_panics(|| self.alter.change_store());
        file.version.end_write(|| file.store_version().ok());
        changed.unwrap_or(Err(EIO)).err().unwrap_or(0)
    }

    fn change_ends(&mut self, state: &State, errno: i32) {
        let (file, before) = (self.alter.carrier.file, self.before.take());
        match (self.alter.change, before) {
            (Change::Length(bytes), _) if errno == 0 => {
                file.length.set(bytes, state.live.slots.write_end(file.id));
            }
            (_, Some(before)) => file.length.cut_failed(before),
            (_, None) => {}
        }
    }
}
