//! What the mail store consists of, and when its extents are used.
//!
//! ```text
//!   per run:   extents -> how often each is used -> when: start, gap 1, gap 2, ...
//!   short gap  log-normal around 10 slots
//!   long gap   around L x the whole time; different runs live at different paces
//! ```
//! Use counts are drawn a run: 1, 2, 3, 4, 5 times or more often, with a long tail whose mean makes
//! the total come out.
//!
//! # Invariants
//! - All extents of a run have the same count and, 8 slots apart, the same times.
//! - Extents do not overlap, and lie inside the volume.
//! # Sources
//! See the module above.

use forerun_core::units::Nanos;

use super::super::interleave::shuffle;
use super::chance::{Chance, exp};
use super::{Event, Model};

/// One column of fitted values.
struct Fit {
    /// Requests for each extent.
    requests_each: f64,
    /// How likely the first gaps are short, and the others; how many the first are.
    short_early: f64,
    short_late: f64,
    early: u32,
    /// Slots of a short gap: the median, and the spread of its logarithm.
    short_median: f64,
    short_spread: f64,
    /// A long gap as a share of the time, its spread, and how much later gaps are shorter.
    long: f64,
    long_spread: f64,
    long_late: f64,
    /// How far runs differ in pace.
    between: f64,
    /// The exponent of the tail of use counts.
    alpha: f64,
}

impl Model {
    #[rustfmt::skip]
    const fn fit(self) -> Fit {
        match self {
            Self::M1 => Fit {
                requests_each: 9.2497, short_early: 0.0984, short_late: 0.7710, early: 6,
                short_median: 10.0, short_spread: 0.556,
                long: 0.657, long_spread: 0.368, long_late: 0.926, between: 0.791, alpha: 3.727,
            },
            Self::M2 => Fit {
                requests_each: 9.0, short_early: 0.147, short_late: 0.658, early: 7,
                short_median: 10.0, short_spread: 1.14,
                long: 0.657, long_spread: 0.394, long_late: 0.844, between: 0.305, alpha: 4.44,
            },
            Self::M3 => Fit {
                requests_each: 8.266, short_early: 0.274, short_late: 0.675, early: 2,
                short_median: 10.0, short_spread: 0.582,
                long: 0.875, long_spread: 0.356, long_late: 1.084, between: 0.759, alpha: 5.066,
            },
        }
    }
}

/// Extents that are used together.
struct Run {
    /// Its first extent.
    first: u32,
    extents: u32,
    /// How often each is used.
    uses: u32,
}

/// A store that was drawn.
pub(super) struct RequestDraw {
    model: Model,
    seed: u64,
    /// Slots of time.
    slots: f64,
    runs: Vec<Run>,
    /// Of each extent: its first block, and its blocks.
    places: Vec<(u64, u8)>,
    volume_blocks: u64,
}

impl RequestDraw {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked counts")]
    pub(super) fn new(model: Model, requests: u64, seed: u64) -> Self {
        let fit = model.fit();
        let mut chance = Chance::new(seed);
        let extents = (requests as f64 / fit.requests_each) as u32;
        let mut runs = Vec::new();
        let mut first = 0;
        // Of each run, how far it is in the tail: 0 where it is not.
        let mut tails = Vec::new();
        while first < extents {
            let alone = chance.uniform() < ALONE;
            let length = if alone { 1 } else { 1 + chance.trials() };
            let length = length.min(RUN_EXTENTS_MAX).min(extents - first);
            let class = chance.choose(&USES);
            let is_tail = class + 1 == USES.len();
            tails.push(if is_tail { chance.pareto(fit.alpha).min(TAIL_MAX) } else { 0.0 });
            let uses = if is_tail { MANY } else { class as u32 + 1 };
            runs.push(Run { first, extents: length, uses });
            first += length;
        }
        lengthen(&mut runs, &tails, requests as f64);
        let sizes = (0..extents).map(|_| EXTENT_BLOCKS[chance.choose(&EXTENT_SHARES)]).collect();
        let (places, volume_blocks) = place(&runs, sizes, &mut chance);
        Self { model, seed, slots: requests as f64, runs, places, volume_blocks }
    }

    /// Every use of every extent, run by run.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the hour")]
    pub(super) fn events(&self) -> Vec<Event> {
        let fit = self.model.fit();
        let mut chance = Chance::new(self.seed ^ TIMES_SEED);
        let mut events = Vec::with_capacity(usize::try_from(self.requests()).expect("bounded"));
        let mut times = Vec::new();
        for run in &self.runs {
            times.clear();
            times.push(0.0);
            let pace = exp(fit.between * chance.normal());
            let mut span = 0.0;
            for gap in 1..run.uses {
                span += fit.gap(gap, pace, self.slots, &mut chance);
                times.push(span);
            }
            let longest = SPAN_MAX * self.slots;
            let scale = if span > longest { longest / span } else { 1.0 };
            let start = chance.uniform() * (self.slots - span * scale);
            for time in &times {
                for place in 0..run.extents {
                    let at = start + time * scale + f64::from(place) * APART_SLOTS;
                    let extent = run.first + place;
                    events.push(Event { at: (at * SLOT_PARTS) as u64, extent });
                }
            }
        }
        events
    }

