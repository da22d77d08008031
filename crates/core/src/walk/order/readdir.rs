//! The order in which the file system gives the entries: of programs that sort nothing (tar, find,
//! grep, du, Python's `os.scandir`).
//!
//! # Invariants
//! - All entries are equal, so that a stable sort keeps them as they came.

use core::cmp::Ordering;

use super::Compare;
use crate::walk::Entry;

pub(super) const NAME: &str = "readdir";
pub(super) const ENTRIES: Option<Compare> = None;

pub(super) fn compare(_: &Entry<'_>, _: &Entry<'_>) -> Ordering {
    Ordering::Equal
}
