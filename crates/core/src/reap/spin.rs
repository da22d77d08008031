//! Every wait spins until the end, contended processor or not: polling as it is measured against,
//! not as it should be used.
//!
//! # Invariants
//! - It never blocks.

use super::{Calibration, Key, Outcome, Plan, Reap};
use crate::units::Nanos;

/// See the module.
pub struct Spin;

impl Reap for Spin {
    const NAME: &'static str = "spin";
    type Params = ();

    fn new((): (), _: &Calibration) -> Self {
        Self
    }

    fn plan(&self, _: Key, _: Nanos, _: bool) -> Plan {
        Plan::Spin { budget: Nanos(u64::MAX) }
    }

    fn learn(&mut self, _: Key, _: &Outcome) {}
}
