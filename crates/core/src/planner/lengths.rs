//! Run lengths: how far readers came before they went elsewhere, and how far the next one is likely
//! to come.
//!
//! ```text
//!   |=======run=======|.......|======run======|......|===run===#- - likely - -|
//!                      seek                    seek            so far
//! ```
//! Of the last runs, those that were at least as long as the present one so far are its likely
//! futures: it is followed as far as half of them went. One that has come further than all others
//! goes on as far again, less where many ended of late, at about its length. Where none is known, a
//! run goes on as far again, too, and some way from the start; and where a reader takes turns: it
//! went on where it had left a run.
//!
//! # Invariants
//! - [`RunLengths::reach`] is never less than what was read.
//! - Where the last runs went to the ends of their files, nothing bounds the next one.
//! # Sources
//! The product-limit estimate of Kaplan and Meier (1958), of the last few runs, of which a half
//! decides. Ours: the octave in which runs count that ended before.

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunLengths {
    last: [Run; KEPT],
    next: usize,
    /// So many more runs may be left for a while only: of late, one went on.
    turns: usize,
}

/// A run that was left.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// 0: none.
    bytes: u64,
    /// Where it was left.
    end: u64,
}

impl RunLengths {
    /// A run of `bytes` was left at `end`; [`WHOLE`]: at the end of its file.
    pub(super) fn ended(&mut self, bytes: u64, end: u64) {
        self.turns = self.turns.saturating_sub(1);
        if bytes >= SHORTEST {
            self.last[self.next] = Run { bytes, end };
            self.next = (self.next + 1) % KEPT;
        }
    }

    /// A run of `bytes`, if there was one, was left for good.
    pub(super) fn left(&mut self, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.ended(bytes, u64::MAX);
        }
    }

    /// The reader is at `at`. Takes the run out that goes on there, as one of several that take
    /// turns: returns its length so far, with what was skipped.
    pub(super) fn resumed(&mut self, at: u64, skipped_max: u64) -> Option<u64> {
        let goes_on = |run: &&mut Run| {
            let on = run.end..=run.end.saturating_add(skipped_max);
            (1..WHOLE).contains(&run.bytes) && on.contains(&at)
        };
        let run = self.last.iter_mut().find(goes_on)?;
        let Run { bytes, end } = core::mem::take(run);
        self.turns = KEPT;
        Some(bytes + (at - end))
    }

    /// Whether nothing is known of the reader's runs.
    pub(super) fn is_empty(&self) -> bool {
        self.longest() == 0 && self.turns == 0
    }

    /// The longest of the last runs.
    pub(super) fn longest(&self) -> u64 {
        self.last.iter().map(|run| run.bytes).max().unwrap_or(0)
    }

    /// How far a run is likely to come of which `read` bytes were read. `first`: how far ahead the
    /// first run is followed at least, where that is worth more than is lost of it once.
    pub(super) fn reach(&self, read: u64, first: u64) -> u64 {
        if self.longest() == 0 || self.turns > 0 {
            return read.saturating_add(read.max(first).max(UNKNOWN));
        }
        let mut longer = [0; KEPT];
        let (mut futures, mut ended) = (0, 0);
        for Run { bytes, .. } in self.last {
            if bytes >= read.max(1) {
                longer[futures] = bytes;
                futures += 1;
            } else {
                ended += u64::from(bytes > read / 2);
            }
        }
        longer[..futures].sort_unstable();
        let likely = longer[futures / 2];
        if futures > 1 {
            return likely;
        }
        let further = read.saturating_add(read / ended.max(1));
        let further = further.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
        if ended > 1 { further } else { further.max(likely) }
    }
}

