//! What every listed readahead policy owes, whatever its rules are.
//!
//! # Invariants
//! - Policies are taken from the list alone: a new one is tested here without being named.

use std::vec::Vec;

use forerun_core::prng::Prng;
use forerun_core::readahead::{self, NAMES};

use crate::walk::{Op, PAGE_BYTES, Walk};

/// Every policy as it is, and with windows of at most 7 pages where it has such a parameter.
fn specs() -> Vec<String> {
    let mut specs: Vec<String> = NAMES.iter().map(|name| (*name).to_string()).collect();
    for name in NAMES {
        for key in ["max", "size", "streams"] {
            let value = if key == "streams" { 2 } else { 7 * PAGE_BYTES };
            let spec = format!("{name}:{key}={value}");
            if readahead::make(&spec, PAGE_BYTES).is_ok() {
                specs.push(spec);
            }
        }
    }
    specs
}

/// Reads that mostly go on where an earlier one ended, with all that may happen in between.
pub(crate) fn sequence(prng: &mut Prng, file: u64) -> Vec<Op> {
    let mut cursors: Vec<u64> = (0..4).map(|_| prng.below(file)).collect();
    let largest = [1, 4, 9, 40][usize::try_from(prng.below(4)).unwrap()];
    let mut ops = Vec::new();
    while ops.len() < 60 {
        let handle = u32::try_from(prng.below(3)).unwrap();
        let cursor = &mut cursors[usize::try_from(prng.below(4)).unwrap()];
        match prng.below(30) {
            0 => ops.push(Op::Reopen(handle)),
            1 => ops.push(Op::Wait(300 * prng.below(9))),
            2..=4 => {
                let first = prng.below(file);
                ops.push(Op::Drop(first, first + prng.below(40)));
            }
            5 => *cursor = prng.below(file),
            6 => *cursor = cursor.saturating_sub(prng.below(3)),
            drawn => {
                let read = match drawn {
                    7 | 8 => Op::Busy,
                    9..=14 => Op::Late,
                    _ => Op::Read,
                };
                for _ in 0..=prng.below(6) {
                    let count = 1 + prng.below(largest);
                    ops.push(read(handle, *cursor, u32::try_from(count).unwrap()));
                    *cursor += count;
                }
            }
        }
    }
    ops
}

/// The walk itself holds each window to its bounds.
#[test]
fn every_listed_policy_serves_every_read_and_decides_alike_again() {
    for spec in specs() {
        for seed in 0..150 {
            let mut prng = Prng::new(seed);
            let file = 1 + prng.below(400);
            let ops = sequence(&mut prng, file);
            let mut walk = Walk::new(&spec, file);
            for (op, &what) in ops.iter().enumerate() {
                walk.step(op, what);
                let (Op::Read(_, first, count)
                | Op::Busy(_, first, count)
                | Op::Late(_, first, count)) = what
                else {
                    continue;
                };
                let end = (first + u64::from(count)).min(file);
                assert!((first..end).all(|page| walk.cached.contains(&page)), "{spec}: {what:?}");
                assert!(walk.rows.len() < 10 * 60 * 41, "{spec}: it never ends");
            }
            assert!(walk.cached.iter().all(|&page| page < file), "{spec}");
            assert_eq!(walk.rows, Walk::run(&spec, file, &ops).rows, "{spec}, seed {seed}");
        }
    }
}

#[test]
fn reads_far_apart_are_left_alone_by_every_policy_but_the_constant_one() {
    let mut prng = Prng::new(7);
    let ops: Vec<Op> =
        (0..200).map(|at| Op::Read(0, 3 + 40 * (at * 77 % 200) + at * at % 31, 2)).collect();
    let busy: Vec<Op> = (0..20).map(|_| Op::Read(0, 5 + prng.below(1 << 40), 1)).collect();
    for name in NAMES.iter().filter(|&&name| name != "fixed") {
        for (ops, file) in [(&ops, 8_200), (&busy, 1 << 41)] {
            let walk = Walk::run(name, file, ops);
            let asked: u32 =
                ops.iter().map(|op| if let Op::Read(_, _, n) = op { *n } else { 0 }).sum();
            let fetched: usize = walk.rows.iter().map(|row| row.fresh.len()).sum();
            assert_eq!(fetched, asked as usize, "{name}");
        }
    }
}
