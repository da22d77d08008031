//! `forerun-compare replay`: `forerun replay --on` beside fio's `read_iolog`: the same trace, the
//! same file, direct.
//!
//! ```text
//!   trace (fio's iolog) --+--> forerun replay --on FILE --+   each under strace, which says when
//!                         +--> fio --read_iolog --direct --+   each read was issued, and of what
//! ```
//! # Invariants
//! - Both are seen from outside, by the same tool: neither is judged by its own words.
//! - No page is read twice, so that a cache is no help; the file is dropped from the kernel's.
//! - An error is that of a read's issue against the trace's time, both from the first read on.

mod issued;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use forerun_core::prng::Prng;
use forerun_report::Target;

use crate::args::{Places, in_turns};
use crate::forerun::{folder, machine, output_of, put, release, target};
use crate::table::{self, Row};
use issued::Issued;

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// Rounds, in turns
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: NonZeroUsize,
    /// A short trace: to see that all works
    #[arg(long)]
    quick: bool,
}

/// A request of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// When, in microseconds.
    at: u64,
    offset: u64,
    bytes: u64,
}

/// Both, in the order of [`measure`].
const NAMES: [&str; 2] = ["forerun", "fio"];

/// Measures everything and writes the table.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    for program in ["fio", "strace"] {
        let found = Command::new(program).arg("--version").output();
        ensure!(found.is_ok(), "{program} is missing: install it");
    }
    let bench = folder(target(root).join("bench"))?;
    let out = folder(args.places.out.clone().unwrap_or_else(|| bench.join("replay")))?;
    let forerun = release(root, args.places.forerun.as_deref())?;
    let file = bench.join("pattern-256M");
    if fs::metadata(&file).is_err() {
        let mut make = Command::new(&forerun);
        make.args(["bench", "file"]).arg(&file).args(["--make", "256M", "--seconds", "0.1"]);
        output_of(&mut make)?;
    }
    let requests = requests(if args.quick { 200 } else { 4_000 });
    let trace = out.join("trace.iolog");
    put(&trace, &iolog(&requests, &file))?;
    let taken = in_turns(args.rounds, NAMES.len(), |round, at| {
        let reads = measure(at, &forerun, [&trace, &file], &out)?;
        let errors = errors(&requests, &reads);
        let (bytes, order) = same(&requests, &reads);
        let found = Found { bytes, order, p50: quantile(&errors, 50), p99: quantile(&errors, 99) };
        println!("round {}: {}: {found:?}", round + 1, NAMES[at]);
        Ok(found)
    })?;
    let text = summary(&machine(&forerun)?, requests.len(), &taken);
    put(&out.join("summary.md"), &text)?;
    println!("\n{text}\nthe table: {}", out.display());
    Ok(())
}

/// The findings of one run; errors in microseconds.
#[derive(Debug)]
struct Found {
    bytes: bool,
    order: bool,
    p50: f64,
    p99: f64,
}

/// Reads of 1 to 4 pages, none of which is read twice, 0.4 to 4.6 ms apart.
fn requests(count: usize) -> Vec<Request> {
    let (mut prng, mut taken, mut at) = (Prng::new(1), BTreeSet::new(), 0);
    let mut requests = Vec::new();
    while requests.len() < count {
        let slot = prng.below(FILE_BYTES / SLOT_BYTES);
        if !taken.insert(slot) {
            continue;
        }
        let bytes = PAGE_BYTES * (1 + prng.below(SLOT_BYTES / PAGE_BYTES));
        requests.push(Request { at, offset: slot * SLOT_BYTES, bytes });
        at += 400 + prng.below(4_200);
    }
    requests
}

/// The trace as fio's iolog, version 2, whose waits are between requests.
fn iolog(requests: &[Request], file: &Path) -> String {
    let (file, mut last) = (file.display(), 0);
    let mut text = format!("fio version 2 iolog\n{file} add\n{file} open\n");
    for Request { at, offset, bytes } in requests {
        if at - last > 0 {
            writeln!(text, "{file} wait {} 0", at - last).expect("a string takes all");
        }
        writeln!(text, "{file} read {offset} {bytes}").expect("a string takes all");
        last = *at;
    }
    text + &format!("{file} close\n")
}

/// The reads of the file by one of [`NAMES`], in the order of their issue.
fn measure(
    at: usize,
    forerun: &Path,
    [trace, file]: [&PathBuf; 2],
    out: &Path,
) -> Result<Vec<Issued>> {
    output_of(Command::new("dd").arg(format!("of={}", file.display())).args([
        "oflag=nocache",
        "conv=notrunc,fdatasync",
        "count=0",
        "status=none",
    ]))?;
    let log = out.join(format!("{}.strace", NAMES[at]));
    let mut command = Command::new("strace");
    command.args(["-f", "--seccomp-bpf", "-ttt", "-y", "-s", "0"]);
    command.args(["-e", "trace=pread64,preadv,preadv2,read", "-o"]).arg(&log);
    if NAMES[at] == "forerun" {
        command.arg(forerun).arg("replay").arg(trace).arg("--on").arg(file);
        command.args(["--threads", "8", "--cache", "4M", "--json"]);
    } else {
        command.args(["fio", "--name=replay", "--ioengine=psync", "--direct=1", "--readonly"]);
        command.arg(format!("--read_iolog={}", trace.display()));
    }
    output_of(&mut command)?;
    let text = fs::read_to_string(&log)?;
    let file = fs::canonicalize(file)?;
    Ok(issued::reads(&text, &file.display().to_string()))
}

