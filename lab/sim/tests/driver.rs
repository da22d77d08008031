//! The measurements of the virtual-time driver on workloads with known results.

use forerun_core::cache::Settings;
use forerun_core::device;
use forerun_core::prng::Prng;
use forerun_core::units::Nanos;
use forerun_sim::driver::{RunError, Setup, rate, run};
use forerun_sim::trace::Op;
use forerun_sim::workload::{self, Access, Reader, Workload};

fn setup(frames: u32, readahead: &str, device: Option<&str>) -> Setup {
    let device = device.map(|spec| device::make(spec, 1).unwrap());
    Setup::new(Settings::new(frames, "lru", readahead), device)
}

#[test]
fn without_a_device_nobody_waits_and_every_page_is_fetched_once() {
    let mut workload = workload::make("streams,n=3,each=1M").unwrap();
    let outcome = run(setup(4096, "linux-2.6.24:max=128K", None), &mut workload).unwrap();
    assert_eq!((outcome.delay, outcome.delay_first), (Nanos(0), Nanos(0)));
    assert_eq!(outcome.bytes_wanted, 3 << 20);
    assert_eq!(outcome.bytes_read, outcome.bytes_wanted);
    assert_eq!(outcome.stats.demanded, 3 * 256);
    assert_eq!(outcome.elapsed, Nanos::from_micros(3 * 256), "a microsecond a page");
}

#[test]
fn a_random_read_waits_for_its_request_alone() {
    let mut workload = workload::make("streams,n=1,each=4K").unwrap();
    let outcome = run(setup(64, "off", Some("ssd")), &mut workload).unwrap();
    assert_eq!(outcome.requests, 1);
    assert_eq!(outcome.elapsed, outcome.delay + Nanos::from_micros(1));
    assert!(outcome.waits.percentile(100) >= outcome.delay);
}

#[test]
fn paced_readers_are_not_ahead_of_their_time() {
    let mut workload = workload::make("thrash,streams=2,rate=1M,each=2M,start_gap=100ms").unwrap();
    let outcome = run(setup(4096, "linux-2.6.24", Some("ssd")), &mut workload).unwrap();
    assert!(outcome.elapsed >= Nanos::from_millis(2_090), "{:?}", outcome.elapsed);
    assert_eq!(outcome.reads_late, 0);
    assert!(outcome.late_max < Nanos::from_millis(100), "{:?}", outcome.late_max);
}

#[test]
fn what_cannot_run_is_refused() {
    let mut workload = workload::make("streams,n=10,each=100M").unwrap();
    let small = setup(64, "linux-2.6.24:max=1M", None);
    assert!(matches!(run(small, &mut workload), Err(RunError::Settings(_))));
    let tiny = setup(4096, "off", Some("t7k250:capacity=100M"));
    let error = run(tiny, &mut workload).unwrap_err();
    assert!(matches!(error, RunError::Device { .. }), "{error}");
}

#[test]
fn a_workload_of_more_files_and_handles_than_a_live_cache_takes_runs() {
    let mut workload = workload::make("streams,n=1,each=4K").unwrap();
    workload.files = vec![4096; 70_000];
    workload.handles = (0..70_000).collect();
    let outcome = run(setup(64, "off", None), &mut workload).unwrap();
    assert_eq!(outcome.bytes_read, 4096);
}

#[test]
fn a_file_has_so_many_writes_at_the_device_at_once() {
    // The most writes that were at the device at one moment.
    let written = |writes_max: Option<usize>| {
        let mut workload = workload::make("mail,requests=10000").unwrap();
        let mut setup = setup(256, "off", Some("cloud"));
        (setup.writes, setup.log_max) = (true, 100_000);
        setup.writes_max = writes_max.unwrap_or(setup.writes_max);
        let outcome = run(setup, &mut workload).unwrap();
        let log = outcome.log.iter().map(|logged| logged.completion);
        let writes = log.filter(|it| it.request.write);
        let mut moments: Vec<(Nanos, i32)> =
            writes.flat_map(|it| [(it.arrived, 1), (it.done, -1)]).collect();
        moments.sort_unstable();
        let counts = moments.iter().scan(0, |count, &(_, change)| {
            *count += change;
            Some(*count)
        });
        counts.max().unwrap()
    };
    let (bounded, free) = (written(Some(2)), written(None));
    assert!(bounded == 2 && free > 2, "{bounded}, {free} without a bound");
}

