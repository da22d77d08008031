//! Summaries of samples, kept latencies, and measurements of targets of several kinds. No figure
//! is judged: machines are late.
//!
//! # Invariants
//! - Where a target cannot be had, the test says so by its name.

use std::fs;

use forerun_io::reaper::model::{Model, ModelCompletion};

use super::*;

const TIME: Nanos = Nanos::from_millis(120);

/// A device that takes `time` for each read, and fails each with `fails`.
fn device(time: Nanos, fails: Option<i32>) -> ReapTarget {
    let serve = move |now, _: &_| ModelCompletion { at: now + time, fails };
    ReapTarget::of_model("made", Model::new(Box::new(serve)))
}

fn took(mean: u64) -> WaitTimes {
    let latency = reap::Latency { mean: Nanos(mean), stdev: Nanos(50) };
    WaitTimes { samples: 9, latency, cpu: Nanos(1_200) }
}

/// Latencies of two sizes, and why they are noise.
fn latencies(preempted: u64) -> Latencies {
    let fast = Waits { bytes: 4_096, polling: Some(took(12_000)), interrupt: took(10_500) };
    let slow = Waits { bytes: 8_192, polling: None, interrupt: took(20_000) };
    let mut latencies = Latencies::idle("ours", vec![fast, slow]);
    latencies.noise.preempted(preempted, 100);
    latencies
}

#[test]
fn quantiles_of_sleeps_are_those_of_their_lateness() {
    #[rustfmt::skip]
    let rows = [ // over                              p50, p90
        (vec![7],                                       7,   7),
        (vec![3, 1, 2],                                 2,   2),
        ((0..=100).rev().collect::<Vec<u64>>(),        50,  90),
        ([vec![5; 9], vec![1_000]].concat(),            5,   5),
        ([vec![5; 8], vec![1_000; 3]].concat(),         5, 1_000),
    ];
    for (over, p50, p90) in rows {
        let count = over.len();
        let sleeps = Sleeps::of(Nanos(10), over.clone(), vec![4; count]);
        assert_eq!((sleeps.over_p50.0, sleeps.over_p90.0), (p50, p90), "{over:?}");
        assert_eq!((sleeps.samples, sleeps.cpu.0), (count as u64, 4), "{over:?}");
    }
}

#[test]
fn a_wake_up_is_what_the_interrupt_takes_beyond_polling() {
    #[rustfmt::skip]
    let rows = [ // polling     interrupt   wake          shown
        (Some(40_000),          46_200,     Some(6_200),  "6.2"),
        (Some(46_200),          40_000,     Some(-6_200), "-"),
        (Some(40_000),          40_000,     Some(0),      "0.0"),
        (None,                  40_000,     None,         "-"),
    ];
    for (polling, interrupt, wake, shown) in rows {
        let (polling, interrupt) = (polling.map(took), took(interrupt));
        let waits = Waits { bytes: 4_096, polling, interrupt };
        assert_eq!(waits.wake(), wake);
        let rows = waits.rows();
        assert_eq!(rows.len(), if polling.is_some() { 2 } else { 1 });
        assert_eq!(rows.last().and_then(|row| row.last()).map(String::as_str), Some(shown));
    }
}

#[test]
fn what_a_busy_machine_shows_is_told_with_the_reason_and_not_kept() {
    #[rustfmt::skip]
    let rows = [ // preempted, before   kept    told
        (0,            false,           true,   None),
        (1,            true,            true,   None),
        (2,            false,           false,  Some("put aside 2 times in 100 samples")),
        (2,            true,            false,  Some("is idle; those of before are kept")),
    ];
    for (preempted, before, kept, told) in rows {
        let half = LatencyHalf::Measured(Box::new(latencies(preempted)));
        assert_eq!(half.kept().is_some(), kept, "{preempted} of 100");
        let text = half.describe(before);
        assert_eq!(text.contains("latencies are not saved: "), !kept, "{text}");
        assert!(told.is_none_or(|told| text.contains(told)), "{text}");
        let figures = ["interrupt    8", "fewer than 5 reads in their time: 16K, 32K"];
        assert!(figures.iter().all(|figure| text.contains(figure)), "{text}");
    }
    let half = LatencyHalf::LeftOut("no drive".to_owned());
    assert!(half.kept().is_none());
    assert_eq!(half.describe(false), "latencies are left out: no drive\n");
}

