//! What a device's parameters look like on the command line: rates, durations, on and off.
//!
//! Sizes are powers of 1024 everywhere, but makers of devices count rates in powers of ten, so a
//! rate may be written either way and says which: `52MB` is 52,000,000 bytes a second, `50M`
//! is 52,428,800.

use alloc::{format, string::String};

use crate::params::{Bytes, Param, digits, scaled};
use crate::units::Nanos;

/// Bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Param for Rate {
    const FORM: &'static str = "bytes a second such as 52000000, 52MB (10^6) or 50M (2^20)";

    /// As rates are printed, too: `21.8 MB/s`, `180 MiB/s`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix("/s").unwrap_or(text);
        let decimal = text.strip_suffix('B').and_then(|decimal| {
            let of = |&(unit, scale)| decimal.strip_suffix(unit).map(|number| (number, scale));
            RATE_UNITS.iter().find_map(of)
        });
        let Some((number, scale)) = decimal else {
            return Bytes::parse(text).map(|bytes| Self(bytes.0));
        };
        scaled(number.strip_suffix(' ').unwrap_or(number), scale).map(Self)
    }

    fn show(&self) -> String {
        for (unit, scale) in RATE_UNITS {
            if self.0 > 0 && self.0.is_multiple_of(scale) {
                return format!("{}{unit}B", self.0 / scale);
            }
        }
        Bytes(self.0).show()
    }
}

/// Durations: `80us`, `8.5ms`, `1s`, `250ns`, and as they are printed: `8.5 ms`, `1 min 39 s`.
impl Param for Nanos {
    const FORM: &'static str = "a duration such as 250ns, 80us, 8.5ms or 1s";

    fn parse(text: &str) -> Option<Self> {
        let (mut rest, mut sum, mut larger) = (text, 0_u64, u64::MAX);
        loop {
            let (number, behind) = cut(rest, |it| it.is_ascii_digit() || it == '.');
            let behind = behind.strip_prefix(' ').unwrap_or(behind);
            let (unit, behind) = cut(behind, |it| !it.is_ascii_digit() && it != ' ');
            let all = TIME_UNITS.iter().chain(&MORE_TIME_UNITS);
            let (_, scale) =
                all.into_iter().find(|(own, scale)| *own == unit && *scale < larger)?;
            sum = sum.checked_add(exactly(number, *scale)?)?;
            if behind.is_empty() {
                return Some(Self(sum));
            }
            (rest, larger) = (behind.strip_prefix(' ')?, *scale);
        }
    }

    fn show(&self) -> String {
        for (unit, scale) in TIME_UNITS {
            if self.0 >= scale {
                let text = format!("{}.{:09}", self.0 / scale, self.0 % scale * (SECOND / scale));
                return format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'));
            }
        }
        "0ns".into()
    }
}

crate::choice! {
    /// A thing that is on or off.
    pub enum Switch ("on or off") {
        /// It works.
        On = "on",
        /// It does not.
        Off = "off",
    }
}

impl Switch {
    /// Whether it works.
    #[must_use]
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// The first letters of `text` that `are`, and the others.
fn cut(text: &str, are: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|it: char| !are(it)).unwrap_or(text.len()))
}

