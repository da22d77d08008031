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
mod tests;
