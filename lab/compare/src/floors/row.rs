//! The table of workloads and their floors in virtual time.
//!
//! ```text
//!   name   what is read, scaled by the length, drawn by the seed   memory   what it should reach
//! ```
//!
//! # Invariants
//! - Floors stand in the order of [`DEVICES`](crate::device::DEVICES).

/// A workload and its aim.
pub(super) struct Row {
    pub(super) name: &'static str,
    reads: Reads,
    pub(super) memory: &'static str,
    /// Whether a run of perfect readahead takes minutes.
    pub(super) is_long: bool,
    /// Whether the run is a second one, which begins with what the first has learnt of the device.
    pub(super) is_remembered: bool,
    pub(super) aim: Aim,
    /// Bytes read for each that is wanted, at most.
    pub(super) bytes_max: Option<f64>,
}

/// A workload of `forerun sim`.
struct Reads {
    /// The parameters without the scaled one and the seed.
    words: &'static str,
    /// The scaled parameter: its key, its value at length 1, and the unit of its values.
    key: &'static str,
    bytes: u64,
    unit: u64,
    /// Whether the workload draws from a seed.
    seeded: bool,
}

/// The aim of a policy, device by device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aim {
    /// A share of the device's throughput.
    Plain([f64; 4]),
    /// A share of the throughput of perfect readahead.
    Online([f64; 4]),
    /// No bound; the best of Linux stands beside the figure.
    Beside,
    /// So many MB/s, which is the pace of all readers together.
    Pace(f64),
    /// No more requests than Linux.
    Requests,
    /// So many bytes read for each that is wanted, at most.
    Bytes(f64),
    /// Few wasted bytes, and no read slower than without readahead.
    Random,
}

impl Aim {
    /// The rivals of the aim.
    pub(super) fn rivals(self) -> &'static [&'static str] {
        match self {
            Self::Plain(_) | Self::Online(_) | Self::Pace(_) | Self::Bytes(_) => &[],
            Self::Beside => &["linux-6:max=128K", "linux-6:max=1M", "linux-6:max=8M"],
            Self::Requests => &["linux-6"],
            Self::Random => &["off"],
        }
    }
}

impl Row {
    /// The workload as `forerun sim` takes it.
    pub(super) fn workload(&self, per_cent: u32, seed: u64) -> String {
        let Reads { words, key, bytes, unit, seeded } = self.reads;
        let scaled = (bytes * u64::from(per_cent) / 100 / unit).max(1) * unit;
        let seed = if seeded { format!(",seed={seed}") } else { String::new() };
        format!("workload:{words},{key}={scaled}{seed}")
    }

    /// The seeds of `seeds` that change the workload.
    pub(super) fn seeds<'a>(&self, seeds: &'a [u64]) -> &'a [u64] {
        if self.reads.seeded { seeds } else { &seeds[..1] }
    }
}

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4 << 10;

const fn reads(words: &'static str, key: &'static str, bytes: u64, unit: u64) -> Reads {
    Reads { words, key, bytes, unit, seeded: true }
}

const fn each(words: &'static str, mib: u64) -> Reads {
    reads(words, "each", mib * MIB, PAGE)
}

const fn row(name: &'static str, reads: Reads, memory: &'static str, aim: Aim) -> Row {
    Row { name, reads, memory, is_long: false, is_remembered: false, aim, bytes_max: None }
}

const fn long(row: Row) -> Row {
    Row { is_long: true, ..row }
}

const fn within(bytes_max: f64, row: Row) -> Row {
    Row { bytes_max: Some(bytes_max), ..row }
}

/// A row of long streams, of which little is read in vain.
const fn long_streams(name: &'static str, words: &'static str, mib: u64, floors: [f64; 4]) -> Row {
    within(1.15, row(name, each(words, mib), "1G", Aim::Plain(floors)))
}

/// 200 readers in turns at random, whose streams end in gaps as long as themselves.
const fn readers_200(name: &'static str, memory: &'static str) -> Row {
    row(name, each(READERS_200, 2), memory, Aim::Bytes(1.1))
}

const STREAM: &str = "streams,n=1,layout=irregular,start=mid";
const STREAMS_10: &str = "streams,n=10,layout=irregular,start=mid";
const STREAMS_100: &str = "streams,n=100,layout=irregular,start=mid";
const STREAMS_1000: &str = "streams,n=1000,layout=irregular,start=mid";
const ADJACENT_10: &str = "streams,n=10,start=mid";
const STREAMS_7: &str = "streams,n=7,request=8K,layout=irregular,start=mid";
const STREAMS_13: &str = "streams,n=13,request=8K,layout=irregular,start=mid";
const STREAMS_17: &str = "streams,n=17,request=8K,layout=irregular,start=mid";
const READERS_200: &str = "streams,n=200,request=64K,layout=irregular";
const BACKWARD: &str = "backward,n=1,layout=irregular";
const STRIDE_64K: &str = "stride,n=1,piece=64K,every=256K";
const STRIDE_4K: &str = "stride,n=1,piece=4K,every=64K";
const PARQUET: Reads = Reads {
    words: "parquet,columns=8,groups=1,apart=32M",
    key: "chunk",
    bytes: MIB,
    unit: PAGE,
    seeded: false,
};
/// 20 seconds at length 1.
const PACED: Reads = reads(
    "streams,n=200,readers=200,rate=50000,handles=each,layout=irregular",
    "each",
    1_000_000,
    1_000,
);
const PACE_MB_PER_SECOND: f64 = 10.0;
const TURNS_2: &str = "streams,n=2,order=alternate,layout=irregular,start=mid";
const TURNS_10: &str = "streams,n=10,order=alternate,layout=irregular,start=mid";

