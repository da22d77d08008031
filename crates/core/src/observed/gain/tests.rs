//! What `run` would gain, of runs made up and recorded; when there is no verdict.

use super::*;

#[test]
fn the_gain_is_what_was_waited_for_as_far_as_the_device_goes() {
    let profile =
        |mb: u64| Some(DeviceLimit { bytes_per_second: mb * 1_000_000, is_profile: true });
    let seen = |mb: u64| Some(DeviceLimit { bytes_per_second: mb * 1_000_000, is_profile: false });
    // 100 MB are read.
    #[rustfmt::skip]
    let rows = [ // why, [ran, waited, of that known], MB, limit, run, most, the reason
        ("a fast device", [2_000, 1_000, 1_000], 100, profile(500), 1_023, 977, Why::Waits),
        ("a slower one",  [2_000, 1_000, 1_000], 100, profile(80),  1_250, 750, Why::Waits),
        ("at its limit",  [2_000, 1_000, 1_000], 100, profile(50),  2_000, 0, Why::DeviceBusy),
        ("some random",   [2_000, 1_000, 400], 100, profile(500), 1_623, 377, Why::Waits),
        ("all random",    [2_000, 1_000, 20], 100, profile(500), 2_000, 0, Why::Unpredictable),
        ("it computes",   [2_000, 30, 30], 100, profile(500), 2_000, 0, Why::Computes),
        ("in memory",     [2_000, 1_000, 1_000], 0,   profile(500), 2_000, 0, Why::InMemory),
        ("short",         [12, 11, 11], 100, None,         12,    0, Why::TooShort),
        ("fast at times", [2_000, 1_000, 1_000], 100, seen(80),     1_250, 977, Why::Waits),
        ("all the time",  [2_000, 1_000, 1_000], 100, seen(50),     2_000, 977, Why::Unknown),
        ("nothing known", [2_000, 1_000, 1_000], 100, None,         2_000, 977, Why::Unknown),
    ];
    for (reason, times, mb, limit, run, gain_max, why) in rows {
        let [ran, waited, known] = times;
        let millis = Nanos::from_millis;
        let prediction = predict(&RunTimes {
            ran: millis(ran),
            waited: millis(waited),
            known: millis(known),
            device_bytes: mb * 1_000_000,
            bytes_read: 100_000_000,
            limit,
            ..RunTimes::default()
        });
        let gain = millis(ran).since(millis(run));
        let expected =
            Prediction { run: millis(run), gain, gain_max: millis(gain_max), limit, why };
        assert_eq!(prediction, expected, "{reason}");
    }
}

/// Programs on emulated devices, as `explain` recorded them without a profile, and what `run`
/// saved of a run alone.
#[test]
fn what_came_lies_between_the_bounds_of_recorded_runs() {
    let millis = Nanos::from_millis;
    #[rustfmt::skip]
    let rows = [ // program, [ran, of that known, in lookups], MB/s, KiB, gain at least, saved
        ("md5sum on cloud",  [694, 540, 0],      Some(104), 65_536, 48,    143),
        ("md5sum on object", [6_420, 6_222, 0],  Some(13),  65_536, 1_257, 5_916),
        ("grep -r on cloud", [1_820, 1_640, 1_690], None,    5_080, 0,     1_407),
    ];
    for (program, [ran, known, entries], mb, kib, least, saved) in rows {
        let limit =
            mb.map(|mb: u64| DeviceLimit { bytes_per_second: mb * 1_000_000, is_profile: false });
        let prediction = predict(&RunTimes {
            ran: millis(ran),
            waited: millis(known),
            known: millis(known),
            entries: millis(entries),
            lookups: millis(entries),
            device_bytes: kib << 10,
            bytes_read: kib << 10,
            limit,
            ..RunTimes::default()
        });
        assert!(prediction.is_bound(), "{program}: {prediction:?}");
        assert_eq!(prediction.gain.0 / 1_000_000, least, "{program}");
        let bounds = prediction.gain..=prediction.gain_max;
        assert!(bounds.contains(&millis(saved)), "{program}: {saved} of {bounds:?}");
    }
}