#[test]
fn a_rate_is_in_millions_of_bytes_a_second() {
    assert!((rate(5_000_000, Nanos::from_millis(500)) - 10.0).abs() < 1e-9);
    assert!(rate(5, Nanos(0)).abs() < 1e-9);
}

/// Demand misses, and pages ahead in vain, of `lone` reads of 4 KiB at random in a file of 4 GiB,
/// and then of so many `turns` of eight streams of 200 KiB, side by side, in one handle.
fn after_lone_reads(lone: u64, turns: u64) -> (u64, u64) {
    const FILE_PAGES: u64 = 1 << 20;
    const STREAM_PAGES: u64 = 50;
    let mut random = Prng::new(1);
    let mut place = || random.below(FILE_PAGES - STREAM_PAGES);
    let mut pages: Vec<u64> = (0..lone).map(|_| place()).collect();
    for _ in 0..turns {
        let heads: Vec<u64> = (0..8).map(|_| place()).collect();
        pages.extend((0..STREAM_PAGES).flat_map(|page| heads.iter().map(move |head| head + page)));
    }
    let access = |page: u64| Access {
        handle: 0,
        file: 0,
        offset: page << 12,
        bytes: 1 << 12,
        not_before: Nanos(0),
        think: Nanos(0),
        op: Op::Read,
    };
    let mut workload = Workload {
        files: vec![FILE_PAGES << 12],
        handles: vec![0],
        readers: vec![Reader::new(pages.into_iter().map(access))],
        ..Workload::default()
    };
    let stats = run(setup(4096, "streams", Some("cloud")), &mut workload).unwrap().stats;
    (stats.misses, stats.ahead_wasted)
}

#[test]
fn short_streams_are_found_in_a_file_that_was_long_read_at_random() {
    for lone in [0, 10_000, 100_000] {
        let (early, late) = (after_lone_reads(lone, 50), after_lone_reads(lone, 100));
        let misses = late.0 - early.0;
        assert!((1..=400 * 2).contains(&misses), "{misses} of 400 streams after {lone}");
        // What chance costs: one page in 40 lone reads.
        let (_, wasted) = after_lone_reads(lone, 0);
        assert!(wasted <= lone / 40, "{wasted} pages in vain by {lone}");
    }
}

#[test]
fn on_a_disk_streams_read_little_beyond_their_ends_however_much_memory_there_is() {
    #[rustfmt::skip]
    let rows = [ // streams                    device              % of the bytes wanted
        ("n=10,each=10M,start=mid",            "hdd",              150),
        ("n=17,each=60M,start=mid",            "hdd",              125),
        ("n=200,each=2M,request=64K",          "t7k250:cache=off", 135),
    ];
    for (streams, device, most) in rows {
        let measured = |frames| {
            let spec = format!("streams,{streams},layout=irregular,seed=5");
            let mut workload = workload::make(&spec).unwrap();
            let mut setup = setup(frames, "streams", Some(device));
            setup.cache.request_pages_max = 128;
            let outcome = run(setup, &mut workload).unwrap();
            (outcome.elapsed, outcome.bytes_read * 100 / outcome.bytes_wanted)
        };
        let [(small, _), (large, per_cent)] = [1 << 16, 1 << 18].map(measured);
        assert!(per_cent < most, "{streams} on {device}: {per_cent} %");
        assert!(large.0 <= small.0 / 10 * 11, "{streams} on {device}: {small:?} {large:?}");
    }
}
