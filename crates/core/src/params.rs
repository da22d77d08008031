//! Parameters of policies: `NAME:key=value,key=value` on the command line, a plain struct here.
//!
//! [`params!`](crate::params!) writes the struct, its defaults, its parsing and its listing from
//! one place, so that help, reports and docs cannot disagree.
//!
//! # Invariants
//! - What [`Param::show`] writes parses to the same value.
//! - Numbers are digits alone: no sign, no blanks; one that does not fit is refused, not clipped.
//! - No float: a share is counted in millionths, so that it is the same on every machine.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};
use core::fmt;
use core::str::FromStr;

mod declare;
mod nearest;

pub use declare::{by_name, choice};
pub use nearest::nearest;

/// What may be set from outside, by name.
pub trait Params: Default + Clone + Send + 'static {
    /// Sets one parameter.
    ///
    /// # Errors
    /// The key is not one of these, or the value does not parse; the message says which.
    fn set(&mut self, key: &str, value: &str) -> Result<(), ParamError>;

    /// Every parameter with its value, in the order of declaration.
    fn show(&self) -> Vec<(&'static str, String)>;
}

/// One kind of value.
pub trait Param: Sized {
    /// What a value of this kind looks like, for error messages and help.
    const FORM: &'static str;
    /// The value that `text` stands for.
    fn parse(text: &str) -> Option<Self>;
    /// The text that parses to this value.
    fn show(&self) -> String;
}

/// Why a name or a parameter was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamError {
    /// There is no policy, model or workload of this name.
    UnknownName {
        /// The name that was given.
        name: String,
        /// What there is, in order.
        known: Vec<&'static str>,
    },
    /// There is no parameter of this name.
    UnknownKey {
        /// The name that was given.
        key: String,
        /// What there is, in order.
        known: Vec<&'static str>,
    },
    /// The parameter is given a second time.
    Twice {
        /// The parameter.
        key: String,
    },
    /// The value cannot be read or is out of its bounds.
    BadValue {
        /// The parameter.
        key: String,
        /// What was given.
        value: String,
        /// What it should look like.
        form: String,
    },
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { name, known } => {
                write!(f, "no `{name}`; there are: {}{}", known.join(" "), hint(name, known))
            }
            Self::UnknownKey { key, known } if known.is_empty() => {
                write!(f, "no parameter `{key}`; there are none")
            }
            Self::UnknownKey { key, known } => {
                let (all, hint) = (known.join(" "), hint(key, known));
                write!(f, "no parameter `{key}`; there are: {all}{hint}")
            }
            Self::Twice { key } => write!(f, "`{key}` is given twice"),
            Self::BadValue { key, value, form } => {
                write!(f, "`{key}={value}`: expected {form}")
            }
        }
    }
}

impl core::error::Error for ParamError {}

/// Names the one of `known` that is nearest to `name`.
fn hint(name: &str, known: &[&'static str]) -> String {
    nearest(name, known).map_or_else(String::new, |one| format!("; the nearest is `{one}`"))
}

/// The refusal of a `value` that can be read but makes no sense, unless it `holds`.
///
/// # Errors
/// As said.
pub fn check(holds: bool, key: &str, value: &impl Param, form: &str) -> Result<(), ParamError> {
    if holds {
        return Ok(());
    }
    Err(ParamError::BadValue { key: key.into(), value: value.show(), form: form.into() })
}

/// The text that [`split`] and [`apply`] read as `name` with `params`.
#[must_use]
pub fn join(name: &str, params: &impl Params) -> String {
    let pairs: Vec<_> = params.show().iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { name.to_owned() } else { format!("{name}:{}", pairs.join(",")) }
}

/// The name and the `key=value` pairs of `NAME:key=value,..`.
#[must_use]
pub fn split(spec: &str) -> (&str, &str) {
    spec.split_once(':').unwrap_or((spec, ""))
}

/// Applies `key=value,..` to `params`, in order. Empty pairs are skipped. After an error the pairs
/// before it are in force.
///
/// # Errors
/// As [`Params::set`]; a pair without `=` is a bad value; a key may be named once.
pub fn apply<P: Params>(params: &mut P, pairs: &str) -> Result<(), ParamError> {
    let mut seen: Vec<&str> = Vec::new();
    for pair in pairs.split(',').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(ParamError::BadValue {
                key: pair.to_owned(),
                value: String::new(),
                form: "key=value".to_owned(),
            });
        };
        if seen.contains(&key) {
            return Err(ParamError::Twice { key: key.to_owned() });
        }
        params.set(key, value)?;
        seen.push(key);
    }
    Ok(())
}

