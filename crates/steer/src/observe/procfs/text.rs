//! Parsers for what the kernel writes about processes.
//!
//! ```text
//!   PID/stat        parent, page faults, state, threads, time blocked on devices
//!   PID/schedstat   time that the thread was runnable and had no processor
//!   PID/statm       pages: all that are mapped, pages of files that are present
//!   PID/io          bytes read and written by any call; bytes that came from devices
//!   PID/fdinfo/FD   position, flags, inode
//!   PID/maps        mappings
//! ```
//! # Invariants
//! - Every text is accepted: one that is not as expected gives `None`.
//! # Sources
//! Linux `Documentation/filesystems/proc.rst`; proc(5).

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::makedev;

/// The parent of a process: the fourth field of `stat`. The second is a name in parentheses, of any
/// characters.
pub(crate) fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Whether a process is about to end: `PF_EXITING` among its flags, the ninth field of `stat`.
pub(crate) fn is_exiting(stat: &str) -> Option<bool> {
    let flags: u64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(6)?.parse().ok()?;
    Some(flags & EXITING != 0)
}

/// The page faults of a process: the fields 10 and 12 of `stat`, without a device and with one.
pub(crate) fn faults(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(7).step_by(2);
    let mut count = || fields.next()?.parse::<u64>().ok();
    count()?.checked_add(count()?)
}

/// Pages of a process: all that are mapped, and pages of files that are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) mapped: u64,
    pub(crate) present: u64,
}

/// The sizes in `statm`.
pub(crate) fn sizes(statm: &str) -> Option<Sizes> {
    let mut fields = statm.split_ascii_whitespace().map(str::parse);
    let mapped = fields.next()?.ok()?;
    let present = fields.nth(1)?.ok()?;
    Some(Sizes { mapped, present })
}

/// Bytes by calls that read, and by calls that write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

/// The bytes of a process by all system calls: `rchar` and `wchar` of `io`.
pub(crate) fn counts(io: &str) -> Option<Counts> {
    let count = |name| field(io, name)?.parse().ok();
    Some(Counts { read: count("rchar")?, written: count("wchar")? })
}

/// Bytes that were read from devices for a process: `read_bytes` of `io`.
pub(crate) fn device_bytes(io: &str) -> Option<u64> {
    field(io, "read_bytes")?.parse().ok()
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadState {
    /// As `ps` shows it: R is runnable, D is blocked and cannot be interrupted.
    pub(crate) letter: u8,
    /// Threads of its process.
    pub(crate) threads: u64,
    /// Ticks for which devices blocked the thread, where delays are accounted.
    pub(crate) delay_ticks: u64,
}

/// The state in `stat`: the fields 3, 20 and 42.
pub(crate) fn state(stat: &str) -> Option<ThreadState> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let letter = *fields.next()?.as_bytes().first()?;
    let threads = fields.nth(16)?.parse().ok()?;
    let delay_ticks = fields.nth(21)?.parse().ok()?;
    Some(ThreadState { letter, threads, delay_ticks })
}

/// Nanoseconds for which a thread was runnable and had no processor: the second field of
/// `schedstat`.
pub(crate) fn queued(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// An open descriptor of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) position: u64,
    /// Those of `open(2)`.
    pub(crate) flags: u32,
    /// Present since Linux 5.14.
    pub(crate) inode: Option<u64>,
}

/// The descriptor that `fdinfo` describes.
pub(crate) fn descriptor(fdinfo: &str) -> Option<Descriptor> {
    let position = field(fdinfo, "pos")?.parse().ok()?;
    let flags = u32::from_str_radix(field(fdinfo, "flags")?, 8).ok()?;
    let inode = field(fdinfo, "ino").and_then(|inode| inode.parse().ok());
    Some(Descriptor { position, flags, inode })
}

/// A part of a file that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping<'a> {
    pub(crate) addresses: Range<u64>,
    /// The place in the file where it begins.
    pub(crate) offset: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) path: &'a OsStr,
    pub(crate) executable: bool,
    pub(crate) readable: bool,
}

/// The mapping of one line of `maps`, if it is of a file. The file's name may be any bytes.
pub(crate) fn mapping(line: &[u8]) -> Option<Mapping<'_>> {
    let (head, path) = line.split_at(line.iter().position(|&byte| byte == b'/')?);
    let mut words = str::from_utf8(head).ok()?.strip_suffix(' ')?.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let addresses = hexadecimal(start)?..hexadecimal(end)?;
    let permissions = words.next()?.as_bytes();
    let offset = hexadecimal(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = makedev(number(major)?, number(minor)?);
    let inode = words.next()?.parse().ok()?;
    let path = OsStr::from_bytes(path);
    let bytes = addresses.end.checked_sub(addresses.start).filter(|&bytes| bytes > 0)?;
    offset.checked_add(bytes)?;
    let is_file = words.next().is_none() && inode != 0;
    let executable = permissions.get(2) == Some(&b'x');
    let readable = permissions.first() == Some(&b'r');
    is_file.then_some(Mapping { addresses, offset, device, inode, path, executable, readable })
}

