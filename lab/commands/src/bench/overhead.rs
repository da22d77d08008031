//! `forerun bench overhead`: large files read or written in order, once, by the engine or through
//! the kernel's cache.
//!
//! ```text
//!   FILE 1 --- thread 1: request, request, ... flush ---|
//!   FILE 2 --- thread 2: request, request, ... flush ---|   time from the first to the last
//! ```
//! No page is used twice, so a policy costs what it costs and gains nothing. A bench that runs
//! this in turns, the kernel's way in a memory group of the same size, has the ratios.
//!
//! # Invariants
//! - Each page begins with its offset and the file's number. A read checks each page; a write
//!   gives the file its next number, and pages read past the caches afterwards must have it.
//! - A file that this command did not make is neither read nor written.
//! - A write is measured until it is durable.
//! # Sources
//! Paper 3, Fig. 9: 2 GB over two volumes, 256 MB of cache, requests of 4 KB to 1 MB.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use forerun_console::failure::usage;
use forerun_console::{machine, object, output};
use forerun_core::params::{Bytes, Param as _};
use forerun_core::units::Nanos;
use forerun_engine::{Access, Cache, Handle, Settings};
use forerun_measure::cache::refused;
use forerun_measure::journal;
use forerun_measure::record;
use forerun_measure::steps::Steps;
use forerun_report::quantity::{self, read};
use forerun_report::{Run, RunRecord};
use forerun_sim::driver::rate;
use rustix::fs::{Advice, fadvise};
use rustix::time::ClockId;
use serde::Serialize;

use crate::process;

/// What `bench overhead` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
        forerun bench overhead /mnt/a/f /mnt/b/f --make 1G\n  \
        forerun bench overhead /mnt/a/f /mnt/b/f --op write --request 64K --policy arc\n  \
        forerun bench overhead /mnt/a/f /mnt/b/f --kernel")]
pub(crate) struct Args {
    /// The files, a thread for each
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Make the files that are missing: so many bytes each
    #[arg(long, value_name = "SIZE", value_parser = read::<Bytes>)]
    make: Option<Bytes>,
    /// What is done to them
    #[arg(long, value_enum, default_value = "read")]
    op: Op,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = read::<Bytes>)]
    request: Bytes,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = read::<Bytes>)]
    cache: Bytes,
    /// The replacement policy, NAME[:key=value,...] [default: 2q-star]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// By read and write, through the kernel's cache
    #[arg(long, conflicts_with_all = ["policy", "cache", "journal"])]
    kernel: bool,
    #[command(flatten)]
    results: super::Results,
}

/// What is done to the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    /// Each is read from its start to its end
    Read,
    /// Each is written from its start to its end, and flushed
    Write,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Measures and prints the results.
pub(super) fn run(args: &Args) -> Result<()> {
    for path in &args.files {
        args.results.require_places(Some(path))?;
    }
    if !args.request.0.is_multiple_of(PAGE_BYTES as u64)
        || !(1..=REQUEST_MAX.0).contains(&args.request.0)
    {
        let (request, max) = (args.request.show(), REQUEST_MAX.show());
        return Err(usage(format!("--request {request}: expected whole pages, up to {max}")));
    }
    let mut settings = Settings { cache_bytes: args.cache.0, ..Settings::default() };
    if let Some(policy) = &args.policy {
        settings.policy.clone_from(policy);
    }
    super::check(&settings)?;
    let files = args.files.iter().map(|path| Stamped::open(path, args.make, args.op));
    let files: Vec<Stamped> = files.collect::<Result<_>>()?;
    let measured = args.results.journal.keep(|journal| {
        if args.kernel {
            return measured(args, &files, None);
        }
        let cache = journal::cache(settings.clone(), journal).map_err(refused)?;
        measured(args, &files, Some(&cache))
    })?;
    let json = object! { runs: [json_row(args, &settings, &measured)] };
    args.results.output.form.print(&json, &["runs"], || table(args, &settings, &measured))?;
    args.results.output.record(&json, || recorded(args, &settings, &measured))
}

/// The results.
struct OverheadResult {
    elapsed: Nanos,
    bytes: u64,
    /// Processor time of this process meanwhile.
    cpu: Nanos,
}

