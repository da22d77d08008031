//! Ours: the cheapest way of waiting that is nearly as fast as the fastest one.
//!
//! For each kind of I/O three ways are known by what they took: mean latency and processor time.
//! The one in use is that with the least processor time of those that
//!
//! ```text
//!   are within `tolerance` of the fastest,  no slower than interrupts,  no dearer than spinning,
//!   and wake late no oftener than `late`
//! ```
//!
//! So no size is large by decree: where the device takes long, interrupts win by the first rule.
//! Now and then another way is tried, in turns with the one in use, so that both see the same
//! device; one that did not win is tried half as often the next time.
//!
//! How long to sleep is a quantile of the latency, followed step by step. A wake-up before the
//! completion lengthens the sleep, one after it shortens it by so much more that a `quantile` of
//! the wake-ups are late. A completion ends the sleep, so a late one costs what an interrupt does,
//! which is the interrupt that the paper keeps. What a late one cost is not taken for the device's
//! time, so there is no run away; a timer's overshoot is part of what the quantile sees. Where a
//! wake-up is expensive against the I/O, a smaller quantile is aimed at.
//!
//! # Invariants
//! - A kind's state is one cache line.
//! - Where the thread may not spin each plan is an interrupt.
//! # Sources
//! Liao et al. 2022 for the idea; the update by sign instead of by size is that of quantile
//! tracking (stochastic approximation, Robbins and Monro 1951), and DPAS (FAST 2026) has it for
//! the kernel's polling.

use alloc::vec::Vec;

use super::{Calibration, KEYS, Key, Latency, Outcome, Plan, Reap, Way};
use crate::params::Share;
use crate::units::Nanos;

crate::params! {
    /// What may be set.
    pub struct NioParams {
        /// Wake-ups after the completion that are aimed at. As many as the reference prototype.
        quantile: Share = Share::percent(10),
        /// How much slower than the fastest way the one in use may be.
        tolerance: Share = Share::percent(6),
    }
}

/// See the module.
pub struct Nio {
    params: NioParams,
    cells: Vec<Cell>,
}

/// One kind of I/O.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Cell {
    /// From submission to the timer, in units of `1 / SLEEP_ONE` ns.
    sleep: u64,
    /// The latency of the way in use when it was chosen, in ns.
    chosen_latency: u32,
    /// I/Os of this trial, or until the next one.
    left: u16,
    /// The share of late wake-ups, in millionths.
    late: u32,
    /// What is known of each way, by its index.
    ways: [WayEstimate; 3],
    /// The index of the way in use.
    in_use: u8,
    /// The index of the way that is tried; `in_use` itself when none is.
    tried: u8,
    /// Sleeps, up to [`FINDING`]: until then the time to sleep is being found.
    found: u8,
    /// Sleeps that `late` is a mean of.
    seen_late: u8,
}

const _: () = assert!(size_of::<Cell>() == 64);

/// What is known of a way.
#[derive(Clone, Copy, Debug, Default)]
struct WayEstimate {
    /// The mean time from submission to reaping, in ns.
    latency: u32,
    /// The mean processor time, in ns.
    cpu: u32,
    /// I/Os that the means are made of, up to [`REMEMBERED`].
    seen: u8,
    /// Processor times, likewise.
    seen_cpu: u8,
    /// Periods to the next trial.
    pause: u8,
    /// Periods that this pause has.
    pauses: u8,
}

impl Reap for Nio {
    const NAME: &'static str = "nio";
    type Params = NioParams;

    fn new(params: NioParams, known: &Calibration) -> Self {
        let mut cells = Vec::with_capacity(KEYS);
        cells.resize(KEYS, Cell::new());
        let mut nio = Self { params, cells };
        for key in Key::all() {
            if let Some(latency) = known.of(key) {
                nio.cells[key.index()].calibrated(latency);
            }
        }
        nio
    }

    fn plan(&self, key: Key, now: Nanos, may_spin: bool) -> Plan {
        let cell = &self.cells[key.index()];
        let spin = &cell.ways[SPIN];
        let budget = if spin.seen == 0 { FIRST_BUDGET } else { u64::from(spin.latency) * BUDGET };
        let budget = Nanos(budget);
        match if may_spin { cell.way() } else { Way::Interrupt } {
            Way::Interrupt => Plan::Interrupt,
            Way::Spin => Plan::Spin { budget },
            Way::SleepSpin => {
                let until = now + Nanos(cell.sleep / SLEEP_ONE);
                Plan::SleepSpin { until, roused: true, budget }
            }
        }
    }

    fn learn(&mut self, key: Key, outcome: &Outcome) {
        let cell = &mut self.cells[key.index()];
        let planned = cell.way();
        // A wait that might not spin met a contended processor: it says nothing of an idle one.
        if outcome.way != planned {
            return;
        }
        match planned {
            Way::Interrupt | Way::Spin => {
                cell.ways[planned.index()].add_latency(outcome);
                cell.ways[planned.index()].add_cpu(outcome);
            }
            Way::SleepSpin => cell.slept(outcome, &self.params),
        }
        cell.turn(&self.params);
    }
}

