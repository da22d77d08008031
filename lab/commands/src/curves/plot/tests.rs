//! Names that are too long for a picture.

use super::*;

#[test]
fn a_long_name_ends_in_dots_and_a_short_one_is_whole() {
    #[rustfmt::skip]
    let rows = [("sieve", 9.9, "sieve"), ("sieve", 5.0, "sieve"), ("sieve", 4.9, "sie\u{2026}"),
        ("sieve", 0.0, "\u{2026}")];
    for (name, fits, expected) in rows {
        assert_eq!(shortened(name, fits), expected);
    }
}
