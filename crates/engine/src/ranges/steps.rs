//! Large reads at even distances: the chunks of a column in a table, or of an array.
//!
//! ```text
//!   |====|.........|====|.........|====|.........|- - |.........|- - |     == read, - - foreseen
//!   |<-- step ---->|<-- step ---->|
//! ```
//! Core finds strides too, in whole pages. Such a step is seldom a whole number of them: the place
//! drifts by a page now and then, and each time core takes it for another reader. Here places are
//! bytes, and a step is one that came again to the byte. The order of reads does not matter, so
//! columns may take turns.
//!
//! Readers in turn, each at its part of the file, take even steps as well, and go on in line: each
//! row of places begins where the one before ends. After a few such rows they are core's, as
//! streams are.
//!
//! Where places are round, chance would do it as well: random reads of chunks of 1 MiB that begin
//! at multiples of 1 MiB. There the step has to come once more.
//!
//! # Invariants
//! - What was asked for is at most as many pieces past the farthest read as were read of the row.
//! - At most `RECENT_MAX` reads and `ROWS_MAX` rows are kept; the oldest goes first.
//! # Sources
//! Two equal steps as evidence: Baer and Chen, "An effective on-chip preloading scheme to reduce
//! data access penalty" (1991). Ours: the places, and what is asked of chance.

use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Steps {
    recent: VecDeque<Piece>,
    rows: VecDeque<Row>,
    /// Rows that were found.
    pub(super) found: u64,
}

/// A read.
#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    bytes: u64,
    /// Reads that end where the next begins, up to this one.
    in_line: u32,
}

/// Reads at even distances.
struct Row {
    origin: u64,
    step: u64,
    /// Of the longest of them.
    bytes: u64,
    /// How many were read.
    seen: u64,
    /// Where the farthest one begins that was read, and that was asked for.
    reached: u64,
    asked: u64,
    /// Rows that end where the next begins, up to this one.
    in_line: u32,
}

impl Steps {
    /// Somebody reads `start..end`: whether that is one of a row, whose next ones [`Steps::next`]
    /// tells.
    pub(super) fn read(&mut self, start: u64, end: u64) -> bool {
        let bytes = end - start;
        if bytes < PIECE_BYTES_MIN {
            return false;
        }
        let before = self.recent.iter().find(|piece| piece.start + piece.bytes == start);
        let piece = Piece { start, bytes, in_line: before.map_or(0, |piece| piece.in_line) + 1 };
        let row = if piece.in_line > IN_LINE_MAX { None } else { self.row_of(piece) };
        keep(&mut self.recent, piece, RECENT_MAX);
        let Some(mut row) = row else { return false };
        row.seen += 1;
        row.bytes = row.bytes.max(bytes);
        row.reached = row.reached.max(start);
        row.asked = row.asked.max(start);
        let foreseen = row.in_line <= IN_LINE_MAX;
        keep(&mut self.rows, row, ROWS_MAX);
        foreseen
    }

    /// The next piece of the row that was read last, in a file of `file_bytes`, while no more than
    /// `most` are ahead. It is asked for now.
    pub(super) fn next(&mut self, file_bytes: u64, most: u64) -> Option<(u64, u64)> {
        let row = self.rows.back_mut()?;
        let last = row.reached.saturating_add(row.seen.min(most).saturating_mul(row.step));
        let start = row.asked.checked_add(row.step)?;
        (start <= last && start < file_bytes).then(|| {
            row.asked = start;
            (start, start.saturating_add(row.bytes).min(file_bytes))
        })
    }