impl Cell {
    fn new() -> Self {
        Self {
            sleep: 0,
            chosen_latency: 0,
            left: TRIAL,
            late: 0,
            ways: [WayEstimate::default(); 3],
            in_use: index(Way::Spin),
            tried: index(Way::Interrupt),
            found: 0,
            seen_late: 0,
        }
    }

    /// Starts from what spinning took when it was measured.
    fn calibrated(&mut self, latency: Latency) {
        let spin = &mut self.ways[SPIN];
        spin.latency = nanos(latency.mean);
        spin.seen = 1;
    }

    /// The way of the next wait.
    fn way(&self) -> Way {
        let index = if self.left.is_multiple_of(2) { self.tried } else { self.in_use };
        Way::ALL[usize::from(index)]
    }

    /// A sleep ended, late or before the completion.
    fn slept(&mut self, outcome: &Outcome, params: &NioParams) {
        let rate = if self.found < FINDING { STEP_FINDING } else { STEP };
        let step = u64::from(self.ways[SPIN].latency) * SLEEP_ONE / rate;
        let (quantile, one) = (u64::from(self.quantile(params)), u64::from(ONE));
        if outcome.late {
            self.sleep = self.sleep.saturating_sub(step * (one - quantile) / one);
        } else {
            self.sleep += step * quantile / one;
        }
        self.ways[SLEEP].add_cpu(outcome);
        if self.sleep == 0 {
            // No sleep is short enough: the trial is over.
            self.left = 0;
        }
        if self.found < FINDING {
            self.found += 1;
            return;
        }
        self.ways[SLEEP].add_latency(outcome);
        let late = if outcome.late { ONE } else { 0 };
        self.late = mean(self.late, late, &mut self.seen_late, u8::MAX);
    }

    /// What a wake-up by interrupt takes, in ns.
    fn wake(&self) -> u32 {
        self.ways[WAIT].latency.saturating_sub(self.ways[SPIN].latency)
    }

    /// The share of late wake-ups to aim at, in millionths: so few that they cost half of the
    /// tolerance at most.
    fn quantile(&self, params: &NioParams) -> u32 {
        let (spin, wake) = (u64::from(self.ways[SPIN].latency), u64::from(self.wake()));
        let affordable = u64::from(params.tolerance.ppm) * spin / (2 * wake.max(1));
        let most = params.quantile.ppm.clamp(QUANTILE_MIN, ONE);
        u32::try_from(affordable).unwrap_or(u32::MAX).clamp(QUANTILE_MIN, most)
    }

    /// A wait of the way that was planned has ended.
    fn turn(&mut self, params: &NioParams) {
        if self.left > 0 && !self.is_hopeless() {
            self.left -= 1;
            return;
        }
        if self.tried == self.in_use {
            self.begin_trial();
        } else {
            self.end_trial(params);
        }
    }

    /// Tries the next way whose pause is over.
    fn begin_trial(&mut self) {
        self.left = PERIOD;
        if self.has_changed() {
            self.chosen_latency = self.ways[usize::from(self.in_use)].latency;
            for known in &mut self.ways {
                (known.pause, known.pauses) = (0, 0);
                known.seen = known.seen.min(HOPELESS_SEEN);
                known.seen_cpu = known.seen_cpu.min(HOPELESS_SEEN);
            }
        }
        for way in Way::ALL {
            let known = &mut self.ways[way.index()];
            if index(way) == self.in_use {
                continue;
            }
            if known.pause > 0 {
                known.pause -= 1;
                continue;
            }
            if way == Way::SleepSpin && self.found < FINDING {
                // Well before the mean, and a wake-up earlier: a few steps find the rest.
                let spin = self.ways[SPIN].latency;
                self.sleep = u64::from((spin - spin / 4).saturating_sub(self.wake())) * SLEEP_ONE;
                if self.sleep == 0 {
                    self.ways[SLEEP].put_off();
                    continue;
                }
            }
            let finding = if way == Way::SleepSpin { FINDING - self.found } else { 0 };
            (self.tried, self.left) = (index(way), TRIAL + 2 * u16::from(finding));
            return;
        }
    }

    /// Whether the way that is tried cannot win: it takes far longer, or costs more than spinning.
    fn is_hopeless(&self) -> bool {
        let (tried, spin) = (&self.ways[usize::from(self.tried)], &self.ways[SPIN]);
        let in_use = &self.ways[usize::from(self.in_use)];
        let slow = tried.seen >= HOPELESS_SEEN && tried.latency / 3 > in_use.latency / 2;
        let expensive = tried.seen_cpu >= HOPELESS_SEEN && tried.cpu > spin.cpu + spin.cpu / 8;
        self.tried != self.in_use && (slow || expensive)
    }

    fn end_trial(&mut self, params: &NioParams) {
        let chosen = self.choose(params);
        if chosen != self.tried {
            self.ways[usize::from(self.tried)].put_off();
        }
        assert!(usize::from(chosen) < Way::ALL.len(), "way {chosen} is none");
        self.in_use = chosen;
        self.tried = chosen;
        self.chosen_latency = self.ways[usize::from(chosen)].latency;
        // Ways that were never tried come first.
        let known = self.ways.iter().all(|known| known.seen > 0 || known.pauses > 0);
        self.left = if known { PERIOD } else { 0 };
    }

