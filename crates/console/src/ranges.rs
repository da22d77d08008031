//! Ranges of parameters: `2q:kin=0.1..0.5/5` stands for five specs.
//!
//! ```text
//!   kin=0.1..0.5/5     0.1, 0.2, 0.3, 0.4, 0.5      both ends are among them
//!   max=64K..1M/16     64K, 128K, ... 1M            ends may have units of their own
//! ```
//! Several ranges in a spec stand for every combination, the last one changing first.
//!
//! # Invariants
//! - The steps are equal, to a millionth of the unit; whole numbers are rounded to the nearest.
//! - A range has 2 values or more, no two of them the same, and a spec `SPECS_MAX` at most.

use forerun_core::params::{Bytes, Param as _, ParamError};
use forerun_core::units::Nanos;

/// The specs that `head` with the parameters `pairs` stands for; `check` makes one of them.
///
/// # Errors
/// A range is none, or has a value that `check` refuses.
pub fn expand<T>(
    head: &str,
    pairs: &str,
    check: impl Fn(&str) -> Result<T, ParamError>,
) -> Result<Vec<String>, ParamError> {
    let mut specs = vec![head.to_owned()];
    for (at, pair) in pairs.split(',').enumerate() {
        let joint = if at == 0 { "" } else { "," };
        let Some((key, value)) = pair.split_once('=').filter(|(_, value)| is_range(value)) else {
            for spec in &mut specs {
                *spec += &[joint, pair].concat();
            }
            continue;
        };
        let bad = |form: &str| ParamError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            form: form.to_owned(),
        };
        let range = Range::of(value).ok_or_else(|| bad(FORM))?;
        if specs.len() * range.count > SPECS_MAX {
            return Err(bad("fewer values: the ranges have more than 1024 combinations"));
        }
        // A number that has to be whole is refused with a fraction.
        let fits = |value: &String| {
            let tried = check(&[&specs[0], joint, key, "=", value].concat());
            !matches!(tried, Err(ParamError::BadValue { key: bad, .. }) if bad == key)
        };
        let exact = range.values(false);
        let mut values = if exact.iter().all(&fits) { exact } else { range.values(true) };
        values.dedup();
        if values.len() < range.count {
            return Err(bad("fewer values: the range has not so many different ones"));
        }
        let one = |spec: &String| -> Vec<String> {
            values.iter().map(|value| [spec, joint, key, "=", value].concat()).collect()
        };
        specs = specs.iter().flat_map(one).collect();
    }
    Ok(specs)
}

/// The sizes of `text`, where it is a range such as `64M..1G/5`, whole ones without a unit; itself
/// where it is none.
#[must_use]
pub fn values(text: &str) -> Option<Vec<String>> {
    if !is_range(text) {
        return Some(vec![text.into()]);
    }
    let range = Range::of(text)?;
    let mut values = range.values(range.unit.is_empty());
    values.dedup();
    (values.len() == range.count).then_some(values)
}

fn is_range(text: &str) -> bool {
    text.contains("..")
}

/// A range, in millionths of its unit.
struct Range<'a> {
    from: u128,
    to: u128,
    count: usize,
    unit: &'a str,
}

impl<'a> Range<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (from, rest) = text.split_once("..")?;
        let (to, count) = rest.split_once('/')?;
        let count = count.parse().ok().filter(|count| (2..=SPECS_MAX).contains(count))?;
        let ((from_number, from_unit), (to_number, to_unit)) = (cut(from)?, cut(to)?);
        if from_unit == to_unit || from_unit.is_empty() {
            return Self { from: from_number, to: to_number, count, unit: to_unit }.bounded();
        }
        // The smaller unit is for both.
        let (from_scale, to_scale) = scales(from_unit, to_unit)?;
        let is_less = from_scale <= to_scale;
        let (least, unit) = if is_less { (from_scale, from_unit) } else { (to_scale, to_unit) };
        // A number alone is another thing to some: pages, to sizes of caches.
        let unit = if unit.is_empty() { "B" } else { unit };
        let [from, to] = [(from_number, from_scale), (to_number, to_scale)]
            .map(|(number, scale)| number.checked_mul(u128::from(scale / least)));
        Self { from: from?, to: to?, count, unit }.bounded()
    }

    /// Itself, if its values are no larger than numbers are.
    fn bounded(self) -> Option<Self> {
        let most = u128::from(u64::MAX) * MILLION;
        (self.from <= most && self.to <= most).then_some(self)
    }

    fn values(&self, is_whole: bool) -> Vec<String> {
        let steps = u128::try_from(self.count - 1).expect("a count fits");
        let value = |at: u128| {
            let exact = (self.from * (steps - at) + self.to * at + steps / 2) / steps;
            let exact = if is_whole { (exact + MILLION / 2) / MILLION * MILLION } else { exact };
            let text = format!("{}.{:06}", exact / MILLION, exact % MILLION);
            text.trim_end_matches('0').trim_end_matches('.').to_owned() + self.unit
        };
        (0..=steps).map(value).collect()
    }
}

