//! `forerun soak`: the live engine at full speed for any time, every byte checked.
//!
//! ```text
//!   worker 0 .. 7    read, open, open again, close, ask ahead, pin, resize: every byte verified
//!   this thread      turns the faults on and off, takes samples, prints, ends it
//! ```
//! | module | what |
//! |---|---|
//! | `stores` | the stores that are read, and the faults that come and go |
//! | `worker` | the steps of a thread |
//! | `health` | memory, descriptors and threads of the process, and whether they grow |
//!
//! # Invariants
//! - It ends when both the time and the number of reads are reached, at the first difference
//!   found, or at a signal; it prints its closing line in each case.
//! - In the end every handle is closed: all frames are free, and threads and descriptors are as
//!   many as in the beginning.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use forerun_console::{failure, interrupt, machine, output};
use forerun_core::units::Nanos;
use forerun_engine::journal::JournalFile;
use forerun_engine::{Cache, Handle, Settings};
use forerun_measure::journal;
use forerun_measure::journal::Journal;
use forerun_report::quantity;
use forerun_report::quantity::mebibytes;

use health::ProcessUsage;
use stores::Stores;
use worker::{Counts, Worker};

mod health;
mod stores;
mod worker;

/// What `soak` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  forerun soak --minutes 0.5\n  forerun soak --reads 2M")]
pub struct Args {
    /// How long it runs at least [default: 10, or 0 with --reads]
    #[arg(long, value_name = "M", value_parser = minutes)]
    minutes: Option<Nanos>,
    /// How many reads it does at least, as 250000, 40K or 100M [default: 100M, or 0 with --minutes]
    #[arg(long, value_name = "N", value_parser = reads)]
    reads: Option<u64>,
    /// Threads that read
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Determines what is drawn; the order of threads stays the system's
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    journal: Journal,
}

/// Runs the soak; any difference found is an error.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.journal.require_places(None, None)?;
    args.journal.keep(|journal| soak(args, journal))
}

fn soak(args: &Args, journal: Option<&JournalFile>) -> Result<()> {
    let goal = Goal::of(args.minutes, args.reads);
    let before = ProcessUsage::take()?;
    interrupt::gently();
    let stores = Stores::make()?;
    let settings = Settings {
        cache_bytes: CACHE_BYTES,
        background_depth: 2,
        // A read that waits longer than this counts as lost.
        wait_max: Duration::from_millis(STALL_MS),
        ..Settings::default()
    };
    let cache = journal::cache(settings, journal).context("cannot make a cache")?;
    let open = |file: &stores::File| Ok(cache.open_store(file.store()?)?);
    let shared = stores.files.iter().map(open).collect::<Result<Vec<Handle>>>()?;
    let counts: Vec<Counts> = (0..args.threads).map(|_| Counts::default()).collect();
    let stop = AtomicBool::new(false);
    let mut watch = Watch::new(goal, &cache, &counts);
    let wrong = thread::scope(|scope| {
        let start = |(number, counts)| {
            let worker = Worker::new(&cache, &stores, &shared, counts, args.seed, number);
            scope.spawn(|| worker.run(&stop))
        };
        let workers: Vec<_> = (0..).zip(&counts).map(start).collect();
        let mut wrong = watch.run(&stores, &workers);
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            wrong = wrong.and(worker.join().unwrap_or_else(|_| bail!("a thread panicked")));
        }
        wrong
    });
    drop(shared);
    let wrong = wrong.and_then(|()| watch.judge()).and_then(|()| at_rest(&cache));
    let closing = watch.closing();
    drop((cache, stores));
    let wrong = wrong.and_then(|()| all_gone(before));
    let is_over = interrupt::asked();
    let verdict = match (&wrong, is_over) {
        (Err(_), _) => "FAILED",
        (Ok(()), true) => "interrupted, ok so far",
        (Ok(()), false) => "ok",
    };
    output::print(&format!("soak: {verdict}: {closing}\n"))?;
    wrong.context("the soak found something wrong")?;
    if is_over {
        interrupt::leave();
    }
    Ok(())
}

/// The conditions of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Goal {
    time: Nanos,
    reads: u64,
}

