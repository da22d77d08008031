//! How the reads of one file go on from each other.
//!
//! ```text
//!   sequential   |--1--|--2--|   |--3--|        where one ended, or at most NEAR beyond
//!   backward     |--3--|--2--|--1--|            one ends where the one before began
//!   stride       |-1-|      |-2-|      |-3-|    the same step as before
//!   random       what is left: reads that nothing goes on from
//! ```
//! # Invariants
//! - Every byte that was read is in one stream; reads that stand alone are one stream together.
//! - At most [`TAILS_MAX`] streams go on at a time, the one longest left gives way; at most
//!   [`STREAMS_MAX`] are told, those beyond by their bytes, with the last of them.

use std::ops::Range;

use forerun_core::units::Nanos;

use super::{Pattern, StreamTold};

/// The streams of a file.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    tails: Vec<Tail>,
    ended: Vec<StreamTold>,
    left_out: u64,
    /// Reads that stand alone.
    lone: Option<StreamTold>,
    /// Where the last read began.
    last: Option<u64>,
    reads: u64,
}

/// A stream that may go on.
#[derive(Debug)]
struct Tail {
    told: StreamTold,
    last: Range<u64>,
    /// From the start of the last read but one to that of the last.
    step: Option<i128>,
    /// Reads, and bytes of those that went on so; the first goes with the others.
    reads: u64,
    forward: u64,
    backward: u64,
    strided: u64,
    /// Which read was its last.
    used: u64,
}

/// How a read goes on from a stream.
#[derive(Clone, Copy)]
enum Relation {
    Forward,
    Backward,
    Strided,
}

impl Patterns {
    /// `range` was read, after a wait of `waited`.
    pub(super) fn read(&mut self, now: Nanos, range: &Range<u64>, waited: Nanos) {
        self.reads += 1;
        let found = self.tails.iter().enumerate().filter_map(|(at, tail)| {
            let (rank, relation) = tail.relation(range)?;
            Some((rank, at, relation))
        });
        if let Some((_, at, relation)) = found.min_by_key(|&(rank, at, _)| (rank, at)) {
            self.tails[at].go_on(now, range, waited, relation, self.reads);
        } else {
            if self.tails.len() == TAILS_MAX {
                let oldest = (0..TAILS_MAX).min_by_key(|&at| self.tails[at].used);
                let oldest = self.tails.swap_remove(oldest.expect("there are some"));
                self.end_one(oldest);
            }
            let step = self.last.map(|last| i128::from(range.start) - i128::from(last));
            self.tails.push(Tail::new(now, range, waited, step, self.reads));
        }
        self.last = Some(range.start);
    }

    /// All streams, as they began, and how many more there were.
    pub(super) fn end(mut self) -> (Vec<StreamTold>, u64) {
        for tail in std::mem::take(&mut self.tails) {
            self.end_one(tail);
        }
        self.ended.extend(self.lone);
        self.ended.sort_by_key(|stream| (stream.from, stream.range.start));
        (self.ended, self.left_out)
    }

    fn end_one(&mut self, tail: Tail) {
        let told = tail.told();
        if told.pattern == Pattern::Random {
            join(&mut self.lone, told);
        } else if self.ended.len() < STREAMS_MAX {
            self.ended.push(told);
        } else {
            self.left_out += 1;
            let same = self.ended.iter_mut().rev().find(|other| other.pattern == told.pattern);
            if let Some(last) = same.or(self.lone.as_mut()) {
                last.add(&told);
            } else {
                self.lone = Some(told);
            }
        }
    }
}

impl Tail {
    fn new(now: Nanos, range: &Range<u64>, waited: Nanos, step: Option<i128>, used: u64) -> Self {
        let told = StreamTold {
            pattern: Pattern::Random,
            bytes: range.end - range.start,
            range: range.clone(),
            from: now,
            to: now,
            waited,
        };
        let (reads, forward, backward, strided) = (1, 0, 0, 0);
        Self { told, last: range.clone(), step, reads, forward, backward, strided, used }
    }

    /// How `range` goes on from here, the nearest relation having the lowest rank.
    fn relation(&self, range: &Range<u64>) -> Option<(u8, Relation)> {
        let step = i128::from(range.start) - i128::from(self.last.start);
        if range.start == self.last.end {
            return Some((0, Relation::Forward));
        }
        if range.end == self.last.start {
            return Some((1, Relation::Backward));
        }
        if self.step == Some(step) && step != 0 {
            return Some((2, Relation::Strided));
        }
        let gap = range.start.checked_sub(self.last.end)?;
        (gap <= NEAR_BYTES).then_some((3, Relation::Forward))
    }

    fn go_on(
        &mut self,
        now: Nanos,
        range: &Range<u64>,
        waited: Nanos,
        relation: Relation,
        used: u64,
    ) {
        let bytes = range.end - range.start;
        match relation {
            Relation::Forward => self.forward += bytes,
            Relation::Backward => self.backward += bytes,
            Relation::Strided => self.strided += bytes,
        }
        self.step = Some(i128::from(range.start) - i128::from(self.last.start));
        (self.reads, self.last, self.used) = (self.reads + 1, range.clone(), used);
        let (pattern, from) = (self.told.pattern, now);
        let more = StreamTold { pattern, bytes, range: range.clone(), from, to: now, waited };
        self.told.add(&more);
    }

