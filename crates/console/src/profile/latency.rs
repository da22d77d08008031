//! The latency half: the time of a lone read by polling and by interrupt, and the cost of a sleep.
//!
//! ```text
//!   4K       polling interrupt polling interrupt ...     each size as long as any other
//!   8K       polling interrupt ...
//!   sleeps   10 us 10 us ... 30 us 30 us ... 60 us ...   a fifth of the time, all together
//! ```
//! The *wake-up penalty* is the extra time of the interrupt: the delay until a blocked thread runs
//! again.
//!
//! # Invariants
//! - It only reads, past the page cache, and ends when its time is over and all reads have
//!   come.
//! - Both ways take turns, read by read: they meet the same device.
//! - Latencies of a busy machine are shown, with the reason, and never kept.
//! # Sources
//! The sizes are the classes of `core::reap`; Liao et al. 2022 (NIO) measures mean and deviation of
//! each beforehand.

use std::path::Path;

use anyhow::Result;
use forerun_core::device::CHANNEL_MODELS;
use forerun_core::params::{Bytes, Param as _};
use forerun_core::reap::{self, CLASS_BYTES};
use forerun_core::units::Nanos;
use forerun_io::files::Backend;
use forerun_io::reaper::{ReapOutcome, Reaper, ReaperSettings, Sleeper, involuntary_switches};
use forerun_report::quantity::thousandths;

use crate::reap_reads::{Reads, trimmed};
use crate::{machine, output, specs};

use crate::failure::note;
use crate::noise::Noise;
use crate::reap_target::ReapTarget;

/// The latencies of a device, or the reason why they are missing.
pub enum LatencyHalf {
    /// The latencies.
    Measured(Box<Latencies>),
    /// The reason for no latencies.
    LeftOut(String),
}

/// What was measured.
pub struct Latencies {
    /// The interface that was waited on.
    pub io: &'static str,
    /// The same for people, with what was refused.
    chosen: String,
    /// Reads, a row a size.
    pub reads: Vec<Waits>,
    /// Sleeps, a row a length.
    pub sleeps: Vec<Sleeps>,
    /// The kind of polling, where it is not that of a device without interrupts.
    about_polling: Option<String>,
    noise: Noise,
}

/// Reads of one size.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// Bytes of each read.
    pub bytes: u64,
    /// None where completions cannot be polled.
    pub polling: Option<WaitTimes>,
    /// The reader sleeps until the interrupt.
    pub interrupt: WaitTimes,
}

/// One way of waiting for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimes {
    /// Reads that were timed.
    pub samples: u64,
    /// Without the slowest hundredth, as is the processor time.
    pub latency: reap::Latency,
    /// Processor time of a read, in the mean.
    pub cpu: Nanos,
}

/// Sleeps of one length.
#[derive(Clone, Copy, Debug)]
pub struct Sleeps {
    /// The requested length.
    pub asked: Nanos,
    /// Sleeps that were timed.
    pub samples: u64,
    /// By how much they were late.
    pub over_p50: Nanos,
    /// The same, of the latest tenth.
    pub over_p90: Nanos,
    /// Processor time of a sleep, in the mean.
    pub cpu: Nanos,
}

impl Waits {
    /// By how much the interrupt is slower than polling, in ns.
    #[must_use]
    pub fn wake(&self) -> Option<i64> {
        let (interrupt, polling) = (self.interrupt.latency.mean, self.polling?.latency.mean);
        Some(interrupt.0.cast_signed() - polling.0.cast_signed())
    }
}

impl LatencyHalf {
    /// The latencies of the device model `device`, or of the file at `path`, in `time`. A failure
    /// here does not fail the rest: a note on stderr gives the reason.
    #[must_use]
    pub fn measure(
        device: Option<&str>,
        path: Option<&Path>,
        is_direct: bool,
        time: Nanos,
        seed: u64,
    ) -> Self {
        let target = match (device, path) {
            (Some(spec), _) if CHANNEL_MODELS.iter().any(|device| device.name == spec) => {
                ReapTarget::model(spec, seed)
            }
            (Some(spec), _) => {
                let names = CHANNEL_MODELS.map(|device| device.name);
                let both = names.into_iter().filter(|name| specs::device(name, seed).is_ok());
                let both = both.collect::<Vec<_>>().join(", ");
                return Self::LeftOut(format!(
                    "model `{spec}` has rates, but no interrupts; there is a model of both: {both}"
                ));
            }
            (None, Some(path)) if is_direct => ReapTarget::file(path.to_owned(), Backend::Auto),
            (None, _) => {
                return Self::LeftOut(
                    "there are no direct reads here; name a file of another file system".to_owned(),
                );
            }
        };
        match target {
            Ok(target) => Self::of(&target, time, seed),
            Err(error) => Self::LeftOut(format!("{error:#}")),
        }
    }

