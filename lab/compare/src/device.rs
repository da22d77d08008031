//! The device models of the readahead benches, and their limits.
//!
//! # Invariants
//! - `forerun` and `lab/testbed/slowdisk.c` know them by the same names.
//!
//! # Sources
//! The plain limits were measured on the models, with a reader that knows the whole pattern and
//! keeps as much in flight as fits. A t7k250 without its buffer loses a turn with each command, so
//! it gives 28.5 and not the 52 of its media; the object store has 32 connections.

/// An emulated device.
pub(crate) struct Device {
    /// The name in slowdisk and forerun.
    pub(crate) name: &'static str,
    /// The plain limit: the throughput of a reader that knows the whole pattern, in order.
    pub(crate) limit_mb_per_second: f64,
    /// The largest request that its queue takes.
    pub(crate) request_kib: u32,
    /// Whether its queue says that it is a disk that turns.
    pub(crate) is_rotational: bool,
    /// The queue depth beyond which throughput does not grow.
    pub(crate) depth: u32,
    /// The spec for the simulator.
    pub(crate) virtually: &'static str,
}

/// Every emulated device.
#[rustfmt::skip]
pub(crate) const DEVICES: [Device; 4] = [
    Device { name: "t7k250", limit_mb_per_second: 28.5,  request_kib: 512,   depth: 1,
             is_rotational: true,
             virtually: "t7k250:cache=off" },
    Device { name: "hdd",    limit_mb_per_second: 200.0, request_kib: 1_024, depth: 8,
             is_rotational: true,
             virtually: "hdd" },
    Device { name: "cloud",  limit_mb_per_second: 125.0, request_kib: 1_024, depth: 64,
             is_rotational: false,
             virtually: "cloud" },
    Device { name: "object", limit_mb_per_second: 562.0, request_kib: 1_024, depth: 64,
             is_rotational: false,
             virtually: "object" },
];

/// The options of the simulator in both benches: the engine's replacement policy, the cost of a
/// page, and demands before readahead.
pub(crate) const VIRTUALLY: [&str; 6] =
    ["--policy", "2q-star", "--page-cost", "800ns", "--host", "demand-first"];
