//! The order of readdir, with the directories after all else: of programs that finish a directory
//! before they enter the next (Python's `os.walk`).
//!
//! # Invariants
//! - Files keep the order of readdir among each other, and directories too.

use core::cmp::Ordering;

use super::Compare;
use crate::walk::Entry;

pub(super) const NAME: &str = "readdir-files-first";
pub(super) const ENTRIES: Option<Compare> = None;

pub(super) fn compare(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    super::files_first(a, b)
}
