//! What to fetch of a learned list, and how far ahead of the program.
//!
//! ```text
//!   entries by first use   U U P U U D D I I I . . . . . . . .
//!                                  ^ position          used, passed by, done, in flight, waiting
//!                                  |<-- ahead --->|    32 to 256 entries, within the budget
//! ```
//! A program that starts as it did before uses entry after entry; the position is the last one that
//! it was seen to use. How far ahead is twice what it comes to while one entry is fetched.
//!
//! # Invariants
//! - Each entry is requested at most once.
//! - No more than [`AHEAD_MAX`] entries, or one batch of a list that proved right, and no more
//!   bytes than the budget are ahead of the position; entries that the program has passed by count
//!   for their bytes until the list is used up.
//! - A list whose program goes by the places of its files is left to it on a device that seeks; one
//!   entry at a time finds out whether it does.
//! - Of entries that can be judged, fewer than [`PRECISION_HALF`] percent used halves the distance;
//!   fewer than [`PRECISION_STOP`] percent ends the replay.
//! - The same calls give the same requests; the time is an argument.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::units::Nanos;
use crate::walk::order::ascends;

/// An entry of the list, as far as its replay needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEntry {
    /// When it was first seen to be used.
    pub first: Nanos,
    /// The bytes that are fetched.
    pub bytes: u64,
    /// Where it lies on a seek-bound device: its inode; 0 where that is not known.
    pub place: u64,
    /// Whether a use of it can be seen once it is there.
    pub is_judged: bool,
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Entries of the list.
    pub entries: u64,
    /// Entries that were requested.
    pub requested: u64,
    /// Entries of the list that the program was seen to use.
    pub used: u64,
    /// Of these, those that were requested.
    pub used_requested: u64,
    /// Requested entries of which a use would have been seen, and was not.
    pub unused: u64,
    /// Their bytes.
    pub unused_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    InFlight,
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    entry: ReplayEntry,
    state: State,
    is_used: bool,
    /// It was judged, and counts as unused.
    is_unused: bool,
    /// The number of uses after which it is.
    deadline: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Replay {
    rows: Vec<Row>,
    /// One past the last entry that was used, of those that were used about in turn.
    position: usize,
    /// The last entries that were used far ahead of the position.
    far: VecDeque<usize>,
    /// All before it are requested, but for those in `skipped`.
    front: usize,
    /// Entries before the front that the program passed before they were requested.
    skipped: VecDeque<u32>,
    /// Entries before the front that are requested next, by place.
    batch: VecDeque<u32>,
    /// Entries that wait to be used, by deadline.
    awaited: BTreeSet<(u64, u32)>,
    recent: Recent,
    /// The bytes of requested entries that were not used.
    ahead_bytes: u64,
    in_flight: BTreeSet<u32>,
    /// Times of the last uses.
    uses: VecDeque<Nanos>,
    /// A mean of how long fetches take.
    latency: Nanos,
    is_stopped: bool,
    /// The entries lie on a device in the order of their uses.
    is_by_place: bool,
    stats: ReplayStats,
}

/// Of the last entries that were judged: one bit each, set for one that was used.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    bits: u64,
    count: u32,
}

impl Recent {
    fn note(&mut self, is_used: bool) {
        self.bits = self.bits << 1 | u64::from(is_used);
        self.count = (self.count + 1).min(u64::BITS);
    }

    /// In percent; none while there are too few.
    fn precision(self) -> Option<u32> {
        (self.count >= JUDGED_MIN).then(|| self.bits.count_ones() * 100 / self.count)
    }
}