    /// The row that `piece` goes on with, taken out; or a new one.
    fn row_of(&mut self, piece: Piece) -> Option<Row> {
        let Piece { start, bytes, .. } = piece;
        let goes_on = |row: &Row| row.has(start) && alike(row.bytes, bytes);
        if let Some(at) = self.rows.iter().position(goes_on) {
            return self.rows.remove(at);
        }
        let steps = self.recent.iter().filter_map(|other| piece.start.checked_sub(other.start));
        let (step, seen) =
            steps.filter_map(|step| Some((step, self.evidence(piece, step)?))).min()?;
        let follows = |row: &&Row| row.step == step && row.has(start.saturating_sub(row.bytes));
        let in_line =
            self.rows.iter().filter(follows).map(|row| row.in_line).max().unwrap_or(0) + 1;
        self.found += u64::from(in_line <= IN_LINE_MAX);
        let origin = start - seen * step;
        Some(Row { origin, step, bytes, seen, reached: start, asked: start, in_line })
    }

    /// How many reads lie before `piece`, `step` apart, if they are enough to go by.
    fn evidence(&self, piece: Piece, step: u64) -> Option<u64> {
        if step < piece.bytes + GAP_BYTES_MIN {
            return None;
        }
        let was_read = |start: u64| {
            self.recent.iter().any(|other| other.start == start && alike(other.bytes, piece.bytes))
        };
        let befores = (1..=EQUAL_STEPS_ROUND).map_while(|count| {
            piece.start.checked_sub(count * step).filter(|&start| was_read(start))
        });
        let count = befores.count() as u64;
        let round = (piece.start | step).trailing_zeros() >= ROUND_BITS;
        let is_known = || self.rows.iter().any(|row| row.step == step);
        let enough = match (round, count) {
            (true, _) => EQUAL_STEPS_ROUND,
            (false, 1) if is_known() => 1,
            (false, _) => EQUAL_STEPS,
        };
        (count >= enough).then_some(count)
    }
}

impl Row {
    /// Whether a piece of it begins at `start`.
    fn has(&self, start: u64) -> bool {
        let after = start.checked_sub(self.origin);
        after.is_some_and(|after| after.is_multiple_of(self.step))
    }
}

/// Whether two lengths may be those of one row.
fn alike(one: u64, other: u64) -> bool {
    one.min(other) * ALIKE >= one.max(other)
}

/// Appends `row`; the first one goes where there are `most`.
fn keep<T>(rows: &mut VecDeque<T>, row: T, most: usize) {
    if rows.len() == most {
        rows.pop_front();
    }
    rows.push_back(row);
}

