//! The reads of a run: the words of `--pattern` and their flags as one of the simulator's
//! workloads, so that `forerun sim` can run the same reads.
//!
//! ```text
//!   random round-robin sequential   workload:streams,order=...
//!   backward                        workload:backward
//!   stride:A/B                      workload:stride,piece=A,every=B
//!   disturb:N                       workload:disturb,percent=N         one stream
//!   parquet:N                       workload:parquet,columns=N         a chunk of --each a column
//!   uniform:SIZE                    workload:random,file=SIZE          --each in all, no stream
//! ```

use std::str::FromStr;

use anyhow::Result;
use clap::ValueEnum;
use forerun_console::failure::usage;
use forerun_console::names;
use forerun_core::device::Rate;
use forerun_core::params::{Bytes, Param};
use forerun_report::quantity::read;
use forerun_sim::workload::{self, Workload};

/// The order of the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A random stream is next.
    Random,
    /// Streams take turns.
    RoundRobin,
    /// One stream after the other.
    Sequential,
    /// Streams are read from their ends.
    Backward,
    /// A piece of each period.
    Stride {
        /// Bytes of a piece.
        piece: Bytes,
        /// From one piece's start to the next one's.
        every: Bytes,
    },
    /// One stream in order, and random reads between.
    Disturb {
        /// Of 100 reads, so many are random.
        percent: u32,
    },
    /// Chunks of columns, as a reader of Parquet files visits them.
    Parquet {
        /// Columns that are read.
        columns: u32,
    },
    /// Random reads of a file.
    Uniform {
        /// Bytes of the file.
        file: Bytes,
    },
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let found = match (name, value) {
            ("random", "") => Some(Self::Random),
            ("round-robin", "") => Some(Self::RoundRobin),
            ("sequential", "") => Some(Self::Sequential),
            ("backward", "") => Some(Self::Backward),
            ("stride", sizes) => sizes.split_once('/').and_then(|(piece, every)| {
                Some(Self::Stride { piece: Bytes::parse(piece)?, every: Bytes::parse(every)? })
            }),
            ("disturb", percent) => u32::parse(percent).map(|percent| Self::Disturb { percent }),
            ("parquet", columns) => u32::parse(columns).map(|columns| Self::Parquet { columns }),
            ("uniform", file) => Bytes::parse(file).map(|file| Self::Uniform { file }),
            _ => None,
        };
        found.ok_or_else(|| {
            let hint = (!NAMES.contains(&name)).then(|| names::hint(name, &NAMES, LISTER));
            let expected = "expected random, round-robin, sequential, backward, stride:A/B such as \
                            stride:64K/256K, disturb:PERCENT, parquet:COLUMNS or uniform:SIZE";
            expected.to_owned() + &hint.unwrap_or_default()
        })
    }
}

/// The words of `--pattern`, without their parameters.
const NAMES: [&str; 8] =
    ["random", "round-robin", "sequential", "backward", "stride", "disturb", "parquet", "uniform"];
const LISTER: &str = "forerun bench streams --help";

/// Where streams lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// Twice their length apart, in random order
    Spread,
    /// As spread, each somewhere in its place
    Irregular,
    /// Each behind the one before
    Adjacent,
}

/// Where the first stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Start {
    /// At the head of the file
    Head,
    /// Behind a gap as long as a stream
    Mid,
}

/// The handles of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Handles {
    /// All through one handle
    One,
    /// Each through a handle of its own
    Each,
}

/// The parameters of the reads: their bytes and their times.
#[derive(Clone, Debug, clap::Args)]
pub struct Shape {
    /// Streams [default: 10]
    #[arg(long, value_name = "N")]
    streams: Option<u32>,
    /// Bytes of a read
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = request)]
    request: Bytes,
    /// Bytes of each stream [default: 10M; on a smaller file, what fits]
    #[arg(long, value_name = "SIZE", value_parser = read::<Bytes>)]
    each: Option<Bytes>,
    /// Bytes a second that each stream is read at [default: as fast as they come]
    #[arg(long, value_name = "BYTES", value_parser = read::<Rate>)]
    rate: Option<Rate>,
    /// random, round-robin, sequential, backward, stride:A/B, disturb:PERCENT, parquet:COLUMNS or
    /// uniform:SIZE
    #[arg(long, value_name = "NAME", default_value = "random")]
    pattern: Pattern,
    /// Where the streams lie
    #[arg(long, value_enum, default_value = "spread")]
    layout: Layout,
    /// Where the first stream begins, if they are read forward
    #[arg(long, value_enum, default_value = "head")]
    start: Start,
    /// Threads that share the streams out
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=READERS_MAX))]
    readers: u32,
    /// Whether streams share a handle
    #[arg(long, value_enum, default_value = "one")]
    handles: Handles,
}