#[test]
fn what_is_computed_before_the_first_read_and_after_the_last_comes_on_top() {
    let millis = Nanos::from_millis;
    let limit = Some(DeviceLimit { bytes_per_second: 100_000_000, is_profile: true });
    for [before, after, run] in [
        [0, 0, 1_023],
        [0, 100, 1_100],
        [100, 0, 1_100],
        [50, 60, 1_110],
        [400, 500, 1_900],
        [0, 1_000, 2_000],
        [1_000, 1_000, 2_000],
    ] {
        let prediction = predict(&RunTimes {
            ran: millis(2_000),
            waited: millis(1_000),
            known: millis(1_000),
            before: millis(before),
            after: millis(after),
            device_bytes: 100_000_000,
            bytes_read: 100_000_000,
            limit,
            ..RunTimes::default()
        });
        assert_eq!(prediction.run, millis(run), "{before}, {after}");
    }
}

#[test]
fn of_what_was_hardly_observed_there_is_no_verdict() {
    let millis = Nanos::from_millis;
    let seen = RunTimes {
        ran: millis(1_000),
        waited: millis(500),
        device_bytes: 512 << 20,
        bytes_read: 512 << 20,
        ..RunTimes::default()
    };
    let blind = RunTimes { bytes_read: 2 << 20, faults: millis(500), ..seen };
    let known = RunTimes { known: millis(400), ..blind };
    let of_list = RunTimes { is_learned: true, ..known };
    let for_entries = RunTimes { entries: millis(400), ..blind };
    #[rustfmt::skip]
    let rows = [ // why              times        verdict
        ("all was seen",             seen,        Why::Unpredictable),
        ("next to nothing was",      blind,       Why::NotSeen),
        ("its waits may be others'", known,       Why::NotSeen),
        ("a list need not see it",   of_list,     Why::Unknown),
        ("it waited for entries",    for_entries, Why::Unpredictable),
    ];
    for (why, times, verdict) in rows {
        assert_eq!(predict(&times).why, verdict, "{why}");
    }
}

#[test]
fn a_program_that_reads_nothing_gains_nothing() {
    let (ran, waited) = (Nanos::from_millis(900), Nanos::from_millis(800));
    let times = RunTimes { ran, waited, known: waited, device_bytes: 9, ..RunTimes::default() };
    let prediction = predict(&times);
    assert_eq!((prediction.why, prediction.gain_max), (Why::ReadsNothing, Nanos(0)));
    let entries = waited;
    let prediction = predict(&RunTimes { entries, ..times });
    assert_eq!(prediction.why, Why::Unknown, "it waited for entries");
}

#[test]
fn there_is_no_verdict_on_reads_that_were_not_observed() {
    let millis = Nanos::from_millis;
    let at = |known, reads, bytes_read| RunTimes {
        ran: millis(2_000),
        waited: millis(1_000),
        known: millis(known),
        reads: millis(reads),
        device_bytes: 100_000_000,
        bytes_read,
        ..RunTimes::default()
    };
    #[rustfmt::skip]
    let rows = [ // known, in reads, bytes    the reason
        (0,      1_000,  89_000_000,    Why::NotSeen),
        (0,      1_000,  0,             Why::NotSeen),
        (0,      1_000,  90_000_000,    Why::Unpredictable),
        // Pages of mappings are fetched around those that are used.
        (0,      30,     10_000_000,    Why::Unpredictable),
        (900,    1_000,  10_000_000,    Why::Unknown),
    ];
    for (known, reads, bytes_read, why) in rows {
        let prediction = predict(&at(known, reads, bytes_read));
        assert_eq!(prediction.why, why, "{known} ms, {reads} ms, {bytes_read} bytes");
        assert_eq!(prediction.gain_max == Nanos(0), why != Why::Unknown);
    }
}
