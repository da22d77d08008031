//! Which series are found, how far they are gone on with, and what chance makes of them.

use alloc::vec::Vec;

use super::*;
use crate::prng::Prng;

const MIB: u64 = 1 << 20;
const FILE: u64 = 1 << 34;
const MOST: u64 = 16;

/// Which read of a series, and bytes behind it.
type Places<'a> = &'a [(u64, u64)];

/// The places that are prefetched after each read of `bytes`; `None`: it is of no series.
fn prefetched(starts: &[u64], bytes: u64) -> Vec<Option<Vec<u64>>> {
    let mut strides = StrideDetector::default();
    let mut one = |&start: &u64| {
        let known = strides.read(start, start + bytes);
        let next = std::iter::from_fn(|| Some(strides.next(FILE, MOST)?.0));
        known.then(|| next.collect())
    };
    starts.iter().map(&mut one).collect()
}

#[test]
fn a_stride_that_repeats_is_gone_on_with() {
    let place = |(count, behind): (u64, u64)| 3 + count * (10 * MIB + 7) + behind;
    let at = |count| place((count, 0));
    let side = 2 * MIB;
    #[rustfmt::skip]
    let rows: [(&str, Places<'_>, Option<Places<'_>>); 8] = [ // why, reads, after the last one
        ("one stride",       &[(0, 0), (1, 0)],                 None),
        ("two",            &[(0, 0), (1, 0), (2, 0)],         Some(&[(3, 0), (4, 0), (5, 0)])),
        ("each one more",  &[(0, 0), (1, 0), (2, 0), (3, 0)], Some(&[(6, 0), (7, 0)])),
        ("another order",  &[(1, 0), (0, 0), (2, 0)],         Some(&[(3, 0), (4, 0), (5, 0)])),
        ("a byte beside",  &[(0, 0), (1, 0), (2, 1)],         None),
        ("others between", &[(0, 0), (0, 9), (1, 0), (2, 0)], Some(&[(3, 0), (4, 0), (5, 0)])),
        ("a known stride",   &[(0, 0), (1, 0), (2, 0), (2, side), (3, side)],
                                                              Some(&[(4, side), (5, side)])),
        ("back",           &[(2, 0), (1, 0), (0, 0)],         None),
    ];
    for (why, reads, expected) in rows {
        let starts: Vec<_> = reads.iter().copied().map(place).collect();
        let expected = expected.map(|places| places.iter().copied().map(place).collect());
        assert_eq!(prefetched(&starts, MIB).pop().unwrap(), expected, "{why}");
    }
    let in_line: Vec<_> = (0..9).map(|count| 1 + count * MIB).collect();
    assert_eq!(prefetched(&in_line, MIB).iter().flatten().count(), 0, "a stream");
    assert_eq!(prefetched(&[at(0), at(1), at(2)], READ_BYTES_MIN - 1), [None, None, None], "small");
    let round: Vec<_> = (0..4).map(|count| count * 8 * MIB).collect();
    assert_eq!(prefetched(&round[..3], MIB)[2], None, "round places need one more");
    assert_eq!(prefetched(&round, MIB)[3].as_ref().map(Vec::len), Some(4));
}

#[test]
fn nothing_is_prefetched_twice_nor_past_the_end_nor_more_than_may_be() {
    let stride = 20 * MIB + 1;
    let starts: Vec<_> = (0..200).map(|count| 11 + count * stride).collect();
    let all: Vec<_> = prefetched(&starts, MIB).into_iter().flatten().flatten().collect();
    let expected: Vec<_> = (3..200 + MOST).map(|count| 11 + count * stride).collect();
    assert_eq!(all, expected);
    let mut strides = StrideDetector::default();
    let known = [0, 1, 2].map(|count| strides.read(1 + count * stride, 1 + count * stride + MIB));
    assert_eq!(known, [false, false, true]);
    let end = 1 + 3 * stride + 100;
    assert_eq!(strides.next(end, MOST), Some((1 + 3 * stride, end)), "cut at the end");
    assert_eq!(strides.next(end, MOST), None);
}

#[test]
fn readers_in_turn_are_streams() {
    for cursors in [3, 10, 40, 200] {
        for part in [64 * MIB, 64 * MIB + 77] {
            let rounds = (0..30).flat_map(|round| (0..cursors).map(move |at| (round, at)));
            let starts: Vec<_> = rounds.map(|(round, at)| at * part + round * MIB).collect();
            let found = prefetched(&starts, MIB);
            let last = found.iter().rposition(Option::is_some).unwrap_or(0) as u64;
            let some = cursors * u64::from(IN_LINE_MAX);
            assert!(last < some, "{cursors} readers of {part}: {last}");
        }
    }
}

#[test]
fn random_reads_are_hardly_ever_taken_for_a_series() {
    for places in [MIB, 1] {
        let mut chance = Prng::new(places);
        let starts: Vec<_> = (0..2_000).map(|_| chance.below(FILE / places) * places).collect();
        let found = prefetched(&starts, MIB).iter().flatten().count();
        assert!(found <= starts.len() / 50, "multiples of {places}: {found}");
    }
}