    /// How many requests there are.
    pub(super) fn requests(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.extents) * u64::from(run.uses)).sum()
    }

    /// The same, to reckon with.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub(super) fn requests_exact(&self) -> f64 {
        self.requests() as f64
    }

    /// How many extents there are.
    pub(super) fn extents(&self) -> u32 {
        u32::try_from(self.places.len()).expect("fewer than requests")
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn volume_bytes(&self) -> u64 {
        self.volume_blocks * BLOCK
    }

    pub(super) fn bytes_wanted(&self) -> u64 {
        let blocks = |run: &Run| -> u64 {
            let places = &self.places[run.first as usize..(run.first + run.extents) as usize];
            places.iter().map(|(_, blocks)| u64::from(*blocks)).sum()
        };
        self.runs.iter().map(|run| blocks(run) * u64::from(run.uses) * BLOCK).sum()
    }

    /// Where an extent begins, and how long it is, in bytes.
    pub(super) fn place(&self, extent: u32) -> (u64, u32) {
        let (block, blocks) = self.places[extent as usize];
        (block * BLOCK, u32::from(blocks) * 4096)
    }

    /// The moment of an event: the slots are an hour.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the hour")]
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub(super) fn moment(&self, at: u64) -> Nanos {
        // The last extents of a run may stand a few slots past the end.
        let share = (at as f64 / SLOT_PARTS / self.slots).min(1.0);
        Nanos((share * HOUR_NANOS) as u64)
    }
}

impl Fit {
    /// Slots between the use `number` and the next one of a run.
    fn gap(&self, number: u32, pace: f64, slots: f64, chance: &mut Chance) -> f64 {
        let is_early = number <= self.early;
        let short = if is_early { self.short_early } else { self.short_late };
        if chance.uniform() < short {
            return self.short_median * exp(self.short_spread * chance.normal());
        }
        let spread = (1.0 + self.long_spread * chance.normal()).max(LONG_MIN);
        let late = if is_early { 1.0 } else { self.long_late };
        self.long * slots * spread * late * pace
    }
}

/// Gives runs in the tail as many uses as make the total `requests`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
fn lengthen(runs: &mut [Run], tails: &[f64], requests: f64) {
    let (mut few, mut many, mut weight) = (0.0, 0.0, 0.0);
    for (run, tail) in runs.iter().zip(tails) {
        let extents = f64::from(run.extents);
        if *tail > 0.0 {
            many += extents;
            weight += extents * tail;
        } else {
            few += extents * f64::from(run.uses);
        }
    }
    // Each in the tail is used 6 times, and what is left is shared by weight.
    let share = (requests - few - many * f64::from(MANY)).max(0.0) / weight.max(1.0);
    for (run, tail) in runs.iter_mut().zip(tails).filter(|(_, tail)| **tail > 0.0) {
        run.uses = MANY + (tail * share) as u32;
    }
}

/// Lays the runs out: their extents' places, and the blocks of the volume.
fn place(runs: &[Run], sizes: Vec<u8>, chance: &mut Chance) -> (Vec<(u64, u8)>, u64) {
    let mut strides: Vec<u64> = (0..runs.len() as u64).collect();
    shuffle(&mut strides, chance.prng());
    let stride = (VOLUME_BLOCKS / runs.len() as u64).max(RUN_BLOCKS_MAX);
    let mut places: Vec<(u64, u8)> = sizes.into_iter().map(|blocks| (0, blocks)).collect();
    for (run, number) in runs.iter().zip(strides) {
        let mut block = number * stride;
        for (at, blocks) in &mut places[run.first as usize..(run.first + run.extents) as usize] {
            *at = block;
            block += u64::from(*blocks);
        }
    }
    (places, VOLUME_BLOCKS.max(stride * runs.len() as u64))
}

const BLOCK: u64 = 4096;
/// 342 GB.
const VOLUME_BLOCKS: u64 = 342_000_000_000 / BLOCK;
/// Blocks of an extent, and how many of each there are; 8.4 kB on average.
const EXTENT_BLOCKS: [u8; 5] = [1, 2, 4, 6, 8];
const EXTENT_SHARES: [f64; 5] = [0.50, 0.30, 0.15, 0.03, 0.02];
/// Runs of one extent.
const ALONE: f64 = 0.7;
const RUN_EXTENTS_MAX: u32 = 16;
const RUN_BLOCKS_MAX: u64 = 16 * 8;
/// Blocks used 1, 2, 3, 4, 5 times and more often, in percent as the paper prints them.
const USES: [f64; 6] = [15.0, 21.0, 10.0, 13.0, 8.0, 35.0];
const MANY: u32 = 6;
/// Nothing is used more than so many times its share.
const TAIL_MAX: f64 = 2_000.0;
/// Slots between two neighbours of a run.
const APART_SLOTS: f64 = 8.0;
/// A long gap is at least so much of its mean.
const LONG_MIN: f64 = 0.2;
/// A run's uses fit into so much of the time.
const SPAN_MAX: f64 = 0.98;
/// Parts of a slot: the resolution of times.
const SLOT_PARTS: f64 = 1_000.0;
const HOUR_NANOS: f64 = 3.6e12;
/// Keeps the draws of times apart from those of places.
const TIMES_SEED: u64 = 0x7469_6d65;
