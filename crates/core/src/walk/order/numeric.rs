//! The natural order of names: runs of digits compare as numbers, so that `shard-2` comes before
//! `shard-10`.
//!
//! # Sources
//! Lustre's statahead follows names with consecutive numbers (`llite/statahead.c`).

use core::cmp::Ordering;

use super::Compare;
use crate::walk::Entry;

pub(super) const NAME: &str = "numeric";
pub(super) const ENTRIES: Option<Compare> = None;

pub(super) fn compare(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let (mut left, mut right) = (a.name, b.name);
    while let (Some(&x), Some(&y)) = (left.first(), right.first()) {
        let step = if x.is_ascii_digit() && y.is_ascii_digit() {
            number(&mut left).cmp(&number(&mut right))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            x.cmp(&y)
        };
        if step != Ordering::Equal {
            return step;
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.name.cmp(b.name))
}

/// Takes the digits at the front of `text`: how many there are without leading zeros, and these.
fn number<'a>(text: &mut &'a [u8]) -> (usize, &'a [u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    let zeros = number.iter().take_while(|&&byte| byte == b'0').count();
    (digits - zeros, &number[zeros..])
}
