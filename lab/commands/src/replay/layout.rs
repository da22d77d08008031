//! What a trace covers: its devices, each a file as long as the trace reaches, and its moments.
//!
//! # Invariants
//! - Files are numbered in the order in which the trace first uses them; they are bounded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use forerun_console::interrupt;
use forerun_core::units::Nanos;
use forerun_sim::schedule::{self, Pace};
use forerun_sim::trace::{Addresses, Op, TraceError};
use forerun_sim::workload::{Access, Workload};

use crate::sim::source::{Reading, Source};
use crate::specs::PAGE_BYTES;

/// See the module.
pub(super) struct Layout {
    /// The file of each device of the trace.
    numbers: BTreeMap<u32, u32>,
    /// The bytes of each file.
    pub(super) files: Vec<u64>,
    /// The byte after the last one that is read or written, of each file.
    pub(super) ends: Vec<u64>,
    /// The name of each file: the path that the trace has, or the number of its device.
    pub(super) names: Vec<String>,
    /// Whether the names are paths.
    pub(super) named: bool,
    /// The time of the first request.
    first: Nanos,
    /// Whether requests have times.
    pub(super) times: bool,
    /// Requests, and how many of them write.
    pub(super) requests: u64,
    pub(super) writes: u64,
}

/// Requests as a workload, and the error that ended them early, if one did.
pub(super) struct Scheduled {
    pub(super) workload: Workload,
    broken: Arc<Mutex<Option<TraceError>>>,
}

impl Scheduled {
    /// Fails if the requests broke off.
    pub(super) fn require_whole(&self) -> Result<()> {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).take();
        broken.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Layout {
    /// The layout of `source`, which is read once for it.
    pub(super) fn of(source: &Source, reading: &Reading) -> Result<Self> {
        let mut requests = source.requests(reading)?;
        let mut batch = Vec::new();
        let mut layout = Self {
            numbers: BTreeMap::new(),
            files: Vec::new(),
            ends: Vec::new(),
            names: Vec::new(),
            named: false,
            first: Nanos(0),
            times: false,
            requests: 0,
            writes: 0,
        };
        while requests.next_batch(&mut batch)? {
            if requests.facts().addresses == Addresses::Keys {
                bail!("{}: its requests name objects, and a replay needs blocks", source.name());
            }
            layout.times = requests.facts().times;
            for request in &batch {
                if layout.requests == 0 {
                    layout.first = request.time;
                }
                layout.requests += 1;
                layout.writes += u64::from(request.op == Op::Write);
                let next = u32::try_from(layout.files.len()).expect("bounded below");
                let number = *layout.numbers.entry(request.device()).or_insert(next);
                if number == next {
                    if next == FILES_MAX {
                        bail!("{}: more than {FILES_MAX} devices", source.name());
                    }
                    layout.files.push(0);
                    layout.ends.push(0);
                    let name = requests.device_name(request.device());
                    layout.named |= name.is_some();
                    let name = name.map(str::to_owned);
                    layout.names.push(name.unwrap_or_else(|| request.device().to_string()));
                }
                let bytes = schedule::access(request, number, Nanos(0)).bytes;
                let (end, file) = (request.offset() + u64::from(bytes), number as usize);
                layout.ends[file] = layout.ends[file].max(end);
                layout.files[file] = layout.ends[file].next_multiple_of(page());
            }
        }
        if layout.requests == 0 {
            bail!("{}: no requests", source.name());
        }
        Ok(layout)
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().sum()
    }

    /// The requests of `source` through `slots` slots, with writes or without, but for those that
    /// are due at `until` or later; they end when the command is interrupted.
    pub(super) fn scheduled(
        &self,
        source: &Source,
        reading: &Reading,
        (pace, until, slots, writes): (Pace, Option<Nanos>, usize, bool),
    ) -> Result<Scheduled> {
        let broken = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&broken);
        let mut requests = source.requests(reading)?;
        let (numbers, first) = (self.numbers.clone(), self.first);
        let (mut batch, mut at) = (Vec::new(), 0);
        let accesses = std::iter::from_fn(move || {
            while !interrupt::asked() {
                if at == batch.len() {
                    at = 0;
                    match requests.next_batch(&mut batch) {
                        Ok(true) => {}
                        Ok(false) => return None,
                        Err(error) => {
                            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                            return None;
                        }
                    }
                }
                let request = &batch[at];
                at += 1;
                if request.op == Op::Write && !writes {
                    continue;
                }
                let due = pace.due(first, request.time);
                if until.is_some_and(|until| due >= until) {
                    // Requests of some traces are not quite in the order of their times.
                    continue;
                }
                let access: Access = schedule::access(request, numbers[&request.device()], due);
                return Some(access);
            }
            None
        });
        let numbers = (0..).take(self.files.len());
        let workload = Workload {
            name: "replay",
            title: source.name(),
            files: self.files.clone(),
            handles: numbers.collect(),
            readers: schedule::slots(accesses, slots),
            ..Workload::default()
        };
        Ok(Scheduled { workload, broken })
    }
}

fn page() -> u64 {
    u64::from(PAGE_BYTES)
}

/// Devices of a trace at most.
const FILES_MAX: u32 = 4_096;