/// Reads that can be made: the text that makes them, and that of the limit's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads {
    /// As `forerun sim` takes it.
    pub text: String,
    /// The number of streams.
    pub streams: u32,
    /// The same bytes as an oracle can know them, where it can.
    pub known: Option<String>,
}

impl Shape {
    /// The reads, on something that holds `bytes_max`; `seed` decides every random choice.
    pub fn reads(&self, bytes_max: u64, seed: u64) -> Result<Reads> {
        self.check()?;
        let whole = self.with_each(self.each.unwrap_or(EACH), seed);
        let need = workload_of(&whole)?.files[0];
        if need <= bytes_max {
            return Ok(whole);
        }
        let refused = |way: &str| {
            usage(format!("these reads go over {need} bytes and there are {bytes_max}: {way}"))
        };
        if let Pattern::Uniform { .. } = self.pattern {
            return Err(refused("give uniform: a smaller size"));
        }
        if self.each.is_some() {
            return Err(refused("give a smaller --each or fewer --streams"));
        }
        // As much of each stream as fits, in whole requests.
        let fits = |requests: u64| {
            let reads = self.with_each(Bytes(requests * self.request.0), seed);
            let need = workload_of(&reads).map(|workload| workload.files[0]);
            need.is_ok_and(|need| need <= bytes_max).then_some(reads)
        };
        let (mut low, mut high) = (0, EACH.0 / self.request.0 + 1);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if fits(middle).is_some() {
                low = middle;
            } else {
                high = middle;
            }
        }
        fits(low).filter(|_| low > 0).ok_or_else(|| refused("give fewer --streams"))
    }

    /// Refuses flags that the pattern has no use for.
    fn check(&self) -> Result<()> {
        let forward =
            matches!(self.pattern, Pattern::Random | Pattern::RoundRobin | Pattern::Sequential);
        if self.start == Start::Mid && !forward {
            return Err(usage("--start mid is for streams that are read forward"));
        }
        let alone = match self.pattern {
            Pattern::Disturb { .. } => "disturb: is one stream",
            Pattern::Parquet { .. } => "parquet: is one reader of so many columns",
            Pattern::Uniform { .. } => "uniform: is one reader and no stream",
            Pattern::Random
            | Pattern::RoundRobin
            | Pattern::Sequential
            | Pattern::Backward
            | Pattern::Stride { .. } => return Ok(()),
        };
        if self.streams.is_some_and(|streams| streams != 1) || self.readers != 1 {
            return Err(usage(format!("--pattern {alone}: leave out --streams and --readers")));
        }
        if self.rate.is_some() {
            return Err(usage(format!("--pattern {alone} without a pace: leave out --rate")));
        }
        if self.handles == Handles::Each {
            return Err(usage(format!("--pattern {alone} with one handle: leave out --handles")));
        }
        Ok(())
    }

    fn with_each(&self, each: Bytes, seed: u64) -> Reads {
        let (each, request) = (each.show(), self.request.show());
        let streams = self.streams.unwrap_or(STREAMS);
        let rate = self.rate.map_or(0, |rate| rate.0);
        let (layout, handles) = (word(&self.layout), word(&self.handles));
        let shared = format!(
            "n={streams},each={each},request={request},seed={seed},layout={layout},readers={},\
             rate={rate},handles={handles}",
            self.readers
        );
        let start = word(&self.start);
        let forward = |order: &str| format!("streams,{shared},start={start},order={order}");
        match self.pattern {
            Pattern::Random => Reads::known(forward("random"), streams),
            Pattern::RoundRobin => Reads::known(forward("alternate"), streams),
            Pattern::Sequential => Reads::known(forward("sequential"), streams),
            // An oracle that knows the streams may read them forward: the limit is the same.
            Pattern::Backward => Reads {
                text: format!("backward,{shared}"),
                streams,
                known: Some(forward("random")),
            },
            Pattern::Stride { piece, every } => {
                let pieces = format!("piece={},every={}", piece.show(), every.show());
                Reads { text: format!("stride,{shared},{pieces}"), streams, known: None }
            }
            Pattern::Disturb { percent } => {
                let tail = format!("sequential={each},request={request},seed={seed}");
                Reads::known(format!("disturb,percent={percent},{tail}"), 1)
            }
            Pattern::Parquet { columns } => {
                let tail = format!("chunk={each},request={request}");
                Reads::known(format!("parquet,columns={columns},{tail}"), columns)
            }
            Pattern::Uniform { file } => {
                let tail = format!("bytes={each},request={request},seed={seed}");
                Reads {
                    text: format!("random,file={},{tail}", file.show()),
                    streams: 1,
                    known: None,
                }
            }
        }
    }
}

