//! A disk: one arm, one request at a time.
//!
//! ```text
//!   submit --> waiting --(arm free: the oldest, or the nearest of 32)--> command, seek, turn,
//!                                                                         transfer --> done
//! ```
//! A command costs a fixed time before the arm moves; with native command queueing it is hidden
//! as long as the request waits. The track buffer answers reads that it holds at the rate of the
//! bus. The choice of the nearest (shortest positioning time first) is made as the arm becomes
//! free, among those that have arrived by then.
//!
//! # Invariants
//! - Requests are served one after another: each starts when the one before is done or later.
//! # Sources
//! Hitachi's data sheet of the Deskstar T7K250 (seek times, turns a minute, 8 MB buffer); the
//! rate at which Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), section
//! 4, could stream from it. `hdd` is a later disk of the same turns a minute.

use crate::params;
use crate::params::{Bytes, ParamError, check};
use crate::units::Nanos;

use super::buffer::{Buffer, BufferHit};
use super::fine::Fine;
use super::platter::Platter;
use super::values::{Rate, Switch};
use super::{Build, Model, REQUEST_BYTES_MAX, Request};

params! {
    /// What may be set of a disk; the defaults are those of `t7k250`.
    pub struct DiskParams {
        /// Bytes a second from the media.
        rate: Rate = Rate(52_000_000),
        /// Bytes a second from the buffer over the bus.
        link: Rate = Rate(250_000_000),
        /// Turns a minute.
        rpm: u32 = 7_200,
        /// Seek to the next track.
        seek_min: Nanos = Nanos::from_micros(1_100),
        /// Seek between two random positions, on average.
        seek_avg: Nanos = Nanos::from_micros(8_500),
        /// Seek over the full stroke.
        seek_max: Nanos = Nanos::from_micros(15_100),
        /// What each command costs before the arm moves.
        command: Nanos = Nanos::from_micros(100),
        /// Bytes on the disk.
        capacity: Bytes = Bytes(160_000_000_000),
        /// Whether the disk reads on into its track buffer; off in the measurements of 2010.
        cache: Switch = Switch::Off,
        /// Segments of the track buffer.
        segments: u32 = 16,
        /// Bytes in each of them.
        segment: Bytes = Bytes(512 << 10),
        /// Whether a command's cost is hidden while the request waits.
        ncq: Switch = Switch::Off,
        /// Whether the waiting request with the shortest positioning time is served first.
        sptf: Switch = Switch::Off,
        /// The largest command; libata's limit for this drive.
        max: Bytes = Bytes(512 << 10),
    }
}

/// When a request was served.
pub(super) struct Service {
    /// The device took it up.
    pub(super) started: Fine,
    /// Its last byte was there.
    pub(super) done: Fine,
    /// The part of it before the first byte, without the command.
    pub(super) positioning: Fine,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    rate: u64,
    link: u64,
    command: Fine,
    platter: Platter,
    buffer: Option<Buffer>,
    hides_command: bool,
    nearest_first: bool,
    /// The byte under the arm.
    head: u64,
    /// When the last request was done.
    free: Fine,
}

impl DiskParams {
    /// A current 7200 rpm disk: buffer on, native command queueing, the nearest first.
    pub(super) fn hdd() -> Self {
        Self {
            rate: Rate(200_000_000),
            link: Rate(550_000_000),
            capacity: Bytes(4_000_000_000_000),
            cache: Switch::On,
            segments: 32,
            segment: Bytes(2 << 20),
            ncq: Switch::On,
            sptf: Switch::On,
            max: Bytes(1 << 20),
            ..Self::default()
        }
    }
}

impl Build for DiskParams {
    fn check(&self) -> Result<(), ParamError> {
        let Self { rate, link, rpm, seek_min, seek_avg, seek_max, command, .. } = *self;
        let Self { capacity, segments, segment, max, .. } = *self;
        check((1..=RATE_MAX).contains(&rate.0), "rate", &rate, RATE_FORM)?;
        check((1..=RATE_MAX).contains(&link.0), "link", &link, RATE_FORM)?;
        check((1..=RPM_MAX).contains(&rpm), "rpm", &rpm, "1 to 100000 turns a minute")?;
        check(seek_max <= TIME_MAX, "seek_max", &seek_max, TIME_FORM)?;
        check(seek_min <= seek_max, "seek_min", &seek_min, "a duration up to seek_max")?;
        let (above, span) = (seek_avg.since(seek_min), seek_max.since(seek_min));
        let holds = seek_avg >= seek_min && above.0 * 3 >= span.0 && above.0 * 15 <= span.0 * 11;
        let form = "seek_min plus 1/3 to 11/15 of seek_max - seek_min";
        check(holds, "seek_avg", &seek_avg, form)?;
        check(command <= TIME_MAX, "command", &command, TIME_FORM)?;
        let form = "a size from 1 to 1024T";
        check((1..=CAPACITY_MAX).contains(&capacity.0), "capacity", &capacity, form)?;
        check((1..=1_024).contains(&segments), "segments", &segments, "1 to 1024")?;
        let form = "a size from 2 to the capacity";
        check((2..=capacity.0.max(2)).contains(&segment.0), "segment", &segment, form)?;
        let most = REQUEST_BYTES_MAX.min(capacity.0);
        let form = "a size from 1 to 1G and to the capacity";
        check((1..=most).contains(&max.0), "max", &max, form)
    }

