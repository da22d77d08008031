//! `forerun sweep`: many traces through many caches, into a Parquet data set.
//!
//! The work is that of `python/forerun/_sweep.py`, which has executors for machines and
//! clusters.
//!
//! # Invariants
//! - Flags have the names and forms of `sim`.

use std::path::PathBuf;

use anyhow::Result;
use forerun_console::python;
use serde::Serialize;

use crate::specs;

/// What `sweep` takes.
#[derive(clap::Args, Serialize)]
#[command(after_help = "Examples:\n  \
    forerun sweep traces/ --out sweep\n  \
    forerun sweep 'traces/*.zst' --policy lru,s3-fifo,belady --size 0.1%,1%,10% --out sweep\n  \
    forerun sweep 's3://bucket/*.zst' --out sweep --scheduler tcp://10.0.0.1:8786\n  \
    forerun report sweep -o page.html")]
pub struct Args {
    /// Files, folders, patterns, URLs that fsspec opens, or workload:NAME[,key=value...]
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<String>,
    /// The folder of the data set; what it has already is not run again
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// Replacement policies, NAME[:key=value,...], or all
    #[arg(long, value_name = "NAME,...", default_value = "all")]
    policy: String,
    /// Cache sizes, a class each: pages, bytes with a suffix, % of unique blocks
    #[arg(long, value_name = "SIZE,...", default_value = "0.1%,0.3%,1%,3%,10%,30%")]
    size: String,
    /// Readahead policies, NAME[:key=value,...]
    #[arg(long, value_name = "NAME,...")]
    readahead: Option<String>,
    /// Run in virtual time on these device models, NAME[:key=value,...]
    #[arg(long, value_name = "MODEL,...")]
    device: Option<String>,
    /// Estimate from this share of the pages
    #[arg(long, value_name = "RATE", conflicts_with_all = ["device", "readahead"])]
    sample: Option<f64>,
    /// Also count misses by the bytes that were requested
    #[arg(long, conflicts_with_all = ["device", "readahead"])]
    bytes: bool,
    /// Leave out what writes: hits are those of a cache that writes pass by
    #[arg(long)]
    reads: bool,
    /// Stop after so many accesses of each trace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// The traces' format: auto, or one of `sim --list-formats`
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Pass over so many broken records of each trace
    #[arg(long, value_name = "N")]
    skip_bad: Option<u64>,
    /// Run on a cluster of Dask, whose scheduler is there
    #[arg(long, value_name = "ADDRESS", conflicts_with = "workers")]
    scheduler: Option<String>,
    /// Processes of this machine [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Memory of one task [default: 80 % of what is free, divided by the tasks at a time]
    #[arg(long, value_name = "SIZE", value_parser = specs::memory)]
    memory: Option<u64>,
    /// How often a trace is run whose worker was lost
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    attempts: u16,
    /// Print one JSON object: how the sweep ended
    #[arg(long)]
    json: bool,
}

/// Runs the command, as Python.
pub(crate) fn run(args: &Args) -> Result<()> {
    python::become_command("sweep", args)
}
