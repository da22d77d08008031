//! The patterns of reads.
//!
//! # Invariants
//! - A pattern is the same words of `forerun bench streams` for the kernel, for the engine and, as
//!   the workload that they make, for the virtual device: the same reads in the same order.
//! - Every pattern fits the file of [`FILE_MIB`]; a quick pattern fits a quarter of it.
//!
//! # Sources
//! Patterns: Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), sections 4.2
//! and 4.3: interleaved streams, a stream with random reads in between. The others are what
//! programs do beside: columns, strides, backward readers, many slow streams in little memory,
//! reads at random.

/// A pattern.
pub(super) struct Pattern {
    pub(super) name: &'static str,
    size: Size,
    /// The other words of `forerun bench streams`.
    words: &'static str,
    /// Memory for pages in MiB, where it is short.
    pub(super) memory_mib: Option<u32>,
    /// The pace of all readers together, where they have one.
    pub(super) pace_mb_per_second: Option<f64>,
    /// Further policies of this pattern, beside the chosen ones.
    pub(super) beside: &'static [&'static str],
}

/// How much.
#[derive(Clone, Copy)]
enum Size {
    /// KiB of each stream.
    Each(u32),
    /// KiB in all, of reads at random places.
    Random(u32),
}

const fn row(name: &'static str, size: Size, words: &'static str) -> Pattern {
    Pattern { name, size, words, memory_mib: None, pace_mb_per_second: None, beside: &[] }
}

const fn paced(name: &'static str, memory_mib: u32) -> Pattern {
    let words = "--streams 200 --readers 200 --rate 50000 --handles each --layout irregular";
    let pace_mb_per_second = Some(10.0);
    Pattern {
        memory_mib: Some(memory_mib),
        pace_mb_per_second,
        ..row(name, Size::Each(1_000), words)
    }
}

const MIB: u32 = 1 << 10;

#[rustfmt::skip]
pub(super) const PATTERNS: [Pattern; 17] = [
    row("stream-100M",     Size::Each(100 * MIB),
        "--streams 1 --layout irregular --start mid"),
    row("streams-10-100M", Size::Each(100 * MIB),
        "--streams 10 --layout irregular --start mid"),
    row("streams-10-100M-each", Size::Each(100 * MIB),
        "--streams 10 --layout irregular --start mid --handles each"),
    row("streams-10-10M",  Size::Each(10 * MIB),
        "--streams 10 --layout irregular --start mid"),
    row("streams-10-10M-each", Size::Each(10 * MIB),
        "--streams 10 --layout irregular --start mid --handles each"),
    row("turns-2",         Size::Each(40 * MIB),
        "--streams 2 --pattern round-robin --layout irregular --start mid"),
    row("turns-10",        Size::Each(10 * MIB),
        "--streams 10 --pattern round-robin --layout irregular --start mid"),
    row("backward",        Size::Each(100 * MIB), "--streams 1 --pattern backward"),
    row("stride-64K-256K", Size::Each(25 * MIB),  "--streams 1 --pattern stride:64K/256K"),
    row("stride-4K-64K",   Size::Each(4 * MIB),   "--streams 1 --pattern stride:4K/64K"),
    row("parquet-8",       Size::Each(MIB),       "--pattern parquet:8"),
    row("disturb-1",       Size::Each(100 * MIB), "--pattern disturb:1"),
    row("disturb-4",       Size::Each(100 * MIB), "--pattern disturb:4"),
    row("disturb-10",      Size::Each(100 * MIB), "--pattern disturb:10"),
    paced("paced-200-64M", 64),
    paced("paced-200-32M", 32),
    Pattern { beside: &["off"], ..row("random-4K", Size::Random(8 * MIB), "") },
];

/// The file that holds them all, in MiB: ten streams in twice their length, behind a gap.
pub(super) const FILE_MIB: u32 = 2_100;
/// The part of it for random reads.
const RANDOM_MIB: u32 = 1_024;
const _: () = assert!(RANDOM_MIB <= FILE_MIB);

impl Pattern {
    /// The words of `forerun bench streams` that make these reads, a quarter of them if `quick`.
    pub(super) fn words(&self, quick: bool) -> Vec<String> {
        let share = |size: u32| if quick { size / 4 } else { size };
        let size = match self.size {
            Size::Each(kib) => format!("--each {}K", share(kib)),
            Size::Random(kib) => {
                format!("--each {}K --pattern uniform:{}M", share(kib), share(RANDOM_MIB))
            }
        };
        let words = format!("{size} {}", self.words);
        words.split_whitespace().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_sizes_scale() {
        for (at, pattern) in PATTERNS.iter().enumerate() {
            assert!(PATTERNS[..at].iter().all(|before| before.name != pattern.name));
        }
        let words = |name: &str, quick| {
            let found = PATTERNS.iter().find(|pattern| pattern.name == name);
            found.expect(name).words(quick).join(" ")
        };
        assert_eq!(
            words("stride-4K-64K", false),
            "--each 4096K --streams 1 --pattern stride:4K/64K"
        );
        assert_eq!(
            words("stride-4K-64K", true),
            "--each 1024K --streams 1 --pattern stride:4K/64K"
        );
        assert_eq!(words("random-4K", false), "--each 8192K --pattern uniform:1024M");
        assert_eq!(words("random-4K", true), "--each 2048K --pattern uniform:256M");
    }
}
