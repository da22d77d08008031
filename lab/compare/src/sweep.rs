//! `forerun-compare sweep`: short streams in virtual time, over their number, their length and what
//! is mixed in, drawn as a surface, so that cliffs are seen.
//!
//! ```text
//!   device x order x mixed:   n |  .  .  :  :  #  #  #      a cell: one run of `forerun sim`
//!                               |  .  :  :  #|#  #  #       |: a cliff between two lengths
//!                               +--------------------> length, in steps of a fifth
//! ```
//! A *cliff* lies between two neighbouring lengths where streams that are shorter take a tenth more
//! time, or streams that are longer a tenth more time a byte. Misses count from 64 KiB on: those
//! beyond one for each lone read, a stream.
//!
//! # Invariants
//! - Figures depend on the options alone: not on the machine, nor on how many runs go at once.
//! - Cells beyond the bound of bytes are counted, and named by the bound.

mod cells;
mod draw;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::json;

use crate::args::{Places, chosen, names};
use crate::device::{DEVICES, Device, VIRTUALLY};
use crate::forerun::{machine, output_of, put, write};
use cells::{Case, Figures, Grid, Surface};

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// Three numbers of streams and every third length
    #[arg(long)]
    quick: bool,
    /// Devices [default: all]
    #[arg(long = "device", value_name = "D,...", value_delimiter = ',',
        value_parser = names(&DEVICES, |device| device.name))]
    devices: Vec<String>,
    /// The readahead policy
    #[arg(long, value_name = "R", default_value = "streams")]
    readahead: String,
    /// Numbers of streams [default: 10,32,100,316,1000,3162,10000; 10,100,1000 with --quick]
    #[arg(long, value_name = "N,...", value_delimiter = ',', hide_default_value = true,
        default_value = "10,32,100,316,1000,3162,10000",
        default_value_if("quick", "true", "10,100,1000"),
        value_parser = clap::value_parser!(u64).range(1..))]
    counts: Vec<u64>,
    /// Lengths, in KiB [default: from 32 to 4096 in steps of a fifth]
    #[arg(long, value_name = "KIB,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(4..))]
    lengths: Vec<u64>,
    /// Orders of reads
    #[arg(long, value_name = "ORDER,...", value_delimiter = ',',
        default_value = "random,alternate", value_parser = ["random", "alternate", "sequential"])]
    orders: Vec<String>,
    /// Lone reads in a hundred reads
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "0,20,50")]
    mixed: Vec<u32>,
    /// Leave cells out whose streams have more MiB in all
    #[arg(long, value_name = "MIB", default_value = "512")]
    most: u64,
    /// Begin each run with what one before it has learnt of the device
    #[arg(long)]
    remembered: bool,
}

/// Runs everything, and writes `sweep.json`, `sweep.html` and `summary.md`.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let (forerun, out) = args.places.open(root, "sweep")?;
    let mut surfaces = Vec::new();
    for device in chosen(&DEVICES, &args.devices, |device| device.name) {
        for order in &args.orders {
            for &mixed in &args.mixed {
                let grid = Grid::new(&args.counts, &args.lengths(), args.most << 20);
                let figures = all(&forerun, args, (device, order, mixed), &grid)?;
                let surface = Surface { device, order: order.clone(), mixed, grid, figures };
                println!("{}", surface.line());
                surfaces.push(surface);
            }
        }
    }
    let [version, here] = machine(&forerun)?;
    let rows: Vec<_> = surfaces.iter().flat_map(Surface::rows).collect();
    let command: Vec<String> = std::env::args().collect();
    let record = json!({ "version": version, "machine": here, "command": command, "cells": rows });
    write(&out.join("sweep.json"), &record)?;
    put(&out.join("sweep.html"), &draw::page(&version, &args.readahead, &surfaces))?;
    let summary = summary(&version, args, &surfaces);
    put(&out.join("summary.md"), &summary)?;
    println!("\n{summary}\nrecord, surfaces and summary: {}", out.display());
    Ok(())
}

