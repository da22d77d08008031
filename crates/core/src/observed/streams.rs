//! How the accesses of one file continue from each other.
//!
//! ```text
//!   sequential   |--1--|--2--|   |--3--|        begins where one ended, or at most NEAR beyond
//!   backward     |--3--|--2--|--1--|            ends where the one before began
//!   stride       |-1-|      |-2-|      |-3-|    the same step as before
//!   random       accesses that nothing continues, or one alone
//! ```
//!
//! # Invariants
//! - Every byte that was read is in one stream; random accesses are one stream together.
//! - At most `OPEN_MAX` streams are open at a time, the one that was used longest ago is closed
//!   for a new one; at most `STREAMS_MAX` are kept, the bytes of others count for the last of
//!   these.

use alloc::vec::Vec;
use core::ops::Range;

use crate::units::Nanos;

/// Accesses that continue from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSummary {
    /// How they continue.
    pub pattern: Pattern,
    /// Bytes of all accesses.
    pub bytes: u64,
    /// From the lowest byte to the highest.
    pub range: Range<u64>,
    /// When the first access was observed, and the last.
    pub from: Nanos,
    /// See `from`.
    pub to: Nanos,
    /// The time that the program waited for storage before it went on here.
    pub waited: Nanos,
}

/// How accesses continue from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Each begins where another has ended, or a little beyond.
    Sequential,
    /// Each ends where the one before began.
    Backward,
    /// All are equally far apart.
    Strided,
    /// They do not continue.
    #[default]
    Random,
}

impl Pattern {
    /// Every pattern.
    pub const ALL: [Self; 4] = [Self::Sequential, Self::Backward, Self::Strided, Self::Random];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Backward => "backward",
            Self::Strided => "stride",
            Self::Random => "random",
        }
    }

    /// Whether the next access can be known before it comes.
    #[must_use]
    pub fn is_predictable(self) -> bool {
        self != Self::Random
    }
}

impl StreamSummary {
    /// Adds the accesses of `other`.
    fn join(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.range.start = self.range.start.min(other.range.start);
        self.range.end = self.range.end.max(other.range.end);
        (self.from, self.to) = (self.from.min(other.from), self.to.max(other.to));
        self.waited += other.waited;
        assert!(self.from <= self.to && self.range.start <= self.range.end);
    }
}

/// The streams of a file.
#[derive(Clone, Debug, Default)]
pub struct FileStreams {
    open: Vec<OpenStream>,
    closed: Vec<StreamSummary>,
    left_out: u64,
    /// Random accesses.
    lone: Option<StreamSummary>,
    /// The start of the last access.
    last: Option<u64>,
    reads: u64,
}

/// A stream that may continue.
#[derive(Clone, Debug)]
struct OpenStream {
    summary: StreamSummary,
    last: Range<u64>,
    /// From the start of the last access but one to that of the last.
    step: Option<i128>,
    /// Accesses, and bytes of those that continued in each way; the first goes with the others.
    reads: u64,
    forward: u64,
    backward: u64,
    strided: u64,
    /// The number of its last access.
    used: u64,
}

/// How an access continues a stream.
#[derive(Clone, Copy)]
enum Relation {
    Forward,
    Backward,
    Strided,
}

impl FileStreams {
    /// Adds an access to `range`, after a wait of `waited`.
    ///
    /// # Panics
    /// The range ends before it starts.
    pub fn read(&mut self, now: Nanos, range: &Range<u64>, waited: Nanos) {
        self.reads += 1;
        assert!(range.start <= range.end, "an access has its start before its end");
        let found = self.open.iter().enumerate().filter_map(|(at, stream)| {
            let (rank, relation) = stream.relation(range)?;
            Some((rank, at, relation))
        });
        if let Some((_, at, relation)) = found.min_by_key(|&(rank, at, _)| (rank, at)) {
            self.open[at].add(now, range, waited, relation, self.reads);
        } else {
            if self.open.len() == OPEN_MAX {
                let oldest = (0..OPEN_MAX).min_by_key(|&at| self.open[at].used);
                let oldest = self.open.swap_remove(oldest.expect("there are some"));
                self.close(oldest);
            }
            let step = self.last.map(|last| i128::from(range.start) - i128::from(last));
            self.open.push(OpenStream::new(now, range, waited, step, self.reads));
            assert!(self.open.len() <= OPEN_MAX, "more open streams than are allowed");
        }
        self.last = Some(range.start);
    }