impl Replay {
    /// A replay of `entries`, by first use.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = ReplayEntry>) -> Self {
        let row = |entry| Row {
            entry,
            state: State::Waiting,
            is_used: false,
            is_unused: false,
            deadline: 0,
        };
        let rows: Vec<Row> = entries.into_iter().take(super::ENTRIES_MAX).map(row).collect();
        let is_by_place = is_by_place(&rows);
        let stats = ReplayStats { entries: rows.len() as u64, ..ReplayStats::default() };
        Self {
            rows,
            position: 0,
            far: VecDeque::new(),
            front: 0,
            skipped: VecDeque::new(),
            batch: VecDeque::new(),
            awaited: BTreeSet::new(),
            recent: Recent::default(),
            ahead_bytes: 0,
            in_flight: BTreeSet::new(),
            uses: VecDeque::new(),
            latency: Nanos(0),
            is_stopped: false,
            is_by_place,
            stats,
        }
    }

    /// What was done so far. Entries that were not judged yet count as neither used nor unused.
    #[must_use]
    pub fn stats(&self) -> ReplayStats {
        self.stats
    }

    /// Whether the list proved to be that of something else.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.recent.precision().is_some_and(|it| it < PRECISION_STOP)
    }

    /// Whether more may be requested at some time.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_all = self.front == self.rows.len();
        self.is_stopped || (is_all && self.skipped.is_empty() && self.batch.is_empty())
    }

    /// Requests that were not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Bytes that were requested and not used.
    #[must_use]
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes
    }

    /// The program uses the entry at `index`.
    pub fn used(&mut self, now: Nanos, index: u32) {
        let at = index as usize;
        let Some(row) = self.rows.get_mut(at).filter(|row| !row.is_used) else { return };
        row.is_used = true;
        self.stats.used += 1;
        if row.state != State::Waiting {
            self.stats.used_requested += 1;
            self.ahead_bytes -= row.entry.bytes;
            if core::mem::take(&mut row.is_unused) {
                // It came late, after others had passed it by.
                self.stats.unused -= 1;
                self.stats.unused_bytes -= row.entry.bytes;
            } else if row.entry.is_judged {
                self.awaited.remove(&(row.deadline, index));
                self.recent.note(true);
            }
        }
        self.uses.push_back(now);
        if self.uses.len() > USES_KEPT {
            self.uses.pop_front();
        }
        self.advance(at);
        self.judge();
    }

    /// Moves the position behind an entry that was used. Two runs differ in order: one that is far
    /// ahead tells nothing, but several near each other do.
    fn advance(&mut self, at: usize) {
        if at < self.position {
            return;
        }
        let mut to = at + 1;
        if at >= self.front + self.distance().max(AHEAD_MIN) {
            self.far.push_back(at);
            if self.far.len() > FAR_KEPT {
                self.far.pop_front();
            }
            let (first, last) = (self.far.iter().min(), self.far.iter().max());
            let spread = last.zip(first).map_or(0, |(last, first)| last - first);
            if self.far.len() < FAR_KEPT || spread > FAR_SPREAD {
                return;
            }
            to = last.map_or(to, |last| last + 1);
        }
        self.far.clear();
        self.position = to;
        // What the program came to before it was requested: what lies before may follow yet.
        let skipped = (self.front..self.position).filter(|&index| !self.rows[index].is_used);
        self.skipped.extend(skipped.map(number));
        self.front = self.front.max(self.position);
        assert!(self.position <= self.front, "the front is not behind the program");
    }

    /// Judges the entries that the program has passed by.
    fn judge(&mut self) {
        while let Some(&(deadline, index)) = self.awaited.first()
            && deadline <= self.stats.used
        {
            self.awaited.pop_first();
            self.recent.note(false);
            self.is_unused(index);
        }
        self.is_stopped |= self.is_wrong();
    }

    fn is_unused(&mut self, index: u32) {
        let row = &mut self.rows[index as usize];
        assert!(!row.is_used && !row.is_unused, "an entry is judged once");
        row.is_unused = true;
        self.stats.unused += 1;
        self.stats.unused_bytes += row.entry.bytes;
    }

    /// Nothing more is used: what is left is judged.
    pub fn finish(&mut self) {
        while let Some((_, index)) = self.awaited.pop_first() {
            self.is_unused(index);
        }
        self.is_stopped = true;
    }

    /// How many entries may be ahead of the program now.
    #[must_use]
    pub fn distance(&self) -> usize {
        if self.is_stopped {
            return 0;
        }
        let comes_to = match (self.uses.front(), self.uses.back()) {
            (Some(first), Some(last)) if last > first => {
                let uses = (self.uses.len() - 1) as u64;
                // What it comes to in twice the time of a fetch.
                2 * self.latency.0.saturating_mul(uses) / last.since(*first).0
            }
            _ => 0,
        };
        let ahead = usize::try_from(comes_to).unwrap_or(AHEAD_MAX).clamp(AHEAD_MIN, AHEAD_MAX);
        let halves = self.recent.precision().is_some_and(|it| it < PRECISION_HALF);
        if halves { ahead / 2 } else { ahead }
    }

    /// Appends the entries to fetch next to `out`: at most `room`, and no more than `budget_bytes`
    /// in all that is ahead. Where the device `seeks`, or that is not known yet, they go by place
    /// within their batch.
    pub fn issue(
        &mut self,
        mut room: usize,
        budget_bytes: u64,
        seeks: Option<bool>,
        out: &mut Vec<u32>,
    ) {
        let from = out.len();
        if self.is_by_place && seeks != Some(false) {
            // Each request beside the program's own takes the arm away and back.
            self.is_stopped |= seeks == Some(true);
            room = room.min(1_usize.saturating_sub(self.in_flight()));
        }
        if seeks != Some(false) {
            self.gather();
        }
        let end = self.end();
        while out.len() - from < room && !self.is_stopped {
            let is_batch = !self.batch.is_empty();
            let is_ahead = !is_batch && self.front < end;
            let next = match self.batch.front() {
                Some(&next) => Some(next),
                None if is_ahead => Some(number(self.front)),
                None => self.next_skipped(),
            };
            let Some(next) = next else { break };
            let row = &mut self.rows[next as usize];
            let bytes = row.entry.bytes;
            let all = self.ahead_bytes.saturating_add(bytes);
            let is_new = !row.is_used && row.state == State::Waiting;
            // A file beyond the whole budget would hold up those behind it for ever: left out.
            let is_requested = is_new && bytes <= budget_bytes;
            if is_requested && all > budget_bytes {
                break;
            }
            if is_batch {
                self.batch.pop_front();
            } else if is_ahead {
                self.front += 1;
            } else {
                self.skipped.pop_front();
            }
            if is_requested {
                row.state = State::InFlight;
                self.ahead_bytes = all;
                self.in_flight.insert(next);
                self.stats.requested += 1;
                out.push(next);
            }
        }
        assert!(out.len() - from <= room, "no more than there is room for");
    }

    /// One past the last entry that may be requested now.
    fn end(&self) -> usize {
        let distance = self.distance();
        let mut left = distance * CHEAP_FOR_ONE;
        let ahead = self.rows[self.position..].iter().take(AHEAD_MAX).take_while(|row| {
            let is_ahead = left > 0;
            left = left.saturating_sub(if row.entry.bytes == 0 { 1 } else { CHEAP_FOR_ONE });
            is_ahead
        });
        self.position + ahead.count()
    }

    /// Has the next entries requested by place, where no batch is under way.
    fn gather(&mut self) {
        if !self.batch.is_empty() || self.is_stopped {
            return;
        }
        let is_right = self.recent.precision().is_some_and(|it| it >= PRECISION_HALF);
        let end = if is_right { self.rows.len() } else { self.end() };
        let (mut batch, mut bytes) = (Vec::new(), 0_u64);
        while self.front < end && batch.len() < BATCH_ENTRIES {
            let entry = self.rows[self.front].entry;
            bytes = bytes.saturating_add(entry.bytes);
            if bytes > BATCH_BYTES && !batch.is_empty() {
                break;
            }
            batch.push((entry.place, number(self.front)));
            self.front += 1;
        }
        batch.sort_unstable();
        self.batch.extend(batch.into_iter().map(|(_, index)| index));
    }

    /// The oldest of the skipped that is not used by now.
    fn next_skipped(&mut self) -> Option<u32> {
        while let Some(&next) = self.skipped.front() {
            if !self.rows[next as usize].is_used {
                return Some(next);
            }
            self.skipped.pop_front();
        }
        None
    }

    /// The request for the entry at `index` has ended, after `took` if the device was waited for. A
    /// use of what was there already may have come before.
    pub fn complete(&mut self, index: u32, took: Option<Nanos>) {
        if !self.in_flight.remove(&index) {
            return;
        }
        let row = &mut self.rows[index as usize];
        row.state = State::Done;
        row.entry.is_judged &= took.is_some();
        if row.entry.is_judged && !row.is_used {
            // Those before it are used first, as far as the order is that of the list.
            let before = (index as usize).saturating_sub(self.position) as u64;
            row.deadline = self.stats.used + before + ORDER_SLACK;
            self.awaited.insert((row.deadline, index));
        }
        if let Some(took) = took {
            let before = if self.latency == Nanos(0) { took } else { self.latency };
            self.latency = Nanos((before.0 * (LATENCY_OF - 1) + took.0) / LATENCY_OF);
        }
    }
}