fn measured(args: &Args, files: &[Stamped], cache: Option<&Cache>) -> Result<OverheadResult> {
    let access = if args.op == Op::Write { Access::ReadWrite } else { Access::Read };
    let ways = files.iter().map(|file| match cache {
        None => Ok(Way::Kernel(&file.file)),
        Some(cache) => Ok(Way::Engine(Box::new(cache.open_with(&file.path, access)?))),
    });
    let ways: Vec<Way<'_>> = ways.collect::<Result<_>>()?;
    for file in files {
        fadvise(&file.file, 0, None, Advice::DontNeed).context("cannot drop a file")?;
    }
    let request = usize::try_from(args.request.0).expect("bounded");
    let threads = files.iter().zip(&ways).map(|(file, way)| {
        move |start: &Steps| -> Result<[Nanos; 2]> {
            let mut room = vec![0; request];
            if !start.next() {
                return Ok([machine::now(); 2]);
            }
            let begun = machine::now();
            let done = match args.op {
                Op::Read => file.read(way, &mut room),
                Op::Write => file.write(way, &mut room),
            };
            done.with_context(|| file.path.display().to_string())?;
            Ok([begun, machine::now()])
        }
    });
    let cpu_before = process::cpu(ClockId::ProcessCPUTime);
    let times = Steps::start_together(threads)?.into_iter().collect::<Result<Vec<_>>>()?;
    let cpu = process::cpu(ClockId::ProcessCPUTime).since(cpu_before);
    let begun = times.iter().map(|own| own[0]).min().expect("a file at least");
    let ended = times.iter().map(|own| own[1]).max().expect("a file at least");
    drop(ways);
    if args.op == Op::Write {
        files.iter().try_for_each(Stamped::require_written)?;
    }
    let bytes = files.iter().map(|file| file.bytes).sum();
    Ok(OverheadResult { elapsed: ended.since(begun), bytes, cpu })
}

/// How a file is read and written.
enum Way<'f> {
    Kernel(&'f File),
    Engine(Box<Handle>),
}

impl Way<'_> {
    fn read(&self, room: &mut [u8], offset: u64) -> Result<()> {
        match self {
            Self::Kernel(file) => file.read_exact_at(room, offset)?,
            Self::Engine(handle) => {
                let count = handle.read_at(room, offset)?;
                ensure!(count == room.len(), "it ended at byte {}", offset + count as u64);
            }
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        match self {
            Self::Kernel(file) => file.write_all_at(bytes, offset)?,
            Self::Engine(handle) => handle.write_at(bytes, offset)?,
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        match self {
            Self::Kernel(file) => file.sync_data()?,
            Self::Engine(handle) => handle.flush()?,
        }
        Ok(())
    }
}

/// A file whose pages say where they belong.
struct Stamped {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Its number: how often it was written.
    number: u64,
}

impl Stamped {
    fn open(path: &Path, make: Option<Bytes>, op: Op) -> Result<Self> {
        if let Some(bytes) = make.filter(|_| !path.exists()) {
            Self::make(path, bytes.0)?;
        }
        let opened = File::options().read(true).write(op == Op::Write).open(path);
        let file = opened.with_context(|| format!("cannot open {}", path.display()))?;
        let bytes = file.metadata()?.len();
        let number = if bytes >= PAGE_BYTES as u64 { stamp(&file, 0)? } else { 0 };
        let stamped = Self { path: path.to_owned(), file, bytes, number };
        if let Some(wanted) = make.filter(|wanted| wanted.0 != bytes) {
            let (path, size) = (path.display(), Bytes(bytes).show());
            return Err(usage(format!("--make {}: {path} has {size}", wanted.show())));
        }
        let is_ours = number > 0 && stamped.looks().all(|at| stamped.has(at, number));
        if !is_ours || !bytes.is_multiple_of(PAGE_BYTES as u64) {
            let path = path.display();
            return Err(usage(format!("{path} is not of this command: have it --make another")));
        }
        Ok(stamped)
    }

    fn make(path: &Path, bytes: u64) -> Result<()> {
        let page = PAGE_BYTES as u64;
        if bytes == 0 || !bytes.is_multiple_of(page) {
            return Err(usage(format!("--make {}: expected whole pages", Bytes(bytes).show())));
        }
        let file = File::create_new(path);
        let file = file.with_context(|| format!("cannot make {}", path.display()))?;
        let made = Self { path: path.to_owned(), file, bytes, number: 0 };
        let mut room = vec![0x5a; 1 << 20];
        made.write(&Way::Kernel(&made.file), &mut room).with_context(|| {
            let _ = std::fs::remove_file(path);
            format!("cannot write {}", path.display())
        })
    }

    fn read(&self, way: &Way<'_>, room: &mut [u8]) -> Result<()> {
        self.requests(room.len(), |offset, bytes| {
            let room = &mut room[..bytes];
            way.read(room, offset)?;
            for (at, page) in (offset..).step_by(PAGE_BYTES).zip(room.chunks(PAGE_BYTES)) {
                ensure!(word(page) == at ^ self.number, "the page at {at} has other bytes");
            }
            Ok(())
        })
    }

    /// Writes all of it with the number after its own.
    fn write(&self, way: &Way<'_>, room: &mut [u8]) -> Result<()> {
        self.requests(room.len(), |offset, bytes| {
            let room = &mut room[..bytes];
            for (at, page) in (offset..).step_by(PAGE_BYTES).zip(room.chunks_mut(PAGE_BYTES)) {
                page[..8].copy_from_slice(&(at ^ (self.number + 1)).to_le_bytes());
            }
            way.write(room, offset)
        })?;
        way.flush()
    }

    fn requests(
        &self,
        request: usize,
        mut make: impl FnMut(u64, usize) -> Result<()>,
    ) -> Result<()> {
        (0..self.bytes).step_by(request).try_for_each(|offset| {
            let left = usize::try_from(self.bytes - offset).unwrap_or(usize::MAX);
            make(offset, left.min(request))
        })
    }

    /// Refuses a file that is not what was written, of the pages that are looked at.
    fn require_written(&self) -> Result<()> {
        fadvise(&self.file, 0, None, Advice::DontNeed).context("cannot drop a file")?;
        for at in self.looks() {
            let path = self.path.display();
            ensure!(self.has(at, self.number + 1), "{path}: the page at {at} was not written");
        }
        Ok(())
    }

    fn has(&self, at: u64, number: u64) -> bool {
        stamp(&self.file, at).is_ok_and(|stamp| stamp == at ^ number)
    }

    /// Offsets of pages all over it.
    fn looks(&self) -> impl Iterator<Item = u64> {
        let pages = self.bytes / PAGE_BYTES as u64;
        (0..LOOKS).map(move |look| pages * look / LOOKS * PAGE_BYTES as u64)
    }
}

/// The first word of the page at `offset`.
fn stamp(file: &File, offset: u64) -> Result<u64> {
    let mut room = [0; 8];
    file.read_exact_at(&mut room, offset)?;
    Ok(u64::from_le_bytes(room))
}

fn word(page: &[u8]) -> u64 {
    u64::from_le_bytes(page[..8].try_into().expect("8 bytes"))
}

fn way<'a>(args: &Args, settings: &'a Settings) -> &'a str {
    if args.kernel { "kernel" } else { &settings.policy }
}

