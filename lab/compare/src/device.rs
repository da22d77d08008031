//! The device models that readahead is measured on, and what each can give.
//!
//! # Invariants
//! - `forerun` and `lab/testbed/slowdisk.c` know them by the same names.
//!
//! # Sources
//! The plain limits were measured on the models: a reader that knows everything and asks for as
//! much at once as fits. A t7k250 without its buffer loses a turn with each command, so that it
//! gives 28.5 and not the 52 of its media; the object store has 32 connections.

/// An emulated device.
pub(crate) struct Device {
    /// As slowdisk and forerun call it.
    pub(crate) name: &'static str,
    /// What it gives a reader that knows everything, whatever is read in order: the plain limit.
    pub(crate) limit_mb_per_second: f64,
    /// The largest request that its queue takes.
    pub(crate) request_kib: u32,
    /// Requests at once that it gains from.
    pub(crate) depth: u32,
    /// As the simulator takes it.
    pub(crate) virtually: &'static str,
}

/// All of them.
#[rustfmt::skip]
pub(crate) const DEVICES: [Device; 4] = [
    Device { name: "t7k250", limit_mb_per_second: 28.5,  request_kib: 512,   depth: 1,
             virtually: "t7k250:cache=off" },
    Device { name: "hdd",    limit_mb_per_second: 200.0, request_kib: 1_024, depth: 8,
             virtually: "hdd" },
    Device { name: "cloud",  limit_mb_per_second: 125.0, request_kib: 1_024, depth: 64,
             virtually: "cloud" },
    Device { name: "object", limit_mb_per_second: 562.0, request_kib: 1_024, depth: 64,
             virtually: "object" },
];

/// The names of all.
pub(crate) fn names() -> Vec<&'static str> {
    DEVICES.iter().map(|device| device.name).collect()
}

/// How both benches run the simulator: the engine's replacement policy, what a page costs it, and
/// demands before readahead.
pub(crate) const VIRTUALLY: [&str; 6] =
    ["--policy", "2q-star", "--page-cost", "800ns", "--host", "demand-first"];
