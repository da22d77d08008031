//! Watches of directories that walks know: the kernel tells each file in them that is read.
//!
//! A poll meets a program where it is blocked. What was fetched ahead blocks nothing, so that a
//! poll sees a walk only where it comes to the end of that; a watch tells each step.
//!
//! ```text
//!   worker lists a directory, then watches it --number--> driver: the directory of that number
//!   a program reads a file in it --(queue)--> poll: directory, name --> core::walk
//! ```
//! # Invariants
//! - At most [`WATCHES_MAX`] directories are watched; of more, the watch that reported least
//!   recently ends.
//! - A poll takes [`TOLD_BYTES_MAX`] of the queue, and leaves the rest for the next.
//! - The kernel reports reads of any process: they are hints like all other uses.
//! - A directory at several paths has one watch, whose reads are told of one of them: that which
//!   was listed or used last. At most [`TWINS_MAX`] others are known.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use forerun_core::walk::DirectoryId;

use crate::prefetch::entries::place::Place;
use crate::watch::{Reply, Told, WatchQueue};

/// See the module.
#[derive(Debug)]
pub(super) struct Watches {
    queue: Arc<WatchQueue>,
    rows: BTreeMap<i32, Watched>,
    /// Directories whose watch tells of another one at the moment, and the numbers of these.
    twins: VecDeque<(i32, DirectoryId, Arc<Place>)>,
    turns: u64,
}

/// A directory, and where it lies, of which reads are told no more.
pub(super) type Untold = (DirectoryId, Arc<Place>);

/// A file that was read.
#[derive(Debug)]
pub(super) struct ToldRead {
    pub(super) dir: DirectoryId,
    /// Where its directory lies.
    pub(super) place: Arc<Place>,
    pub(super) name: Vec<u8>,
    /// The process that has read it, where the system tells.
    pub(super) process: Option<i32>,
}

#[derive(Debug)]
struct Watched {
    dir: DirectoryId,
    place: Arc<Place>,
    /// The name that was told last: several reads of a file are one use.
    name: Vec<u8>,
    turn: u64,
}

impl Watches {
    pub(super) fn new(queue: WatchQueue) -> Self {
        Self { queue: Arc::new(queue), rows: BTreeMap::new(), twins: VecDeque::new(), turns: 0 }
    }

    /// The queue, for workers to put watches in.
    pub(super) fn queue(&self) -> Arc<WatchQueue> {
        Arc::clone(&self.queue)
    }

    /// The watch `number` is on the directory `dir`, which lies at `place`. A directory of which
    /// reads are told no more for that: the same one at another path, or another one.
    pub(super) fn add(
        &mut self,
        number: i32,
        dir: DirectoryId,
        place: &Arc<Place>,
    ) -> Option<Untold> {
        self.turns += 1;
        let row = Watched { dir, place: Arc::clone(place), name: Vec::new(), turn: self.turns };
        self.twins.retain(|twin| twin.0 != number || !Arc::ptr_eq(&twin.2, place));
        // Its watch before may have gone, unseen.
        self.rows.retain(|&other, row| other == number || !Arc::ptr_eq(&row.place, place));
        if let Some(before) = self.rows.insert(number, row) {
            let is_other = !Arc::ptr_eq(&before.place, place);
            return is_other.then(|| self.pair(number, before));
        }
        if self.rows.len() <= WATCHES_MAX {
            return None;
        }
        let oldest = self.rows.iter().min_by_key(|(_, row)| row.turn).map(|(&number, _)| number);
        let removed = oldest.and_then(|number| self.remove(number));
        assert!(self.rows.len() <= WATCHES_MAX, "watches are bounded");
        removed.map(|row| (row.dir, row.place))
    }

    /// The watch `number` tells of another path of the directory of `row` from now on.
    fn pair(&mut self, number: i32, row: Watched) -> Untold {
        if self.twins.len() == TWINS_MAX {
            self.twins.pop_front();
        }
        self.twins.push_back((number, row.dir, Arc::clone(&row.place)));
        assert!(self.twins.len() <= TWINS_MAX, "twins are bounded");
        (row.dir, row.place)
    }

    /// A program uses `dir`, which lies at `place`: where a watch tells of the same directory at
    /// another path, it tells of this one from now on. The other one.
    pub(super) fn prefer(&mut self, dir: DirectoryId, place: &Arc<Place>) -> Option<Untold> {
        let is_it = |twin: &(i32, DirectoryId, Arc<Place>)| Arc::ptr_eq(&twin.2, place);
        let (number, _, _) = self.twins.remove(self.twins.iter().position(is_it)?)?;
        // A watch that has ended is followed by one with another number.
        self.rows.contains_key(&number).then(|| self.add(number, dir, place)).flatten()
    }

    /// Ends a watch, known or not.
    pub(super) fn end(&mut self, number: i32) {
        if !self.rows.contains_key(&number) {
            self.queue.end(number);
        }
    }

    fn remove(&mut self, number: i32) -> Option<Watched> {
        let row = self.rows.remove(&number)?;
        self.twins.retain(|twin| twin.0 != number);
        self.end(number);
        Some(row)
    }

    /// Ends all watches.
    pub(super) fn clear(&mut self) {
        while let Some((&number, _)) = self.rows.first_key_value() {
            self.remove(number);
        }
        self.queue.clear();
    }

    /// Takes what was told, for nothing.
    pub(super) fn drop_told(&mut self) {
        for _ in 0..DROPS_MAX {
            let mut told = Vec::new();
            self.take(&mut told);
            if told.is_empty() {
                break;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// Appends what was told since the last call.
    pub(super) fn take(&mut self, told: &mut Vec<ToldRead>) {
        if self.rows.is_empty() {
            return;
        }
        self.turns += 1;
        let (queue, mut bytes) = (Arc::clone(&self.queue), 0);
        queue.take(|event| {
            match event {
                Told::Ended(number) => {
                    self.rows.remove(&number);
                    self.twins.retain(|twin| twin.0 != number);
                }
                Told::Lost => {}
                Told::Read { number, name, process } => {
                    bytes += EVENT_BYTES + name.len();
                    let Some(row) = self.rows.get_mut(&number) else {
                        // The listing of that directory is on its way to the driver.
                        return Reply::Early;
                    };
                    row.turn = self.turns;
                    told.extend(row.tell(name, process));
                }
            }
            if bytes < TOLD_BYTES_MAX { Reply::Taken } else { Reply::Enough }
        });
    }
}

impl Watched {
    /// The read of the file `name`, unless that is the one that was told last.
    fn tell(&mut self, name: &[u8], process: Option<i32>) -> Option<ToldRead> {
        if self.name == name {
            return None;
        }
        self.name.clear();
        self.name.extend_from_slice(name);
        let (dir, place) = (self.dir, Arc::clone(&self.place));
        Some(ToldRead { dir, place, name: name.to_vec(), process })
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        // A worker that hangs in a call may keep the queue.
        self.clear();
    }
}

/// Paths that are known of directories with a watch, besides those that it tells of.
const TWINS_MAX: usize = 64;
/// Directories that are watched.
const WATCHES_MAX: usize = 256;
/// Some two thousand reads.
const TOLD_BYTES_MAX: usize = 64 << 10;
/// As many times as much is dropped at a time: all that the kernel keeps.
const DROPS_MAX: usize = 8;
/// What an event has before its name.
const EVENT_BYTES: usize = 16;
