//! Full paths of what a process names: by a path, or by a descriptor.
//!
//! ```text
//!   path "b/../c", directory 5   /proc/PID/fd/5 -> /a      /a/c
//!   path "c"                     /proc/PID/cwd  -> /a      /a/c
//!   descriptor 6                 /proc/PID/fd/6 -> /a/c    /a/c
//! ```
//! # Invariants
//! - A path is full, without `.`, `..` and repeated slashes, and shorter than
//!   [`PATH_BYTES_MAX`].
//! - It is that of the process in its own root; what lies outside of that has none, and neither
//!   has what was deleted.
//! # Sources
//! `path_resolution(7)`, proc(5). We differ: `..` behind a link is where the link lies.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::readlinkat;

use super::memory::PATH_BYTES_MAX;
use crate::open::as_seen_by;

/// The full path of what `path` names in a process, where it begins at `directory`, a descriptor,
/// or at the working directory.
pub(super) fn of_path(
    process: BorrowedFd<'_>,
    directory: Option<i32>,
    path: &[u8],
) -> Option<Vec<u8>> {
    if path.starts_with(b"/") {
        return joined(b"/", path);
    }
    let base = match directory {
        Some(number) => of_descriptor(process, number),
        None => of_link(process, "cwd"),
    };
    joined(&base?, path)
}

/// The full path of what a descriptor of a process stands for.
pub(super) fn of_descriptor(process: BorrowedFd<'_>, number: i32) -> Option<Vec<u8>> {
    if number < 0 {
        return None;
    }
    of_link(process, &format!("fd/{number}"))
}

/// The path that a link of the kernel's tells.
fn of_link(process: BorrowedFd<'_>, name: &str) -> Option<Vec<u8>> {
    let link = readlinkat(process, name, Vec::new()).ok()?;
    let path = on_disk(link.to_bytes())?;
    as_seen_by(process, OsStr::from_bytes(path)).map(|path| path.as_bytes().to_vec())
}

/// `link`, if it is the path of something that is there: not of a pipe, and not deleted.
fn on_disk(link: &[u8]) -> Option<&[u8]> {
    (link.starts_with(b"/") && !link.ends_with(DELETED)).then_some(link)
}

/// What `path` names from `base` on, by the words alone.
fn joined(base: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    assert!(base.starts_with(b"/"), "a base is a full path");
    let mut full = Vec::with_capacity(base.len() + path.len() + 1);
    for name in base.split(|&byte| byte == b'/').chain(path.split(|&byte| byte == b'/')) {
        match name {
            b"" | b"." => {}
            b".." => full.truncate(full.iter().rposition(|&byte| byte == b'/').unwrap_or(0)),
            name => {
                full.push(b'/');
                full.extend_from_slice(name);
            }
        }
    }
    if full.is_empty() {
        full.push(b'/');
    }
    (full.len() < PATH_BYTES_MAX).then_some(full)
}

const DELETED: &[u8] = b" (deleted)";

#[cfg(test)]
mod tests {
    use super::*;

    type Row<'a> = (&'a [u8], &'a [u8], Option<&'a [u8]>);

    #[test]
    fn paths_are_joined_by_their_words() {
        let long = [b'x'; PATH_BYTES_MAX];
        #[rustfmt::skip]
        let rows: [Row<'_>; 13] = [ // base, path, full
            (b"/a",   b"b",            Some(b"/a/b")),
            (b"/",    b"b",            Some(b"/b")),
            (b"/",    b"/a//b///c/",   Some(b"/a/b/c")),
            (b"/a",   b"./b/.",        Some(b"/a/b")),
            (b"/a/b", b"../c",         Some(b"/a/c")),
            (b"/a/b", b"../..",        Some(b"/")),
            (b"/a",   b"../../../c",   Some(b"/c")),
            (b"/a",   b"..b/...",      Some(b"/a/..b/...")),
            (b"/a",   b".",            Some(b"/a")),
            (b"/a",   b"",             Some(b"/a")),
            (b"/",    b"/",            Some(b"/")),
            (b"/a",   b"\xff\xfe b",   Some(b"/a/\xff\xfe b")),
            (b"/a",   &long,           None),
        ];
        for (base, path, full) in rows {
            assert_eq!(joined(base, path).as_deref(), full, "{}", path.escape_ascii());
        }
    }

    #[test]
    fn links_of_what_is_not_there_have_no_path() {
        #[rustfmt::skip]
        let rows: [(&[u8], bool); 6] = [
            (b"/a/b",             true),
            (b"/a (deleted)/b",   true),
            (b"/a/b (deleted)",   false),
            (b"pipe:[7]",         false),
            (b"(unreachable)/a",  false),
            (b"",                 false),
        ];
        for (link, is_there) in rows {
            assert_eq!(on_disk(link).is_some(), is_there, "{}", link.escape_ascii());
        }
    }
}