impl Args {
    /// The lengths in bytes.
    fn lengths(&self) -> Vec<u64> {
        if !self.lengths.is_empty() {
            return self.lengths.iter().map(|kib| kib << 10).collect();
        }
        let step = if self.quick { 3 } else { 1 };
        cells::lengths().into_iter().step_by(step).collect()
    }
}

/// What `forerun sim --json` prints.
#[derive(Deserialize)]
struct Told {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    accesses: u64,
    misses: u64,
    device: Timed,
}

#[derive(Deserialize)]
struct Timed {
    seconds: f64,
    bytes_read: u64,
    bytes_wanted: u64,
}

/// The figures of each cell, a few runs at once.
fn all(
    forerun: &Path,
    args: &Args,
    (device, order, mixed): (&'static Device, &str, u32),
    grid: &Grid,
) -> Result<Vec<Option<Figures>>> {
    let cases = grid.cases();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(case) = case else { continue };
            let name = || format!("{case:?} on {}", device.name);
            done.push((
                case.at,
                cell(forerun, args, device, (order, mixed), case).with_context(name)?,
            ));
        }
        Ok(done)
    };
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| worker.join().expect("no panic");
        workers.into_iter().map(join).collect::<Result<Vec<Vec<_>>>>()
    })?;
    let mut figures = vec![None; cases.len()];
    for (at, cell) in done.into_iter().flatten() {
        figures[at] = Some(cell);
    }
    Ok(figures)
}

fn cell(
    forerun: &Path,
    args: &Args,
    device: &Device,
    (order, mixed): (&str, u32),
    case: &Case,
) -> Result<Figures> {
    let &Case { count, bytes, .. } = case;
    let workload = format!(
        "workload:streams,n={count},each={bytes},order={order},mixed={mixed},\
         layout=irregular,start=mid"
    );
    let mut command = Command::new(forerun);
    command.args(["sim", &workload]).args(VIRTUALLY).args(["--device", device.virtually]);
    command.args(["--size", "1G", "--readahead", &args.readahead, "--json"]);
    if args.remembered {
        command.arg("--remembered");
    }
    let told: Told = serde_json::from_str(&output_of(&mut command)?).context("the JSON of sim")?;
    let Run { accesses, misses, device: timed } = told.runs.first().context("a run")?;
    let lone = accesses.saturating_sub(case.pages());
    Ok(Figures {
        seconds: timed.seconds,
        misses: misses.saturating_sub(lone),
        lone,
        bytes_read: timed.bytes_read,
        bytes_wanted: timed.bytes_wanted,
    })
}

fn summary(version: &str, args: &Args, surfaces: &[Surface]) -> String {
    let lines: Vec<String> = surfaces.iter().map(Surface::line).collect();
    format!(
        "# Short streams in virtual time\n\n\
         - {version}, `{}`{}; `forerun-compare sweep` repeats it on any machine\n\
         - counted: cells with more than {} misses a stream (from {} KiB on), cells with more than \
         {} bytes for each that is wanted, cliffs between lengths; the worst of each\n\
         - cells of more than {} MiB are left out\n\n{}\n{}\n",
        args.readahead,
        if args.remembered { ", each device remembered" } else { "" },
        cells::MISSES_MAX,
        cells::MISSES_FROM >> 10,
        cells::BYTES_MAX,
        args.most,
        Surface::HEADER,
        lines.join("\n"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    #[test]
    fn options_choose_cells() {
        let cells = |line: &str| {
            let args = parsed::<Args>(line)?;
            let grid = Grid::new(&args.counts, &args.lengths(), args.most << 20);
            Some(grid.cases().into_iter().flatten().count())
        };
        #[rustfmt::skip]
        let rows = [ // arguments                               cells of a surface
            ("--counts 10 --lengths 32,64",                       Some(2)),
            ("--counts 10,1000 --lengths 64,1024 --most 100",     Some(3)),
            ("--quick --most 100000",                             Some(3 * 9)),
            ("--most 100000",                                     Some(7 * 27)),
            ("--orders backward",                                 None),
            ("--counts 0",                                        None),
        ];
        for (line, expected) in rows {
            assert_eq!(cells(line), expected, "{line}");
        }
    }
}
