//! The order of names by their bytes, with the directories after all else.
//!
//! # Sources
//! rsync, `f_name_cmp` in `flist.c`, from protocol 29 on.

use core::cmp::Ordering;

use super::Compare;
use crate::walk::Entry;

pub(super) const NAME: &str = "name-files-first";
pub(super) const ENTRIES: Option<Compare> = None;

pub(super) fn compare(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    super::files_first(a, b).then_with(|| a.name.cmp(b.name))
}
