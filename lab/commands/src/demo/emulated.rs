//! The programs' reads on an emulated store, in virtual time: what the demo shows where no volume
//! can be mounted.
//!
//! # Invariants
//! - The figures are the same on each machine.
//! - What has no such emulation is left out by name.

use anyhow::{Result, anyhow};
use forerun_core::cache::Settings;
use forerun_core::params::Bytes;
use forerun_measure::pattern::workload_of;
use forerun_report::{Gain, Gains, ProgramRun, quantity};
use forerun_sim::driver::{self, Setup};

use crate::specs::{self, PAGE_BYTES};

/// The rows that can be emulated; `why` no volume is mounted.
pub(super) fn run(why: &str, tell: &impl Fn(&Gain) -> Result<()>) -> Result<Gains> {
    let mut gains = Gains { place: PLACE.to_owned(), ..Gains::default() };
    for (what, reads) in PROGRAMS {
        let [kernel, forerun] = [KERNEL, FORERUN].map(|readahead| timed(reads, readahead));
        let (kernel, forerun) = (kernel?, forerun?);
        let gain = Gain {
            what: (*what).to_owned(),
            program: Vec::new(),
            with: "forerun's readahead".to_owned(),
            kernel,
            forerun,
        };
        tell(&gain)?;
        gains.rows.push(gain);
    }
    gains.left_out = vec![
        format!("Real programs are left out: {why}."),
        "Many small files are left out: they are shown on a mounted volume alone.".to_owned(),
    ];
    Ok(gains)
}

fn timed(reads: &str, readahead: &str) -> Result<ProgramRun> {
    let frames = MEMORY.pages(PAGE_BYTES);
    let device = specs::device(DEVICE, 1)?;
    let mut settings = Settings::new(frames, "lru", readahead);
    let pages = device.request_bytes_max() / u64::from(PAGE_BYTES);
    settings.request_pages_max = u32::try_from(pages).unwrap_or(u32::MAX);
    let setup = Setup::new(settings, Some(device));
    let outcome = driver::run(setup, &mut workload_of(reads)?)
        .map_err(|error| anyhow!("{reads}: {error}"))?;
    let seconds = quantity::float(outcome.bytes_wanted) / 1e6 / outcome.mb_per_second();
    // Only their sum is known.
    let waited = quantity::seconds(outcome.delay_first).min(seconds);
    Ok(ProgramRun { seconds, waits: vec![(0.0, waited)] })
}

const PLACE: &str = "Programs' reads on an emulated store: each request takes 10 to 30 ms, as \
                     on an object store or a network file system far away (model `object`), in \
                     virtual time. Today's kernel is `linux-6` with its default of 128 KiB, \
                     forerun is its own readahead. All waits of a run are drawn together, at \
                     its beginning. These rows are of the emulated store, not of real programs.";
const PROGRAMS: &[(&str, &str)] = &[
    ("a log of 16 MiB, unpacked at 100 MB/s", "compute,file=16M,rate=100M,request=64K"),
    (
        "3 of 12 columns of a table, as Parquet has them",
        "parquet,columns=3,groups=24,chunk=256K,apart=1M,request=256K",
    ),
];
const DEVICE: &str = "object";
const KERNEL: &str = "linux-6:max=128K";
const FORERUN: &str = "streams";
const MEMORY: Bytes = Bytes(256 << 20);
