//! The text forms of sizes, rates, times, shares and counts.
//!
//! Every figure that a table, a page or a line of text shows is printed here, so the same figure
//! is the same text everywhere. The kinds of [`forerun_core::params::Param`] parse input (`64K`,
//! `8.5ms`, `90MB`, `0.25`); [`read`] is their form for command lines.
//!
//! # Invariants
//! - Any `u64` and any `f64` gives a short text, also zero, huge, infinite and not a number.
//! - Sizes are powers of 1024; those with a unit of their own say so (`KiB`). MB/s are 10^6 bytes.
//! # Sources
//! The calendar is Howard Hinnant's `civil_from_days`, 2013.

use forerun_core::params::Param;
use forerun_core::units::Nanos;

/// The value that `text` stands for, for an option of a command line.
///
/// # Errors
/// The form that was expected.
pub fn read<P: Param>(text: &str) -> Result<P, String> {
    P::parse(text).ok_or_else(|| format!("expected {}", P::FORM))
}

/// The float nearest to `count`.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
#[must_use]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// `part` of `whole`; 0 of nothing.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { float(part) / float(whole) }
}

/// `time` in seconds.
#[must_use]
pub fn seconds(time: impl Into<Nanos>) -> f64 {
    float(time.into().0) / 1e9
}

/// `time` in microseconds.
#[must_use]
pub fn micros(time: impl Into<Nanos>) -> f64 {
    float(time.into().0) / 1e3
}

/// `bytes` in MiB.
#[must_use]
pub fn mebibytes(bytes: u64) -> f64 {
    float(bytes) / float(1 << 20)
}

/// 10^6 bytes a second; none where no byte moved or no time passed.
#[must_use]
pub fn mb_per_second(bytes: u64, time: Nanos) -> Option<f64> {
    (bytes > 0 && time.0 > 0).then(|| float(bytes) / 1e6 / seconds(time))
}

/// A measurement with about three digits that count.
#[must_use]
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "n/a".to_owned()
    } else if value == 0.0 {
        "0".to_owned()
    } else if !(0.001..1e9).contains(&size) {
        format!("{value:.2e}")
    } else if size < 0.9995 {
        format!("{value:.3}")
    } else if size < 9.995 {
        format!("{value:.2}")
    } else if size < 99.95 {
        format!("{value:.1}")
    } else {
        grouped(&format!("{value:.0}"))
    }
}

/// A count, its thousands set apart.
#[must_use]
pub fn count(count: u64) -> String {
    grouped(&count.to_string())
}

/// A count with the noun that goes with it: `one`, or `many`.
#[must_use]
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A number, the nouns of one and of many, and what was with them.
pub type Counted<'a> = (u64, &'a str, &'a str, &'a str);

/// A line for each number above zero.
pub fn counted_lines<'a>(rows: impl IntoIterator<Item = Counted<'a>>) -> Vec<String> {
    let rows = rows.into_iter().filter(|&(number, ..)| number > 0);
    rows.map(|(number, one, many, what)| format!("{} {what}", counted(number, one, many))).collect()
}

/// What calls could not be observed in: processes that `refused` it, `foreign` calls.
#[must_use]
pub fn calls_not_observed(refused: u64, foreign: u64) -> [Counted<'static>; 2] {
    [
        (refused, "process", "processes", "could not be observed in calls"),
        (foreign, "call of a 32-bit program was", "calls of 32-bit programs were", "skipped"),
    ]
}

/// A size with its binary unit.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut scaled, mut step) = (float(bytes), 0);
    // 999.5 would be shown as 1,000: four digits where the next unit has three.
    while step + 1 < UNITS.len() && scaled >= 999.5 {
        scaled /= 1024.0;
        step += 1;
    }
    let text = if scaled >= 99.95 {
        format!("{scaled:.0}")
    } else if scaled >= 9.995 {
        format!("{scaled:.1}")
    } else {
        format!("{scaled:.2}")
    };
    // `4 KiB`, not `4.00 KiB`: most sizes are whole.
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", UNITS[step])
}

/// A time in seconds with the unit that leaves three digits; whole seconds from 100 on.
#[must_use]
pub fn time(seconds: f64) -> String {
    let size = seconds.abs();
    if !seconds.is_finite() {
        return figure(seconds);
    }
    if size >= 99.95 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let whole = whole_seconds(size.round() as u64);
        return if seconds < 0.0 { format!("-{whole}") } else { whole };
    }
    // 999.5 would be shown as 1,000: four digits where the next unit has three.
    let (scale, unit) = if size < 1e-12 {
        (0.0, "s")
    } else if size < 0.999_5e-6 {
        (1e9, "ns")
    } else if size < 0.999_5e-3 {
        (1e6, "us")
    } else if size < 0.999_5 {
        (1e3, "ms")
    } else {
        (1.0, "s")
    };
    format!("{} {unit}", figure(seconds * scale))
}

/// Whole seconds in the two largest units that they have: `1 min 39 s`.
#[must_use]
pub fn whole_seconds(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// A count of thousandths in whole units, with one decimal.
#[must_use]
pub fn thousandths(count: u64) -> String {
    let tenths = count.saturating_add(50) / 100;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A share as a percentage.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let hundredths = ratio * 100.0;
    if !hundredths.is_finite() {
        "n/a".to_owned()
    } else if hundredths.abs() < 9.95 {
        format!("{hundredths:.1} %")
    } else if hundredths.abs() < 1e6 {
        format!("{hundredths:.0} %")
    } else {
        format!("{hundredths:.1e} %")
    }
}

/// `part` of `whole` bytes, with its percentage where there is a part.
#[must_use]
pub fn bytes_of(part: u64, whole: u64) -> String {
    with_share(bytes(part), ratio(part, whole))
}

/// `part` of `whole` seconds, with its percentage where there is a part.
#[must_use]
pub fn time_of(part: f64, whole: f64) -> String {
    with_share(time(part), if whole > 0.0 { part / whole } else { 0.0 })
}

/// `text`, and behind it its `share`, where that is one.
fn with_share(text: String, share: f64) -> String {
    if share > 0.0 { format!("{text} ({})", percent(share)) } else { text }
}

/// A moment in UTC, to the minute.
#[must_use]
pub fn date(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Years begin in March here, so that the day of leap comes last; eras have 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3_600, second % 3_600 / 60)
}

/// `1234567` as `1,234,567`; a sign stays in front.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut text = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
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
}
