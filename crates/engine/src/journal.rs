//! Journals: the events in the order in which the core consumed them, and their actions.
//!
//! ```text
//!   State --- sent, came_back ---> Journal        memory, for tests
//!                             \--> JournalFile    memory -> writer thread -> file
//!   replay: file -> Reader -> a fresh core -> byte-equal, or the first event that differs
//! ```
//!
//! A journal alone is enough for a replay: it begins with the core's settings.
//!
//! # Invariants
//! - A recorder is called under the state's lock: the order of its calls is the order of events.
//! - A journal never exceeds its bounds: the record ends at a whole event, and later events are
//!   counted.
//! # Locking
//! A journal's lock is taken under the state's; no lock is taken under it.

mod file;
mod format;
mod read;
mod replay;
mod settings;
mod show;

use std::sync::Arc;

use forerun_core::{
    event::{Actions, Event, codec},
    units::Nanos,
};
use parking_lot::Mutex;

pub use file::{Bounds, End, JournalFile, Summary};
pub use format::FORMAT;
pub use read::{Block, JournalError, Part, Reader};
pub use replay::{Difference, Replayed, Run, replay};

/// Records the core's events and actions. A recorder must not block.
pub trait Recorder: Send {
    /// Records `event`, which is about to be sent.
    fn sent(&mut self, now: Nanos, event: &Event<'_>);

    /// Records the actions of the events since the last call.
    fn came_back(&mut self, actions: &Actions) {
        let _ = actions;
    }
}

/// A recorder that keeps events and actions in memory. Its clones share one record.
#[derive(Clone, Debug)]
pub struct Journal {
    record: Arc<Mutex<Record>>,
    bytes_max: usize,
}

/// The contents of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The events, as `forerun_core::event::codec` encodes them.
    pub events: Vec<u8>,
    /// The actions of these events, encoded likewise.
    pub actions: Vec<u8>,
    /// Events that did not fit, or whose actions did not.
    pub dropped: u64,
}

impl Journal {
    /// An empty journal of at most `bytes_max` bytes of events, and as many of actions.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { record: Arc::default(), bytes_max }
    }

    /// Takes the record so far.
    #[must_use]
    pub fn take(&self) -> Record {
        std::mem::take(&mut self.record.lock())
    }
}

impl Recorder for Journal {
    fn sent(&mut self, now: Nanos, event: &Event<'_>) {
        let mut record = self.record.lock();
        let before = record.events.len();
        if record.dropped == 0 {
            codec::encode(now, event, &mut record.events);
        }
        if record.dropped > 0 || record.events.len() > self.bytes_max {
            record.events.truncate(before);
            record.dropped += 1;
        }
    }

    fn came_back(&mut self, actions: &Actions) {
        let mut record = self.record.lock();
        if record.dropped > 0 {
            return;
        }
        let before = record.actions.len();
        codec::encode_actions(actions, &mut record.actions);
        if record.actions.len() > self.bytes_max {
            record.actions.truncate(before);
            record.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_journal_keeps_whole_events_and_counts_the_others() {
        let mut journal = Journal::new(5);
        for now in 0..4 {
            journal.sent(Nanos(now), &Event::Tick);
            journal.came_back(&Actions::new());
        }
        let record = journal.take();
        assert_eq!((record.events.len(), record.dropped), (4, 2), "two bytes an event");
        assert_eq!(journal.take(), Record::default());
    }
}