/// A size in bytes: `4096`, `64K`, `1.5M`, `2 GiB`, powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Whole pages in this size.
    #[must_use]
    pub fn pages(self, page_bytes: u32) -> u32 {
        u32::try_from(self.0 / u64::from(page_bytes)).unwrap_or(u32::MAX)
    }
}

impl Param for Bytes {
    const FORM: &'static str = "a size such as 4096, 64K, 1.5M or 2GiB";

    /// Units are powers of 1024, however they are written: `64K`, `64KB`, `64 KiB`.
    fn parse(text: &str) -> Option<Self> {
        let digits_end = text.find(|it: char| !it.is_ascii_digit() && it != '.');
        let (number, unit) = text.split_at(digits_end.unwrap_or(text.len()));
        let unit = unit.strip_prefix(' ').unwrap_or(unit).to_ascii_uppercase();
        let shift = match unit.as_str() {
            "" | "B" | "BYTES" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            "P" | "PB" | "PIB" => 50,
            "E" | "EB" | "EIB" => 60,
            _ => return None,
        };
        scaled(number, 1 << shift).map(Self)
    }

    fn show(&self) -> String {
        for (shift, unit) in [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')] {
            if self.0 > 0 && self.0.trailing_zeros() >= shift {
                return format!("{}{unit}", self.0 >> shift);
            }
        }
        format!("{}", self.0)
    }
}

/// A share of a whole in parts per million, so that no float decides anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// Parts per million; may exceed a million (the share of ghosts does).
    pub ppm: u32,
}

impl Share {
    /// So many hundredths.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        assert!(percent <= 100 * WHOLE_MAX);
        Self { ppm: percent * 10_000 }
    }

    /// This share of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: u32) -> u32 {
        let part = u64::from(whole) * u64::from(self.ppm) / 1_000_000;
        u32::try_from(part).unwrap_or(u32::MAX)
    }

    /// The number before the sign of `text`, if it is in hundredths: printed ones have a blank
    /// between.
    #[must_use]
    pub fn percent_of(text: &str) -> Option<&str> {
        let number = text.strip_suffix('%')?;
        Some(number.strip_suffix(' ').unwrap_or(number))
    }
}

impl Param for Share {
    const FORM: &'static str = "a share from 0 to 1000, such as 0.25";

    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 6 {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { digits::<u32>(whole)? };
        let mut ppm = if fraction.is_empty() { 0 } else { digits::<u32>(fraction)? };
        for _ in fraction.len()..6 {
            ppm *= 10;
        }
        let within = whole < WHOLE_MAX || (whole == WHOLE_MAX && ppm == 0);
        within.then(|| Self { ppm: whole * 1_000_000 + ppm })
    }

