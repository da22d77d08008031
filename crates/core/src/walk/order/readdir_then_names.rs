//! All entries in the order of readdir, then what lies in the directories, by their names: of
//! programs that look at the entries as they are listed and sort afterwards (`ls -lR`, rsync as it
//! builds its list).
//!
//! # Sources
//! coreutils, `gobble_file` and `extract_dirs_from_files` in `ls.c`.

use core::cmp::Ordering;

use super::Compare;
use crate::walk::{Entry, EntryKind};

pub(super) const NAME: &str = "readdir-then-names";
pub(super) const ENTRIES: Option<Compare> = Some(super::readdir::compare);

pub(super) fn compare(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let by_name = match (a.kind, b.kind) {
        (EntryKind::Directory, EntryKind::Directory) => a.name.cmp(b.name),
        _ => Ordering::Equal,
    };
    super::files_first(a, b).then(by_name)
}