/// The value of the first line `name:value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
}

/// `PF_EXITING` of Linux `include/linux/sched.h`.
const EXITING: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_says_so() {
        #[rustfmt::skip]
        let rows = [
            ("12 (cat) S 7 12 7 0 -1 4194304 66",   Some(false)),
            ("12 (cat) R 7 12 7 0 -1 4194308 66",   Some(true)),
            ("12 (a) 4) Z 7 12 7 0 -1 4227148 66",  Some(true)),
            ("12 (cat) S 7 12 7 0 -1",              None),
            ("",                                    None),
        ];
        for (text, expected) in rows {
            assert_eq!(is_exiting(text), expected, "{text}");
        }
    }

    #[test]
    fn a_parent_is_found_whatever_the_name() {
        #[rustfmt::skip]
        let rows = [
            ("12 (cat) S 7 12 7 0",            Some(7)),
            ("12 (a) b) (c) R 1 12 7",         Some(1)),
            ("12 () Z 0",                      Some(0)),
            ("12 (\n) S 3 4",                  Some(3)),
            ("12 (cat) S",                     None),
            ("12 cat S 7",                     None),
            ("",                               None),
        ];
        for (text, expected) in rows {
            assert_eq!(parent(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_and_counts_are_read() {
        let known = Some(Sizes { mapped: 900, present: 30 });
        assert_eq!(sizes("900 70 30 5 0 60 0\n"), known);
        assert_eq!(sizes("900 70"), None);
        assert_eq!(sizes("x 1 2"), None);
        assert_eq!(counts("rchar: 17\nwchar: 3\n"), Some(Counts { read: 17, written: 3 }));
        assert_eq!((counts("wchar: 3\n"), counts("rchar: 3\n")), (None, None));
    }

    #[test]
    fn a_state_is_read_whatever_the_name() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) b) D {}", fields.join(" "));
        let expected = ThreadState { letter: b'D', threads: 20, delay_ticks: 42 };
        assert_eq!(state(&stat), Some(expected));
        assert_eq!(faults(&stat), Some(10 + 12));
        for text in ["", "7 (a) R", "7 (a) R 1 2 3", "7 a R 1"] {
            assert_eq!((state(text), faults(text)), (None, None), "{text}");
        }
        assert_eq!(queued("17 23 4\n"), Some(23));
        assert_eq!(queued("17"), None);
        assert_eq!(device_bytes("rchar: 1\nread_bytes: 4096\n"), Some(4096));
    }

    #[test]
    fn descriptors_of_old_kernels_have_no_inode() {
        let all = "pos:\t4096\nflags:\t0100000\nmnt_id:\t29\nino:\t131\n";
        let (position, flags) = (4096, 0o100_000);
        assert_eq!(descriptor(all), Some(Descriptor { position, flags, inode: Some(131) }));
        let old = "pos:\t4096\nflags:\t0100000\nmnt_id:\t29\n";
        assert_eq!(descriptor(old), Some(Descriptor { position, flags, inode: None }));
        for text in ["", "pos:\t1\n", "pos:\tx\nflags:\t02\n", "pos:\t-1\nflags:\t02\n"] {
            assert_eq!(descriptor(text), None, "{text}");
        }
    }

    #[test]
    fn mappings_of_files_alone_count() {
        let file = b"7f00-7f80 r--p 00001000 fe:10 131                      /data/a b.bin";
        let found = mapping(file).unwrap();
        let expected = Mapping {
            addresses: 0x7f00..0x7f80,
            offset: 0x1000,
            device: makedev(0xfe, 0x10),
            inode: 131,
            path: OsStr::new("/data/a b.bin"),
            executable: false,
            readable: true,
        };
        assert_eq!(found, expected);
        assert!(mapping(b"7f00-7f80 r-xp 0 fe:00 131 /lib/x.so").unwrap().executable);
        let other = mapping(b"7f00-7f80 r--p 0 fe:00 131 /a\xff /b").unwrap();
        assert_eq!(other.path.as_bytes(), b"/a\xff /b");
        for text in [
            "7f00-7f80 rw-p 00000000 00:00 0 ",
            "7f00-7f80 rw-p 00000000 00:00 0                          [heap]",
            "7f00-7f80 rw-p 00000000 00:00 7          [anon:a /b]",
            "7f80-7f00 r--p 0 fe:00 131 /x",
            "7f00-7f80 r--p fffffffffffffff0 fe:00 131 /x",
            "7f00 r--p 0 fe:00 131 /x",
            "7f00-7f80 r--p",
            "",
        ] {
            assert_eq!(mapping(text.as_bytes()), None, "{text}");
        }
    }
}
