//! Memory shared by streams in virtual time: no stream keeps memory that others need more.
//!
//! ```text
//!   abandoned   |==|--------|  5,000 times: two pages are read, a window is fetched
//!   stream      |===================================...  then this one, at its full rate
//! ```
//!
//! # Invariants
//! - What is asserted is virtual time: the same on each machine.

use forerun_core::cache::Settings;
use forerun_core::device;
use forerun_core::units::Nanos;
use forerun_sim::driver::{RunOutcome, Setup, run};
use forerun_sim::trace::Op;
use forerun_sim::workload::{self, Access, Reader, Workload};

const PAGE: u64 = 4_096;

fn setup(cache_bytes: u64, policy: &str, device: &str) -> Setup {
    let frames = u32::try_from(cache_bytes / PAGE).unwrap();
    let device = device::make(device, 1).unwrap();
    let mut settings = Settings::new(frames, policy, "streams");
    settings.request_pages_max = u32::try_from(device.request_bytes_max() / PAGE).unwrap();
    Setup::new(settings, Some(device))
}

fn page(file: u32, index: u64) -> Access {
    let (offset, bytes) = (index * PAGE, u32::try_from(PAGE).unwrap());
    Access {
        handle: file,
        file,
        offset,
        bytes,
        not_before: Nanos(0),
        think: Nanos(0),
        op: Op::Read,
    }
}

/// Two pages of each of `starts` files, then `bytes` of one more file.
fn abandoned_then_stream(starts: u32, bytes: u64) -> Workload {
    let files = (0..starts).map(|_| 1 << 20).chain([bytes]).collect();
    let starting = (0..starts).flat_map(|file| [page(file, 0), page(file, 1)]);
    let stream = (0..bytes / PAGE).map(move |index| page(starts, index));
    Workload {
        name: "abandoned",
        params: Vec::new(),
        title: "abandoned starts, then a stream".into(),
        files,
        handles: (0..=starts).collect(),
        readers: Vec::from([Reader::new(starting.chain(stream))]),
        streams: Vec::new(),
        bytes_wanted: u64::from(starts) * 2 * PAGE + bytes,
    }
}

#[test]
fn a_stream_is_as_fast_after_many_that_were_abandoned() {
    let stream_bytes = 500_000_000 / PAGE * PAGE;
    for (cache_bytes, device) in [(64 << 20, "t7k250"), (1 << 30, "t7k250")] {
        for policy in ["2q-star", "lru"] {
            let takes = |starts, bytes| {
                let mut workload = abandoned_then_stream(starts, bytes);
                run(setup(cache_bytes, policy, device), &mut workload).unwrap().elapsed
            };
            let starting = takes(5_000, 0);
            let (alone, after) = (takes(0, stream_bytes), takes(5_000, stream_bytes));
            let after = after.since(starting);
            let why = format!("{cache_bytes} bytes, {policy}, {device}");
            println!("{why}: {alone:?} alone, {after:?} after");
            assert!(10 * alone.0 >= 9 * after.0, "{why}: {alone:?} alone, {after:?} after");
        }
    }
}

fn slow(cache_bytes: u64, seed: u64) -> RunOutcome {
    let text = format!("streams,n=200,each=1M,rate=50KB,layout=irregular,start=mid,seed={seed}");
    let mut workload = workload::make(&text).unwrap();
    run(setup(cache_bytes, "2q-star", "t7k250"), &mut workload).unwrap()
}

#[test]
fn many_slow_streams_get_what_they_need_in_little_memory() {
    for seed in 1..=8 {
        for cache_bytes in [64 << 20, 32 << 20] {
            let outcome = slow(cache_bytes, seed);
            let (rate, until) = (outcome.mb_per_second(), outcome.late_until);
            // All begin at once, and each begins with an access.
            let begun = Nanos::from_millis(6_000);
            let why =
                format!("{cache_bytes} bytes, seed {seed}: {rate:.2} MB/s, late until {until:?}");
            println!("{why}");
            // 200 MB are due in 20 s: the last of them comes a fifth of a second later at most.
            assert!(rate > 9.9 && until < begun, "{why}");
            let unread = outcome.stats.ahead_unread * PAGE;
            let most = outcome.bytes_wanted * 21 / 20 + unread;
            assert!(outcome.bytes_read <= most, "{why}: {} bytes read", outcome.bytes_read);
        }
    }
}
