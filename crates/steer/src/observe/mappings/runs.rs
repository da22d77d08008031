//! Runs of addresses that are present: what is new in a scan, and what lies beside it.
//!
//! # Invariants
//! - Runs are in order, not empty, and do not overlap.

use std::ops::Range;

/// The parts of `after` that are not in `before`.
pub(super) fn added(before: &[Range<u64>], after: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut old = before.iter().peekable();
    for run in after {
        let mut at = run.start;
        while old.next_if(|old| old.end <= at).is_some() {}
        let mut rest = old.clone();
        while let Some(known) = rest.next_if(|known| known.start < run.end) {
            if at < known.start {
                found.push(at..known.start);
            }
            at = at.max(known.end);
        }
        if at < run.end {
            found.push(at..run.end);
        }
    }
    found
}

/// Replaces what `runs` has of `piece` by `found`, which lies within it.
pub(super) fn replace(runs: &mut Vec<Range<u64>>, piece: &Range<u64>, found: Vec<Range<u64>>) {
    let cut = |run: &Range<u64>, range: &Range<u64>| {
        let part = run.start.max(range.start)..run.end.min(range.end);
        (part.start < part.end).then_some(part)
    };
    let (before, behind) = (0..piece.start, piece.end..u64::MAX);
    let old = std::mem::take(runs);
    let first = old.iter().filter_map(|run| cut(run, &before));
    let last = old.iter().filter_map(|run| cut(run, &behind));
    for run in first.chain(found).chain(last) {
        match runs.last_mut() {
            Some(known) if known.end == run.start => known.end = run.end,
            Some(_) | None => runs.push(run),
        }
    }
}

/// Lengthens the run in which `more` begins, or at whose end, to the end of `more` at least.
pub(super) fn lengthen(runs: &mut Vec<Range<u64>>, more: &Range<u64>) {
    assert!(more.start <= more.end, "a run has its start before its end");
    let begins = |run: &Range<u64>| run.start <= more.start && more.start <= run.end;
    let Some(at) = runs.iter().position(begins) else { return };
    runs[at].end = runs[at].end.max(more.end);
    while runs.get(at + 1).is_some_and(|next| next.start <= runs[at].end) {
        let next = runs.remove(at + 1);
        runs[at].end = runs[at].end.max(next.end);
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_what_was_not_there() {
        type Runs<'a> = &'a [Range<u64>];
        #[rustfmt::skip]
        let rows: [(&str, Runs<'_>, Runs<'_>, Runs<'_>); 8] = [
            ("nothing before",      &[],            &[1..3, 5..6],  &[1..3, 5..6]),
            ("the same",            &[1..3],        &[1..3],        &[]),
            ("longer",              &[1..3],        &[1..9],        &[3..9]),
            ("longer before",       &[5..9],        &[1..9],        &[1..5]),
            ("grown together",      &[1..3, 7..9],  &[1..9],        &[3..7]),
            ("gone in part",        &[1..9],        &[2..3, 5..6],  &[]),
            ("gone and come",       &[1..3],        &[5..6],        &[5..6]),
            ("round about",         &[3..4, 6..7],  &[1..9],        &[1..3, 4..6, 7..9]),
        ];
        for (why, before, after, expected) in rows {
            assert_eq!(added(before, after), expected, "{why}");
        }
    }

    #[test]
    fn what_is_found_of_a_piece_takes_the_place_of_what_was_known() {
        #[rustfmt::skip]
        let rows = [ // why, before, piece, found, after
            ("all new",          vec![],              0..9,   vec![1..3, 5..9], vec![1..3, 5..9]),
            ("gone",             vec![1..3],          0..9,   vec![],           vec![]),
            ("elsewhere",        vec![1..3, 20..30],  10..19, vec![12..13],
                                                              vec![1..3, 12..13, 20..30]),
            ("across both ends", vec![1..30],         10..20, vec![11..12],
                                                              vec![1..10, 11..12, 20..30]),
            ("grown together",   vec![1..10, 20..30], 10..20, vec![10..20],     vec![1..30]),
        ];
        for (why, mut runs, piece, found, after) in rows {
            replace(&mut runs, &piece, found);
            assert_eq!(runs, after, "{why}");
        }
    }

    #[test]
    fn a_run_that_goes_on_meets_others() {
        let mut runs = vec![1..3, 5..6, 8..9];
        lengthen(&mut runs, &(3..4));
        assert_eq!(runs, [1..4, 5..6, 8..9]);
        lengthen(&mut runs, &(4..7));
        assert_eq!(runs, [1..7, 8..9]);
        lengthen(&mut runs, &(20..21));
        assert_eq!(runs, [1..7, 8..9]);
        // Another cursor was there first, and did not come so far.
        lengthen(&mut runs, &(6..8));
        assert_eq!(runs, [1..9]);
        lengthen(&mut runs, &(2..4));
        assert_eq!(runs, [1..9]);
    }
}
