//! What a device costs: models that say when a request would be done.
//!
//! A model takes requests as they arrive and answers with completions at their time. It has no
//! clock and waits for nothing: in virtual time it is the device, in real time a store can be put
//! behind it.
//!
//! ```text
//!   submit(now, request) --> waiting --> in service --> due at next() --> complete(now)
//! ```
//! *Seek-bound* devices have one arm: what a request costs depends on where the last one ended,
//! and latency grows with depth. *Parallel* ones serve many requests at a time: latency is the
//! same at any depth until something is used up.
//!
//! To add a device: of a known kind a constructor, of a new one its parameters, `check` and
//! `Build`; and its line in `devices!` below. Devices for ways to wait are a list of their own,
//! [`CHANNEL_MODELS`].
//!
//! # Invariants
//! - Time never runs backwards, and completions come in the order of their times; those of the
//!   same time in the order of submission.
//! - What a device does depends on its requests and their times, not on the time of the calls.
//! - Same parameters, seed, requests and times: same completions.
//! # Sources
//! Each model's file names its own.

mod buffer;
mod channels;
mod disk;
pub mod estimate;
mod fine;
mod parallel;
mod platter;
pub mod remembered;
mod spread;
mod values;
pub mod waits;

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use crate::params::{self, ParamError, Params};
use crate::units::Nanos;

use disk::{Disk, Service};
use parallel::Parallel;

pub use channels::{CHANNEL_MODELS, ChannelModel, DeviceServer, channel_model};
pub use disk::DiskParams;
pub use parallel::{ObjectParams, PipeParams};
pub use spread::Spread;
pub use values::{Rate, Switch};

/// A read or write of consecutive bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's number for it; the device ignores it.
    pub id: u64,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes: at least 1, at most [`Device::request_bytes_max`].
    pub bytes: u64,
    /// Whether it writes.
    pub write: bool,
}

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub request: Request,
    /// When it was submitted.
    pub arrived: Nanos,
    /// When the device took it up.
    pub started: Nanos,
    /// When it was done.
    pub done: Nanos,
    /// The part of the time between that went by before the first byte: seek and turn, or
    /// latency.
    pub positioning: Nanos,
}

/// How latency and depth go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// One actuator: latency grows with depth.
    SeekBound,
    /// Latency is flat with depth.
    Parallel,
}

/// A device in some state.
#[derive(Clone, Debug)]
pub struct Device {
    name: &'static str,
    params: Vec<(&'static str, String)>,
    model: Model,
    request_bytes_max: u64,
    capacity_bytes: u64,
    /// The time of the last call.
    now: Nanos,
    /// Requests that no completion is known for yet, in order of arrival.
    waiting: Vec<Waiting>,
    /// When the arm is free again; `None` while it rests.
    busy_until: Option<Nanos>,
    /// Completions not yet taken, by their time and by the order of submission.
    due: BTreeMap<(Nanos, u64), Completion>,
    submitted: u64,
}

#[derive(Clone, Debug)]
enum Model {
    Disk(Disk),
    Parallel(Parallel),
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    arrived: Nanos,
    number: u64,
}

impl Device {
    /// `request` arrives at `now`.
    ///
    /// # Panics
    /// Time runs backwards, the request is empty, too large or past the end of the device, or
    /// the caller's bound on its queue is above [`IN_FLIGHT_MAX`].
    pub fn submit(&mut self, now: Nanos, request: Request) {
        let max = self.request_bytes_max;
        assert!((1..=max).contains(&request.bytes), "{request:?}: not 1 to {max} bytes");
        let end = request.offset.checked_add(request.bytes);
        assert!(end.is_some_and(|end| end <= self.capacity_bytes), "{request:?}: past the end");
        assert!(self.in_flight() < IN_FLIGHT_MAX, "{IN_FLIGHT_MAX} requests are in flight");
        self.advance(now);
        let waiting = Waiting { request, arrived: now, number: self.submitted };
        self.submitted += 1;
        match &mut self.model {
            Model::Parallel(parallel) => {
                let served = parallel.serve(now, &request);
                self.complete_later(waiting, &served);
            }
            Model::Disk(_) => {
                self.waiting.push(waiting);
                if self.busy_until.is_none() {
                    self.dispatch(now);
                }
            }
        }
    }

    /// When the earliest completion that has not been taken is due.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        self.due.first_key_value().map(|(&(done, _), _)| done)
    }

    /// Takes the earliest completion, if it is due at `now` or before.
    ///
    /// # Panics
    /// Time runs backwards.
    pub fn complete(&mut self, now: Nanos) -> Option<Completion> {
        self.advance(now);
        if self.next()? > now {
            return None;
        }
        self.due.pop_first().map(|(_, completion)| completion)
    }

