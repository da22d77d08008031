//! Numbers and fields of text, without copies.
//!
//! [`digits`] takes eight digits at a time: the bytes of a word are turned into digits, the first
//! that is none is found by one comparison of all eight, and three multiplications add them up.
//!
//! # Invariants
//! - A number is digits alone, no sign and no blanks; one above 2^64 - 1 is none.
//! # Sources
//! Adding eight digits up by three multiplications is folklore; D. Lemire describes it in "Quickly
//! parsing eight digits" (2018).

use forerun_core::units::Nanos;

/// The number at the start of `bytes`, and its count of digits.
pub(super) fn digits(bytes: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut length) = (0_u64, 0);
    while let Some(eight) = bytes[length..].first_chunk::<8>() {
        let (part, count) = first_digits(u64::from_le_bytes(*eight));
        value = value.checked_mul(POWERS[count])?.checked_add(part)?;
        length += count;
        if count < 8 {
            return (length > 0).then_some((value, length));
        }
    }
    for byte in bytes[length..].iter().take_while(|byte| byte.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        length += 1;
    }
    (length > 0).then_some((value, length))
}

/// The digits at the low end of `word`: their number, and how many.
fn first_digits(word: u64) -> (u64, usize) {
    let values = word ^ (ONES * u64::from(b'0'));
    // A value above 9 sets its byte's high bit; a carry spoils only the bytes above the first one.
    let others = (values.wrapping_add(ONES * 0x76) | values) & (ONES * 0x80);
    let count = others.trailing_zeros() / 8;
    if count == 0 {
        return (0, 0);
    }
    let padded = values << (64 - 8 * count);
    let pairs = (padded.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000 << 32 | 1) >> 32, count as usize)
}

/// The number that `word` writes in digits alone.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    digits(word).filter(|&(_, length)| length == word.len()).map(|(value, _)| value)
}

/// The time that `word` writes, in units of `unit` nanoseconds, with a fraction or without.
pub(super) fn time(word: &[u8], unit: u64) -> Option<Nanos> {
    let (whole, length) = digits(word)?;
    let mut nanos = whole.checked_mul(unit)?;
    match word[length..].split_first() {
        None => {}
        Some((b'.', fraction)) => {
            // More digits than nanoseconds tell nothing.
            let shown = &fraction[..fraction.len().min(9)];
            let part = if fraction.is_empty() { 0 } else { number(shown)? };
            if !fraction.iter().all(u8::is_ascii_digit) {
                return None;
            }
            let scaled = u128::from(part) * u128::from(unit) / u128::from(POWERS[shown.len()]);
            nanos = nanos.checked_add(u64::try_from(scaled).ok()?)?;
        }
        Some(_) => return None,
    }
    Some(Nanos(nanos))
}

/// The words of `line`, which blanks part.
pub(super) fn words(line: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A record for an error message: short, without control characters.
pub(super) fn shown(record: &[u8]) -> String {
    let mut text: String =
        record.iter().take(40).flat_map(|b| b.escape_ascii()).map(char::from).collect();
    if record.len() > 40 {
        text.push_str("...");
    }
    format!("`{text}`")
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// Powers of ten.
const POWERS: [u64; 10] = {
    let mut powers = [1; 10];
    let mut at = 1;
    while at < 10 {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_core::prng::Prng;

    #[test]
    fn numbers_are_read_as_the_standard_library_does() {
        let mut prng = Prng::new(1);
        for _ in 0..20_000 {
            let value = prng.draw() >> prng.below(64);
            for behind in ["", "\n", " 7", ",", ":", "/", "\u{ff}", "\n999999999"] {
                let text = format!("{value}{behind}");
                let length = text.len() - behind.len();
                assert_eq!(digits(text.as_bytes()), Some((value, length)), "{text:?}");
            }
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        #[rustfmt::skip]
        let rows: [(&str, Option<u64>); 12] = [
            ("0", Some(0)), ("007", Some(7)), ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None), ("99999999999999999999999", None), ("", None),
            ("-1", None), ("+1", None), ("1 ", None), (" 1", None), ("1e3", None), ("0x10", None),
        ];
        for (text, value) in rows {
            assert_eq!(number(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn times_have_units_and_fractions() {
        #[rustfmt::skip]
        let rows = [ // text  unit  nanoseconds
            ("0",              1_000_000_000, Some(0)),
            ("5265.313",       1_000_000,     Some(5_265_313_000)),
            ("0.551706",       1_000_000_000, Some(551_706_000)),
            ("1.0000000019",   1_000_000_000, Some(1_000_000_001)),
            ("7.",             1_000,         Some(7_000)),
            ("128166372003061629", 100,       Some(12_816_637_200_306_162_900)),
            ("18446744074",    1_000_000_000, None),
            ("1.2.3",          1_000,         None),
            ("1.x",            1_000,         None),
            (".5",             1_000,         None),
            ("1e3",            1_000,         None),
            ("-1",             1_000,         None),
        ];
        for (text, unit, nanos) in rows {
            assert_eq!(time(text.as_bytes(), unit), nanos.map(Nanos), "{text:?}");
        }
    }
}