    /// That of `target`.
    fn of(target: &ReapTarget, time: Nanos, seed: u64) -> Self {
        match Latencies::measure(target, time, seed) {
            Ok(measured) if measured.reads.is_empty() => Self::LeftOut(format!(
                "a read takes too long: no size had {SAMPLES_MIN} of them in {}",
                time.show()
            )),
            Ok(measured) => Self::Measured(Box::new(measured)),
            Err(error) => {
                let why = format!("cannot measure {}: {error:#}", target.name());
                note(&format!("latencies are left out: {why}"));
                Self::LeftOut(why)
            }
        }
    }

    /// The latencies to keep.
    #[must_use]
    pub fn kept(&self) -> Option<&Latencies> {
        match self {
            Self::Measured(latencies) if latencies.busy().is_empty() => Some(latencies),
            Self::Measured(_) | Self::LeftOut(_) => None,
        }
    }

    /// For people; `kept_before`: the profile has those of an earlier time.
    #[must_use]
    pub fn describe(&self, kept_before: bool) -> String {
        let before = if kept_before { "; those of before are kept" } else { "" };
        match self {
            Self::LeftOut(why) => format!("latencies are left out: {why}{before}\n"),
            Self::Measured(latencies) => {
                let busy = latencies.busy().join(", ");
                let last = if busy.is_empty() {
                    latencies.noise.describe()
                } else {
                    format!(
                        "latencies are not saved: {busy}; measure again when the machine is \
                         idle{before}"
                    )
                };
                latencies.describe() + &last + "\n"
            }
        }
    }
}

impl Latencies {
    fn measure(target: &ReapTarget, time: Nanos, seed: u64) -> Result<Self> {
        let sleeper = Sleeper::new();
        let mut ways = Ways::new(target, seed)?;
        let (before, switches) = (Noise::now(), involuntary_switches());
        let begun = machine::now();
        let for_reads = Nanos(time.0 / 5 * 4);
        let ends =
            |at: usize, count: usize, part: Nanos| Nanos(part.0 * (at as u64 + 1) / count as u64);
        let (mut reads, mut sleeps) = (Vec::new(), Vec::new());
        for (at, bytes) in CLASS_BYTES.into_iter().enumerate() {
            let until = begun + ends(at, CLASS_BYTES.len(), for_reads);
            reads.extend(ways.read(bytes, until, SAMPLES_MAX)?);
        }
        let (for_sleeps, asleep) = (time.since(for_reads), begun + for_reads);
        for (at, asked) in SLEEPS.into_iter().enumerate() {
            let until = asleep + ends(at, SLEEPS.len(), for_sleeps);
            sleeps.extend(sleep(&sleeper, asked, until));
        }
        let mut noise = Noise::now().since(&before, "latencies", true);
        let samples = reads.iter().map(Waits::samples).sum::<u64>();
        let samples = samples + sleeps.iter().map(|sleeps| sleeps.samples).sum::<u64>();
        noise.preempted(involuntary_switches() - switches, samples);
        let about_polling = ways.unpolled.or_else(|| target.unpolled());
        let (io, chosen) = (ways.interrupt.port(), target.io().to_owned());
        Ok(Self { io, chosen, reads, sleeps, about_polling, noise })
    }

    /// Those of a machine with nothing else to do.
    #[cfg(test)]
    pub(super) fn idle(io: &'static str, reads: Vec<Waits>) -> Self {
        let sleeps = vec![Sleeps::of(SLEEPS[0], vec![6_000], vec![7_000])];
        let (chosen, noise) = (io.to_owned(), Noise::default());
        Self { io, chosen, reads, sleeps, about_polling: None, noise }
    }

    /// The reason for not keeping them.
    fn busy(&self) -> Vec<&str> {
        self.noise.noisy().collect()
    }

    fn describe(&self) -> String {
        let header =
            ["waits", "KiB", "samples", "latency us", "its deviation us", "cpu us", "wake us"];
        let rows: Vec<_> = self.reads.iter().flat_map(Waits::rows).collect();
        let waits = output::table(&header, &rows, 1);
        let header = ["sleep us", "samples", "late p50 us", "late p90 us", "cpu us"];
        let rows: Vec<_> = self.sleeps.iter().map(Sleeps::row).collect();
        let sleeps = output::table(&header, &rows, 0);
        let mut lines = vec![format!("waited on {}", self.chosen)];
        lines.extend(self.about_polling.clone());
        let is_missing = |bytes: &u64| self.reads.iter().all(|waits| waits.bytes != *bytes);
        let missing = CLASS_BYTES.into_iter().filter(is_missing).map(|bytes| Bytes(bytes).show());
        let missing = missing.collect::<Vec<_>>().join(", ");
        if !missing.is_empty() {
            lines.push(format!("fewer than {SAMPLES_MIN} reads in their time: {missing}"));
        }
        format!("{waits}\n{sleeps}\n{}\n", lines.join("\n"))
    }
}

impl Waits {
    fn samples(&self) -> u64 {
        self.interrupt.samples + self.polling.map_or(0, |took| took.samples)
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |way: &str, took: WaitTimes, wake: Option<i64>| {
            // Less than nothing is what other work on the machine took from the polling thread.
            let wake = wake.filter(|&wake| wake >= 0);
            let wake = wake.map_or("-".to_owned(), |wake| thousandths(wake.unsigned_abs()));
            vec![
                way.to_owned(),
                (self.bytes >> 10).to_string(),
                took.samples.to_string(),
                thousandths(took.latency.mean.0),
                thousandths(took.latency.stdev.0),
                thousandths(took.cpu.0),
                wake,
            ]
        };
        let polling = self.polling.map(|took| row("polling", took, None));
        polling.into_iter().chain([row("interrupt", self.interrupt, self.wake())]).collect()
    }
}

