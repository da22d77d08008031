//! Whether other threads want the processor, by two sources of the kernel.
//!
//! ```text
//!   ru_nivcsw                    how often this thread was preempted; every 1 ms
//!   /proc/thread-self/schedstat  how long it waited for a processor then; only when that grew
//!   /proc/pressure/cpu           how long any task did: where the kernel keeps no schedstat
//! ```
//!
//! A thread that spins is preempted now and then for a kernel thread's few microseconds: contention
//! is a fifth of the time spent waiting. The pressure of the machine is the weaker source: it
//! counts tasks of the idle class, which harm no one, and was seen to miss threads that the kernel
//! switches on their way out of a system call. Without both, two preemptions within 20 ms stand for
//! it.
//!
//! # Invariants
//! - A check costs one system call a millisecond at most, and one read of a file when the thread
//!   was preempted.
//! # Sources
//! Linux `getrusage(2)`; `Documentation/scheduler/sched-stats.rst`, `accounting/psi.rst`.

#![expect(unsafe_code, reason = "getrusage of a thread is a system call that nobody wraps")]

use std::{fs::File, mem::MaybeUninit, os::unix::fs::FileExt as _};

use forerun_core::{params::Share, units::Nanos};

/// See the module. For the thread that made it.
#[derive(Debug)]
pub(super) struct ContentionMonitor {
    source: Option<DelaySource>,
    /// When it checked last, and the preemptions by then.
    checked: Nanos,
    switches: u64,
    /// When it read the source last, and the sum there.
    read: Nanos,
    waited: Nanos,
    /// When the thread was last found preempted.
    preempted: Option<Nanos>,
}

/// A file with the time that was spent waiting for a processor.
#[derive(Debug)]
enum DelaySource {
    /// By this thread.
    Own(File),
    /// By any task.
    Any(File),
}

impl DelaySource {
    /// The better source that the kernel keeps.
    fn new() -> Option<Self> {
        let own = File::open("/proc/thread-self/schedstat").ok().map(Self::Own);
        let any = || File::open("/proc/pressure/cpu").ok().map(Self::Any);
        own.filter(|own| own.waited().is_some()).or_else(any)
    }

    /// The sum since the thread, or the system, started.
    fn waited(&self) -> Option<Nanos> {
        let mut text = [0; 128];
        let (file, sum): (_, fn(&str) -> Option<Nanos>) = match self {
            Self::Own(file) => (file, own_delay),
            Self::Any(file) => (file, pressure),
        };
        let count = file.read_at(&mut text, 0).ok()?;
        sum(str::from_utf8(&text[..count]).ok()?)
    }
}

impl ContentionMonitor {
    /// For this thread.
    pub(super) fn new(now: Nanos) -> Self {
        let source = DelaySource::new();
        let waited = source.as_ref().and_then(DelaySource::waited).unwrap_or_default();
        let switches = involuntary_switches();
        Self { source, checked: now, switches, read: now, waited, preempted: None }
    }

    /// A monitor that never checks.
    #[cfg(test)]
    pub(super) fn blind() -> Self {
        Self { checked: Nanos(u64::MAX), ..Self::new(Nanos(0)) }
    }

    /// Whether other threads wanted the processor since the last check; no, if that was just now.
    pub(super) fn is_contended(&mut self, now: Nanos) -> bool {
        if now.since(self.checked) < CHECKS_EVERY {
            return false;
        }
        self.checked = now;
        let switches = involuntary_switches();
        if std::mem::replace(&mut self.switches, switches) == switches {
            return false;
        }
        let again = self.preempted.replace(now).is_some_and(|before| now.since(before) <= AGAIN);
        let Some(sum) = self.source.as_ref().and_then(DelaySource::waited) else { return again };
        let waited = sum.since(std::mem::replace(&mut self.waited, sum));
        let passed = now.since(std::mem::replace(&mut self.read, now));
        is_fifth(waited, passed)
    }
}