/// Processor time of a gigabyte, in seconds.
fn cpu_of_gigabyte(measured: &OverheadResult) -> f64 {
    quantity::seconds(measured.cpu) / (quantity::float(measured.bytes) / 1e9)
}

fn table(args: &Args, settings: &Settings, measured: &OverheadResult) -> String {
    let header = ["op", "way", "request", "MB/s", "cpu s/GB"];
    let row = vec![
        args.op.name().to_owned(),
        way(args, settings).to_owned(),
        args.request.show(),
        format!("{:.1}", rate(measured.bytes, measured.elapsed)),
        format!("{:.3}", cpu_of_gigabyte(measured)),
    ];
    output::table(&header, &[row], 2)
}

/// The run, as `--json` prints it.
fn json_row(args: &Args, settings: &Settings, measured: &OverheadResult) -> impl Serialize {
    object! {
        op: args.op,
        way: way(args, settings).to_owned(),
        request: args.request.0,
        bytes: measured.bytes,
        seconds: quantity::seconds(measured.elapsed),
        mb_per_second: rate(measured.bytes, measured.elapsed),
        cpu_seconds_per_gb: cpu_of_gigabyte(measured),
    }
}

fn recorded(args: &Args, engine: &Settings, measured: &OverheadResult) -> Result<RunRecord> {
    let device = args.files[0].display().to_string();
    let mut settings = record::settings(engine);
    settings.push(("way", way(args, engine).to_owned()));
    let (readahead, params) = record::policy(&engine.readahead)?;
    let (op, request) = (args.op.name().to_owned(), args.request.show());
    let run = Run {
        readahead,
        params,
        device: device.clone(),
        streams: u32::try_from(args.files.len()).expect("each has a thread"),
        workload: format!("overhead,op={op},request={request}"),
        mb_per_second: rate(measured.bytes, measured.elapsed),
        bytes_wanted: measured.bytes,
        ..Run::default()
    };
    Ok(RunRecord { runs: vec![run], ..record::empty(device, 0, &settings) })
}

const PAGE_BYTES: usize = 4_096;
const REQUEST_MAX: Bytes = Bytes(16 << 20);
/// Pages that are looked at for what was written.
const LOOKS: u64 = 256;