impl Goal {
    /// One of them alone means that one; neither, both by default.
    fn of(minutes: Option<Nanos>, reads: Option<u64>) -> Self {
        let (time, reads) = match (minutes, reads) {
            (None, None) => (MINUTES_10, READS),
            (time, reads) => (time.unwrap_or(Nanos(0)), reads.unwrap_or(0)),
        };
        Self { time, reads }
    }
}

/// The state of the monitoring thread.
struct Watch<'a> {
    goal: Goal,
    cache: &'a Cache,
    counts: &'a [Counts],
    begun: Nanos,
    samples: Vec<ProcessUsage>,
    /// Time and reads when something was printed last.
    printed: (Nanos, u64),
    /// The last observed progress: its time, and the count of completed reads.
    moved: (Nanos, u64),
}

impl<'a> Watch<'a> {
    fn new(goal: Goal, cache: &'a Cache, counts: &'a [Counts]) -> Self {
        let begun = machine::now();
        let (samples, at) = (Vec::new(), (begun, 0));
        Self { goal, cache, counts, begun, samples, printed: at, moved: at }
    }

    /// Monitors the workers until the end; returns the differences found.
    fn run(&mut self, stores: &Stores, workers: &[ScopedJoinHandle<'_, Result<()>>]) -> Result<()> {
        for tick in 0_u64.. {
            let (now, reads) = (machine::now(), self.sum(|counts| &counts.reads));
            let time = now.since(self.begun);
            if tick.is_multiple_of(PHASE_TICKS) {
                stores.turn(tick / PHASE_TICKS);
            }
            if tick.is_multiple_of(SAMPLE_TICKS) {
                self.sample()?;
            }
            let is_enough = time >= self.goal.time && reads >= self.goal.reads;
            if is_enough || interrupt::asked() || workers.iter().any(ScopedJoinHandle::is_finished)
            {
                break;
            }
            if now.since(self.printed.0) >= PRINT {
                self.print(now, reads)?;
            }
            if reads > self.moved.1 {
                self.moved = (now, reads);
            } else if now.since(self.moved.0) >= Nanos::from_millis(2 * STALL_MS) {
                // The process exits without joining its hanging threads.
                failure::note(&format!("no read ended for {} s", 2 * STALL_MS / 1_000));
                std::process::exit(failure::FAILED.into());
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    fn sum(&self, of: impl Fn(&Counts) -> &std::sync::atomic::AtomicU64) -> u64 {
        self.counts.iter().map(|counts| of(counts).load(Ordering::Relaxed)).sum()
    }

    fn sample(&mut self) -> Result<()> {
        let stats = self.cache.stats();
        if !stats.core.balanced() {
            bail!("the counts do not add up: {:?}", stats.core);
        }
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(ProcessUsage::take()?);
        }
        Ok(())
    }

    fn print(&mut self, now: Nanos, reads: u64) -> Result<()> {
        let seconds = quantity::seconds(now.since(self.begun));
        let rate = rate(reads - self.printed.1, now.since(self.printed.0));
        self.printed = (now, reads);
        let ProcessUsage { rss_bytes, fds, threads } = ProcessUsage::take()?;
        let (errors, rss) = (self.sum(|counts| &counts.errors), mebibytes(rss_bytes));
        output::print(&format!(
            "{seconds:>6.0} s  {reads:>11} reads  {rate:>8}/s  rss {rss:.1} MiB  fds {fds}  \
             threads {threads}  errors {errors}\n"
        ))
    }

    /// Whether the process grew while it ran.
    fn judge(&self) -> Result<()> {
        let grown = health::grown(&self.samples);
        if grown.is_empty() { Ok(()) } else { bail!("{}", grown.join("; ")) }
    }

    /// The closing line: counts and rates of the whole run.
    fn closing(&self) -> String {
        let time = machine::now().since(self.begun);
        let sum = |of: fn(&Counts) -> &_| self.sum(of);
        let reads = sum(|counts| &counts.reads);
        let [opened, prefetched, pinned, resized] = [
            sum(|counts| &counts.opened),
            sum(|counts| &counts.prefetched),
            sum(|counts| &counts.pinned),
            sum(|counts| &counts.resized),
        ];
        let rss = health::rss(&self.samples).map_or(String::new(), |(early, late)| {
            format!(", rss {early:.1} MiB, then {late:.1} MiB")
        });
        format!(
            "{reads} reads and {} bytes verified in {}, {}/s; {} reads failed as they should; \
             {opened} handles opened, {prefetched} prefetches, {pinned} pins, {resized} \
             resizes{rss}",
            sum(|counts| &counts.bytes),
            quantity::time(quantity::seconds(time)),
            rate(reads, time),
            sum(|counts| &counts.errors),
        )
    }
}

fn rate(reads: u64, time: Nanos) -> u64 {
    let rate = u128::from(reads) * 1_000_000_000 / u128::from(time.0.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// With every handle closed no page is resident or in flight, and every frame is free.
fn at_rest(cache: &Cache) -> Result<()> {
    let (stats, (frames, free)) = (cache.stats(), cache.frames());
    if free != frames {
        bail!("{free} of {frames} frames came back at the end");
    }
    if !stats.core.balanced() || stats.core.ahead_unread > 0 {
        bail!("the counts do not add up at the end: {:?}", stats.core);
    }
    if stats.latency.count() != stats.requests - stats.unlocked {
        bail!("{} reads were timed of {}", stats.latency.count(), stats.requests);
    }
    Ok(())
}

/// Descriptors and threads are as many as `before`. The system may still list a joined thread for a
/// moment.
fn all_gone(before: ProcessUsage) -> Result<()> {
    for _ in 0..GONE_TICKS {
        let now = ProcessUsage::take()?;
        if now.fds <= before.fds && now.threads <= before.threads {
            return Ok(());
        }
        thread::sleep(TICK);
    }
    let now = ProcessUsage::take()?;
    bail!(
        "{} descriptors and {} threads at the end, {} and {} before",
        now.fds,
        now.threads,
        before.fds,
        before.threads
    )
}

fn minutes(text: &str) -> Result<Nanos, String> {
    let minutes: f64 = text.parse().map_err(|_| "expected minutes, such as 10 or 0.5")?;
    let time = Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())?;
    u64::try_from(time.as_nanos()).map(Nanos).map_err(|_| "that is for ever".into())
}

fn reads(text: &str) -> Result<u64, String> {
    let (digits, scale) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 1_000),
        Some(digits) if text.ends_with('M') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000_000_000),
        None => (text, 1),
    };
    let count: Option<u64> = digits.parse().ok();
    count.and_then(|count| count.checked_mul(scale)).ok_or("expected a count, such as 40K".into())
}

/// Small, so that pages leave all the time.
const CACHE_BYTES: u64 = 32 << 20;
const MINUTES_10: Nanos = Nanos::from_millis(10 * 60 * 1_000);
const READS: u64 = 100_000_000;
/// The poll interval of this thread.
const TICK: Duration = Duration::from_millis(50);
const SAMPLE_TICKS: u64 = 4;
const PHASE_TICKS: u64 = 20;
const GONE_TICKS: u64 = 40;
const PRINT: Nanos = Nanos::from_millis(5_000);
/// A minute without a frame or a read on a machine that is merely busy does not happen.
const STALL_MS: u64 = 60_000;
/// Two days of samples; later ones would only blur the quarters.
const SAMPLES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goal_alone_is_the_only_one() {
        let goal = |time, reads| Goal { time, reads };
        assert_eq!(Goal::of(None, None), goal(MINUTES_10, READS));
        assert_eq!(Goal::of(Some(Nanos(7)), None), goal(Nanos(7), 0));
        assert_eq!(Goal::of(None, Some(9)), goal(Nanos(0), 9));
        assert_eq!(Goal::of(Some(Nanos(7)), Some(9)), goal(Nanos(7), 9));
    }

    #[test]
    fn times_and_counts_are_read_as_people_write_them() {
        assert_eq!(minutes("0.5"), Ok(Nanos::from_millis(30_000)));
        for text in ["", "x", "-1", "NaN", "1e30"] {
            assert!(minutes(text).is_err(), "{text}");
        }
        for (text, count) in [("7", 7), ("40K", 40_000), ("2G", 2_000_000_000)] {
            assert_eq!(reads(text), Ok(count), "{text}");
        }
        for text in ["", "M", "-1", "1.5M", "99999999999999G"] {
            assert!(reads(text).is_err(), "{text}");
        }
    }
}