/// The word of a choice, for the flag and for the workload.
fn word(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().expect("none is hidden").get_name().to_owned()
}

/// Bytes of a read, of which each reader has a few buffers.
fn request(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = read(text)?;
    let fits = (1..=REQUEST_MAX.0).contains(&bytes.0);
    if fits { Ok(bytes) } else { Err(format!("expected 1 to {}", REQUEST_MAX.show())) }
}

impl Reads {
    /// The bytes of all reads together.
    pub fn bytes_wanted(&self) -> Result<u64> {
        Ok(workload_of(&self.text)?.bytes_wanted)
    }

    fn known(text: String, streams: u32) -> Self {
        Self { known: Some(text.clone()), text, streams }
    }
}

/// The workload of a text.
pub fn workload_of(text: impl AsRef<str>) -> Result<Workload> {
    workload::make(text.as_ref()).map_err(|error| usage(flags(&error.to_string())))
}

impl AsRef<str> for Reads {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// The text without default parameters, for reports: it makes the same workload.
#[must_use]
pub fn shortened(text: &str) -> String {
    let name = text.split(',').next().unwrap_or(text);
    let Ok(default) = workload::make(name) else { return text.to_owned() };
    let is_default = |pair: &&str| {
        default.params.iter().any(|(key, value)| pair.split_once('=') == Some((*key, value)))
    };
    let always = |pair: &str| TOLD.iter().any(|key| pair.starts_with(key));
    let kept: Vec<&str> =
        text.split(',').filter(|pair| always(pair) || !is_default(pair)).collect();
    format!("{}{}", workload::PREFIX, kept.join(","))
}

/// A refusal in the words of this command: the key of a workload as the flag that set it.
fn flags(error: &str) -> String {
    let names = [
        ("`n=", "`--streams "),
        ("`chunk=", "`--each "),
        ("`sequential=", "`--each "),
        ("`each=", "`--each "),
        ("`request=", "`--request "),
        ("`rate=", "`--rate "),
        ("`readers=", "`--readers "),
        ("`piece=", "`--pattern stride: "),
        ("`every=", "`--pattern stride: "),
        ("`percent=", "`--pattern disturb: "),
        ("`columns=", "`--pattern parquet: "),
        ("`file=", "`--pattern uniform: "),
        ("`bytes=", "`--each "),
    ];
    let found = names.iter().find(|(key, _)| error.starts_with(key));
    found.map_or_else(|| error.to_owned(), |(key, flag)| error.replacen(key, flag, 1))
}

/// Parameters that reports show even at their default: how much is read.
const TOLD: [&str; 9] =
    ["n=", "each=", "percent=", "sequential=", "columns=", "chunk=", "piece=", "file=", "bytes="];
/// Streams by default.
const STREAMS: u32 = 10;
/// Bytes of each, likewise.
const EACH: Bytes = Bytes(10 << 20);
/// The engine's bound on reads at once is above this.
const READERS_MAX: i64 = 256;
const REQUEST_MAX: Bytes = Bytes(16 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(pattern: &str) -> Shape {
        Shape {
            pattern: pattern.parse().expect(pattern),
            streams: None,
            each: None,
            request: Bytes(4096),
            rate: None,
            layout: Layout::Spread,
            start: Start::Head,
            readers: 1,
            handles: Handles::One,
        }
    }

    #[test]
    fn every_pattern_is_a_workload_of_the_simulator() {
        #[rustfmt::skip]
        let rows = [ // pattern          the workload, shortened                         streams
            ("random",         "workload:streams,n=10,each=10M,layout=spread",
                                  10),
            ("round-robin",    "workload:streams,n=10,each=10M,layout=spread,order=alternate",
                  10),
            ("sequential",     "workload:streams,n=10,each=10M,layout=spread,order=sequential",
                 10),
            ("backward",       "workload:backward,n=10,each=10M,layout=spread",
                                 10),
            ("stride:8K/32K",  "workload:stride,n=10,each=10M,layout=spread,piece=8K,every=32K",
                10),
            ("disturb:5",      "workload:disturb,percent=5,sequential=10M",
                                      1),
            ("parquet:4",      "workload:parquet,columns=4,chunk=10M",
                                           4),
            ("uniform:1G",     "workload:random,file=1G,bytes=10M",
                                            1),
        ];
        for (pattern, short, streams) in rows {
            let reads = shape(pattern).reads(u64::MAX, 1).unwrap();
            assert_eq!((shortened(&reads.text).as_str(), reads.streams), (short, streams));
            let (long, short) = (workload_of(&reads).unwrap(), workload_of(short).unwrap());
            assert_eq!(long.params, short.params, "{pattern}");
            let unknown = pattern.starts_with("stride") || pattern.starts_with("uniform");
            assert_eq!(reads.known.is_none(), unknown, "{pattern}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "",
            "rand",
            "random:1",
            "stride",
            "stride:4K",
            "stride:x/y",
            "disturb:",
            "disturb:-1",
            "parquet:x",
            "backward:2",
            "uniform",
            "uniform:x",
        ] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
        let zero = Shape { streams: Some(0), ..shape("random") };
        let text = zero.reads(u64::MAX, 1).unwrap_err().to_string();
        assert_eq!(text, "`--streams 0`: expected 1 to 65536 streams");
        for wrong in [
            Shape { streams: Some(2), ..shape("disturb:1") },
            Shape { readers: 2, ..shape("parquet:1") },
            Shape { rate: Some(Rate(1 << 20)), ..shape("parquet:1") },
            Shape { readers: 11, ..shape("random") },
            Shape { handles: Handles::Each, ..shape("disturb:1") },
            Shape { start: Start::Mid, ..shape("disturb:1") },
            Shape { start: Start::Mid, ..shape("backward") },
            Shape { each: Some(Bytes(0)), ..shape("random") },
            shape("stride:8K/4K"),
            Shape { streams: Some(2), ..shape("uniform:1G") },
            Shape { readers: 2, ..shape("uniform:1G") },
            shape("uniform:0"),
        ] {
            assert!(wrong.reads(u64::MAX, 1).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn streams_shrink_to_what_there_is_unless_their_size_was_given() {
        let reads = |bytes_max| shape("random").reads(bytes_max, 1);
        assert!(reads(200 << 20).unwrap().text.contains("each=10M"));
        assert!(reads((200 << 20) - 1).unwrap().text.contains("each=10236K"));
        assert!(reads(80 << 10).unwrap().text.contains("each=4K"));
        assert!(reads((80 << 10) - 1).unwrap_err().to_string().contains("fewer --streams"));
        let given = Shape { each: Some(Bytes(1 << 20)), ..shape("random") };
        assert!(given.reads(20 << 20, 1).is_ok());
        let text = given.reads((20 << 20) - 1, 1).unwrap_err().to_string();
        assert!(text.contains("20971520 bytes and there are 20971519"), "{text}");
        assert!(shape("uniform:1M").reads(1 << 20, 1).is_ok());
        let text = shape("uniform:1M").reads((1 << 20) - 1, 1).unwrap_err().to_string();
        assert!(text.ends_with("give uniform: a smaller size"), "{text}");
    }
}
