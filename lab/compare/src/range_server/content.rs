//! The served content: a pattern under any path, or the files of a folder.
//!
//! The pattern is a sequence of 64-bit words, little-endian: word `i` is `i * PATTERN_STEP`,
//! modulo 2^64. Any part of it can be computed from its offset, and no two words of a file are
//! equal.
//!
//! # Invariants
//! - No path leaves the folder by `..`; a link in the folder may.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

/// The source of paths.
pub(super) enum Content {
    Pattern { bytes: u64 },
    Folder(PathBuf),
}

/// The content at a path.
pub(super) struct Source {
    pub(super) bytes: u64,
    /// Empty for what is made up at the moment.
    pub(super) etag: String,
    from: From,
}

enum From {
    Pattern,
    File(File),
    Memory(Vec<u8>),
}

impl Content {
    /// # Errors
    /// `NotFound`: the path names no file.
    pub(super) fn open(&self, path: &str) -> io::Result<Source> {
        match self {
            Self::Pattern { bytes } => {
                let etag = format!("\"pattern-{bytes}\"");
                Ok(Source { bytes: *bytes, etag, from: From::Pattern })
            }
            Self::Folder(folder) => {
                let file = File::open(folder.join(relative(path)?))?;
                let facts = file.metadata()?;
                if !facts.is_file() {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let (bytes, seconds, nanos) = (facts.len(), facts.mtime(), facts.mtime_nsec());
                let etag = format!("\"{:x}-{bytes:x}-{seconds:x}-{nanos:x}\"", facts.ino());
                Ok(Source { bytes, etag, from: From::File(file) })
            }
        }
    }
}

impl Source {
    pub(super) fn memory(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.len() as u64, etag: String::new(), from: From::Memory(bytes) }
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof`: the file has shrunk.
    pub(super) fn fill(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match &self.from {
            From::Pattern => fill_pattern(offset, buffer),
            From::File(file) => file.read_exact_at(buffer, offset)?,
            From::Memory(bytes) => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                buffer.copy_from_slice(&bytes[start..start + buffer.len()]);
            }
        }
        Ok(())
    }
}

/// The path below the folder that a request's path names.
fn relative(path: &str) -> io::Result<PathBuf> {
    let mut relative = PathBuf::new();
    for name in unescape(path).ok_or(io::ErrorKind::NotFound)?.split('/') {
        match name {
            "" | "." => {}
            ".." => return Err(io::ErrorKind::NotFound.into()),
            name => relative.push(name),
        }
    }
    Ok(relative)
}

/// `path` with its `%20` and the like resolved; nothing if that is no text.
fn unescape(path: &str) -> Option<String> {
    let mut pieces = path.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok().filter(|path| !path.contains('\0'))
}

fn fill_pattern(offset: u64, buffer: &mut [u8]) {
    let word = |index: u64| index.wrapping_mul(PATTERN_STEP).to_le_bytes();
    // Up to the first whole word.
    let skipped = usize::try_from(offset % 8).expect("less than 8");
    let lead = ((8 - skipped) % 8).min(buffer.len());
    let (head, rest) = buffer.split_at_mut(lead);
    head.copy_from_slice(&word(offset / 8)[skipped..][..lead]);
    let mut index = offset.div_ceil(8);
    let (words, tail) = rest.as_chunks_mut();
    for slot in words {
        *slot = word(index);
        index += 1;
    }
    tail.copy_from_slice(&word(index)[..tail.len()]);
}

/// 2^64 divided by the golden ratio, and odd: all bits of a word change from one to the next.
const PATTERN_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_the_pattern_is_the_same_as_in_the_whole() {
        let words = (0..8_u64).map(|index| index.wrapping_mul(PATTERN_STEP));
        let whole: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        for start in 0..whole.len() {
            for end in start..=whole.len() {
                let mut buffer = vec![0; end - start];
                fill_pattern(start as u64, &mut buffer);
                assert_eq!(buffer, whole[start..end], "{start}..{end}");
            }
        }
        let mut far = [0; 8];
        fill_pattern(8 << 40, &mut far);
        assert_eq!(far, (1_u64 << 40).wrapping_mul(PATTERN_STEP).to_le_bytes());
    }

    #[test]
    fn paths_stay_in_the_folder() {
        #[rustfmt::skip]
        let rows = [ // why              path              below the folder
            ("a file",                   "/a/b.bin",       Some("a/b.bin")),
            ("doubled slashes, dots",    "//a/./b",        Some("a/b")),
            ("the folder itself",        "/",              Some("")),
            ("escapes",                  "/a%20b%2Fc",     Some("a b/c")),
            ("above it",                 "/../a",          None),
            ("above it, later",          "/a/../../b",     None),
            ("above it, escaped",        "/%2e%2E/a",      None),
            ("half an escape",           "/a%2",           None),
            ("no escape",                "/a%zz",          None),
            ("no text",                  "/%ff",           None),
            ("a zero",                   "/a%00",          None),
        ];
        for (why, path, expected) in rows {
            assert_eq!(relative(path).ok(), expected.map(PathBuf::from), "{why}");
        }
    }
}
