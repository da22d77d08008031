//! `forerun-compare serve`: `forerun serve` beside nbdkit and the raw file, by fio over NBD.
//!
//! ```text
//!   hits     forerun   nbdkit file   nbdkit memory     the same bytes, all in memory
//!   misses   forerun   fio on the file itself          a file that is larger than the cache
//!   readers  forerun   nbdkit with its filters         several, in order, from an emulated device
//! ```
//! Each measurement starts its server anew, on a unix socket; hits are read once before.
//!
//! # Invariants
//! - The peers take turns in each round, and a ratio is within a round.
//! - `--quick` takes small files and short measurements: a test, without figures to keep.

mod contender;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use forerun_report::Target;

use crate::args::{Places, chosen, in_turns};
use crate::bed::Bed;
use crate::forerun::{self, folder, machine, output_of, put, release};
use crate::table::{self, Row};
use contender::{Contender, Measurement, Place};

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// Rounds, in turns
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZeroUsize,
    /// This job alone; may be repeated
    #[arg(long = "job", value_name = "NAME")]
    jobs: Vec<String>,
    /// Small files and short measurements: to see that all works
    #[arg(long)]
    quick: bool,
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In memory before.
    Memory,
    /// On this machine's disk.
    Disk,
    /// On the emulated network volume.
    Cloud,
}

/// One comparison.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// fio's order, request and depth.
    pub(crate) order: &'static str,
    pub(crate) request: &'static str,
    pub(crate) depth: u32,
    /// Clients, each with a part of the file of its own.
    pub(crate) readers: u32,
    pub(crate) from: Source,
    /// The peers, each with the target of our rate over its own.
    peers: &'static [(Contender, Option<Target>)],
}

const HIT_PEERS: &[(Contender, Option<Target>)] = &[
    (Contender::NbdkitFile, Some(Target::AtLeast(1.3))),
    (Contender::NbdkitMemory, Some(Target::AtLeast(1.3))),
];
const LONE_HIT_PEERS: &[(Contender, Option<Target>)] = &[
    (Contender::NbdkitFile, Some(Target::AtLeast(1.3))),
    (Contender::NbdkitMemory, Some(Target::AtLeast(1.0))),
];
const MISS_PEERS: &[(Contender, Option<Target>)] =
    &[(Contender::Raw, Some(Target::AtLeast(0.95))), (Contender::NbdkitFile, None)];
const LONE_MISS_PEERS: &[(Contender, Option<Target>)] =
    &[(Contender::Raw, None), (Contender::NbdkitFile, None)];

const READER_PEERS: &[(Contender, Option<Target>)] = &[
    (Contender::NbdkitFile, None),
    (Contender::NbdkitReadahead, Some(Target::AtLeast(3.0))),
    (Contender::NbdkitCache, Some(Target::AtLeast(3.0))),
];

#[rustfmt::skip]
const JOBS: [Job; 8] = [
    job("hit-4k-1",     "randread", "4k",  1,  1, Source::Memory, LONE_HIT_PEERS),
    job("hit-4k-16",    "randread", "4k",  16, 1, Source::Memory, HIT_PEERS),
    job("hit-1m-4",     "randread", "1m",  4,  1, Source::Memory, HIT_PEERS),
    job("miss-4k-1",    "randread", "4k",  1,  1, Source::Disk,   LONE_MISS_PEERS),
    job("miss-4k-32",   "randread", "4k",  32, 1, Source::Disk,   MISS_PEERS),
    job("miss-1m-4",    "read",     "1m",  4,  1, Source::Disk,   MISS_PEERS),
    job("readers-4k",   "read",     "4k",  1,  4, Source::Cloud,  READER_PEERS),
    job("readers-64k",  "read",     "64k", 1,  4, Source::Cloud,  READER_PEERS),
];

const fn job(
    name: &'static str,
    order: &'static str,
    request: &'static str,
    depth: u32,
    readers: u32,
    from: Source,
    peers: &'static [(Contender, Option<Target>)],
) -> Job {
    Job { name, order, request, depth, readers, from, peers }
}

/// Measures everything and writes the table.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let bench = folder(forerun::target(root).join("bench"))?;
    let out = folder(args.places.out.clone().unwrap_or_else(|| bench.join("serve")))?;
    let forerun = release(root, args.places.forerun.as_deref())?;
    let [hits, misses] = if args.quick { ["32M", "64M"] } else { ["256M", "4G"] };
    let (hits, misses) = (file(&forerun, &bench, hits)?, file(&forerun, &bench, misses)?);
    let mut rows = Vec::new();
    let jobs = chosen(&JOBS, &args.jobs, |job| job.name);
    let bed = if jobs.iter().any(|job| job.from == Source::Cloud) {
        let target = forerun::target(root);
        Bed::up(root, &target, &forerun, if args.quick { 64 } else { 512 }, None)?
    } else {
        Err("no job that wants it".to_owned())
    };
    for job in jobs {
        println!("\n== {}", job.name);
        let file = match (job.from, &bed) {
            (Source::Memory, _) => hits.clone(),
            (Source::Disk, _) => misses.clone(),
            (Source::Cloud, Ok(bed)) => bed.direct(),
            (Source::Cloud, Err(lacking)) => {
                println!("left out: this machine lacks {lacking}");
                continue;
            }
        };
        let (bed, seconds) = (bed.as_ref().ok(), if args.quick { 1 } else { 3 });
        let socket = &out.join("socket");
        let place = Place { forerun: &forerun, file: &file, bed, socket, seconds };
        let contenders: Vec<Contender> =
            [Contender::Forerun].into_iter().chain(job.peers.iter().map(|peer| peer.0)).collect();
        let taken = in_turns(args.rounds, contenders.len(), |round, at| {
            let measurement = contenders[at].measure(job, &place, round)?;
            println!("round {}: {}: {measurement}", round + 1, contenders[at].name());
            Ok(measurement)
        })?;
        rows.extend(compared(job, &taken));
    }
    let [version, machine] = machine(&forerun)?;
    let text = format!(
        "# `forerun serve` beside nbdkit and the raw file, by fio over a unix socket\n\n\
         - {version}\n- {machine}\n- {} rounds, in turns; ratios are within a round\n{}",
        args.rounds,
        table::table(&rows)
    );
    put(&out.join("summary.md"), &text)?;
    println!("\n{text}\nthe table: {}", out.display());
    Ok(())
}

/// Our rate beside that of each peer.
fn compared(job: &Job, taken: &[Vec<Measurement>]) -> Vec<Row> {
    let rates = |rounds: &[Measurement]| -> Vec<f64> {
        rounds.iter().map(|round| round.requests_per_second).collect()
    };
    let row = |(at, (peer, target)): (usize, &(Contender, Option<Target>))| {
        let sides = [&rates(&taken[0])[..], &rates(&taken[at + 1])];
        let note = format!("mean {:.1} us", taken[0][0].mean_us);
        Row::new(format!("{}: IO/s", job.name), peer.name(), sides, *target, &note)
    };
    job.peers.iter().enumerate().map(row).collect()
}

/// A file of `size` whose bytes are no zeroes; made once.
fn file(forerun: &Path, folder: &Path, size: &str) -> Result<PathBuf> {
    let file = folder.join(format!("pattern-{size}"));
    if fs::metadata(&file).is_err() {
        let mut command = Command::new(forerun);
        command.args(["bench", "file"]).arg(&file).args(["--make", size, "--seconds", "0.1"]);
        output_of(&mut command)?;
    }
    Ok(file)
}