/// The length of a run that ended with its file.
pub(super) const WHOLE: u64 = u64::MAX;
/// A shorter run tells nothing of others: a header, or a lone read.
const SHORTEST: u64 = 32 << 10;
/// The runs that decide.
const KEPT: usize = 16;
/// How far the first run is followed at least: what is lost of it is lost once.
const UNKNOWN: u64 = 8 << 20;
/// What a run beyond all others is followed by, at least: a window of the kernel's own readahead.
const STEP: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lengths: &[u64]) -> RunLengths {
        let mut known = RunLengths::default();
        for &bytes in lengths {
            known.ended(bytes, 0);
        }
        known
    }

    #[test]
    fn a_run_is_followed_as_far_as_half_of_those_that_came_so_far() {
        const M: u64 = 1 << 20;
        #[rustfmt::skip]
        let rows: &[(&str, &[u64], u64, u64)] = &[
            ("nothing is known",            &[],                   M,          9 * M),
            ("headers tell nothing",        &[4096, 8192],         9 * M,      18 * M),
            ("all alike",                   &[M; 8],               0,          M),
            ("at the end of all",           &[M; 8],               M,          M),
            ("beyond all: a bit",           &[M; 8],               M + 1,      M + M / 4),
            ("twice as long as all",        &[M; 8],               2 * M + 2,  4 * M + (128 << 10)),
            ("one alone, as far again",     &[M],                  M * 3 / 4,  M * 3 / 2),
            ("whole files",                 &[WHOLE; 3],           M,          WHOLE),
            ("half of them whole",          &[M, WHOLE, M, WHOLE], 4096,       WHOLE),
            ("fewer",                       &[M, WHOLE, M, M],     4096,       M),
            ("but it has outlived those",   &[M, WHOLE, M, WHOLE], 2 * M,      WHOLE),
            ("one alone did",               &[M, WHOLE, M, M],     M + 1,      M + M / 8 * 3),
        ];
        for &(why, lengths, read, reach) in rows {
            assert_eq!(of(lengths).reach(read, 0), reach, "{why}");
        }
    }

    #[test]
    fn the_first_run_is_followed_as_far_as_its_device_is_worth() {
        let none = of(&[]);
        assert_eq!([none.reach(0, 0), none.reach(100, 1 << 30)], [UNKNOWN, (1 << 30) + 100]);
        assert_eq!(of(&[1 << 20]).reach(0, 1 << 30), 1 << 20, "what is known counts");
    }

    #[test]
    fn the_oldest_go() {
        let mut known = of(&[WHOLE; KEPT]);
        for _ in 0..KEPT / 2 {
            known.ended(1 << 20, 0);
        }
        assert_eq!(known.reach(0, 0), WHOLE, "half of them");
        known.ended(1 << 20, 0);
        assert_eq!(known.reach(0, 0), 1 << 20);
    }

    #[test]
    fn a_run_that_goes_on_has_not_ended() {
        let mut known = RunLengths::default();
        known.ended(1 << 20, 5 << 20);
        known.ended(WHOLE, 9 << 20);
        assert_eq!([6, 4, 9].map(|at| known.resumed(at << 20, 1000)), [None; 3]);
        assert_eq!(known.resumed((5 << 20) + 1000, 1000), Some((1 << 20) + 1000));
        assert_eq!(known.resumed(5 << 20, 1000), None, "it is taken out");
        assert_eq!((known.longest(), known.reach(0, 0)), (WHOLE, UNKNOWN), "others may, too");
        for _ in 0..KEPT {
            known.ended(0, 0);
        }
        assert_eq!(known.reach(0, 0), WHOLE);
    }

    #[test]
    fn no_run_is_given_up_within_what_was_read() {
        for lengths in [&[40 << 10][..], &[1 << 20, 64 << 10, WHOLE], &[1 << 30; 9]] {
            let known = of(lengths);
            for read in (0..4 << 20).step_by(10_000).chain([u64::MAX / 2, WHOLE - 1, WHOLE]) {
                assert!(known.reach(read, 0) >= read, "{read}: {}", known.reach(read, 0));
            }
        }
    }
}
