//! The order of inode numbers: that of programs that save seeks (cp, `fts` in directories of ten
//! thousand entries and more).
//!
//! # Sources
//! gnulib's `savedir.c` (`SAVEDIR_SORT_INODE`) and `fts.c`.

use core::cmp::Ordering;

use super::Compare;
use crate::walk::Entry;

pub(super) const NAME: &str = "inode";
pub(super) const ENTRIES: Option<Compare> = None;

pub(super) fn compare(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    a.inode.cmp(&b.inode)
}
