//! Reaping: how a thread waits for the I/O that it submitted.
//!
//! A thread that blocks is woken by the device's interrupt, which costs a context switch; one that
//! spins sees the completion at once and burns a processor meanwhile; one that sleeps first and
//! spins then has most of both gains, if it knows for how long to sleep.
//!
//! ```text
//!   interrupt    submit |..........asleep...........|done|-- wake --| reaped
//!   spin         submit |##########spins############|done| reaped
//!   sleep, spin  submit |....asleep....|-- wake --|#|done| reaped
//!   late         submit |....asleep............|done|..|-- wake --| reaped
//! ```
//!
//! A policy plans a wait by its [`Key`] and learns from the outcome: a pure function and its state,
//! the same in virtual time and on a ring. I/Os that must all complete are a *group*:
//! one plan, the class of its largest member, reaped whole. What depends on a group is submitted
//! after it was reaped, as a group of its own.
//!
//! To add a policy: write `reap/NAME.rs` and add its line to `reapers!` below.
//!
//! # Invariants
//! - Planning and learning take constant time; the state of a key has one writer.
//! - Each plan ends: a thread that spins longer than its budget waits for the interrupt.
//! # Sources
//! Liao et al. 2022 (NIO); Linux block layer, hybrid polling, 4.10 to 6.3.

use alloc::{boxed::Box, string::String, vec::Vec};

use crate::params::{ParamError, Params, by_name};
use crate::units::Nanos;

mod request_gap;
mod spin_budget;
pub use request_gap::RequestGap;
pub use spin_budget::SpinBudget;

/// What an I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// The classes of I/O sizes by their largest member, in bytes; the last one takes what is larger.
pub const CLASS_BYTES: [u64; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

/// The most I/Os in flight in each bucket of depths; the last one takes what is more.
const DEPTHS: [u32; 4] = [1, 4, 16, u32::MAX];
const _: () = assert!(DEPTHS[DEPTHS.len() - 1] == u32::MAX, "each depth has a bucket");
const _: () = assert!(KEYS <= u8::MAX as usize, "classes and depths are bytes");

/// The number of kinds of I/O.
pub const KEYS: usize = 2 * CLASS_BYTES.len() * DEPTHS.len();

/// A kind of I/O: what it does, the class of its size, how many are in flight with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    op: Op,
    class: u8,
    depth: u8,
}

impl Key {
    /// The kind of a group whose largest member has `bytes`, with `in_flight` I/Os submitted and
    /// not reaped, the group's own among them.
    #[must_use]
    pub fn new(op: Op, bytes: u64, in_flight: u32) -> Self {
        let class = CLASS_BYTES.iter().take_while(|&&most| bytes > most).count();
        let depth = DEPTHS.iter().take_while(|&&most| in_flight > most).count();
        let class = class.min(CLASS_BYTES.len() - 1);
        Self { op, class: byte(class), depth: byte(depth) }
    }

    /// A number below [`KEYS`], another for each kind.
    #[must_use]
    pub fn index(self) -> usize {
        let op = match self.op {
            Op::Read => 0,
            Op::Write => 1,
        };
        let (class, depth) = (usize::from(self.class), usize::from(self.depth));
        assert!(class < CLASS_BYTES.len() && depth < DEPTHS.len(), "{self:?} is no kind");
        (op * CLASS_BYTES.len() + class) * DEPTHS.len() + depth
    }

    /// Each kind.
    pub fn all() -> impl Iterator<Item = Self> {
        let count = |most: usize| 0..byte(most);
        [Op::Read, Op::Write].into_iter().flat_map(move |op| {
            count(CLASS_BYTES.len()).flat_map(move |class| {
                count(DEPTHS.len()).map(move |depth| Self { op, class, depth })
            })
        })
    }

    /// What it does.
    #[must_use]
    pub fn op(self) -> Op {
        self.op
    }

    /// The class of its size: an index of [`CLASS_BYTES`].
    #[must_use]
    pub fn class(self) -> usize {
        usize::from(self.class)
    }
}

fn byte(index: usize) -> u8 {
    u8::try_from(index).expect("there are a few classes and depths")
}

/// How to wait for what was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Block until all is complete.
    Interrupt,
    /// Look without a pause, for `budget` at most; then block.
    Spin {
        /// The longest time to spin.
        budget: Nanos,
    },
    /// Sleep until a moment; then spin.
    SleepSpin {
        /// The moment.
        until: Nanos,
        /// Whether completion ends the sleep: else it is the timer's alone.
        roused: bool,
        /// The longest time to spin.
        budget: Nanos,
    },
}

/// A way of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Blocked all the time.
    Interrupt,
    /// Spun all the time.
    Spin,
    /// Slept, then spun.
    SleepSpin,
}

impl Way {
    /// All of them, in the order of their [index](Self::index).
    pub const ALL: [Self; 3] = [Self::Interrupt, Self::Spin, Self::SleepSpin];

    /// Its place in [`Way::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Interrupt => 0,
            Self::Spin => 1,
            Self::SleepSpin => 2,
        }
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["interrupt", "spin", "sleep"][self.index()]
    }
}