    /// All streams in the order of their beginnings, and how many more there were.
    #[must_use]
    pub fn end(mut self) -> (Vec<StreamSummary>, u64) {
        for stream in core::mem::take(&mut self.open) {
            self.close(stream);
        }
        self.closed.extend(self.lone);
        self.closed.sort_by_key(|stream| (stream.from, stream.range.start));
        assert!(self.closed.len() <= STREAMS_MAX + 1, "more streams than are allowed");
        (self.closed, self.left_out)
    }

    fn close(&mut self, stream: OpenStream) {
        let summary = stream.summary();
        if summary.pattern == Pattern::Random {
            match &mut self.lone {
                Some(lone) => lone.join(&summary),
                None => self.lone = Some(summary),
            }
        } else if self.closed.len() < STREAMS_MAX {
            self.closed.push(summary);
        } else {
            self.left_out += 1;
            let mut others = self.closed.iter_mut().rev();
            let same = others.find(|other| other.pattern == summary.pattern);
            if let Some(last) = same.or(self.lone.as_mut()) {
                last.join(&summary);
            } else {
                self.lone = Some(summary);
            }
        }
    }
}

impl OpenStream {
    fn new(now: Nanos, range: &Range<u64>, waited: Nanos, step: Option<i128>, used: u64) -> Self {
        let summary = StreamSummary {
            pattern: Pattern::Random,
            bytes: range.end - range.start,
            range: range.clone(),
            from: now,
            to: now,
            waited,
        };
        let (reads, forward, backward, strided) = (1, 0, 0, 0);
        Self { summary, last: range.clone(), step, reads, forward, backward, strided, used }
    }

    /// How `range` continues from here; the closest relation has the lowest rank.
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

    /// Adds an access to `range`, which continues it.
    fn add(
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
        let (pattern, from) = (self.summary.pattern, now);
        let more = StreamSummary { pattern, bytes, range: range.clone(), from, to: now, waited };
        self.summary.join(&more);
        let continued = self.forward + self.backward + self.strided;
        assert!(continued <= self.summary.bytes, "an access continues in one way");
    }

    fn summary(self) -> StreamSummary {
        let most = self.forward.max(self.backward).max(self.strided);
        let pattern = match self.reads {
            // A long access between two polls was several reads; of random ones some happen to lie
            // beside each other.
            1 | 2 if self.summary.bytes < LONG_BYTES => Pattern::Random,
            1 => Pattern::Sequential,
            _ if most == self.forward => Pattern::Sequential,
            _ if most == self.strided => Pattern::Strided,
            _ => Pattern::Backward,
        };
        StreamSummary { pattern, ..self.summary }
    }
}

const OPEN_MAX: usize = 32;
const STREAMS_MAX: usize = 64;
/// A reader that skips so little is sequential: the kernel reads such gaps with the rest.
const NEAR_BYTES: u64 = 64 << 10;
/// The longest usual read.
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
    fn streams_of(all: impl IntoIterator<Item = Range<u64>>) -> ([u64; 4], usize) {
        let mut patterns = FileStreams::default();
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
    fn a_stream_is_what_continues() {
        let apart = [9000, 17, 30_000, 441, 22_222, 150];
        let random: Vec<_> = apart.into_iter().flat_map(|at| reads(at * 4, 0, 4, 1)).collect();
        let beside = random.iter().cloned().chain(reads(9_020 * 4, 0, 4, 1)).collect::<Vec<_>>();
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
            ("one poll of many reads",    reads(0, 0, 512, 1),         ([512, 0, 0, 0], 1)),
            ("one small read",            reads(0, 0, 4, 1),           ([0, 0, 0, 4], 1)),
            ("two in turn",               both,                        ([400, 0, 0, 0], 2)),
            ("none continues",             random,                      ([0, 0, 0, 24], 1)),
            ("two neighbours by chance",  beside,                      ([0, 0, 0, 28], 1)),
            ("the same again and again",  reads(8, 0, 4, 10),          ([0, 0, 0, 40], 1)),
        ];
        for (why, reads, expected) in rows {
            assert_eq!(streams_of(reads), expected, "{why}");
        }
    }

    #[test]
    fn no_byte_is_lost_where_streams_are_many() {
        let mut patterns = FileStreams::default();
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