    /// Requests submitted whose completions have not been taken.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.waiting.len() + self.due.len()).expect("the queue is bounded")
    }

    /// The largest request, which is also the best to stream with; callers cut larger ones.
    #[must_use]
    pub fn request_bytes_max(&self) -> u64 {
        self.request_bytes_max
    }

    /// Bytes on the device; `u64::MAX` where a model has no end.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// How latency and depth go together.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        match self.model {
            Model::Disk(_) => DeviceKind::SeekBound,
            Model::Parallel(_) => DeviceKind::Parallel,
        }
    }

    /// Its name in reports and on the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its parameters as they are in force.
    #[must_use]
    pub fn params(&self) -> &[(&'static str, String)] {
        &self.params
    }

    /// Everything that happens up to `now`: each time that the arm becomes free, the next
    /// request is chosen among those that have arrived by then, however late the call is.
    fn advance(&mut self, now: Nanos) {
        assert!(now >= self.now, "time runs backwards: from {:?} to {now:?}", self.now);
        self.now = now;
        while let Some(free) = self.busy_until.filter(|&free| free <= now) {
            self.busy_until = None;
            if !self.waiting.is_empty() {
                self.dispatch(free);
            }
        }
    }

    /// The arm is free at `free`, and a request waits.
    fn dispatch(&mut self, free: Nanos) {
        let Model::Disk(disk) = &mut self.model else {
            unreachable!("requests wait for a disk only");
        };
        let index = disk.pick(self.waiting.iter().map(|waiting| waiting.request.offset));
        let waiting = self.waiting.remove(index);
        assert!(waiting.arrived <= free, "served before it came: {waiting:?}");
        let served = disk.serve(waiting.arrived, &waiting.request);
        self.busy_until = Some(served.done.nanos());
        self.complete_later(waiting, &served);
    }

    fn complete_later(&mut self, waiting: Waiting, served: &Service) {
        let completion = Completion {
            request: waiting.request,
            arrived: waiting.arrived,
            started: served.started.nanos(),
            done: served.done.nanos(),
            positioning: served.positioning.nanos(),
        };
        let Completion { arrived, started, done, positioning, .. } = completion;
        assert!(arrived <= started && started <= done, "{completion:?} runs backwards");
        assert!(positioning <= done.since(arrived), "{completion:?} takes no time to position");
        let other = self.due.insert((done, waiting.number), completion);
        assert!(other.is_none(), "request {} is served twice", waiting.number);
    }
}

/// Requests in flight at most; callers bound their queues far below.
pub const IN_FLIGHT_MAX: u32 = 65_536;

/// No device takes more in one request.
const REQUEST_BYTES_MAX: u64 = 1 << 30;
const _: () = assert!(REQUEST_BYTES_MAX <= u32::MAX as u64, "estimates count in 32 bits");

macro_rules! devices {
    ($($name:literal, $summary:literal => $params:expr;)+) => {
        /// Every device's name, in the order of reports.
        pub const NAMES: &[&str] = &[$($name),+];

        /// One line on each, in the order of [`NAMES`].
        pub const SUMMARIES: &[&str] = &[$($summary),+];

        /// The device that `spec` (`NAME:key=value,...`) describes, at rest. `seed` decides its
        /// latencies.
        ///
        /// # Errors
        /// The name or a parameter is unknown, a value does not parse, or there can be no such
        /// device.
        pub fn make(spec: &str, seed: u64) -> Result<Device, ParamError> {
            let (name, pairs) = params::split(spec);
            $(if name == $name {
                return build($name, $params, pairs, seed);
            })+
            Err(ParamError::UnknownName { name: name.into(), known: NAMES.to_vec() })
        }
    };
}

devices! {
    "t7k250", "7200 rpm disk of 2005, 52 MB/s, 160 GB, track buffer off (cache=on)"
        => DiskParams::default();
    "hdd", "7200 rpm disk of today, 200 MB/s, 4 TB, track buffer, command queueing"
        => DiskParams::hdd();
    "cloud", "network volume, 1-3 ms, 125 MB/s, 3000 operations a second"
        => PipeParams::default();
    "object", "object store, 30-60 ms to the first byte, 32 connections of 90 MB/s"
        => ObjectParams::default();
    "ssd", "SATA drive, 80 us, 500 MB/s"
        => PipeParams::ssd();
    "optane", "low-latency drive, 8-12 us; its 2.5 GB/s are assumed"
        => PipeParams::optane();
}

/// Parameters that make a model.
trait Build: Params {
    /// Refuses what cannot be.
    fn check(&self) -> Result<(), ParamError>;
    /// The model at rest; the parameters have been checked.
    fn model(&self, seed: u64) -> Model;
    /// The largest request.
    fn request_bytes_max(&self) -> u64;
    /// Bytes on the device.
    fn capacity_bytes(&self) -> u64 {
        u64::MAX
    }
}

fn build<P: Build>(
    name: &'static str,
    mut params: P,
    pairs: &str,
    seed: u64,
) -> Result<Device, ParamError> {
    params::apply(&mut params, pairs)?;
    params.check()?;
    Ok(Device {
        name,
        params: params.show(),
        model: params.model(seed),
        request_bytes_max: params.request_bytes_max(),
        capacity_bytes: params.capacity_bytes(),
        now: Nanos(0),
        waiting: Vec::new(),
        busy_until: None,
        due: BTreeMap::new(),
        submitted: 0,
    })
}