/// What came of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How the thread waited: not the plan's way if it might not spin.
    pub way: Way,
    /// From the submission of the first member to the reaping of the last one.
    pub real: Nanos,
    /// Whether all was complete when the sleeper woke: what it gained by sleeping it lost.
    pub late: bool,
    /// The processor's time that submission and wait took, where it was measured.
    pub cpu: Option<Nanos>,
}

/// What spinning showed of one kind of I/O on an idle device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The mean.
    pub mean: Nanos,
    /// The standard deviation.
    pub stdev: Nanos,
}

/// What was measured of a device beforehand: at each class, alone in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Reads, by class.
    pub reads: [Option<Latency>; CLASS_BYTES.len()],
    /// Writes, by class.
    pub writes: [Option<Latency>; CLASS_BYTES.len()],
}

impl Calibration {
    /// What is known of I/Os of this kind.
    #[must_use]
    pub fn of(&self, key: Key) -> Option<Latency> {
        match key.op {
            Op::Read => self.reads[key.class()],
            Op::Write => self.writes[key.class()],
        }
    }
}

/// Decides how to wait.
pub trait Reap: Sized {
    /// The name in reports and on the command line. Never changed once released.
    const NAME: &'static str;
    /// What may be set; each default names its source.
    type Params: Params;
    /// A policy that has seen nothing but a calibration.
    fn new(params: Self::Params, calibration: &Calibration) -> Self;
    /// How to wait for a group that is submitted at `now`. `may_spin`: the processor is not
    /// contended, and the [`SpinBudget`] is not spent.
    fn plan(&self, key: Key, now: Nanos, may_spin: bool) -> Plan;
    /// What came of a plan for this kind of group.
    fn learn(&mut self, key: Key, outcome: &Outcome);
}

/// A policy of any name: what a ring holds.
pub trait AnyReap: Send {
    /// See [`Reap::plan`].
    fn plan(&self, key: Key, now: Nanos, may_spin: bool) -> Plan;
    /// See [`Reap::learn`].
    fn learn(&mut self, key: Key, outcome: &Outcome);
}

impl<R: Reap + Send> AnyReap for R {
    fn plan(&self, key: Key, now: Nanos, may_spin: bool) -> Plan {
        Reap::plan(self, key, now, may_spin)
    }

    fn learn(&mut self, key: Key, outcome: &Outcome) {
        Reap::learn(self, key, outcome);
    }
}

macro_rules! reapers {
    ($($module:ident::$policy:ident),+ $(,)?) => {
        $(pub mod $module;)+

        /// Every policy's name, in the order of reports.
        pub const NAMES: &[&str] = &[$(<$module::$policy as Reap>::NAME),+];

        /// The policy that `spec` (`NAME:key=value,..`) describes.
        ///
        /// # Errors
        /// The name or a parameter is unknown, or a value does not parse.
        pub fn make(spec: &str, known: &Calibration) -> Result<Box<dyn AnyReap>, ParamError> {
            by_name! { spec, NAMES, params:
                $(<$module::$policy as Reap>::NAME, <$module::$policy as Reap>::Params
                    => Box::new(<$module::$policy as Reap>::new(params, known));)+
            }
        }

        /// The parameters of the policy that `spec` describes, as they are in force.
        ///
        /// # Errors
        /// As [`make`].
        pub fn show(spec: &str) -> Result<Vec<(&'static str, String)>, ParamError> {
            by_name! { spec, NAMES, params:
                $(<$module::$policy as Reap>::NAME, <$module::$policy as Reap>::Params
                    => params.show();)+
            }
        }
    };
}

reapers! {
    interrupt::Interrupt,
    spin::Spin,
    half::Half,
    nio_paper::NioPaper,
    nio::Nio,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_class_of_the_largest_member_and_the_bucket_of_the_depth() {
        #[rustfmt::skip]
        let rows = [ // bytes, in flight   class, bucket
            (0,         1,          0, 0),
            (4_096,     1,          0, 0),
            (4_097,     2,          1, 1),
            (8_192,     4,          1, 1),
            (65_536,    5,          4, 2),
            (65_537,    16,         5, 2),
            (u64::MAX,  17,         5, 3),
            (1 << 20,   u32::MAX,   5, 3),
        ];
        for (bytes, in_flight, class, bucket) in rows {
            let key = Key::new(Op::Read, bytes, in_flight);
            assert_eq!((key.class(), key.depth), (class, bucket), "{bytes} bytes, {in_flight}");
        }
    }

    #[test]
    fn each_kind_has_an_index_of_its_own() {
        let mut seen = [false; KEYS];
        for key in Key::all() {
            assert!(!core::mem::replace(&mut seen[key.index()], true), "{key:?} twice");
        }
        assert!(seen.iter().all(|&one| one));
    }

    #[test]
    fn names_and_parameters_are_checked() {
        for name in NAMES {
            assert!(make(name, &Calibration::default()).is_ok(), "{name}");
        }
        assert!(make("nio:quantile=0.05", &Calibration::default()).is_ok());
        assert!(make("nio:quantil=0.05", &Calibration::default()).is_err());
        assert!(matches!(show("never"), Err(ParamError::UnknownName { .. })));
    }
}
