//! The order of names by their bytes, where a directory's name ends in `/`: that of git's index,
//! and of sorted lists of paths.
//!
//! # Sources
//! git, `base_name_compare` in `read-cache.c`.

use core::cmp::Ordering;

use super::Compare;
use crate::walk::{Entry, EntryKind};

pub(super) const NAME: &str = "name";
pub(super) const ENTRIES: Option<Compare> = None;

pub(super) fn compare(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    bytes(a).cmp(bytes(b))
}

fn bytes<'a>(entry: &Entry<'a>) -> impl Iterator<Item = u8> + use<'a> {
    let end: &[u8] = if entry.kind == EntryKind::Directory { b"/" } else { b"" };
    entry.name.iter().chain(end).copied()
}