/// Whether at least a fifth of the time that passed was spent waiting for a processor.
fn is_fifth(waited: Nanos, passed: Nanos) -> bool {
    u128::from(waited.0) * 1_000_000 >= u128::from(passed.0) * u128::from(CONTENDED.ppm)
}

/// The second number: `RUN WAITED SLICES`, in nanoseconds.
fn own_delay(text: &str) -> Option<Nanos> {
    text.split_whitespace().nth(1)?.parse().ok().map(Nanos)
}

/// The sum of the first line, that of `some`, in microseconds: `some avg10=1.23 ... total=456`.
fn pressure(text: &str) -> Option<Nanos> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total: u64 = line.split(' ').find_map(|word| word.strip_prefix("total="))?.parse().ok()?;
    total.checked_mul(1_000).map(Nanos)
}

/// How often this thread was preempted while it wanted to run.
#[must_use]
pub fn involuntary_switches() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` to it, and it outlives the call.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    assert!(answer == 0, "a thread may always ask for its own usage");
    // SAFETY: zeroes are a valid `rusage`, and so is what the kernel has written.
    let usage = unsafe { usage.assume_init() };
    u64::try_from(usage.ru_nivcsw).unwrap_or(0)
}

/// A check costs less than a thousandth of this.
const CHECKS_EVERY: Nanos = Nanos::from_millis(1);
/// A few time slices.
const AGAIN: Nanos = Nanos::from_millis(20);
/// The share of time spent waiting from which on the processor is contended.
const CONTENDED: Share = Share::percent(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read() {
        let text = "some avg10=60.26 avg60=45.05 avg300=41.36 total=17729494459\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure(text), Some(Nanos(17_729_494_459_000)));
        for text in ["full avg10=0.00 total=7\n", "some total=\n", "some avg10=0.00\n", ""] {
            assert_eq!(pressure(text), None, "{text}");
        }
        assert_eq!(own_delay("464431650 2643860666 370\n"), Some(Nanos(2_643_860_666)));
        for text in ["464431650\n", "1 x 3\n", ""] {
            assert_eq!(own_delay(text), None, "{text}");
        }
        // The time that this thread waited only grows.
        if let Some(source) = DelaySource::new() {
            let before = source.waited().expect("it was read before");
            assert!(source.waited() >= Some(before));
        }
    }

    #[test]
    fn a_fifth_of_the_time_is_contention() {
        #[rustfmt::skip]
        let rows = [ // waited, passed           contended
            (0,           1_000_000,             false),
            (199_999,     1_000_000,             false),
            (200_000,     1_000_000,             true),
            (2_000_000,   1_000_000,             true),
            (u64::MAX,    u64::MAX,              true),
        ];
        for (waited, passed, expected) in rows {
            let found = is_fifth(Nanos(waited), Nanos(passed));
            assert_eq!(found, expected, "{waited} of {passed}");
        }
    }

    #[test]
    fn checks_are_no_closer_than_a_millisecond() {
        let mut watch = ContentionMonitor::new(Nanos(0));
        // As if it had been put aside in between.
        watch.switches = u64::MAX;
        assert!(!watch.is_contended(Nanos(999_999)), "it does not check");
        assert_eq!((watch.checked, watch.switches), (Nanos(0), u64::MAX));
        watch.is_contended(CHECKS_EVERY);
        assert_eq!(watch.checked, CHECKS_EVERY);
        assert_ne!(watch.switches, u64::MAX);
    }

    #[test]
    fn without_a_source_a_second_time_stands_for_it() {
        let mut watch = ContentionMonitor { source: None, ..ContentionMonitor::new(Nanos(0)) };
        let mut put_aside_at = |millis| {
            watch.switches = u64::MAX;
            watch.is_contended(Nanos::from_millis(millis))
        };
        #[rustfmt::skip]
        let rows = [(10, false), (30, true), (51, false), (60, true)];
        for (millis, expected) in rows {
            assert_eq!(put_aside_at(millis), expected, "at {millis} ms");
        }
    }
}
