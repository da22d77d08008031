//! Cost profiles of reaping, each figure with its source.
//!
//! ```text
//!            what is stated by the source            what is assumed
//!   paper    wake 1 us, sleep 1 us, both processor   submit, interrupt, poll 0; no spread; a timer
//!            time too                                is as late as a sleep costs
//!   metal    wake 1.8, overshoot 3 +- .8, sleep 2.5  submit .9, wake +- .5, interrupt .7
//!   vm       wake 20, overshoot 20 +- 5, sleep 19    submit 9, wake +- 4, wake cpu 5, interrupt 3
//! ```
//!
//! # Invariants
//! - Nothing here is fitted to a result.
//! # Sources
//! `paper`: Liao et al. 2022, sections 1.2 and 2.1. `metal`, `vm`: measured with a prototype on a
//! machine and in a virtual machine.

use forerun_core::device::Spread;
use forerun_core::params::ParamError;
use forerun_core::units::Nanos;

/// The costs of waiting on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Its name.
    pub name: &'static str,
    /// Submitting an I/O: time and processor time.
    pub submit: Nanos,
    /// The handler of one completion: processor time.
    pub interrupt: Nanos,
    /// From a completion until the blocked thread continues.
    pub wake: Spread,
    /// Processor time of that.
    pub wake_cpu: Nanos,
    /// From a timer's expiry until the sleeper continues.
    pub overshoot: Spread,
    /// Processor time of a sleep.
    pub sleep_cpu: Nanos,
    /// From a completion until a spinning thread sees it.
    pub look: Nanos,
}

/// Every profile.
pub const COSTS: [Costs; 3] = [
    Costs {
        name: "paper",
        submit: Nanos(0),
        interrupt: Nanos(0),
        wake: Spread::new(1_000, 0),
        wake_cpu: Nanos(1_000),
        overshoot: Spread::new(1_000, 0),
        sleep_cpu: Nanos(1_000),
        look: Nanos(0),
    },
    Costs {
        name: "metal",
        submit: Nanos(900),
        interrupt: Nanos(700),
        wake: Spread::new(1_800, 500),
        wake_cpu: Nanos(1_800),
        overshoot: Spread::new(3_000, 800),
        sleep_cpu: Nanos(2_500),
        look: Nanos(100),
    },
    Costs {
        name: "vm",
        submit: Nanos(9_000),
        interrupt: Nanos(3_000),
        wake: Spread::new(20_000, 4_000),
        wake_cpu: Nanos(5_000),
        overshoot: Spread::new(20_000, 5_000),
        sleep_cpu: Nanos(19_000),
        look: Nanos(100),
    },
];

/// The profile of this name.
///
/// # Errors
/// There is none.
pub fn costs(name: &str) -> Result<Costs, ParamError> {
    let unknown = || ParamError::UnknownName {
        name: name.into(),
        known: COSTS.map(|costs| costs.name).to_vec(),
    };
    COSTS.into_iter().find(|costs| costs.name == name).ok_or_else(unknown)
}
