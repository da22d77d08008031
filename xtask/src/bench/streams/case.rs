//! What is read, and from what: the patterns and the device models.
//!
//! # Invariants
//! - A pattern is the same words of `forerun bench streams` for the kernel, for the engine and, as
//!   the workload that they make, for the virtual device: the same reads in the same order.
//! - Every pattern fits the file of [`FILE_MIB`]; a quick one that of a quarter.
//!
//! # Sources
//! Patterns: Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), sections 4.2
//! and 4.3: interleaved streams, a stream with random reads in between. The others are what
//! programs do beside: columns, strides, backward readers, many slow streams in little memory,
//! reads at random.

/// An emulated device.
pub(super) struct Device {
    /// As slowdisk and forerun call it.
    pub(super) name: &'static str,
    /// What it gives a reader that knows everything and asks for as much at once as fits.
    pub(super) limit_mb_per_second: f64,
    /// The largest request that its queue takes.
    pub(super) request_kib: u32,
    /// Requests at once that it gains from.
    pub(super) depth: u32,
    /// As the simulator takes it.
    pub(super) virtually: &'static str,
}

/// All of them. A t7k250 without its buffer loses a turn with each command, so that it gives 28.5
/// and not the 52 of its media; an object store of 32 connections was measured.
#[rustfmt::skip]
pub(super) const DEVICES: [Device; 4] = [
    Device { name: "t7k250", limit_mb_per_second: 28.5,  request_kib: 512,   depth: 1,
             virtually: "t7k250:cache=off" },
    Device { name: "hdd",    limit_mb_per_second: 200.0, request_kib: 1_024, depth: 8,
             virtually: "hdd" },
    Device { name: "cloud",  limit_mb_per_second: 125.0, request_kib: 1_024, depth: 64,
             virtually: "cloud" },
    Device { name: "object", limit_mb_per_second: 562.0, request_kib: 1_024, depth: 64,
             virtually: "object" },
];

/// What is read.
pub(super) struct Pattern {
    pub(super) name: &'static str,
    pub(super) size: Size,
    /// The other words of `forerun bench streams`.
    pub(super) words: &'static str,
    /// Memory for pages in MiB, where it is short.
    pub(super) memory_mib: Option<u32>,
}

/// How much.
#[derive(Clone, Copy)]
pub(super) enum Size {
    /// KiB of each stream.
    Each(u32),
    /// KiB in all, of reads at random places.
    Random(u32),
}

const fn row(name: &'static str, size: Size, words: &'static str) -> Pattern {
    Pattern { name, size, words, memory_mib: None }
}

const fn short(name: &'static str, memory_mib: u32) -> Pattern {
    let words = "--streams 200 --readers 200 --rate 50000 --handles each";
    Pattern { name, size: Size::Each(600), words, memory_mib: Some(memory_mib) }
}

const MIB: u32 = 1 << 10;

#[rustfmt::skip]
pub(super) const PATTERNS: [Pattern; 14] = [
    row("stream",          Size::Each(128 * MIB), "--streams 1 --pattern sequential"),
    row("streams-10",      Size::Each(10 * MIB),  "--streams 10"),
    row("streams-10-each", Size::Each(10 * MIB),  "--streams 10 --handles each"),
    row("turns-2",         Size::Each(40 * MIB),  "--streams 2 --pattern round-robin"),
    row("turns-10",        Size::Each(10 * MIB),  "--streams 10 --pattern round-robin"),
    row("backward",        Size::Each(16 * MIB),  "--streams 1 --pattern backward"),
    row("stride-64K-256K", Size::Each(16 * MIB),
        "--streams 1 --pattern stride:64K/256K --request 64K"),
    row("stride-4K-64K",   Size::Each(4 * MIB),   "--streams 1 --pattern stride:4K/64K"),
    row("parquet-8",       Size::Each(MIB),       "--pattern parquet:8 --request 64K"),
    row("disturb-1",       Size::Each(100 * MIB), "--pattern disturb:1"),
    row("disturb-10",      Size::Each(100 * MIB), "--pattern disturb:10"),
    short("paced-200-64M", 64),
    short("paced-200-32M", 32),
    row("random-4K",       Size::Random(32 * MIB), ""),
];

/// The file that holds them all, in MiB.
pub(super) const FILE_MIB: u32 = 1_100;
/// The part of it that random reads are in.
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
        assert_eq!(words("streams-10", false), "--each 10240K --streams 10");
        assert_eq!(words("streams-10", true), "--each 2560K --streams 10");
        assert_eq!(words("random-4K", false), "--each 32768K --pattern uniform:1024M");
        assert_eq!(words("random-4K", true), "--each 8192K --pattern uniform:256M");
    }
}