/// Smaller reads are core's: there a window through the gaps may be the cheaper way.
const PIECE_BYTES_MIN: u64 = 256 << 10;
/// What lies closer is read in line, or nearly so.
const GAP_BYTES_MIN: u64 = 8 << 10;
/// More reads in line than this, or rows, are streams, and core's: a few are chunks that lie side
/// by side.
const IN_LINE_MAX: u32 = 3;
/// The longest of a row is at most so many times as long as another.
const ALIKE: u64 = 2;
/// Equal steps that are enough, and where places are round.
const EQUAL_STEPS: u64 = 2;
const EQUAL_STEPS_ROUND: u64 = 3;
/// Round: a multiple of 4 KiB. `RECENT_MAX` reads have half as many pairs as its square: of a
/// thousand places, chance hits one with every other read; of a thousand times 4096, hardly ever.
const ROUND_BITS: u32 = 12;
const RECENT_MAX: usize = 32;
const ROWS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use forerun_core::prng::Prng;

    use super::*;

    const MIB: u64 = 1 << 20;
    const FILE: u64 = 1 << 34;
    const MOST: u64 = 16;

    /// Which step of a row, and bytes behind it.
    type Places<'a> = &'a [(u64, u64)];

    /// The places that are asked for after each read of `bytes`; `None`: it is of no row.
    fn asked(starts: &[u64], bytes: u64) -> Vec<Option<Vec<u64>>> {
        let mut steps = Steps::default();
        let mut one = |&start: &u64| {
            let known = steps.read(start, start + bytes);
            let next = std::iter::from_fn(|| Some(steps.next(FILE, MOST)?.0));
            known.then(|| next.collect())
        };
        starts.iter().map(&mut one).collect()
    }

    #[test]
    fn a_step_that_came_again_is_gone_on_with() {
        let place = |(count, behind): (u64, u64)| 3 + count * (10 * MIB + 7) + behind;
        let at = |count| place((count, 0));
        let side = 2 * MIB;
        #[rustfmt::skip]
        let rows: [(&str, Places<'_>, Option<Places<'_>>); 8] = [ // why, reads, after the last one
            ("one step",       &[(0, 0), (1, 0)],                 None),
            ("two",            &[(0, 0), (1, 0), (2, 0)],         Some(&[(3, 0), (4, 0), (5, 0)])),
            ("each one more",  &[(0, 0), (1, 0), (2, 0), (3, 0)], Some(&[(6, 0), (7, 0)])),
            ("another order",  &[(1, 0), (0, 0), (2, 0)],         Some(&[(3, 0), (4, 0), (5, 0)])),
            ("a byte beside",  &[(0, 0), (1, 0), (2, 1)],         None),
            ("others between", &[(0, 0), (0, 9), (1, 0), (2, 0)], Some(&[(3, 0), (4, 0), (5, 0)])),
            ("a known step",   &[(0, 0), (1, 0), (2, 0), (2, side), (3, side)],
                                                                  Some(&[(4, side), (5, side)])),
            ("back",           &[(2, 0), (1, 0), (0, 0)],         None),
        ];
        for (why, reads, expected) in rows {
            let starts: Vec<_> = reads.iter().copied().map(place).collect();
            let expected = expected.map(|places| places.iter().copied().map(place).collect());
            assert_eq!(asked(&starts, MIB).pop().unwrap(), expected, "{why}");
        }
        let in_line: Vec<_> = (0..9).map(|count| 1 + count * MIB).collect();
        assert_eq!(asked(&in_line, MIB).iter().flatten().count(), 0, "a stream");
        assert_eq!(asked(&[at(0), at(1), at(2)], PIECE_BYTES_MIN - 1), [None, None, None], "small");
        let round: Vec<_> = (0..4).map(|count| count * 8 * MIB).collect();
        assert_eq!(asked(&round[..3], MIB)[2], None, "round places need one more");
        assert_eq!(asked(&round, MIB)[3].as_ref().map(Vec::len), Some(4));
    }

    #[test]
    fn nothing_is_asked_for_twice_nor_past_the_end_nor_more_than_may_be() {
        let step = 20 * MIB + 1;
        let starts: Vec<_> = (0..200).map(|count| 11 + count * step).collect();
        let all: Vec<_> = asked(&starts, MIB).into_iter().flatten().flatten().collect();
        let expected: Vec<_> = (3..200 + MOST).map(|count| 11 + count * step).collect();
        assert_eq!(all, expected);
        let mut steps = Steps::default();
        let known = [0, 1, 2].map(|count| steps.read(1 + count * step, 1 + count * step + MIB));
        assert_eq!(known, [false, false, true]);
        let end = 1 + 3 * step + 100;
        assert_eq!(steps.next(end, MOST), Some((1 + 3 * step, end)), "cut at the end");
        assert_eq!(steps.next(end, MOST), None);
    }

    #[test]
    fn readers_in_turn_are_streams() {
        for cursors in [3, 10, 40, 200] {
            for part in [64 * MIB, 64 * MIB + 77] {
                let rounds = (0..30).flat_map(|round| (0..cursors).map(move |at| (round, at)));
                let starts: Vec<_> = rounds.map(|(round, at)| at * part + round * MIB).collect();
                let found = asked(&starts, MIB);
                let last = found.iter().rposition(Option::is_some).unwrap_or(0) as u64;
                let some = cursors * u64::from(IN_LINE_MAX);
                assert!(last < some, "{cursors} readers of {part}: {last}");
            }
        }
    }

    #[test]
    fn random_reads_are_hardly_ever_taken_for_a_row() {
        for places in [MIB, 1] {
            let mut chance = Prng::new(places);
            let starts: Vec<_> = (0..2_000).map(|_| chance.below(FILE / places) * places).collect();
            let found = asked(&starts, MIB).iter().flatten().count();
            assert!(found <= starts.len() / 50, "multiples of {places}: {found}");
        }
    }
}
