//! Many slow readers, one more from time to time, until their windows no longer fit the memory.
//!
//! ```text
//!   reader 0  r---r---r---r---r---r---r---r--- ...     each read at its own absolute time:
//!   reader 1  |gap| r---r---r---r---r---r---r ...      a late read makes the reader issue the
//!   reader 2  |gap  gap| r---r---r---r---r--- ...      next ones sooner, until it catches up
//! ```
//! Each reader has its own handle and its own region of one file. Once the last has begun all
//! of them run for a while: the defaults leave the first reader 46 seconds then.
//!
//! # Sources
//! Wu, "on-demand readahead" (linux-kernel, 2007), last test: 128 MB of memory, a stream of
//! 100 KB/s more every second up to 200.

use forerun_core::device::Rate;
use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError, check};
use forerun_core::units::Nanos;

use super::span::Span;
use super::{
    Access, BYTES_FORM, BYTES_MAX, Entry, GAP_MAX, RATE_FORM, RATE_MIN, REQUEST_FORM, REQUEST_MAX,
    Reader, STREAMS_FORM, STREAMS_MAX, Stream, Workload, time_of,
};

params! {
    /// What may be set.
    pub struct Thrash {
        /// Readers.
        streams: u32 = 200,
        /// Bytes a second that each wants.
        rate: Rate = Rate(100 << 10),
        /// Bytes that each reads; 24 MB last 246 seconds at 100 KB/s.
        each: Bytes = Bytes(24 << 20),
        /// Bytes of a read.
        request: Bytes = Bytes(4 << 10),
        /// The time from one reader's start to the next one's.
        start_gap: Nanos = Nanos::from_millis(1_000),
    }
}

impl Entry for Thrash {
    const NAME: &'static str = "thrash";
    const SUMMARY: &'static str =
        "many paced readers, a handle each (streams rate each request start_gap)";

    fn parts(&self) -> Result<Workload, ParamError> {
        let Self { streams, rate: Rate(rate), each: Bytes(each), start_gap, .. } = *self;
        let request = self.request.0;
        check((1..=STREAMS_MAX).contains(&streams), "streams", &self.streams, STREAMS_FORM)?;
        check(rate >= RATE_MIN, "rate", &self.rate, RATE_FORM)?;
        check((1..=BYTES_MAX).contains(&each), "each", &self.each, BYTES_FORM)?;
        check((1..=REQUEST_MAX).contains(&request), "request", &self.request, REQUEST_FORM)?;
        check(start_gap <= GAP_MAX, "start_gap", &self.start_gap, "a duration up to 1000s")?;
        let reader = |handle: u32| {
            let start = u64::from(handle) * each;
            let begins = Nanos(start_gap.0 * u64::from(handle));
            Reader::new(Span::new(start, each, request).map(move |(offset, bytes)| {
                let not_before = begins + time_of(offset - start, rate);
                Access { handle, not_before, ..Access::read(offset, bytes) }
            }))
        };
        Ok(Workload {
            title: format!(
                "{streams} readers of {} a second, one more every {}, {} reads, a handle each",
                self.rate.show(),
                start_gap.show(),
                self.request.show()
            ),
            files: vec![u64::from(streams) * each],
            handles: vec![0; streams as usize],
            readers: (0..streams).map(reader).collect(),
            streams: (0..u64::from(streams))
                .map(|number| Stream::whole(0, number * each, each))
                .collect(),
            bytes_wanted: u64::from(streams) * each,
            ..Workload::default()
        })
    }
}
