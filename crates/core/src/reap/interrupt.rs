//! Every wait blocks until the interrupt: what a system call does.
//!
//! # Invariants
//! - It never spins.

use super::{Calibration, Key, Outcome, Plan, Reap};
use crate::units::Nanos;

/// See the module.
pub struct Interrupt;

impl Reap for Interrupt {
    const NAME: &'static str = "interrupt";
    type Params = ();

    fn new((): (), _: &Calibration) -> Self {
        Self
    }

    fn plan(&self, _: Key, _: Nanos, _: bool) -> Plan {
        Plan::Interrupt
    }

    fn learn(&mut self, _: Key, _: &Outcome) {}
}