/// How many bytes two units of sizes are, or nanoseconds two of times.
fn scales(one: &str, other: &str) -> Option<(u64, u64)> {
    let bytes = |unit: &str| Bytes::parse(&format!("1{unit}")).map(|bytes| bytes.0);
    let nanos = |unit: &str| Nanos::parse(&format!("1{unit}")).map(|time| time.0);
    bytes(one).zip(bytes(other)).or_else(|| nanos(one).zip(nanos(other)))
}

/// The number in millionths, and the unit behind it.
fn cut(text: &str) -> Option<(u128, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || whole.len() > 20 || fraction.len() > 6 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: u128 = format!("{fraction:0<6}").parse().ok()?;
    Some((whole * MILLION + fraction, unit))
}

const MILLION: u128 = 1_000_000;
/// Specs that one may stand for.
const SPECS_MAX: usize = 1_024;
const FORM: &str = "a range such as 0.1..0.5/5: two ends and how many values, from 2 to 1024";

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_core::eviction;

    fn of(spec: &str) -> Result<Vec<String>, ParamError> {
        let (name, pairs) = spec.split_once(':').expect("a spec with parameters");
        expand(&format!("{name}:"), pairs, eviction::show)
    }

    #[test]
    fn a_range_stands_for_its_values() {
        #[rustfmt::skip]
        let rows: &[(&str, &[&str])] = &[
            ("2q:kin=0.1..0.5/5", &["2q:kin=0.1", "2q:kin=0.2", "2q:kin=0.3", "2q:kin=0.4",
                                    "2q:kin=0.5"]),
            ("2q:kin=0.25",       &["2q:kin=0.25"]),
            ("2q:kin=.5..0/2",    &["2q:kin=0.5", "2q:kin=0"]),
            ("2q:kin=0..1/2,kout=1..2/2", &["2q:kin=0,kout=1", "2q:kin=0,kout=2",
                                            "2q:kin=1,kout=1", "2q:kin=1,kout=2"]),
        ];
        for (spec, all) in rows {
            assert_eq!(of(spec).unwrap(), *all, "{spec}");
        }
        for spec in [
            "2q:kin=0.1..0.5",
            "2q:kin=0.1..0.5/1",
            "2q:kin=a..b/2",
            "2q:kin=1..1/2",
            "2q:kin=0..1/1025",
            "2q:kin=0..1/40,kout=0..1/40",
            "2q:kin=0..1/x",
            "2q:kin=../2",
        ] {
            assert!(of(spec).is_err(), "{spec}");
        }
    }

    #[test]
    fn ends_have_units_and_whole_numbers_are_rounded() {
        #[rustfmt::skip]
        let rows: &[(&str, Option<&[&str]>)] = &[
            ("64M..256M/3",   Some(&["64M", "160M", "256M"])),
            ("64..256M/3",    Some(&["64M", "160M", "256M"])),
            ("512K..1M/2",    Some(&["512K", "1024K"])),
            ("64M..1G/5",     Some(&["64M", "304M", "544M", "784M", "1024M"])),
            ("1.5G..64MiB/3", Some(&["1536MiB", "800MiB", "64MiB"])),
            ("1ms..1s/2",     Some(&["1ms", "1000ms"])),
            ("1%..50%/2",     Some(&["1%", "50%"])),
            ("64M",           Some(&["64M"])),
            ("64M..1%/2",     None),
            ("64MB..1GB/2",   Some(&["64MB", "1024MB"])),
            ("64M..1s/2",     None),
            ("1000..2000/4",  Some(&["1000", "1333", "1667", "2000"])),
            ("64M..1000/2",   Some(&["67108864B", "1000B"])),
            ("64M..64M/2",    None),
            ("1M..1m/2",      None),
            ("1..3/4",        None),
            ("18446744073709551615E..1K/2",      None),
            ("99999999999999999999T..1B/1024",   None),
            ("99999999999999999999T..1T/1024",   None),
        ];
        for (text, all) in rows {
            let all = all.map(|all| all.iter().map(|&one| one.to_owned()).collect());
            assert_eq!(values(text), all, "{text}");
        }
        let whole = |text: &str| -> Result<(), ParamError> {
            let value = text.rsplit('=').next().unwrap_or_default();
            let bad = || ParamError::BadValue {
                key: "n".into(),
                value: value.into(),
                form: String::new(),
            };
            value.parse::<u32>().map(|_| ()).map_err(|_| bad())
        };
        assert_eq!(expand("x:", "n=1..4/3", whole).unwrap(), ["x:n=1", "x:n=3", "x:n=4"]);
        assert!(expand("x:", "n=1..2/3", whole).is_err());
    }
}
