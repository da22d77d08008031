//! The records of streams: found by name, and looked at a few at a time.
//!
//! ```text
//!   rows   name -> record, place          ids   |a|b|c|d|e|f|      the place of each name
//!                                                    ^hand -->     the next sample
//! ```
//! To find a stream that has too much there is no need to look at all of them: a hand goes round
//! and takes the next [`SAMPLE`]. As records come and go at the places of others, that is nearly
//! as good as a draw, and the same on each run.
//!
//! # Invariants
//! - Each name is in `ids` once, at the place that its row says.
//! # Sources
//! Mitzenmacher, "The power of two choices in randomized load balancing" (2001): the best of a few
//! is nearly the best of all.

use alloc::vec::Vec;

use hashbrown::HashMap;

use super::Stream;
use crate::hash::FixedState;
use crate::readahead::StreamId;

/// The records of all streams, by name, and one after the other.
pub(super) struct Records {
    rows: HashMap<StreamId, (Stream, u32), FixedState>,
    ids: Vec<StreamId>,
    /// Where the next sample begins.
    hand: usize,
}

impl Default for Records {
    fn default() -> Self {
        Self { rows: HashMap::with_hasher(FixedState), ids: Vec::new(), hand: 0 }
    }
}

impl Records {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.rows.get(&id).map(|row| &row.0)
    }

    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.rows.get_mut(&id).map(|row| &mut row.0)
    }

    pub(super) fn insert(&mut self, id: StreamId, stream: Stream) {
        let at = u32::try_from(self.ids.len()).expect("a frame each at most");
        self.ids.push(id);
        let before = self.rows.insert(id, (stream, at));
        assert!(before.is_none(), "{id:?} has a record");
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let (stream, at) = self.rows.remove(&id)?;
        self.ids.swap_remove(at as usize);
        if let Some(moved) = self.ids.get(at as usize) {
            self.rows.get_mut(moved).expect("each name has a record").1 = at;
        }
        Some(stream)
    }

    /// The next few records: all of them in turn, over several calls.
    pub(super) fn sample(&mut self) -> impl Iterator<Item = (StreamId, &Stream)> {
        let count = self.ids.len().min(SAMPLE);
        let first = self.hand;
        self.hand = if self.ids.is_empty() { 0 } else { (first + count) % self.ids.len() };
        let (rows, ids) = (&self.rows, &self.ids);
        (first..first + count).map(move |at| {
            let id = ids[at % ids.len()];
            (id, &rows[&id].0)
        })
    }
}

/// Records that are looked at to find a rich one.
pub(super) const SAMPLE: usize = 8;
