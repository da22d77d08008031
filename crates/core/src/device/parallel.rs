//! Devices that serve many requests at a time: what a request costs hardly depends on where it
//! lies, and latency is hidden by depth.
//!
//! ```text
//!   pipe:    connection free? --> operations a second --> shared pipe --> + latency
//!   object:  connection free? --> + first byte --> own transfer rate
//! ```
//! A request takes the connection that is free first. What a connection is depends on the
//! device: a queue slot, or a request over the network.
//!
//! # Invariants
//! - Latency is drawn once a request, in the order of submission, uniform between its bounds.
//! - A pipe never delivers more than its rate, counted from the moment it was last idle.
//! # Sources
//! `cloud` is a network volume of today's general kind (3000 operations of up to 256 KiB and
//! 125 MB a second), `object` an object store over a fast network, `ssd` a SATA drive. `optane`
//! is the low-latency drive of Liao, Yang, Yang, Tu, Shu, NIO (2022): some 10 us, with a
//! deviation within 2 us; its rate of 2.5 GB/s, its operations a second and its depth are
//! assumed.

use alloc::{vec, vec::Vec};

use crate::params;
use crate::params::{Bytes, ParamError, check};
use crate::prng::Prng;
use crate::units::Nanos;

use super::disk::{RATE_FORM, RATE_MAX, Service, TIME_FORM, TIME_MAX};
use super::fine::{FRACTION_BITS, Fine, SECOND_NS};
use super::values::Rate;
use super::{Build, Model, REQUEST_BYTES_MAX, Request};

params! {
    /// What may be set of a device whose requests share a pipe; the defaults are those of
    /// `cloud`.
    pub struct PipeParams {
        /// The shortest latency.
        latency_min: Nanos = Nanos::from_millis(1),
        /// The longest.
        latency_max: Nanos = Nanos::from_millis(3),
        /// Bytes a second, all requests together.
        rate: Rate = Rate(125_000_000),
        /// Operations a second.
        iops: u32 = 3_000,
        /// The bytes up to which a request counts as one operation.
        operation: Bytes = Bytes(256 << 10),
        /// Requests served at a time.
        connections: u32 = 64,
        /// The largest request.
        max: Bytes = Bytes(1 << 20),
    }
}

params! {
    /// What may be set of a store whose requests each have their own connection.
    pub struct ObjectParams {
        /// The shortest time to the first byte.
        latency_min: Nanos = Nanos::from_millis(30),
        /// The longest.
        latency_max: Nanos = Nanos::from_millis(60),
        /// Bytes a second of one connection.
        rate: Rate = Rate(90_000_000),
        /// Connections at a time.
        connections: u32 = 32,
        /// The largest request.
        max: Bytes = Bytes(1 << 20),
    }
}

impl PipeParams {
    pub(super) fn ssd() -> Self {
        Self {
            latency_min: Nanos::from_micros(80),
            latency_max: Nanos::from_micros(80),
            rate: Rate(500_000_000),
            iops: 100_000,
            connections: 32,
            ..Self::default()
        }
    }

    pub(super) fn optane() -> Self {
        Self {
            latency_min: Nanos::from_micros(8),
            latency_max: Nanos::from_micros(12),
            rate: Rate(2_500_000_000),
            iops: 500_000,
            connections: 32,
            ..Self::default()
        }
    }
}

impl Build for PipeParams {
    fn check(&self) -> Result<(), ParamError> {
        check_latency(self.latency_min, self.latency_max)?;
        check((1..=RATE_MAX).contains(&self.rate.0), "rate", &self.rate, RATE_FORM)?;
        check(self.iops > 0, "iops", &self.iops, "at least 1 operation a second")?;
        check(self.operation.0 > 0, "operation", &self.operation, "a size from 1")?;
        check_bounds(self.connections, self.max)
    }

    fn model(&self, seed: u64) -> Model {
        Model::Parallel(Parallel::pipe(self, seed))
    }

