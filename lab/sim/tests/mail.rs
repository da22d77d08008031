//! The mail workload against what it was fitted to: statistics of requests, and hit ratios.
//!
//! ```text
//!   hit ratio, M1     32 MB    512 MB   1024 MB   1792 MB
//!   LRU                45.1      48.7      66.8      86.0
//!   2Q                 45.2      59.9      70.6      82.1
//!   2Q*                45.2      59.8      71.0      86.2
//! ```
//! # Invariants
//! - Hit ratios of M1 are within 0.3 points of those of the fit, small and large, by each policy;
//!   so are the shares of reads, of pages by their uses, and of requests that follow the last.
//! # Sources
//! Meng et al. 2009, section 2 and Fig. 4: what was fitted to. The ratios above are those of the
//! model, computed by another simulator when it was fitted.

use std::convert::Infallible;

use forerun_core::params::Share;
use forerun_core::units::Nanos;
use forerun_sim::replay::{self, Cell, replay};
use forerun_sim::trace::survey::{Survey, SurveySettings, TraceSummary};
use forerun_sim::trace::{Addresses, Request};
use forerun_sim::workload;

fn requests(text: &str) -> impl Iterator<Item = Request> {
    let made = workload::make(text).expect("a workload");
    made.readers.into_iter().flatten().map(|access| {
        let request = Request::blocks(access.file, access.offset, access.bytes.into());
        request.expect("inside its file").expect("it has bytes").at(access.not_before, access.op)
    })
}

const POLICIES: [&str; 3] = ["lru", "2q:kin=0.1,kout=1", "2q-star:kin=0.1,kout=1"];

/// Hit ratios in percent: of each size, of each policy.
fn hit_ratios(text: &str, megabytes: &[u32]) -> Vec<[f64; 3]> {
    let cell = |policy: &str, size: u32| Cell { policy: policy.to_owned(), pages: size << 8 };
    let cells: Vec<Cell> =
        megabytes.iter().flat_map(|&size| POLICIES.map(|policy| cell(policy, size))).collect();
    let mut left = requests(text);
    let more = |keys: &mut Vec<u64>| -> Result<bool, Infallible> {
        let next = left.next();
        keys.extend(next.iter().flat_map(Request::pages));
        Ok(next.is_some())
    };
    let sample = Share::percent(100);
    let settings =
        replay::ReplaySettings { threads: 2, memory: 1 << 30, sample, clock: &|| Nanos(0) };
    let counts = replay(more, &cells, &settings).expect("known policies");
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let ratio = |at: usize| 100.0 - 100.0 * counts[at].misses as f64 / counts[at].accesses as f64;
    (0..megabytes.len()).map(|size| [0, 1, 2].map(|policy| ratio(3 * size + policy))).collect()
}

#[test]
fn hit_ratios_of_m1_are_those_of_the_fit() {
    #[rustfmt::skip]
    let rows: [(u32, [f64; 3]); 6] = [ // MB, LRU, 2Q, 2Q*
        (  32, [45.1, 45.2, 45.2]), ( 256, [45.8, 52.8, 52.8]), ( 512, [48.7, 59.9, 59.8]),
        (1024, [66.8, 70.6, 71.0]), (1280, [76.2, 76.1, 76.4]), (1792, [86.0, 82.1, 86.2]),
    ];
    let found = hit_ratios("mail,model=m1", &rows.map(|(size, _)| size));
    for ((size, expected), found) in rows.iter().zip(&found) {
        for ((policy, expected), found) in POLICIES.iter().zip(expected).zip(found) {
            let off = (found - expected).abs();
            assert!(off <= 0.3, "{policy} at {size} MB: {found:.2} %, not {expected} %");
        }
    }
}

#[test]
fn gains_of_m2_and_m3_are_those_of_the_fit() {
    #[rustfmt::skip]
    let rows = [ // model, 2Q - LRU at 512 MB, and at 1792 MB; 2Q* - 2Q there
        ("m2", 12.0, -2.9, 3.3),
        ("m3", 10.1, -2.4, 2.9),
    ];
    for (model, middle, large, star) in rows {
        let found = hit_ratios(&format!("mail,model={model}"), &[512, 1792]);
        let gains = [
            (found[0][1] - found[0][0], middle),
            (found[1][1] - found[1][0], large),
            (found[1][2] - found[1][1], star),
        ];
        for (found, expected) in gains {
            assert!((found - expected).abs() <= 0.5, "{model}: {gains:?}");
        }
    }
}

fn survey(text: &str) -> TraceSummary {
    let settings = SurveySettings { memory: 1 << 30, sample: Share::percent(100) };
    let mut survey = Survey::new(settings, Addresses::Blocks);
    for request in requests(text) {
        survey.add(&request).expect("it fits");
    }
    survey.finish()
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn statistics_of_m1_are_those_of_the_paper() {
    let found = survey("mail,model=m1");
    let share = |part: u64| 100.0 * part as f64 / found.requests as f64;
    let gaps = |from: usize, to: usize| {
        100.0 * found.gaps[from..to].iter().sum::<u64>() as f64
            / found.gaps.iter().sum::<u64>() as f64
    };
    let [once, twice, thrice, four, five, more] = found.uses[..] else { panic!("six classes") };
    let mean_gap = |number: usize| found.gaps_by_use[number].1 / 1e6;
    #[rustfmt::skip]
    let rows = [ // what, found, expected, within
        ("million requests",        found.requests as f64 / 1e6, 2.53, 0.03),
        ("kilobytes a request",     found.bytes as f64 / found.requests as f64 / 1e3, 8.37, 0.1),
        ("reads, %",                share(found.reads), 61.34, 0.2),
        ("thousand unique blocks",  found.unique as f64 / 1e3, 568.8, 6.0),
        ("follow the last, %",      share(found.sequential), 1.7, 0.3),
        // Runs that do not fit the hour all begin near its start: bursts that part neighbours.
        ("follow one of 64, %",     share(found.nearly_sequential), 37.0, 2.5),
        ("used once, %",            once * 100.0, 14.7, 0.3),
        ("used twice, %",           twice * 100.0, 20.4, 0.3),
        ("used three times, %",     thrice * 100.0, 9.8, 0.3),
        ("used four times, %",      four * 100.0, 12.8, 0.3),
        ("used five times, %",      five * 100.0, 7.9, 0.3),
        ("used more often, %",      more * 100.0, 34.3, 0.3),
        ("gap after the 1st, M",    mean_gap(0), 1.05, 0.05),
        ("gap after the 2nd, M",    mean_gap(1), 0.81, 0.05),
        ("gap after the 4th, M",    mean_gap(3), 0.59, 0.05),
        ("gap after the 5th, M",    mean_gap(4), 0.43, 0.05),
        ("gaps below 128, %",       gaps(0, 7), 49.0, 2.0),
        ("gaps of 1 K to 128 K, %", gaps(10, 17), 1.0, 0.6),
        ("gaps from 128 K on, %",   gaps(17, 64), 48.5, 1.5),
    ];
    let off = rows.iter().filter(|(_, found, expected, within)| (found - expected).abs() > *within);
    let off: Vec<_> = off.collect();
    assert!(off.is_empty(), "what, found, expected, within: {off:?}");
}