/// Whether the same bytes were read, and whether in the same order.
fn same(requests: &[Request], reads: &[Issued]) -> (bool, bool) {
    let wanted: Vec<(u64, u64)> = requests.iter().map(|it| (it.offset, it.bytes)).collect();
    let found: Vec<(u64, u64)> = reads.iter().map(|it| (it.offset, it.bytes)).collect();
    let sorted = |mut all: Vec<(u64, u64)>| {
        all.sort_unstable();
        all
    };
    (sorted(wanted.clone()) == sorted(found.clone()), wanted == found)
}

/// How far each read was issued from its time, in microseconds, ascending; of those that were made
/// as the trace has them.
fn errors(requests: &[Request], reads: &[Issued]) -> Vec<f64> {
    let Some(first) = reads.first() else { return Vec::new() };
    let pairs = requests.iter().filter_map(|request| {
        let made = reads.iter().find(|read| read.offset == request.offset)?;
        Some(((made.at - first.at) * 1e6 - forerun_report::quantity::float(request.at)).abs())
    });
    let mut errors: Vec<f64> = pairs.collect();
    errors.sort_unstable_by(f64::total_cmp);
    errors
}

/// What `percent` in a hundred do not exceed; infinite without one.
fn quantile(ascending: &[f64], percent: usize) -> f64 {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(rank - 1).copied().unwrap_or(f64::INFINITY)
}

fn summary(machine: &[String; 2], count: usize, taken: &[Vec<Found>]) -> String {
    let of = |at: usize, value: fn(&Found) -> f64| taken[at].iter().map(value).collect::<Vec<_>>();
    let row = |what: &str, value: fn(&Found) -> f64, target| {
        let (ours, theirs) = (of(0, value), of(1, value));
        Row::new(what.to_owned(), NAMES[1], [&ours, &theirs], target, "")
    };
    let rows = [
        row("issue off its time, p50, us", |found| found.p50, None),
        row("issue off its time, p99, us", |found| found.p99, Some(Target::AtMost(1.0))),
    ];
    let all = |at: usize, holds: fn(&Found) -> bool| taken[at].iter().all(holds);
    let words = |at: usize| {
        let (bytes, order) = (all(at, |found| found.bytes), all(at, |found| found.order));
        let yes = |is: bool| if is { "yes" } else { "**no**" };
        format!("{}: the same bytes: {}, the same order: {}", NAMES[at], yes(bytes), yes(order))
    };
    format!(
        "# `forerun replay` beside fio's `read_iolog`\n\n- {}\n- {}\n- {count} reads of a trace, \
         direct, each seen by strace; {} rounds, in turns\n- {}\n- {}\n{}",
        machine[0],
        machine[1],
        taken[0].len(),
        words(0),
        words(1),
        table::table(&rows)
    )
}

const FILE_BYTES: u64 = 256 << 20;
const SLOT_BYTES: u64 = 16 << 10;
const PAGE_BYTES: u64 = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_reads_no_page_twice_and_its_times_ascend() {
        let requests = requests(1_000);
        assert!(requests.windows(2).all(|two| two[1].at >= two[0].at + 400));
        let slots: BTreeSet<u64> = requests.iter().map(|it| it.offset / SLOT_BYTES).collect();
        assert_eq!(slots.len(), 1_000);
        assert!(requests.iter().all(|it| it.offset % SLOT_BYTES + it.bytes <= SLOT_BYTES));
        let text = iolog(&requests[..2], Path::new("/f"));
        let gap = requests[1].at;
        assert!(text.contains(&format!("/f wait {gap} 0\n/f read ")), "{text}");
    }

    #[test]
    fn errors_are_from_the_first_read_on() {
        let request = |at, offset| Request { at, offset, bytes: 4_096 };
        let read = |at, offset| Issued { at, offset, bytes: 4_096 };
        let requests = [request(0, 0), request(1_000, 4_096), request(2_000, 8_192)];
        let reads = [read(7.0, 0), read(7.0015, 4_096), read(7.0018, 8_192)];
        let errors = errors(&requests, &reads);
        let rounded: Vec<f64> = errors.iter().map(|error| error.round()).collect();
        assert_eq!(rounded, [0.0, 200.0, 500.0]);
        assert_eq!(same(&requests, &reads), (true, true));
        assert_eq!(same(&requests, &[reads[1], reads[0], reads[2]]), (true, false));
        assert_eq!(same(&requests, &reads[1..]), (false, false));
        assert!(quantile(&[], 99).is_infinite());
        assert!((quantile(&[1.0, 2.0, 3.0], 99) - 3.0).abs() < 1e-9);
    }
}