    fn model(&self, _: u64) -> Model {
        Model::Disk(Disk::new(self))
    }

    fn request_bytes_max(&self) -> u64 {
        self.max.0
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity.0
    }
}

impl Disk {
    /// A disk at rest, its head on byte 0; `params` have been checked.
    pub(super) fn new(params: &DiskParams) -> Self {
        let seek = [params.seek_min, params.seek_avg, params.seek_max];
        let rate = params.rate.0;
        Self {
            rate,
            link: params.link.0,
            command: Fine::from(params.command),
            platter: Platter::new(rate, params.rpm, params.capacity.0, seek),
            buffer: params
                .cache
                .is_on()
                .then(|| Buffer::new(params.segments, params.segment.0, rate)),
            hides_command: params.ncq.is_on(),
            nearest_first: params.sptf.is_on(),
            head: 0,
            free: Fine::default(),
        }
    }

    /// Which of the requests that wait, in order of arrival, is served next; `offset` of each.
    pub(super) fn pick(&self, offsets: impl Iterator<Item = u64>) -> usize {
        if !self.nearest_first {
            return 0;
        }
        let command = if self.hides_command { Fine::default() } else { self.command };
        let cost = |offset: u64| match &self.buffer {
            Some(buffer) if buffer.holds(offset) => Fine::default(),
            _ => self.platter.position(self.free + command, self.head, offset),
        };
        // In whole nanoseconds, so that rounding does not decide between equals: `min_by_key`
        // gives the first of them, which is the one that came first.
        let nearest =
            offsets.take(NEAREST_OF).enumerate().min_by_key(|&(_, at)| cost(at).whole_nanos());
        nearest.map_or(0, |(index, _)| index)
    }

    /// Serves `request`, which arrived at `arrived`, then or when the arm is free.
    pub(super) fn serve(&mut self, arrived: Nanos, request: &Request) -> Service {
        let arrived = Fine::from(arrived);
        let started = arrived.max(self.free);
        let now = if self.hides_command {
            started.max(arrived + self.command)
        } else {
            started + self.command
        };
        let (positioning, done) = self.transfer(now, request);
        self.free = done;
        Service { started, done, positioning }
    }

    /// Positioning time and end of `request`, whose command has been understood at `now`.
    fn transfer(&mut self, now: Fine, request: &Request) -> (Fine, Fine) {
        let end = request.offset + request.bytes;
        let mut from = request.offset;
        if let Some(buffer) = &mut self.buffer {
            self.head = buffer.read_on(now).unwrap_or(self.head);
            if !request.write {
                match buffer.find(now, from, end, &self.platter) {
                    BufferHit::Whole => {
                        let done = now + Fine::of_bytes(request.bytes, self.link);
                        return (Fine::default(), done);
                    }
                    BufferHit::Under { from, done } => {
                        self.head = end;
                        return (from.since(now), done);
                    }
                    BufferHit::Start(held) => from = held,
                    BufferHit::Nothing => {}
                }
            }
        }
        let positioning = self.platter.position(now, self.head, from);
        let done = now + positioning + Fine::of_bytes(end - from, self.rate);
        self.head = end;
        if let Some(buffer) = &mut self.buffer {
            buffer.moved(done, (!request.write).then_some((from, end)));
        }
        (positioning, done)
    }
}

/// How many waiting requests the nearest is chosen among: the slots of SATA's command queue.
const NEAREST_OF: usize = 32;

/// These keep every product below 128 bits.
pub(super) const RATE_MAX: u64 = 1 << 40;
pub(super) const RATE_FORM: &str = "a rate from 1 to 1024G bytes a second";
pub(super) const TIME_MAX: Nanos = Nanos(1_000_000_000);
pub(super) const TIME_FORM: &str = "a duration up to 1s";
const RPM_MAX: u32 = 100_000;
const CAPACITY_MAX: u64 = 1 << 50;
