//! Ranges of a file: joined, bounded, and each with the runs that used it.
//!
//! ```text
//!   before          ===1=====      ===11====    ====1====
//!   used now             =====
//!   not visible                    =========    =========
//!   after           =10= 11 =1=    ===111===    ===10====     bit 0: the last run
//!                                  trusted      not trusted
//! ```
//! What a run was seen to use counts for it. Of what was fetched ahead of the program no use is
//! visible: the last run counts as the run before it. That goes for ranges that were trusted alone,
//! as no others are fetched: or what was used once would count as used again.
//!
//! # Invariants
//! - Ranges are in order and do not overlap; two that touch have other runs.
//! - At most [`RANGES_MAX`]: the nearest are joined where there are more.

use alloc::vec::Vec;
use core::ops::Range;

use super::{HISTORY, RANGES_MAX};

/// A range, and which of the last runs used it.
pub(super) type Span = (Range<u64>, u8);

/// `ranges` in order, those that touch joined, and the nearest joined where there are too many.
pub(super) fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let spans = ranges.into_iter().map(|range| (range, 1)).collect();
    layered(spans).into_iter().map(|(range, _)| range).collect()
}

/// The spans that `layers` are together: where several lie, the runs of all count.
pub(super) fn layered(layers: Vec<Span>) -> Vec<Span> {
    let spans = bounded(touching_joined(flattened(layers)));
    assert!(spans.len() <= RANGES_MAX, "ranges have a bound");
    spans
}

/// What is known of a file after a run that was seen to use `seen` of it, where no use of `unseen`
/// is visible, as far as what the runs `before` used was trusted.
pub(super) fn after_run(
    mut before: Vec<Span>,
    seen: &[Range<u64>],
    unseen: &[Range<u64>],
    are_trusted: &dyn Fn(u8) -> bool,
) -> Vec<Span> {
    before.extend(seen.iter().map(|range| (range.clone(), SEEN)));
    before.extend(unseen.iter().map(|range| (range.clone(), UNSEEN)));
    let mut spans = flattened(before);
    for (_, runs) in &mut spans {
        let now = if *runs & UNSEEN != 0 { aged_unseen(*runs, are_trusted) } else { aged(*runs) };
        *runs = now | u8::from(*runs & SEEN != 0);
    }
    layered(spans)
}

/// The last `runs`, once more has come.
pub(super) fn aged(runs: u8) -> u8 {
    (runs << 1) & HISTORY
}

/// The same where no use of that run would be seen, and what is trusted was fetched for it.
pub(super) fn aged_unseen(runs: u8, are_trusted: &dyn Fn(u8) -> bool) -> u8 {
    aged(runs) | if are_trusted(runs & HISTORY) { runs & 1 } else { 0 }
}

/// `layers` cut where one begins or ends, in order, without what no run used.
fn flattened(layers: Vec<Span>) -> Vec<Span> {
    let mut edges: Vec<(u64, u8, bool)> = Vec::new();
    for (range, runs) in layers {
        if !range.is_empty() && runs != 0 {
            edges.push((range.start, runs, true));
            edges.push((range.end, runs, false));
        }
    }
    edges.sort_unstable();
    let mut open = [0_usize; u8::BITS as usize];
    let (mut spans, mut from) = (Vec::new(), 0);
    for (at, runs, begins) in edges {
        let now = (0_u8..).zip(&open).filter(|(_, count)| **count > 0);
        let now = now.map(|(bit, _)| 1 << bit).sum::<u8>();
        if now != 0 && from < at {
            spans.push((from..at, now));
        }
        from = at;
        for (bit, count) in (0_u8..).zip(&mut open).filter(|(bit, _)| runs & 1 << bit != 0) {
            assert!(begins || *count > 0, "run {bit} ends where it began");
            *count = if begins { *count + 1 } else { *count - 1 };
        }
    }
    spans
}

/// `spans` with those joined that touch and have the same runs; those of no run are left out.
fn touching_joined(spans: Vec<Span>) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::new();
    for (range, runs) in spans.into_iter().filter(|(_, runs)| *runs & HISTORY != 0) {
        match out.last_mut() {
            Some((last, same)) if last.end == range.start && *same == runs => last.end = range.end,
            Some(_) | None => out.push((range, runs)),
        }
    }
    out
}