/// Whether a program that uses `rows` in their order goes by their places. What was first seen at
/// the same time has no order.
fn is_by_place(rows: &[Row]) -> bool {
    let known: Vec<ReplayEntry> =
        rows.iter().map(|row| row.entry).filter(|entry| entry.place > 0).collect();
    let steps = known.windows(2).filter(|step| step[0].first < step[1].first);
    ascends(steps.map(|step| [step[0].place, step[1].place])).unwrap_or(false)
}

/// The number of the row at `index`.
fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a list has a bound")
}

/// Entries ahead of the program, at least and at most.
pub const AHEAD_MIN: usize = 32;
/// See [`AHEAD_MIN`].
pub const AHEAD_MAX: usize = 256;
/// See the module.
pub const PRECISION_HALF: u32 = 80;
/// See the module.
pub const PRECISION_STOP: u32 = 50;
/// A batch on a seek-bound device, at most.
const BATCH_BYTES: u64 = 64 << 20;
const BATCH_ENTRIES: usize = 4_096;
/// So many entries without bytes count as one with.
const CHEAP_FOR_ONE: usize = 8;
/// Entries by which two runs differ in order.
const ORDER_SLACK: u64 = 32;
/// So many uses far ahead, no further from each other than the spread, are where the program is.
const FAR_KEPT: usize = 4;
const FAR_SPREAD: usize = 128;
/// Fewer judged entries tell nothing.
const JUDGED_MIN: u32 = 16;
const USES_KEPT: usize = 32;
/// A fetch moves the mean by one part in so many.
const LATENCY_OF: u64 = 8;

#[cfg(test)]
mod tests;