#[test]
fn every_size_is_read_both_ways_and_sleeps_are_timed() {
    let measured = Latencies::measure(&device(Nanos(1_000), None), TIME, 1).expect("no read fails");
    assert_eq!(measured.io, "model");
    for waits in &measured.reads {
        require_both(waits);
    }
    for sleeps in &measured.sleeps {
        assert!(sleeps.over_p50 <= sleeps.over_p90 && sleeps.samples > 0, "{sleeps:?}");
    }
}

/// Of a device that takes a microsecond for each read.
fn require_both(waits: &Waits) {
    let polling = waits.polling.expect("a model can be looked at");
    assert_eq!(polling.samples, waits.interrupt.samples, "{waits:?}");
    for took in [polling, waits.interrupt] {
        assert!(took.samples >= SAMPLES_MIN as u64, "{waits:?}");
        assert!(took.latency.mean >= Nanos(1_000) && took.cpu > Nanos(0), "{waits:?}");
    }
}

#[test]
fn a_size_that_has_the_time_is_read_as_often_as_samples_are_wanted() {
    let target = device(Nanos(1_000), None);
    let mut ways = Ways::new(&target, 1).expect("no read fails");
    for (wanted, had) in [(SAMPLES_MIN - 1, None), (SAMPLES_MIN, Some(5)), (100, Some(100))] {
        let waits = ways.read(4_096, Nanos(u64::MAX), wanted).expect("no read fails");
        assert_eq!(waits.map(|waits| waits.interrupt.samples), had);
        waits.iter().for_each(require_both);
    }
}

#[test]
fn a_device_without_enough_reads_in_the_time_has_no_latencies() {
    let slow = device(Nanos::from_millis(20), None);
    let measured = Latencies::measure(&slow, TIME, 1).expect("no read fails");
    assert!(measured.reads.is_empty(), "{:?}", measured.reads);
}

#[test]
fn a_read_that_fails_leaves_latencies_out_and_is_told() {
    let half = LatencyHalf::of(&device(Nanos(1_000), Some(5)), TIME, 1);
    assert!(half.kept().is_none());
    let told = half.describe(true);
    let why = "latencies are left out: cannot measure made: cannot read 131072 bytes at ";
    assert!(told.starts_with(why), "{told}");
    assert!(told.ends_with("; those of before are kept\n"), "{told}");
}

#[test]
fn what_cannot_be_measured_is_left_out_and_said() {
    #[rustfmt::skip]
    let rows = [ // model     path               direct  says
        (Some("t7k250"),      None,              true,   "model `t7k250` has rates, but no"),
        (Some("optane:iops=9"), None,            true,   "there is a model of both: optane"),
        (None,                Some("/dev/zero"), false,  "there are no direct reads here"),
    ];
    for (device, path, is_direct, says) in rows {
        let half = LatencyHalf::measure(device, path.map(Path::new), is_direct, TIME, 1);
        let text = half.describe(false);
        assert!(text.starts_with("latencies are left out: ") && text.contains(says), "{text}");
    }
}

#[test]
fn threads_wait_by_interrupt_alone() {
    let path = std::env::temp_dir().join(format!("forerun-latency-{}", std::process::id()));
    fs::write(&path, vec![7; 16 << 20]).expect("a file in the temporary folder");
    let measured = ReapTarget::file(path.clone(), Backend::Threads)
        .map(|target| Latencies::measure(&target, TIME, 1).expect("no read fails"));
    fs::remove_file(&path).expect("it is there");
    let Ok(measured) = measured else {
        println!(
            "skipped: threads_wait_by_interrupt_alone: no direct reads in the temporary folder"
        );
        return;
    };
    assert_eq!(measured.io, "threads");
    assert!(measured.reads.iter().all(|waits| waits.polling.is_none()), "{:?}", measured.reads);
    assert!(
        measured.describe().contains("polling is not measured: spin waits by interrupt on threads")
    );
}