    fn show(&self) -> String {
        let text = format!("{}.{:06}", self.ppm / 1_000_000, self.ppm % 1_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

impl Param for u32 {
    const FORM: &'static str = "a whole number";

    fn parse(text: &str) -> Option<Self> {
        digits(text)
    }

    fn show(&self) -> String {
        format!("{self}")
    }
}

impl Param for u64 {
    const FORM: &'static str = "a whole number";

    fn parse(text: &str) -> Option<Self> {
        digits(text)
    }

    fn show(&self) -> String {
        format!("{self}")
    }
}

/// `number`, which may have a fraction, of `scale`; rounded down.
pub(crate) fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let steps = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = u128::from(digits::<u64>(fraction)?) * u128::from(scale) / u128::from(steps);
    digits::<u64>(whole)?.checked_mul(scale)?.checked_add(u64::try_from(part).ok()?)
}

/// The number that `text` writes in digits alone: no sign, no blanks, and it fits.
pub(crate) fn digits<T: FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// The largest share, in wholes: its parts per million fit a `u32`.
const WHOLE_MAX: u32 = 1_000;
const _: () = assert!(WHOLE_MAX <= u32::MAX / 1_000_000, "a share is a u32 of millionths");

impl Params for () {
    fn set(&mut self, key: &str, _: &str) -> Result<(), ParamError> {
        Err(ParamError::UnknownKey { key: key.to_owned(), known: Vec::new() })
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec;

    crate::params! {
        /// One of each kind.
        struct Kinds {
            /// A size.
            size: Bytes = Bytes(4_096),
            /// A share.
            share: Share = Share::percent(25),
            /// A small number.
            small: u32 = 7,
            /// A large number.
            large: u64 = 8,
        }
    }

    fn bad(key: &str, value: &str, form: &str) -> ParamError {
        ParamError::BadValue { key: key.into(), value: value.into(), form: form.into() }
    }

    #[test]
    fn bytes_are_read_and_shown_in_powers_of_1024() {
        const K: u64 = 1_024;
        #[rustfmt::skip]
        let rows = [ // text                  bytes                       shown
            ("0",                     Some(0),                    "0"),
            ("1",                     Some(1),                    "1"),
            ("1023",                  Some(1_023),                "1023"),
            ("1024",                  Some(K),                    "1K"),
            ("4096",                  Some(4 * K),                "4K"),
            ("1025",                  Some(1_025),                "1025"),
            ("64K",                   Some(64 * K),               "64K"),
            ("64k",                   Some(64 * K),               "64K"),
            ("1536K",                 Some(1_536 * K),            "1536K"),
            ("3m",                    Some(3 * K * K),            "3M"),
            ("2G",                    Some(2 * K * K * K),        "2G"),
            ("5T",                    Some(5 * K * K * K * K),    "5T"),
            ("1024T",                 Some(K * K * K * K * K),    "1024T"),
            ("16777215T",             Some(0xff_ffff << 40),      "16777215T"),
            ("16777216T",             None,                       ""), // 2^64
            ("18446744073709551615",  Some(u64::MAX),             "18446744073709551615"),
            ("18446744073709551616",  None,                       ""),
            ("",                      None,                       ""),
            ("K",                     None,                       ""),
            ("1P",                    Some(K << 40),              "1024T"),
            ("15 EiB",                Some(15 << 60),             "15728640T"),
            ("16 EiB",                None,                       ""), // 2^64
            ("832 bytes",             Some(832),                  "832"),
            ("1Z",                    None,                       ""),
            ("+1",                    None,                       ""),
            ("-1",                    None,                       ""),
            ("1 K",                   Some(K),                    "1K"),
            ("1.5M",                  Some(1_536 * K),            "1536K"),
            ("0.98 KiB",              Some(1_003),                "1003"),
            ("64MiB",                 Some(64 * K * K),           "64M"),
            ("64 MB",                 Some(64 * K * K),           "64M"),
            ("169280kib",             Some(169_280 * K),          "169280K"),
            ("12 B",                  Some(12),                   "12"),
            ("1KK",                   None,                       ""),
            ("1  K",                  None,                       ""),
            ("1iB",                   None,                       ""),
            ("1.",                    None,                       ""),
            (".5G",                   None,                       ""),
            ("1.2.3",                 None,                       ""),
            ("1.99999999999999999999", None,                      ""),
            ("\u{e9}K",               None,                       ""), // Not ASCII.
            ("1\u{212a}",             None,                       ""), // The Kelvin sign.
        ];
        for (text, bytes, shown) in rows {
            assert_eq!(Bytes::parse(text), bytes.map(Bytes), "{text}");
            if let Some(bytes) = bytes {
                assert_eq!(Bytes(bytes).show(), shown);
                assert_eq!(Bytes::parse(shown), Some(Bytes(bytes)), "{shown}");
            }
        }
    }

    #[test]
    fn pages_are_whole_and_saturate() {
        let rows =
            [(0, 0), (4_095, 0), (4_096, 1), (8_191, 1), (1 << 43, 1 << 31), (1 << 44, u32::MAX)];
        for (bytes, pages) in rows {
            assert_eq!(Bytes(bytes).pages(4_096), pages, "{bytes}");
        }
    }

    #[test]
    fn shares_are_read_and_shown_as_decimals() {
        #[rustfmt::skip]
        let rows = [ // text         ppm                    shown
            ("0",            Some(0),               "0"),
            ("0.25",         Some(250_000),         "0.25"),
            (".5",           Some(500_000),         "0.5"),
            ("1",            Some(1_000_000),       "1"),
            ("1.",           Some(1_000_000),       "1"),
            ("1.000000",     Some(1_000_000),       "1"),
            ("10",           Some(10_000_000),      "10"),
            ("0.000001",     Some(1),               "0.000001"),
            ("0.1",          Some(100_000),         "0.1"),
            ("0.01",         Some(10_000),          "0.01"),
            ("2.50",         Some(2_500_000),       "2.5"),
            ("999.999999",   Some(999_999_999),     "999.999999"),
            ("1000",         Some(1_000_000_000),   "1000"),
            ("1000.0",       Some(1_000_000_000),   "1000"),
            ("1000.000001",  None,                  ""),
            ("1001",         None,                  ""),
            ("4294967296",   None,                  ""),
            ("0.0000001",    None,                  ""), // Finer than a millionth.
            ("",             None,                  ""),
            (".",            None,                  ""),
            ("1.2.3",        None,                  ""),
            ("-1",           None,                  ""),
            ("+1",           None,                  ""),
            ("0.+5",         None,                  ""),
            ("1e3",          None,                  ""),
            ("10%",          None,                  ""),
            (" 1",           None,                  ""),
        ];
        for (text, ppm, shown) in rows {
            assert_eq!(Share::parse(text).map(|share| share.ppm), ppm, "{text}");
            if let Some(ppm) = ppm {
                assert_eq!(Share { ppm }.show(), shown);
                assert_eq!(Share::parse(shown), Some(Share { ppm }), "{shown}");
            }
        }
    }

    #[test]
    fn a_share_of_a_whole_is_rounded_down_and_saturates() {
        #[rustfmt::skip]
        let rows = [ // percent   whole      part
            (25,         0,         0),
            (25,         3,         0),
            (25,         4,         1),
            (25,         7,         1),
            (10,         30,        3),
            (100,        u32::MAX,  u32::MAX),
            (101,        u32::MAX,  u32::MAX),
            (50,         u32::MAX,  u32::MAX / 2),
            (100_000,    5,         5_000),
            (100_000,    u32::MAX,  u32::MAX),
        ];
        for (percent, whole, part) in rows {
            assert_eq!(Share::percent(percent).of(whole), part, "{percent} % of {whole}");
        }
    }

    #[test]
    fn whole_numbers_are_digits_that_fit() {
        #[rustfmt::skip]
        let rows = [ // text                   u32               u64
            ("0",                      Some(0),          Some(0)),
            ("007",                    Some(7),          Some(7)),
            ("4294967295",             Some(u32::MAX),   Some(4_294_967_295)),
            ("4294967296",             None,             Some(4_294_967_296)),
            ("18446744073709551615",   None,             Some(u64::MAX)),
            ("18446744073709551616",   None,             None),
            ("",                       None,             None),
            ("+1",                     None,             None),
            ("-1",                     None,             None),
            ("1_000",                  None,             None),
            ("1K",                     None,             None),
        ];
        for (text, small, large) in rows {
            assert_eq!(<u32 as Param>::parse(text), small, "{text}");
            assert_eq!(<u64 as Param>::parse(text), large, "{text}");
        }
        assert_eq!(Param::show(&70_u32), "70");
        assert_eq!(Param::show(&u64::MAX), "18446744073709551615");
    }

    #[test]
    fn a_spec_splits_at_its_first_colon() {
        let rows = [
            ("lru", ("lru", "")),
            ("lru:", ("lru", "")),
            ("2q:kin=0.1,kout=1", ("2q", "kin=0.1,kout=1")),
            ("a:b:c", ("a", "b:c")),
            ("", ("", "")),
            (":x=1", ("", "x=1")),
        ];
        for (spec, expected) in rows {
            assert_eq!(split(spec), expected, "{spec}");
        }
    }

    #[test]
    fn pairs_are_applied_in_order() {
        let kinds = |size, ppm, small, large| Kinds {
            size: Bytes(size),
            share: Share { ppm },
            small,
            large,
        };
        let twice = |key: &str| ParamError::Twice { key: key.into() };
        let unknown = |key: &str| ParamError::UnknownKey {
            key: key.into(),
            known: vec!["size", "share", "small", "large"],
        };
        #[rustfmt::skip]
        let rows = [ // pairs result params
            ("", Ok(()), kinds(4_096, 250_000, 7, 8)),
            ("size=1M,share=1,small=2,large=3", Ok(()), kinds(1 << 20, 1_000_000, 2, 3)),
            ("small=1,small=1", Err(twice("small")), kinds(4_096, 250_000, 1, 8)),
            ("small=1,large=2,small=3", Err(twice("small")), kinds(4_096, 250_000, 1, 2)),
            (",,small=1,,", Ok(()), kinds(4_096, 250_000, 1, 8)),
            ("small", Err(bad("small", "", "key=value")), kinds(4_096, 250_000, 7, 8)),
            ("small=", Err(bad("small", "", <u32>::FORM)), kinds(4_096, 250_000, 7, 8)),
            ("large=1=2", Err(bad("large", "1=2", <u64>::FORM)), kinds(4_096, 250_000, 7, 8)),
            ("size=x", Err(bad("size", "x", Bytes::FORM)), kinds(4_096, 250_000, 7, 8)),
            ("large=9,share=2000,small=1", Err(bad("share", "2000", Share::FORM)), kinds(4_096,
                250_000, 7, 9)),
            ("=1", Err(unknown("")), kinds(4_096, 250_000, 7, 8)),
            ("Small=1", Err(unknown("Small")), kinds(4_096, 250_000, 7, 8)),
            (" small=1", Err(unknown(" small")), kinds(4_096, 250_000, 7, 8)),
        ];
        for (pairs, result, params) in rows {
            let mut applied = Kinds::default();
            assert_eq!(apply(&mut applied, pairs), result, "{pairs}");
            assert_eq!(applied, params, "{pairs}");
        }
    }

    #[test]
    fn what_is_shown_makes_the_same_parameters() {
        let mut params = Kinds::default();
        apply(&mut params, "size=3K,share=0.125,large=99").unwrap();
        let shown = params.show();
        let expected = [("size", "3K"), ("share", "0.125"), ("small", "7"), ("large", "99")];
        assert_eq!(shown, expected.map(|(key, value)| (key, value.to_string())));
        let mut again = Kinds::default();
        for (key, value) in shown {
            again.set(key, &value).unwrap();
        }
        assert_eq!(again, params);
    }

    #[test]
    fn a_policy_without_parameters_knows_no_key() {
        assert_eq!(apply(&mut (), ""), Ok(()));
        assert!(Params::show(&()).is_empty());
        let refused = ParamError::UnknownKey { key: "x".into(), known: vec![] };
        assert_eq!(apply(&mut (), "x=1"), Err(refused));
    }

    #[test]
    fn errors_say_what_there_is() {
        let rows = [
            (
                ParamError::UnknownName { name: "lur".into(), known: vec!["fifo", "lru"] },
                "no `lur`; there are: fifo lru; the nearest is `lru`",
            ),
            (
                ParamError::UnknownKey { key: "x".into(), known: vec!["kin", "kout"] },
                "no parameter `x`; there are: kin kout",
            ),
            (
                ParamError::UnknownKey { key: "x".into(), known: vec![] },
                "no parameter `x`; there are none",
            ),
            (bad("small", "x", <u32>::FORM), "`small=x`: expected a whole number"),
            (ParamError::Twice { key: "kin".into() }, "`kin` is given twice"),
        ];
        for (error, text) in rows {
            assert_eq!(error.to_string(), text);
        }
    }
}
