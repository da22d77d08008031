//! Sizes, times, shares, counts and dates, read and printed.

use forerun_core::params::Bytes;

use super::*;

#[test]
fn thousandths_have_a_digit_behind_the_point() {
    for (count, text) in [(0, "0.0"), (49, "0.0"), (50, "0.1"), (12_345, "12.3")] {
        assert_eq!(thousandths(count), text);
    }
}

#[test]
fn figures_have_three_digits_that_count() {
    #[rustfmt::skip]
    let rows = [
        (0.0, "0"), (0.0001, "1.00e-4"), (0.001, "0.001"), (0.81, "0.810"), (0.9994, "0.999"),
        (0.9996, "1.00"), (1.0, "1.00"), (9.99, "9.99"), (9.996, "10.0"), (21.78, "21.8"),
        (99.94, "99.9"), (99.96, "100"), (999.6, "1,000"), (1_234_567.0, "1,234,567"),
        (999_999_999.0, "999,999,999"), (1e9, "1.00e9"), (1e300, "1.00e300"),
        (-5.0, "-5.00"), (-1234.0, "-1,234"), (-123.0, "-123"), (f64::NAN, "n/a"),
            (f64::INFINITY, "n/a"),
    ];
    for (value, text) in rows {
        assert_eq!(figure(value), text);
    }
}

#[test]
fn sizes_take_the_unit_that_leaves_three_digits() {
    #[rustfmt::skip]
    let rows = [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1_000, "0.98 KiB"), (1_024, "1 KiB"),
        (4_096, "4 KiB"), (1_536, "1.5 KiB"), (10_300, "10.1 KiB"), (524_288, "512 KiB"),
        (102_348, "99.9 KiB"), (102_350, "100 KiB"), (204_800, "200 KiB"), (1 << 20, "1 MiB"),
        (100 << 20, "100 MiB"), (1 << 30, "1 GiB"), (u64::MAX, "16 EiB"),
    ];
    for (value, text) in rows {
        assert_eq!(bytes(value), text);
        // What is printed can be given to a command.
        let again = Bytes::parse(text).map(|Bytes(again)| bytes(again));
        assert!(value == u64::MAX || again.as_deref() == Some(text), "{text}: {again:?}");
    }
}

#[test]
fn counts_and_shares_are_grouped_and_short() {
    assert_eq!(count(0), "0");
    assert_eq!(count(999), "999");
    for (number, text) in [(0, "0 files"), (1, "1 file"), (1_200, "1,200 files")] {
        assert_eq!(counted(number, "file", "files"), text);
    }
    assert_eq!(count(1_000), "1,000");
    assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    #[rustfmt::skip]
    let rows = [
        (0.028, "2.8 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (0.764, "76 %"), (1.0, "100 %"),
        (1e5, "1.0e7 %"), (f64::NAN, "n/a"),
    ];
    for (value, text) in rows {
        assert_eq!(percent(value), text);
    }
}

#[test]
fn lines_are_of_numbers_above_zero() {
    let lines = counted_lines([
        (1, "file was", "files were", "left out"),
        (0, "file was", "files were", "moved"),
        (1_200, "reader", "readers", "not followed"),
    ]);
    assert_eq!(lines, ["1 file was left out", "1,200 readers not followed"]);
    let lines = counted_lines(calls_not_observed(2, 1));
    let calls = "1 call of a 32-bit program was skipped";
    assert_eq!(lines, ["2 processes could not be observed in calls", calls]);
}

#[test]
fn a_part_is_told_with_its_share_of_the_whole() {
    let mib = |count: u64| count << 20;
    #[rustfmt::skip]
    let rows = [
        (mib(12), mib(57), "12 MiB (21 %)"), (mib(1), mib(1), "1 MiB (100 %)"),
        (4_096, mib(8), "4 KiB (0.0 %)"), (0, mib(8), "0 B"), (0, 0, "0 B"), (8, 0, "8 B"),
    ];
    for (part, whole, text) in rows {
        assert_eq!(bytes_of(part, whole), text);
    }
    #[rustfmt::skip]
    let rows = [
        (1.5, 2.0, "1.50 s (75 %)"), (0.01, 2.0, "10.0 ms (0.5 %)"), (0.0, 2.0, "0 s"),
        (0.0, 0.0, "0 s"),
    ];
    for (part, whole, text) in rows {
        assert_eq!(time_of(part, whole), text);
    }
}

#[test]
fn dates_follow_the_calendar() {
    #[rustfmt::skip]
    let rows = [
        (0, "1970-01-01 00:00 UTC"), (951_782_399, "2000-02-28 23:59 UTC"),
        (951_782_400, "2000-02-29 00:00 UTC"), (951_868_800, "2000-03-01 00:00 UTC"),
        (978_307_199, "2000-12-31 23:59 UTC"), (1_795_203_000, "2026-11-20 19:30 UTC"),
        (4_107_542_400, "2100-03-01 00:00 UTC"), (4_107_456_000, "2100-02-28 00:00 UTC"),
    ];
    for (seconds, text) in rows {
        assert_eq!(date(seconds), text);
    }
    assert!(date(u64::MAX).ends_with("UTC"), "no overflow at the end of time");
}

#[test]
fn times_take_the_unit_that_leaves_three_digits() {
    #[rustfmt::skip]
    let rows = [ // seconds  text         can be given to a command
        (0.0,          "0 s",             true),
        (1e-13,        "0 s",             true),
        (2.5e-10,      "0.250 ns",        false),
        (80e-9,        "80.0 ns",         true),
        (0.999_6e-6,   "1.00 us",         true),
        (12.345e-6,    "12.3 us",         true),
        (0.999e-3,     "999 us",          true),
        (0.999_6e-3,   "1.00 ms",         true),
        (0.045_21,     "45.2 ms",         true),
        (0.999_4,      "999 ms",          true),
        (0.999_6,      "1.00 s",          true),
        (2.145,        "2.15 s",          true),
        (99.94,        "99.9 s",          true),
        (99.96,        "1 min 40 s",      true),
        (3_599.6,      "1 h 0 min",       true),
        (7_301.0,      "2 h 1 min",       true),
        (-0.5,         "-500 ms",         false),
        (-153.0,       "-2 min 33 s",     false),
        (f64::NAN,     "n/a",             false),
        (f64::INFINITY, "n/a",            false),
    ];
    for (seconds, text, is_taken) in rows {
        assert_eq!(time(seconds), text);
        assert_eq!(read::<Nanos>(text).is_ok(), is_taken, "{text}");
    }
    assert!(time(f64::MAX).ends_with(" min"), "no overflow");
}