    /// Whether the way in use takes another time than when it was chosen.
    fn has_changed(&self) -> bool {
        let (then, now) = (self.chosen_latency, self.ways[usize::from(self.in_use)].latency);
        then.abs_diff(now) > then / 4
    }

    /// The index of the way to use.
    fn choose(&self, params: &NioParams) -> u8 {
        let known = || self.ways.iter().filter(|known| known.seen > 0);
        let fastest = known().map(|known| known.latency).min().unwrap_or(0);
        let most = u64::from(fastest) * (u64::from(ONE) + u64::from(params.tolerance.ppm));
        let spin = &self.ways[SPIN];
        let fits = |way: Way| {
            let known = &self.ways[way.index()];
            let fast = u64::from(known.latency) * u64::from(ONE) <= most;
            let interrupt = &self.ways[WAIT];
            let no_slower = interrupt.seen == 0
                || u64::from(known.latency) * 100 <= u64::from(interrupt.latency) * 101;
            let in_time = way != Way::SleepSpin || self.late <= self.late_max(params);
            let saves = way == Way::Spin || known.cpu <= spin.cpu - spin.cpu / SAVES_PART;
            known.seen_cpu > 0 && saves && fast && no_slower && in_time
        };
        let fitting = Way::ALL.into_iter().filter(|&way| fits(way));
        let cheapest = fitting.min_by_key(|way| self.ways[way.index()].cpu);
        index(cheapest.unwrap_or(Way::Spin))
    }

    /// The largest share of late wake-ups that is no sign of sleeping in vain, in millionths.
    fn late_max(&self, params: &NioParams) -> u32 {
        self.quantile(params) / 5 * 6
    }
}

impl WayEstimate {
    /// It did not win: the next trial comes after twice as long a pause.
    fn put_off(&mut self) {
        self.pauses = (self.pauses * 2 + 1).min(PAUSES_MAX);
        self.pause = self.pauses;
    }

    fn add_latency(&mut self, outcome: &Outcome) {
        let mut real = nanos(outcome.real);
        if self.seen >= TRUSTED {
            // One stall says nothing of the others.
            real = real.min(self.latency.saturating_mul(OUTLIER));
        }
        self.latency = mean(self.latency, real, &mut self.seen, REMEMBERED);
    }

    fn add_cpu(&mut self, outcome: &Outcome) {
        if let Some(cpu) = outcome.cpu {
            self.cpu = mean(self.cpu, nanos(cpu), &mut self.seen_cpu, REMEMBERED);
        }
    }
}

/// The mean with one more value, over about the last `remembered` ones.
fn mean(before: u32, value: u32, seen: &mut u8, remembered: u8) -> u32 {
    *seen = seen.saturating_add(1).min(remembered);
    let count = u64::from(*seen);
    let sum = u64::from(before) * (count - 1) + u64::from(value) + count / 2;
    u32::try_from(sum / count).expect("a mean of 32-bit values")
}

fn nanos(time: Nanos) -> u32 {
    u32::try_from(time.0).unwrap_or(u32::MAX / 2)
}

fn index(way: Way) -> u8 {
    u8::try_from(way.index()).expect("there are three ways")
}

/// Indices of ways.
const WAIT: usize = 0;
const SPIN: usize = 1;
const SLEEP: usize = 2;
/// The whole, where shares are in millionths.
const ONE: u32 = 1_000_000;
/// Parts of a nanosecond in a sleep: a step of a small quantile is less than one.
const SLEEP_ONE: u64 = 1_024;
/// Values that a mean is made of.
const REMEMBERED: u8 = 64;
/// Values from which on a mean is fit to tell an outlier: so many times the mean.
const TRUSTED: u8 = 16;
const OUTLIER: u32 = 4;
/// I/Os of a trial: every other one is of the way that is tried.
const TRIAL: u16 = 32;
/// I/Os between two trials, and the most such periods in a pause of one way.
const PERIOD: u16 = 240;
const PAUSES_MAX: u8 = 63;
const _: () = assert!(PAUSES_MAX < u8::MAX / 2 && TRUSTED <= REMEMBERED);
/// Sleeps in which the time to sleep is found, by steps of a 16th of the latency; then of a 64th.
const FINDING: u8 = 64;
const STEP_FINDING: u64 = 16;
const STEP: u64 = 64;
/// The least part of spinning's processor time that another way is to save.
const SAVES_PART: u32 = 16;
/// I/Os after which a trial that cannot win is ended.
const HOPELESS_SEEN: u8 = 4;
/// The least share of late wake-ups to aim at, in millionths.
const QUANTILE_MIN: u32 = 15_625;
/// Spinning ends at so many times the mean, or before there is one, at a time that is long for a
/// fast device and short for a processor.
const BUDGET: u64 = 4;
const FIRST_BUDGET: u64 = 1_000_000;
