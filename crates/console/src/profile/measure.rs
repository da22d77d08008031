//! One class of reads at a time: so many in flight until the time is over, each timed.
//!
//! ```text
//!   submit ...depth... --> reap one --> record latency --> submit the next, while there is time
//! ```
//!
//! # Invariants
//! - Every read that was submitted is reaped before [`RateTarget::measure`] returns, failed or not.
//! - The estimator sees each issue, arrival and failure, as from a cache.

use std::io;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use forerun_core::device::estimate::{Estimator, Ticket};
use forerun_core::prng::Prng;
use forerun_core::units::{FileId, Nanos};
use forerun_io::frames::Frame;
use forerun_io::store::{Completion, Op, OpKind, Queue, QueueKind, Store, Wait};

use crate::machine;

/// Reads of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Where the next read is.
    pub order: Order,
    /// Of each read; whole pages.
    pub bytes: u32,
    /// Reads in flight.
    pub depth: u32,
}

/// Where the next read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Anywhere.
    Random,
    /// Where the last one ended.
    Sequential,
}

impl Order {
    /// Its name in files and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
        }
    }
}

/// The results of a class.
#[derive(Clone, Copy, Debug)]
pub struct ClassRates {
    /// The reads.
    pub class: Class,
    /// Reads that arrived.
    pub requests: u64,
    /// Their bytes over the time.
    pub bytes_per_second: u64,
    /// The mean of their latencies.
    pub latency_mean: Nanos,
    /// The standard deviation of the same.
    pub latency_stdev: Nanos,
}

/// The target of the reads.
pub struct RateTarget {
    store: Arc<dyn Store>,
    bytes: u64,
    prng: Prng,
    begun: Nanos,
}

/// A running class.
struct Run<'a> {
    class: Class,
    queue: Arc<dyn Queue>,
    estimator: &'a mut Estimator,
    /// Of the reads in flight, by token.
    tickets: Vec<Option<(Ticket, Nanos)>>,
    /// Where the next read in order is.
    next: u64,
    sums: Sums,
}

/// Sums of latencies.
#[derive(Default)]
struct Sums {
    count: u64,
    sum: u128,
    squares: u128,
}

impl RateTarget {
    /// The first `bytes` of `store`.
    pub fn new(store: Arc<dyn Store>, bytes: u64, seed: u64) -> Self {
        Self { store, bytes, prng: Prng::new(seed), begun: machine::now() }
    }

    /// Reads as `class` says for `time`, and at least once.
    ///
    /// # Errors
    /// A read failed, or there is no memory.
    pub fn measure(
        &mut self,
        class: &Class,
        time: Nanos,
        estimator: &mut Estimator,
    ) -> Result<ClassRates> {
        // The waiting thread carries out a lone read, as it does a cache's miss.
        let kind = match class.depth {
            1 => QueueKind::Caller,
            depth => QueueKind::Background { depth },
        };
        let mut run = Run {
            class: *class,
            queue: self.store.queue(kind),
            estimator,
            tickets: vec![None; class.depth as usize],
            next: 0,
            sums: Sums::default(),
        };
        let frames: Result<Vec<Frame>, _> = (0..class.depth)
            .map(|_| Frame::new((class.bytes as usize).next_power_of_two()))
            .collect();
        let begun = machine::now();
        for (token, frame) in (0..).zip(frames?) {
            self.submit(&mut run, token, vec![frame]);
        }
        let (mut done, mut in_flight, mut failure) = (Vec::new(), class.depth, None);
        while in_flight > 0 {
            run.queue.reap(Wait::One, &mut done);
            let now = machine::now();
            for done in done.drain(..) {
                in_flight -= 1;
                match self.arrive(&mut run, now, &done) {
                    Err(error) => failure = failure.or(Some(error)),
                    Ok(()) if failure.is_none() && now.since(begun) < time => {
                        in_flight += 1;
                        self.submit(&mut run, done.op.token, done.op.frames);
                    }
                    Ok(()) => {}
                }
            }
        }
        let lasted = machine::now().since(begun);
        run.queue.close();
        failure.map_or_else(|| Ok(run.rates(lasted)), Err)
    }

    fn submit(&mut self, run: &mut Run<'_>, token: u64, frames: Vec<Frame>) {
        let bytes = run.class.bytes;
        let places = self.bytes / u64::from(bytes);
        let place = match run.class.order {
            Order::Random => self.prng.below(places),
            Order::Sequential => run.next % places,
        };
        run.next += 1;
        let (offset, now) = (place * u64::from(bytes), machine::now());
        let ticket = run.estimator.issued(self.passed(now), FileId(0), offset, bytes);
        run.tickets[index(token)] = Some((ticket, now));
        let bytes = bytes as usize;
        run.queue.submit(Op { token, kind: OpKind::Read, offset, bytes, frames });
    }

    fn arrive(&self, run: &mut Run<'_>, now: Nanos, done: &Completion) -> Result<()> {
        let (ticket, since) = run.tickets[index(done.op.token)].take().expect("it was submitted");
        match done.result {
            Ok(moved) if moved == done.op.bytes => {
                run.estimator.arrived(self.passed(now), ticket);
                run.sums.add(now.since(since));
                Ok(())
            }
            Ok(_) => {
                run.estimator.failed(ticket);
                Err(anyhow!("it shrank while it was read: measure a file that nobody changes"))
            }
            Err(errno) => {
                run.estimator.failed(ticket);
                let error = io::Error::from_raw_os_error(errno);
                Err(anyhow!(error).context(format!("a read at {} failed", done.op.offset)))
            }
        }
    }

    fn passed(&self, now: Nanos) -> Nanos {
        now.since(self.begun)
    }
}

impl Run<'_> {
    fn rates(&self, lasted: Nanos) -> ClassRates {
        let requests = self.sums.count;
        let bytes = u128::from(requests) * u128::from(self.class.bytes) * 1_000_000_000;
        let rate = bytes / u128::from(lasted.0.max(1));
        let (latency_mean, latency_stdev) = self.sums.mean_and_stdev();
        ClassRates {
            class: self.class,
            requests,
            bytes_per_second: u64::try_from(rate).unwrap_or(u64::MAX),
            latency_mean,
            latency_stdev,
        }
    }
}

impl Sums {
    fn add(&mut self, latency: Nanos) {
        let latency = u128::from(latency.0);
        self.count += 1;
        self.sum += latency;
        self.squares += latency * latency;
    }

    /// Zero of none.
    fn mean_and_stdev(&self) -> (Nanos, Nanos) {
        let count = u128::from(self.count.max(1));
        // The variance times the count squared, so that nothing is rounded before the root.
        let scaled = self.squares * count - self.sum * self.sum;
        let nanos = |value: u128| Nanos(u64::try_from(value).unwrap_or(u64::MAX));
        (nanos(self.sum / count), nanos(scaled.isqrt() / count))
    }
}

fn index(token: u64) -> usize {
    usize::try_from(token).expect("below the depth")
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn mean_and_deviation_are_those_of_the_latencies() {
        for (latencies, mean, stdev) in [
            (vec![], 0, 0),
            (vec![7], 7, 0),
            (vec![2, 4, 4, 4, 5, 5, 7, 9], 5, 2),
            (vec![1 << 40; 3], 1 << 40, 0),
        ] {
            let mut sums = Sums::default();
            for &latency in &latencies {
                sums.add(Nanos(latency));
            }
            assert_eq!(sums.mean_and_stdev(), (Nanos(mean), Nanos(stdev)), "{latencies:?}");
        }
    }
}