/// `number` of `scale`, where that is whole.
fn exactly(number: &str, scale: u64) -> Option<u64> {
    let (units, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let steps = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = digits::<u64>(fraction)?.checked_mul(scale)?;
    let part = part.is_multiple_of(steps).then_some(part / steps)?;
    digits::<u64>(units)?.checked_mul(scale)?.checked_add(part)
}

/// Largest first, so that a value is shown in the largest unit that divides it.
const RATE_UNITS: [(&str, u64); 4] =
    [("T", 1_000_000_000_000), ("G", 1_000_000_000), ("M", 1_000_000), ("K", 1_000)];

/// Largest first, to show.
const TIME_UNITS: [(&str, u64); 4] = [("s", SECOND), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Read, and not shown.
const MORE_TIME_UNITS: [(&str, u64); 3] =
    [("h", 3_600 * SECOND), ("min", 60 * SECOND), ("\u{b5}s", 1_000)];

const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_and_show() {
        #[rustfmt::skip]
        let rows = [ // text          nanoseconds            shown
            ("250ns",                 Some(250),             "250ns"),
            ("80us",                  Some(80_000),          "80us"),
            ("8.5ms",                 Some(8_500_000),       "8.5ms"),
            ("1s",                    Some(1_000_000_000),   "1s"),
            ("1500ms",                Some(1_500_000_000),   "1.5s"),
            ("0.000000001s",          Some(1),               "1ns"),
            ("1.05us",                Some(1_050),           "1.05us"),
            ("1000ns",                Some(1_000),           "1us"),
            ("0ns",                   Some(0),               "0ns"),
            ("0s",                    Some(0),               "0ns"),
            ("8.5 ms",                Some(8_500_000),       "8.5ms"),
            ("12.3 \u{b5}s",          Some(12_300),          "12.3us"),
            ("2 min",                 Some(120 * SECOND),    "120s"),
            ("1 min 39 s",            Some(99 * SECOND),     "99s"),
            ("2h1min",                None,                  ""), // A blank is between them.
            ("2h 1min",               Some(7_260 * SECOND),  "7260s"),
            ("1 s 2 min",             None,                  ""), // The smaller one comes last.
            ("1 s 2 s",               None,                  ""),
            ("1  s",                  None,                  ""),
            ("1 s ",                  None,                  ""),
            ("0.5ns",                 None,                  ""), // Finer than there is.
            ("5",                     None,                  ""),
            ("s",                     None,                  ""),
            ("-1s",                   None,                  ""),
            ("+1s",                   None,                  ""),
            ("1.s",                   None,                  ""),
            (".5s",                   None,                  ""),
            ("1.5.5s",                None,                  ""),
            ("1m",                    None,                  ""),
            ("18446744073709551615s", None,                  ""), // Overflows.
            ("1.00000000000000000000s", None,                ""),
        ];
        for (text, nanos, shown) in rows {
            let parsed = Nanos::parse(text);
            assert_eq!(parsed, nanos.map(Nanos), "{text}");
            if let Some(parsed) = parsed {
                assert_eq!(parsed.show(), shown, "{text}");
                assert_eq!(Nanos::parse(shown), Some(parsed));
            }
        }
    }

    #[test]
    fn rates_count_in_tens_with_a_b_and_in_twos_without() {
        #[rustfmt::skip]
        let rows = [ // text  bytes a second        shown
            ("52MB",          Some(52_000_000),     "52MB"),
            ("52M",           Some(54_525_952),     "52M"),
            ("1500MB",        Some(1_500_000_000),  "1500MB"),
            ("2GB",           Some(2_000_000_000),  "2GB"),
            ("3KB",           Some(3_000),          "3KB"),
            ("999",           Some(999),            "999"),
            ("0",             Some(0),              "0"),
            ("5B",            Some(5),              "5"),
            ("MB",            None,                 ""),
            ("+5MB",          None,                 ""),
            ("1.5MB",         Some(1_500_000),      "1500KB"),
            ("21.8 MB/s",     Some(21_800_000),     "21800KB"),
            ("180 MiB/s",     Some(180 << 20),      "180M"),
            ("500 B/s",       Some(500),            "500"),
            ("1.MB",          None,                 ""),
            ("1  MB",         None,                 ""),
            ("99999999999GB", None,                 ""),
        ];
        for (text, bytes, shown) in rows {
            let parsed = Rate::parse(text);
            assert_eq!(parsed, bytes.map(Rate), "{text}");
            if let Some(parsed) = parsed {
                assert_eq!(parsed.show(), shown, "{text}");
            }
        }
    }

    #[test]
    fn a_switch_is_on_or_off() {
        assert_eq!(
            ["on", "off", "1"].map(Switch::parse),
            [Some(Switch::On), Some(Switch::Off), None]
        );
        assert_eq!(
            [Switch::On, Switch::Off].map(|s| (s.is_on(), s.show())),
            [(true, "on".into()), (false, "off".into()),]
        );
    }
}
