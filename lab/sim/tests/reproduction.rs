//! Figures of Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), and of Wu's
//! patch (2007), that the simulator has to come near: the paper's disk (`t7k250`), its windows
//! (1 MB) and its sizes, in virtual time. `docs/reproduction.md` has every row beside ours and
//! says where it differs and why; here stand the rows that must not be lost.

use forerun_core::{cache::Settings, device};
use forerun_sim::driver::{RunOutcome, Setup, run};
use forerun_sim::host::RequestOrder;
use forerun_sim::workload;

const LEGACY: &str = "linux-2.6.22:max=1M";
const DEMAND: &str = "linux-2.6.24:max=1M";

/// A workload on the paper's disk behind an elevator, in `memory` MiB.
fn outcome(workload: &str, readahead: &str, drive_cache: &str, memory: u32) -> RunOutcome {
    let device = device::make(&format!("t7k250:cache={drive_cache}"), 1).unwrap();
    let mut settings = Settings::new(memory * 256, "lru", readahead);
    settings.request_pages_max = u32::try_from(device.request_bytes_max() / 4096).unwrap();
    let mut setup = Setup::new(settings, Some(device));
    (setup.depth, setup.order, setup.log_max) = (1, RequestOrder::Elevator, 1_000);
    run(setup, &mut workload::make(workload).unwrap()).unwrap()
}

fn streams(n: u32, readahead: &str) -> RunOutcome {
    outcome(&format!("streams,n={n},each=100M"), readahead, "off", 2048)
}

/// Whether `ours` lies within `percent` of `theirs`.
fn within(percent: f64, ours: f64, theirs: f64) -> bool {
    (ours / theirs - 1.0).abs() <= percent / 100.0
}

#[test]
fn ten_streams_are_twenty_times_faster_and_wait_a_twenty_fifth() {
    let (legacy, demand) = (streams(10, LEGACY), streams(10, DEMAND));
    assert!(demand.mb_per_second() >= 20.0 * legacy.mb_per_second());
    assert!(legacy.delay_first.0 >= 25 * demand.delay_first.0);
    assert!(within(25.0, legacy.mb_per_second(), 0.81));
}

#[test]
fn few_streams_come_within_a_quarter_of_the_papers_throughput() {
    let rows = [(1, 24.95, 28.32), (2, 7.05, 28.32), (3, 3.15, 28.32)];
    for (n, legacy, demand) in rows {
        let ours = (streams(n, LEGACY).mb_per_second(), streams(n, DEMAND).mb_per_second());
        assert!(within(25.0, ours.0, legacy), "legacy, {n} streams: {ours:?}");
        assert!(within(25.0, ours.1, demand), "demand, {n} streams: {ours:?}");
    }
}

#[test]
fn with_the_drives_own_cache_one_stream_runs_at_the_medias_rate() {
    for readahead in [LEGACY, DEMAND] {
        let one = outcome("streams,n=1,each=100M", readahead, "on", 2048).mb_per_second();
        assert!(within(2.0, one, 51.38), "{readahead}: {one}");
    }
    let ten = |readahead| outcome("streams,n=10,each=100M", readahead, "on", 2048);
    assert!(within(25.0, ten(LEGACY).mb_per_second(), 12.29));
    assert!(within(25.0, ten(DEMAND).mb_per_second(), 35.30));
}

#[test]
fn one_read_in_ten_at_random_costs_the_legacy_a_quarter() {
    let disturbed = |readahead| outcome("disturb,percent=10", readahead, "off", 2048);
    let (legacy, demand) = (disturbed(LEGACY).mb_per_second(), disturbed(DEMAND).mb_per_second());
    assert!(within(10.0, legacy, 5.10) && within(10.0, demand, 6.39), "{legacy} {demand}");
    assert!(demand >= 1.2 * legacy);
}

#[test]
fn thrashing_windows_are_read_again_by_demand_readahead_and_not_by_the_legacy() {
    let thrashed = |readahead| outcome("thrash,streams=200,rate=100K", readahead, "on", 128);
    let (legacy, demand) = (thrashed(LEGACY), thrashed(DEMAND));
    assert!(demand.mb_per_second() >= 2.5 * legacy.mb_per_second());
    assert!(demand.mean_request_bytes() >= 4 * legacy.mean_request_bytes());
}

#[test]
fn a_run_is_the_same_request_by_request() {
    let (one, two) = (streams(3, DEMAND), streams(3, DEMAND));
    assert_eq!((one.elapsed, one.delay, one.stats), (two.elapsed, two.delay, two.stats));
    assert_eq!(one.log, two.log);
    assert_eq!(one.log.len(), 1_000.min(usize::try_from(one.requests).unwrap()));
    assert!(one.waits.percentile(50) <= one.waits.percentile(99));
}