const fn disturb(name: &'static str, words: &'static str) -> Row {
    row(name, reads(words, "sequential", 100 * MIB, PAGE), "1G", Aim::Beside)
}

/// Every row.
#[rustfmt::skip]
pub(super) const ROWS: [Row; 29] = [ //                      t7k250 hdd  cloud object
    long_streams("stream-100M",           STREAM, 100,      [0.97, 0.95, 0.97, 0.52]),
    long_streams("stream-1G",             STREAM, 1_000,    [0.97, 0.95, 0.97, 0.90]),
    long_streams("streams-10-100M",       STREAMS_10, 100,  [0.95, 0.86, 0.95, 0.60]),
    long(long_streams("streams-100-100M", STREAMS_100, 100, [0.95, 0.76, 0.95, 0.60])),
    long(Row { memory: "4G",
        ..long_streams("streams-100-100M-4G", STREAMS_100, 100, [0.95, 0.84, 0.95, 0.62]) }),
    long(within(1.4, row("streams-1000-10M", each(STREAMS_1000, 10), "4G",
                                  Aim::Plain([0.75, 0.55, 0.72, 0.18])))),
    within(1.4, row("streams-10-10M", each(STREAMS_10, 10), "1G",
                                  Aim::Plain([0.82, 0.50, 0.80, 0.15]))),
    within(1.1, row("streams-10-10M-adjacent", each(ADJACENT_10, 10), "1G",
                                  Aim::Plain([0.95, 0.72, 0.80, 0.15]))),
    long_streams("backward-100M",         BACKWARD, 100,    [0.95, 0.87, 0.95, 0.50]),
    long_streams("backward-1G",           BACKWARD, 1_000,  [0.95, 0.87, 0.95, 0.90]),
    long_streams("streams-7-120M",        STREAMS_7, 120,   [0.95, 0.88, 0.95, 0.52]),
    within(1.4, row("streams-17-60M", each(STREAMS_17, 60), "1G",
                                  Aim::Plain([0.95, 0.76, 0.93, 0.52]))),
    long_streams("streams-13-150M",       STREAMS_13, 150,  [0.95, 0.86, 0.95, 0.57]),
    Row { is_remembered: true,
        ..long_streams("streams-13-150M-remembered", STREAMS_13, 150, [0.95, 0.86, 0.95, 0.8]) },
    row("stride-64K-256K",   reads(STRIDE_64K, "each", 25 * MIB, 64 << 10),
                                                      "1G", Aim::Online([0.9, 0.9, 0.9, 0.8])),
    row("stride-4K-64K",     each(STRIDE_4K, 4),      "1G", Aim::Online([0.9, 0.9, 0.9, 0.8])),
    row("parquet-8",         PARQUET,                 "1G", Aim::Online([0.9, 0.9, 0.9, 0.8])),
    disturb("disturb-1",     "disturb,percent=1"),
    disturb("disturb-4",     "disturb,percent=4"),
    disturb("disturb-10",    "disturb,percent=10"),
    row("paced-200-64M",     PACED,                  "64M", Aim::Pace(PACE_MB_PER_SECOND)),
    row("paced-200-32M",     PACED,                  "32M", Aim::Pace(PACE_MB_PER_SECOND)),
    readers_200("readers-200-32M",  "32M"),
    readers_200("readers-200-189M", "189M"),
    readers_200("readers-200-1G",   "1G"),
    Row { is_remembered: true, ..readers_200("readers-200-1G-remembered", "1G") },
    row("turns-2",           each(TURNS_2, 100),      "1G", Aim::Requests),
    row("turns-10",          each(TURNS_10, 100),     "1G", Aim::Requests),
    row("random-4K",         reads("random,file=1G", "bytes", 32 * MIB, PAGE),
                                                      "1G", Aim::Random),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_what_is_read_scales() {
        let names = ROWS.each_ref().map(|row| row.name);
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name) && !name.contains(','), "{name}");
        }
        let workload = |name: &str, per_cent| {
            ROWS.iter().find(|row| row.name == name).expect(name).workload(per_cent, 7)
        };
        let text = "workload:stride,n=1,piece=64K,every=256K,each=18350080,seed=7";
        assert_eq!(workload("stride-64K-256K", 70), text);
        let text = "workload:parquet,columns=8,groups=1,apart=32M,chunk=1048576";
        assert_eq!(workload("parquet-8", 100), text);
        assert_eq!(ROWS[16].seeds(&[3, 4]), [3]);
        assert_eq!(ROWS[0].seeds(&[3, 4]), [3, 4]);
    }
}