    fn told(self) -> StreamTold {
        let most = self.forward.max(self.backward).max(self.strided);
        let pattern = match self.reads {
            // What was seen as one was many reads where it is long.
            1 if self.told.bytes < LONG_BYTES => Pattern::Random,
            1 => Pattern::Sequential,
            _ if most == self.forward => Pattern::Sequential,
            _ if most == self.strided => Pattern::Strided,
            _ => Pattern::Backward,
        };
        StreamTold { pattern, ..self.told }
    }
}

impl StreamTold {
    /// Takes in what `other` has read.
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.range.start = self.range.start.min(other.range.start);
        self.range.end = self.range.end.max(other.range.end);
        (self.from, self.to) = (self.from.min(other.from), self.to.max(other.to));
        self.waited += other.waited;
    }
}

fn join(all: &mut Option<StreamTold>, one: StreamTold) {
    match all {
        Some(all) => all.add(&one),
        None => *all = Some(one),
    }
}

const TAILS_MAX: usize = 32;
const STREAMS_MAX: usize = 64;
/// A reader that leaves out so little goes on in order: the kernel reads such gaps with the rest.
const NEAR_BYTES: u64 = 64 << 10;
/// The longest read that programs usually make.
const LONG_BYTES: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// Reads of `count` KiB from `from` KiB on, `step` KiB apart.
    fn reads(from: u64, step: i64, count: u64, times: u64) -> Vec<Range<u64>> {
        let start = |at: u64| (from * KIB).saturating_add_signed(step * 1024 * at.cast_signed());
        (0..times).map(|at| start(at)..start(at) + count * KIB).collect()
    }

    /// The bytes of each pattern, in KiB, and the number of streams.
    fn told(all: impl IntoIterator<Item = Range<u64>>) -> ([u64; 4], usize) {
        let mut patterns = Patterns::default();
        for (at, range) in all.into_iter().enumerate() {
            patterns.read(Nanos(at as u64), &range, Nanos(1));
        }
        let (streams, left_out) = patterns.end();
        assert_eq!(left_out, 0);
        let of = |pattern| {
            let streams = streams.iter().filter(|stream| stream.pattern == pattern);
            streams.map(|stream| stream.bytes / KIB).sum()
        };
        let all = [Pattern::Sequential, Pattern::Backward, Pattern::Strided, Pattern::Random];
        (all.map(of), streams.len())
    }

    fn in_turn(a: Vec<Range<u64>>, b: Vec<Range<u64>>) -> Vec<Range<u64>> {
        a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect()
    }

    #[test]
    fn a_stream_is_what_goes_on() {
        let apart = [9000, 17, 30_000, 441, 22_222, 150];
        let random: Vec<_> = apart.into_iter().flat_map(|at| reads(at * 4, 0, 4, 1)).collect();
        let gaps = in_turn(reads(0, 12, 4, 9), reads(8, 12, 4, 9));
        let both = in_turn(reads(0, 4, 4, 50), reads(9000, 4, 4, 50));
        #[rustfmt::skip]
        let rows = [ // why               reads                        by pattern; streams
            ("in order",                  reads(0, 4, 4, 100),         ([400, 0, 0, 0], 1)),
            ("with small gaps",           gaps,                        ([72, 0, 0, 0], 1)),
            ("backward",                  reads(400, -4, 4, 100),      ([0, 400, 0, 0], 1)),
            ("in steps, but the first",   reads(0, 256, 4, 100),       ([0, 0, 396, 4], 2)),
            ("in short steps",            reads(0, 32, 4, 100),        ([0, 0, 400, 0], 1)),
            ("steps back, but the first", reads(90_000, -256, 4, 100), ([0, 0, 396, 4], 2)),
            ("one look at many reads",    reads(0, 0, 512, 1),         ([512, 0, 0, 0], 1)),
            ("one small read",            reads(0, 0, 4, 1),           ([0, 0, 0, 4], 1)),
            ("two in turn",               both,                        ([400, 0, 0, 0], 2)),
            ("none goes on",              random,                      ([0, 0, 0, 24], 1)),
            ("the same again and again",  reads(8, 0, 4, 10),          ([0, 0, 0, 40], 1)),
        ];
        for (why, reads, expected) in rows {
            assert_eq!(told(reads), expected, "{why}");
        }
    }

    #[test]
    fn no_byte_is_lost_where_streams_are_many() {
        let mut patterns = Patterns::default();
        let mut bytes = 0;
        for stream in 0..500_u64 {
            for range in reads(stream * 10_000, 8, 8, 3) {
                bytes += range.end - range.start;
                patterns.read(Nanos(stream), &range, Nanos(2));
            }
        }
        let (streams, left_out) = patterns.end();
        assert_eq!(streams.iter().map(|stream| stream.bytes).sum::<u64>(), bytes);
        assert_eq!(streams.iter().map(|stream| stream.waited.0).sum::<u64>(), 3000);
        assert!(streams.len() <= STREAMS_MAX + 1 && left_out == 500 - STREAMS_MAX as u64);
    }
}