/// `spans` with the nearest joined, and the runs of both, until there are few enough.
fn bounded(spans: Vec<Span>) -> Vec<Span> {
    if spans.len() <= RANGES_MAX {
        return spans;
    }
    let gap = |two: &[Span]| two[1].0.start - two[0].0.end;
    let mut gaps: Vec<u64> = spans.windows(2).map(gap).collect();
    gaps.sort_unstable();
    let closed_max = gaps[spans.len() - RANGES_MAX - 1];
    let mut fewer: Vec<Span> = Vec::new();
    for (range, runs) in spans {
        match fewer.last_mut() {
            Some((last, both)) if range.start - last.end <= closed_max => {
                (last.end, *both) = (range.end, *both | runs);
            }
            Some(_) | None => fewer.push((range, runs)),
        }
    }
    touching_joined(fewer)
}

/// Marks what the run was seen to use.
const SEEN: u8 = 1 << 6;
/// Marks what no use is visible of.
const UNSEEN: u8 = 1 << 7;
const _: () = assert!((SEEN | UNSEEN) & HISTORY == 0);

#[cfg(test)]
mod tests {
    use core::slice::from_ref;

    use super::*;
    use crate::learned::MAJORITY;

    /// Every byte of a small file by itself: which runs count for it.
    fn by_byte(spans: &[Span]) -> [u8; 6] {
        let mut bytes = [0; 6];
        for (range, runs) in spans {
            for at in range.clone() {
                assert_eq!(bytes[usize::try_from(at).unwrap()], 0, "spans do not overlap");
                bytes[usize::try_from(at).unwrap()] = *runs;
            }
        }
        bytes
    }

    #[test]
    fn each_byte_of_every_small_file_counts_the_runs_that_used_it() {
        let all: Vec<Range<u64>> =
            (0..6).flat_map(|from| (from + 1..=6).map(move |to| from..to)).collect();
        for old in &all {
            for seen in &all {
                for unseen in &all {
                    let before = [(old.clone(), 0b1), (4..6, 0b10), (2..3, 0b110)].to_vec();
                    let was = by_byte(&layered(before.clone()));
                    let are_trusted = |runs: u8| runs.count_ones() >= MAJORITY;
                    let (used, hidden) = (from_ref(seen), from_ref(unseen));
                    let after = after_run(before, used, hidden, &are_trusted);
                    for (at, found) in (0..).zip(by_byte(&after)) {
                        let was = was[usize::try_from(at).unwrap()];
                        let is_hidden = unseen.contains(&at) && are_trusted(was);
                        let is_used = seen.contains(&at) || is_hidden && was & 1 != 0;
                        let expected = was << 1 & HISTORY | u8::from(is_used);
                        assert_eq!(found, expected, "{old:?} {seen:?} {unseen:?}");
                    }
                    let is_apart = |two: &[Span]| two[0].0.end < two[1].0.start;
                    assert!(after.windows(2).all(|it| is_apart(it) || it[0].1 != it[1].1));
                    assert_eq!(layered(after.clone()), after, "it is in order");
                }
            }
        }
    }

    #[test]
    fn more_than_there_may_be_are_joined_and_no_run_is_lost() {
        let runs = |at: u64| [1, 2, 4][usize::try_from(at % 3).unwrap()];
        let many = RANGES_MAX as u64 * 3;
        let layers: Vec<Span> = (0..many).map(|at| (at * 10..at * 10 + 9, runs(at))).collect();
        let fewer = layered(layers.clone());
        assert!(fewer.len() <= RANGES_MAX, "{}", fewer.len());
        assert_eq!(layered(fewer.clone()), fewer);
        for (range, runs) in layers {
            let holds = |(it, all): &&Span| {
                it.start <= range.start && range.end <= it.end && all & runs != 0
            };
            assert!(fewer.iter().any(|span| holds(&span)), "{range:?}");
        }
    }
}