    fn request_bytes_max(&self) -> u64 {
        self.max.0
    }
}

impl Build for ObjectParams {
    fn check(&self) -> Result<(), ParamError> {
        check_latency(self.latency_min, self.latency_max)?;
        check((1..=RATE_MAX).contains(&self.rate.0), "rate", &self.rate, RATE_FORM)?;
        check_bounds(self.connections, self.max)
    }

    fn model(&self, seed: u64) -> Model {
        Model::Parallel(Parallel::object(self, seed))
    }

    fn request_bytes_max(&self) -> u64 {
        self.max.0
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Parallel {
    latency_min: Nanos,
    latency_max: Nanos,
    rate: u64,
    /// When each connection is free.
    connections: Vec<Fine>,
    pipe: Option<Pipe>,
    prng: Prng,
}

/// What all requests share.
#[derive(Clone, Debug)]
struct Pipe {
    /// The time between two operations.
    operation: Fine,
    operation_bytes: u64,
    /// When the next operation may begin.
    operations_free: Fine,
    /// When all bytes accepted so far have passed.
    bytes_free: Fine,
}

impl Parallel {
    /// A device at rest, its requests through one pipe; `params` have been checked.
    fn pipe(params: &PipeParams, seed: u64) -> Self {
        let &PipeParams { latency_min, latency_max, rate, connections, max, .. } = params;
        let second = u128::from(SECOND_NS) << FRACTION_BITS;
        let pipe = Pipe {
            operation: Fine(second / u128::from(params.iops)),
            operation_bytes: params.operation.0,
            operations_free: Fine::default(),
            bytes_free: Fine::default(),
        };
        let alone = ObjectParams { latency_min, latency_max, rate, connections, max };
        Self { pipe: Some(pipe), ..Self::object(&alone, seed) }
    }

    /// A store at rest, each request on its own connection; `params` have been checked.
    fn object(params: &ObjectParams, seed: u64) -> Self {
        let &ObjectParams { latency_min, latency_max, rate: Rate(rate), connections, .. } = params;
        let connections = vec![Fine::default(); connections as usize];
        Self { latency_min, latency_max, rate, connections, pipe: None, prng: Prng::new(seed) }
    }

    /// Serves `request`, which arrives at `now`.
    pub(super) fn serve(&mut self, now: Nanos, request: &Request) -> Service {
        let span = self.latency_max.since(self.latency_min).0;
        let latency = Fine::from(self.latency_min + Nanos(self.prng.below(span + 1)));
        let connection =
            self.connections.iter_mut().min().expect("a checked device has connections");
        let started = Fine::from(now).max(*connection);
        let transfer = Fine::of_bytes(request.bytes, self.rate);
        let done = match &mut self.pipe {
            None => started + latency + transfer,
            Some(pipe) => pipe.pass(started, request.bytes, transfer) + latency,
        };
        *connection = done;
        Service { started, done, positioning: latency }
    }
}

impl Pipe {
    /// When the last of `bytes` that come at `now` has passed; they take `transfer`.
    fn pass(&mut self, now: Fine, bytes: u64, transfer: Fine) -> Fine {
        let begin = now.max(self.operations_free);
        let operations = u128::from(bytes.div_ceil(self.operation_bytes));
        self.operations_free = begin + Fine(self.operation.0 * operations);
        self.bytes_free = begin.max(self.bytes_free) + transfer;
        self.bytes_free
    }
}

fn check_latency(min: Nanos, max: Nanos) -> Result<(), ParamError> {
    check(max <= TIME_MAX, "latency_max", &max, TIME_FORM)?;
    check(min <= max, "latency_min", &min, "a duration up to latency_max")
}

fn check_bounds(connections: u32, max: Bytes) -> Result<(), ParamError> {
    let form = "1 to 4096 connections";
    check((1..=4_096).contains(&connections), "connections", &connections, form)?;
    check((1..=REQUEST_BYTES_MAX).contains(&max.0), "max", &max, "a size from 1 to 1G")
}
