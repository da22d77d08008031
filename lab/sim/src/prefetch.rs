//! A prefetching thread in virtual time: it reads a program's file ahead of the program.
//!
//! ```text
//!   program       read   computes ........   read   computes ........
//!   paper's       read   read   read   nap   nap    read   read        each read is waited for
//!   adaptive      fetch fetch fetch    nap          fetch              nothing is waited for
//! ```
//! The thread has a processor of its own. The paper's is a second reader of the file, which the
//! kernel reads ahead for as for any other; the adaptive one prefetches pages and has as many of
//! them in flight as the distance allows. Where a thread must wait, it decides again after a nap.
//!
//! # Invariants
//! - The thread ends with its program, at any position.
//! # Sources
//! Fukayama, Sugita, Hiruta, Yamana, "Disk Access Speed up Using Prefetching Thread", sections 3.3
//! and 3.5, whose thread naps by `usleep(1)`. How long that is depends on the kernel's timer: from
//! some 60 us today to a tick or two (1, 4 or 10 ms each) before 2.6.21.

use forerun_core::device::estimate;
use forerun_core::params::{self, Bytes, Param, ParamError, Params};
use forerun_core::planner::device::DeviceEstimate;
use forerun_core::planner::pace::{Pace, PaceBounds, PaceInput, PaceRule, PaceStep};
use forerun_core::units::{Nanos, PageIndex};

use crate::trace::Op;
use crate::workload::{Access, Stream, Workload};

forerun_core::params! {
    /// What may be set.
    struct PrefetchParams {
        /// As in [`PaceBounds`].
        burst: Bytes = PaceBounds::default().burst,
        /// As in [`PaceBounds`].
        limit: Bytes = PaceBounds::default().limit,
        /// Bytes of a read: Linux's largest window by default. The paper does not say.
        chunk: Bytes = Bytes(128 << 10),
        /// The time between two polls of the distance while it is too large: a tick.
        nap: Nanos = Nanos::from_millis(1),
    }
}

/// The kind of thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefetch {
    rule: PaceRule,
    chunk: u64,
    nap: Nanos,
}

impl Prefetch {
    /// The thread that `spec` (`paper` or `adaptive`, then `:key=value,...`) describes.
    ///
    /// # Errors
    /// The name or a parameter is unknown, or a value does not parse or is out of its bounds.
    pub fn make(spec: &str) -> Result<Self, ParamError> {
        let (name, pairs) = params::split(spec);
        let mut given = PrefetchParams::default();
        params::apply(&mut given, pairs)?;
        let PrefetchParams { burst, limit, chunk, nap } = given;
        let bad = |key: &str, value: String, form: &str| {
            Err(ParamError::BadValue { key: key.into(), value, form: form.into() })
        };
        if !(1..=CHUNK_MAX).contains(&chunk.0) {
            return bad("chunk", chunk.show(), "a size from 1 to 1G");
        }
        if !(NAP_MIN..=NAP_MAX).contains(&nap) {
            return bad("nap", nap.show(), "a duration from 1us to 1s");
        }
        Ok(Self { rule: PaceRule::new(name, PaceBounds { burst, limit })?, chunk: chunk.0, nap })
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.rule.name()
    }

    /// Its parameters as they are in force.
    #[must_use]
    pub fn params(&self) -> Vec<(&'static str, String)> {
        let PaceBounds { burst, limit } = self.rule.bounds().clone();
        PrefetchParams { burst, limit, chunk: Bytes(self.chunk), nap: self.nap }.show()
    }

    /// Whether `workload` is a program that a thread can read ahead for: one reader that reads one
    /// file from its head to its end.
    #[must_use]
    pub fn suits(workload: &Workload) -> bool {
        let [file] = workload.files[..] else { return false };
        workload.readers.len() == 1 && workload.streams == [Stream::whole(0, 0, file)]
    }
}

/// A running prefetching thread.
pub(crate) struct Prefetcher {
    pace: Pace,
    /// The paper's thread waits for what it reads.
    waits: bool,
    nap: Nanos,
    handle: u32,
    page_bytes: u64,
    /// The input of the rule; positions grow as program and thread read.
    input: PaceInput,
    /// The time that the program did not wait.
    busy: Nanos,
}

/// The thread's next action.
pub(crate) enum Next {
    /// A read that the thread waits for.
    Read(Access),
    /// A prefetch request; the thread continues at once.
    Ask {
        /// The first page.
        first: PageIndex,
        /// Pages.
        count: u32,
    },
    /// The thread polls again after this time.
    Nap(Nanos),
    /// The thread has read the whole file.
    End,
}