impl Sleeps {
    fn row(&self) -> Vec<String> {
        vec![
            (self.asked.0 / 1_000).to_string(),
            self.samples.to_string(),
            thousandths(self.over_p50.0),
            thousandths(self.over_p90.0),
            thousandths(self.cpu.0),
        ]
    }
}

/// Both ways of waiting for the same target.
struct Ways<'a> {
    target: &'a ReapTarget,
    reads: Reads<'a>,
    polling: Option<Reaper>,
    interrupt: Reaper,
    /// The reason for no polling.
    unpolled: Option<String>,
}

impl<'a> Ways<'a> {
    /// Warm: the largest read was made by each, into memory that all others use again.
    fn new(target: &'a ReapTarget, seed: u64) -> Result<Self> {
        let reaper = |policy: &str| {
            let policy = policy.to_owned();
            target.reaper(1, &ReaperSettings { policy, ..ReaperSettings::default() })
        };
        let (mut interrupt, mut polling) = (reaper("interrupt")?, reaper("spin")?);
        let mut reads = Reads::new(target, seed);
        for reaper in [&mut interrupt, &mut polling] {
            reads.group(reaper, &CLASS_BYTES[CLASS_BYTES.len() - 1..], 1)?;
        }
        let unpolled =
            polling.fallback().map(|fallen| format!("polling is not measured: {fallen}"));
        let polling = unpolled.is_none().then_some(polling);
        Ok(Self { target, reads, polling, interrupt, unpolled })
    }

    /// Reads of `bytes`, in turns, until that moment, and at most `samples_max` each: nothing, if
    /// they were too few.
    fn read(&mut self, bytes: u64, until: Nanos, samples_max: usize) -> Result<Option<Waits>> {
        let woken = self.waking();
        let (mut polling, mut interrupt) = (Samples::default(), Samples::default());
        while machine::now() < until && interrupt.real.len() < samples_max {
            if let Some(reaper) = &mut self.polling {
                polling.add(&self.reads.group(reaper, &[bytes], 1)?);
            }
            interrupt.add(&self.reads.group(&mut self.interrupt, &[bytes], 1)?);
        }
        if interrupt.real.len() < SAMPLES_MIN {
            return Ok(None);
        }
        let mut interrupt = interrupt.took();
        // A model's thread wakes no other thread.
        interrupt.cpu += Nanos(self.waking().since(woken).0 / interrupt.samples);
        let polling = self.polling.is_some().then(|| polling.took());
        Ok(Some(Waits { bytes, polling, interrupt }))
    }

    /// The time that a model's thread has spent on wake-ups, in place of a handler.
    fn waking(&self) -> Nanos {
        self.target.model_lateness().map_or(Nanos(0), |model| model.waking)
    }
}

/// The latencies of reads under one way of waiting, in ns.
#[derive(Default)]
struct Samples {
    real: Vec<u64>,
    cpu: Vec<u64>,
}

impl Samples {
    fn add(&mut self, reaped: &ReapOutcome) {
        self.real.push(reaped.real.0);
        self.cpu.push(reaped.cpu.0);
    }

    fn took(self) -> WaitTimes {
        let samples = self.real.len() as u64;
        WaitTimes { samples, latency: trimmed(self.real), cpu: trimmed(self.cpu).mean }
    }
}

/// Sleeps for `asked` until that moment.
fn sleep(sleeper: &Sleeper, asked: Nanos, until: Nanos) -> Option<Sleeps> {
    let (mut over, mut cpu) = (Vec::new(), Vec::new());
    while machine::now() < until && over.len() < SLEEPS_MAX {
        let slept = sleeper.sleep(asked);
        over.push(slept.over.0);
        cpu.push(slept.cpu.0);
    }
    (over.len() >= SAMPLES_MIN).then(|| Sleeps::of(asked, over, cpu))
}

impl Sleeps {
    /// Of one at least.
    fn of(asked: Nanos, mut over: Vec<u64>, cpu: Vec<u64>) -> Self {
        over.sort_unstable();
        let at = |percent: usize| Nanos(over[(over.len() - 1) * percent / 100]);
        let (samples, cpu) = (over.len() as u64, trimmed(cpu).mean);
        Self { asked, samples, over_p50: at(50), over_p90: at(90), cpu }
    }
}

/// Sleeps as long as the shorter reads of fast drives take.
const SLEEPS: [Nanos; 3] = [Nanos::from_micros(10), Nanos::from_micros(30), Nanos::from_micros(60)];
const SLEEPS_MAX: usize = 200;
/// Bounds of what a mean is of: below the first it is none, the other bounds memory.
const SAMPLES_MIN: usize = 5;
const SAMPLES_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests;
