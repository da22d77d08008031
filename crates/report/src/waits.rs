//! The costs of waiting for I/O: times, their quantiles, and processor time.
//!
//! # Invariants
//! - Quantiles are at the shares that [`Waits::PERMILLES`] lists, so that records can be drawn on
//!   one another.

use serde::{Deserialize, Serialize};

/// The costs of waiting for I/O.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// The mean latency.
    pub mean_us: f64,
    /// The same without the slowest hundredth.
    pub trimmed_mean_us: f64,
    /// Processor time of an I/O.
    pub cpu_us_per_io: f64,
    /// The share of sleepers that woke after the completion.
    pub late_share: f64,
    /// The latencies that [`Waits::PERMILLES`] of the I/Os are not above.
    pub quantiles_us: Vec<f64>,
}

impl Waits {
    /// The shares, in thousandths, of [`Waits::quantiles_us`].
    pub const PERMILLES: [u16; 13] = [0, 10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 990];

    /// Whether JSON cannot hold one of the figures.
    pub(crate) fn not_finite(&self) -> bool {
        let figures = [self.mean_us, self.trimmed_mean_us, self.cpu_us_per_io, self.late_share];
        figures.iter().chain(&self.quantiles_us).any(|figure| !figure.is_finite())
    }
}