impl Prefetcher {
    /// A thread with `handle` on a file of `end` bytes, on a machine with `free` bytes for pages.
    pub(crate) fn new(
        setup: Prefetch,
        handle: u32,
        end: u64,
        page_bytes: u64,
        free: u64,
        device: Option<estimate::DeviceProfile>,
    ) -> Self {
        let Prefetch { rule, chunk, nap } = setup;
        let waits = matches!(rule, PaceRule::Paper(_));
        let input = PaceInput {
            position: 0,
            ahead: 0,
            end,
            request_bytes: chunk,
            free_bytes: free,
            bytes_per_second: 0,
            device: device.map(DeviceEstimate::from),
            is_late: false,
            slowdown: 0,
            first_distance: 0,
        };
        let pace = Pace::new(rule);
        Self { pace, waits, nap, handle, page_bytes, input, busy: Nanos(0) }
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    /// The program has read up to `main`, and waited for those bytes if they were `late`; it then
    /// computes on them for a time.
    pub(crate) fn program_read(&mut self, main: u64, late: bool, busy: Nanos) {
        self.busy += busy;
        self.input.position = main;
        self.input.is_late |= late;
        let rate = u128::from(main) * 1_000_000_000 / u128::from(self.busy.0.max(1));
        self.input.bytes_per_second = u64::try_from(rate).unwrap_or(u64::MAX);
    }

    pub(crate) fn next(&mut self) -> Next {
        let step = self.pace.decide(&self.input);
        self.input.is_late = false;
        let (from, bytes) = match step {
            PaceStep::Read { from, bytes } => (from, bytes),
            PaceStep::Wait { .. } => return Next::Nap(self.nap),
            PaceStep::Done => return Next::End,
        };
        self.input.ahead = from + bytes;
        if self.waits {
            let bytes = u32::try_from(bytes).expect("a chunk is at most 1 GiB");
            let (now, think) = (Nanos(0), Nanos(0));
            let (handle, file, offset) = (self.handle, 0, from);
            let op = Op::Read;
            return Next::Read(Access { handle, file, offset, bytes, not_before: now, think, op });
        }
        let first = from / self.page_bytes;
        let count = (from + bytes).div_ceil(self.page_bytes) - first;
        Next::Ask { first, count: u32::try_from(count).expect("a part of the memory") }
    }
}

const CHUNK_MAX: u64 = 1 << 30;
const NAP_MIN: Nanos = Nanos::from_micros(1);
const NAP_MAX: Nanos = Nanos::from_millis(1_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    #[test]
    fn a_thread_is_made_from_its_text_and_shows_it() {
        let shown = |text: &str| {
            let made = Prefetch::make(text).map_err(|error| error.to_string())?;
            let pairs = made.params().into_iter().map(|(key, value)| format!("{key}={value}"));
            Ok(format!("{}:{}", made.name(), pairs.collect::<Vec<_>>().join(",")))
        };
        let theirs = "no `theirs`; there are: paper adaptive";
        let lead = "no parameter `lead`; there are: burst limit chunk nap";
        #[rustfmt::skip]
        let rows = [
            ("paper",                Ok("paper:burst=16M,limit=64M,chunk=128K,nap=1ms")),
            ("adaptive:limit=4K,nap=2s", Err("`nap=2s`: expected a duration from 1us to 1s")),
            ("adaptive:limit=4K",        Ok("adaptive:burst=16M,limit=4K,chunk=128K,nap=1ms")),
            ("adaptive:chunk=0",         Err("`chunk=0`: expected a size from 1 to 1G")),
            ("adaptive:burst=0",         Err("`burst=0`: expected at least one byte")),
            ("theirs",               Err(theirs)),
            ("adaptive:lead=1",      Err(lead)),
        ];
        for (text, expected) in rows {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn one_reader_of_one_whole_file_can_be_read_ahead_for() {
        for (text, suits) in [
            ("compute,file=100001", true),
            ("streams,n=1,each=1M", true),
            ("streams,n=1,each=1M,start=mid", false),
            ("streams,n=2,each=1M", false),
            ("backward,n=1,each=1M", false),
            ("random,file=1M", false),
        ] {
            assert_eq!(Prefetch::suits(&workload::make(text).unwrap()), suits, "{text}");
        }
    }
}
