//! Which entries are requested next: those that were held back and are used by now, the rest of a
//! batch, those ahead, and those that the program has passed.
//!
//! # Invariants
//! - Nothing is requested, or left out, while the budget is none.
//! - What a request may fetch is charged to the budget when it is issued, and while it is a bet it
//!   is no more than its cost there.
//! - An entry that may not be requested yet keeps its place, and those behind it wait; a large one
//!   is set aside.

use alloc::vec::Vec;

use super::proof::Proof;
use super::{AHEAD_MAX, Replay, Row, State, number};

/// Where an entry that is requested next stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Released,
    Batch,
    Ahead,
    Skipped,
}

impl Replay {
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
        if budget_bytes == 0 {
            return; // Not now: what is due stays so.
        }
        if self.is_by_place && seeks != Some(false) {
            // Each request beside the program's own takes the arm away and back.
            self.is_stopped |= seeks == Some(true);
            room = room.min(1_usize.saturating_sub(self.in_flight()));
        }
        let is_right = self.is_right();
        let is_followed = self.is_followed();
        let confirmed = if is_followed { FOLLOWED_FACTOR } else { 1 };
        if is_right {
            self.release(seeks);
        }
        let end = self.end();
        while out.len() - from < room && !self.is_stopped {
            if seeks != Some(false) {
                self.gather();
            }
            let Some((next, source)) = self.next(end) else { break };
            let row = self.rows[next as usize];
            let (bytes, cost) = (row.entry.bytes, row.cost());
            // Few uses of those without bytes are seen: where each does not take the arm away
            // from a program that may do something else, the distance alone is their bound.
            let is_bet = bytes > 0 || seeks != Some(false) && !is_followed;
            let is_known = source == Source::Released && row.is_used;
            let is_new = row.state == State::Waiting && (!row.is_used || is_known);
            // A file beyond the whole budget would hold up those behind it for ever: left out.
            let is_requested = is_new && bytes <= budget_bytes;
            let left = budget_bytes.saturating_sub(self.ahead_bytes);
            if is_requested && !row.is_used && bytes > left {
                break;
            }
            let is_allowed =
                is_right || is_known || !is_bet || self.proof.allows(cost, seeks, confirmed);
            let is_held = is_requested && !is_allowed && Proof::is_large(cost, seeks);
            if is_requested && !is_allowed && !is_held {
                break;
            }
            self.take(source);
            if is_held {
                self.held.insert(next);
            } else if is_requested {
                // Of a file that has grown no more than the list says, until that is believed.
                let more = if is_right || is_known { row.entry.bytes_max.min(left) } else { 0 };
                self.request(next, bytes.max(more), is_bet, seeks);
                out.push(next);
            }
        }
        assert!(out.len() - from <= room, "no more than there is room for");
    }

    /// The entry that is looked at next, with `end` past the last one ahead.
    fn next(&mut self, end: usize) -> Option<(u32, Source)> {
        if let Some(&next) = self.released.front() {
            return Some((next, Source::Released));
        }
        match self.batch.front() {
            Some(&next) => Some((next, Source::Batch)),
            None if self.front < end => Some((number(self.front), Source::Ahead)),
            None => self.next_skipped().map(|next| (next, Source::Skipped)),
        }
    }

    fn take(&mut self, source: Source) {
        match source {
            Source::Released => drop(self.released.pop_front()),
            Source::Batch => drop(self.batch.pop_front()),
            Source::Ahead => self.front += 1,
            Source::Skipped => drop(self.skipped.pop_front()),
        }
    }

    fn request(&mut self, index: u32, allowed: u64, is_bet: bool, seeks: Option<bool>) {
        let row = &mut self.rows[index as usize];
        assert!(row.state == State::Waiting, "an entry is requested once");
        row.state = State::InFlight;
        self.in_flight.insert(index);
        self.stats.requested += 1;
        row.allowed = allowed;
        if row.is_used {
            self.stats.used_requested += 1;
        } else {
            self.ahead_bytes += allowed;
            row.charged = allowed;
            row.seeks = seeks != Some(false);
            row.bet = is_bet.then(|| row.cost());
            if let Some(bet) = row.bet {
                self.proof.request(bet);
            }
        }
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

    /// Has those requested that were held back; where the device may seek, half a batch at a time.
    fn release(&mut self, seeks: Option<bool>) {
        if self.held.is_empty() {
            return;
        }
        let mut ahead = self.batch_ahead();
        while (seeks == Some(false) || !ahead.is_half())
            && let Some(next) = self.held.pop_first()
        {
            ahead.add(self.rows[next as usize].entry.bytes);
            self.released.push_back(next);
        }
    }

    /// Has the next entries requested by place, where no batch is under way.
    fn gather(&mut self) {
        if !self.batch.is_empty() || self.is_stopped || self.batch_ahead().is_half() {
            return;
        }
        let end = if self.is_right() || self.is_followed() { self.rows.len() } else { self.end() };
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

    /// What was requested, or is next, that the program has not come to: a list that has proved
    /// right may be that of a run that read more. What was left out or is held does not count.
    fn batch_ahead(&self) -> BatchAhead {
        let requested = |row: &&Row| row.state != State::Waiting;
        let requested = self.rows[self.position..self.front].iter().filter(requested);
        let next = self.released.iter().chain(&self.batch).map(|&next| next as usize);
        let next = next.filter(|&next| next >= self.position).map(|next| &self.rows[next]);
        let mut ahead = BatchAhead::default();
        for row in requested.chain(next).filter(|row| !row.is_used) {
            ahead.add(row.entry.bytes);
        }
        ahead
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
}

/// What is ahead of a program on a seek-bound device.
#[derive(Clone, Copy, Debug, Default)]
struct BatchAhead {
    entries: usize,
    bytes: u64,
}

impl BatchAhead {
    fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether it is half a batch and more.
    fn is_half(self) -> bool {
        self.entries >= BATCH_ENTRIES / 2 || self.bytes >= BATCH_BYTES / 2
    }
}

/// What was used of a list that its program follows pays for so many times as much.
const FOLLOWED_FACTOR: u64 = 8;
/// A batch on a seek-bound device, at most.
const BATCH_BYTES: u64 = 64 << 20;
const BATCH_ENTRIES: usize = 4_096;
/// So many entries without bytes count as one with.
const CHEAP_FOR_ONE: usize = 8;
