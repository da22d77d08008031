//! One live run: readers in real time through the engine, from a cold cache to their last byte.
//!
//! ```text
//!   reader threads -> handle -> engine -> meter -> latency, file
//!        |  slabs -> checker threads
//!        +---- their last word ----> here: progress, the time to stop
//! ```
//!
//! # Invariants
//! - Nothing but reads is inside the measured time; checks run beside it or after it.
//! - The results are of what was read, also where a run is stopped by time.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use forerun_console::machine;
use forerun_core::units::Nanos;
use forerun_engine::journal::JournalFile;
use forerun_engine::{Handle, Histogram, Settings, Stats, WindowRecord};
use forerun_io::wrap::latency::Latency;
use forerun_report::{DeviceRequest, Window};
use forerun_sim::workload::{Access, Reader, Workload};

use crate::cache::{failed, refused};
use crate::meter::{Meter, Notes};
use crate::verify::{self, Against};
use forerun_console::target::{Checked, Target};

use crate::{journal, windows};

use crate::pattern::workload_of;
use crate::readers::ReaderThreads;

/// The setup of a run.
pub struct LiveRun<'a> {
    /// The target to read from.
    pub target: &'a Target,
    /// The workload's text.
    pub reads: &'a str,
    /// Of the cache.
    pub settings: Settings,
    /// Readers stop after it.
    pub time_max: Option<Nanos>,
    /// Device requests to keep.
    pub log_max: usize,
    /// The journal of the core's events.
    pub journal: Option<&'a JournalFile>,
}

/// The results of a run.
pub struct RunResult {
    /// From the first read to the end of the last.
    pub elapsed: Nanos,
    /// Bytes that readers got.
    pub bytes_wanted: u64,
    /// Requests that the device had.
    pub device_requests: u64,
    /// Bytes that the device gave.
    pub bytes_read: u64,
    /// The counts of the cache.
    pub stats: Stats,
    /// Of all reads, hits too.
    pub latency: Histogram,
    /// In order of arrival.
    pub requests: Vec<DeviceRequest>,
    /// In the order in which they were opened, where the settings keep some.
    pub windows: Vec<Window>,
    /// Windows beyond those.
    pub windows_left_out: u64,
    /// The digests of each reader's bytes, where no pattern gives the expected bytes.
    pub digests: Vec<Vec<u64>>,
}

impl LiveRun<'_> {
    /// Runs; `progress` receives the count of bytes read from time to time.
    pub fn run(&self, progress: &mut dyn FnMut(u64)) -> Result<RunResult> {
        let workload = workload_of(self.reads)?;
        let against = verify::against(self.target)?;
        let opened = self.target.open(workload.files[0])?;
        let meter = Arc::new(Meter::new(opened.store, 2 * self.log_max));
        let cache = journal::cache(self.settings.clone(), self.journal).map_err(refused)?;
        let handle = cache.open_store(Arc::clone(&meter) as _)?;
        let handles = workload.handles.iter().map(|_| handle.try_clone());
        let handles: Vec<Handle> = handles.collect::<Result<_, _>>()?;
        let made_before = cache.windows().now;
        let (begun, model_begun) = (machine::now(), opened.model.as_ref().map(|model| model.now()));
        let read = |access: Access, room: &mut [u8]| {
            let handle = &handles[access.handle as usize];
            let count = handle.read_at(room, access.offset).map_err(|error| self.failed(error))?;
            let end = || anyhow!("it shrank: it ends at byte {}", handle.len());
            if count < room.len() { Err(self.failed(end())) } else { Ok(()) }
        };
        let ended = ReaderThreads::new(begun, against).run(workload, read, |passed| {
            progress(cache.stats().bytes);
            self.time_max.is_some_and(|time_max| passed >= time_max)
        })?;
        let stats = cache.stats();
        let explained = cache.windows();
        let page_bytes = self.settings.page_bytes;
        let window = |opened: &WindowRecord| windows::window(opened, page_bytes, 0, made_before);
        let notes = meter.notes();
        let (device_requests, bytes_read, mut requests) = match (&opened.model, model_begun) {
            (Some(model), Some(model_begun)) => {
                let (counts, span) = (model.counts(), (model_begun, model.now()));
                let requests = requests(model, &notes, span, self.log_max);
                (counts.reads, counts.read_bytes, requests)
            }
            (None, _) | (_, None) => (notes.reads, notes.read_bytes, notes.requests(begun)),
        };
        drop(notes);
        requests.sort_by_key(|request| (request.at_us, request.done_us));
        requests.truncate(self.log_max);
        let measured = RunResult {
            elapsed: ended.at.since(begun),
            bytes_wanted: stats.bytes,
            device_requests,
            bytes_read,
            stats,
            latency: ended.times.latency,
            requests,
            windows: explained.rows.iter().map(window).collect(),
            windows_left_out: explained.left_out,
            digests: ended.digests,
        };
        drop((handles, handle, cache));
        match (self.target, against) {
            (Target::File(file), Against::Later) => self.check(file, &measured)?,
            (Target::File(file), Against::Pattern) => file.require_unchanged()?,
            (Target::Model { .. }, _) => {}
        }
        Ok(measured)
    }

    /// Compares the bytes read of a file with plain reads of the same bytes.
    fn check(&self, file: &Checked, measured: &RunResult) -> Result<()> {
        let plain = file.plainly()?;
        let read = |access: Access, room: &mut [u8]| {
            plain.read_exact_at(room, access.offset).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => failed(file, anyhow!("it shrank while it was read")),
                _ => failed(file, error),
            })
        };
        let readers = ReaderThreads::new(machine::now(), Against::Later);
        let ended = readers.run(unpaced(workload_of(self.reads)?), read, |_| false)?;
        file.require_unchanged()?;
        if ended.digests != measured.digests {
            let other = anyhow!("the bytes that were served are not those of the file");
            return Err(failed(file, other));
        }
        Ok(())
    }

    fn failed(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        match self.target {
            Target::File(file) => failed(file, error),
            Target::Model { spec, .. } => anyhow!("{spec}: {}", error.into()),
        }
    }
}

/// The same reads, as fast as they go.
fn unpaced(mut workload: Workload) -> Workload {
    let now = |access: Access| Access { not_before: Nanos(0), think: Nanos(0), ..access };
    let readers = std::mem::take(&mut workload.readers);
    workload.readers = readers.into_iter().map(|reader| Reader::new(reader.map(now))).collect();
    workload
}

/// The model's log until `end`, with the reasons that the meter knows. Waits a moment for requests
/// in flight.
fn requests(
    model: &Latency,
    notes: &Notes,
    (begun, end): (Nanos, Nanos),
    count_max: usize,
) -> Vec<DeviceRequest> {
    let mut records = Vec::new();
    let asked = model.counts().reads.min(count_max as u64);
    for _ in 0..WAITS_MAX {
        records.append(&mut model.log().records);
        if records.len() as u64 >= asked {
            break;
        }
        thread::sleep(WAIT);
    }
    let kinds = notes.kinds();
    let micros = |at: Nanos| at.since(begun).0 / 1_000;
    let records = records.iter().filter(|record| !record.write && record.arrived <= end);
    let request = records.take(count_max).map(|record| DeviceRequest {
        at_us: micros(record.arrived),
        done_us: micros(record.done),
        offset: record.offset,
        bytes: record.bytes,
        kind: kinds.of(record.token, record.offset),
    });
    request.collect()
}

/// The wait for the last requests: longer than any model takes for one.
const WAIT: Duration = Duration::from_millis(5);
const WAITS_MAX: u32 = 40;
