//! The tree that programs walk over: small files, names of any bytes, links that loop.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

/// Fills the empty folder `at`.
pub(crate) fn make(at: &Path) {
    for nth in 0..FOLDERS {
        let folder = at.join(format!("d{nth:02}"));
        fs::create_dir(&folder).expect("the folder takes folders");
        for file in 0..FILES {
            let path = folder.join(format!("f{file:03}.c"));
            fs::write(&path, text(nth * FILES + file)).expect("there is room");
            give_away(&path);
        }
        give_away(&folder);
    }
    let odd = at.join(OsStr::from_bytes(b"odd \xff\n"));
    fs::create_dir(&odd).expect("the folder takes folders");
    for byte in 0x80..0xa0_u8 {
        let name = [b'n', byte, b' ', b'\\', byte];
        fs::write(odd.join(OsStr::from_bytes(&name)), text(usize::from(byte)))
            .expect("there is room");
    }
    let deep = (0..40).fold(at.to_path_buf(), |path, nth| path.join(format!("p{nth}")));
    fs::create_dir_all(&deep).expect("the folder takes folders");
    fs::write(deep.join("end"), "the end\n").expect("there is room");
    let large: String = (0..LARGE).map(text).collect();
    fs::write(at.join("large"), large).expect("there is room");
    for (from, to) in [("loop", "loop"), ("up", ".."), ("ab", "ba"), ("ba", "ab"), ("in", "d03")] {
        symlink(to, at.join(from)).expect("the folder takes links");
    }
    fs::create_dir(at.join("empty")).expect("the folder takes folders");
}

/// Gives what is at `path` to the user `nobody`, where this one may.
fn give_away(path: &Path) {
    let _ = chown(path, Some(NOBODY), Some(NOBODY));
}

/// Some lines, of one page or a few.
fn text(nth: usize) -> String {
    let line = |at: usize| format!("{} line {at} of {nth} word{}\n", at * 7919 % 1009, at % 13);
    (0..(20 + nth % 7 * 60)).map(line).collect()
}

const NOBODY: u32 = 65_534;
const FOLDERS: usize = 8;
const FILES: usize = 24;
/// Texts in the large file: some 3 MB.
const LARGE: usize = 600;
/// No more bytes than that file has, in whole pages.
pub(crate) const LARGE_BYTES_MAX: u64 = 3 << 20;
/// Names in the tree, and some.
pub(crate) const ENTRIES: u64 = 320;
