//! How much one call of `readahead(2)` reads at most, from what `/sys` tells of a device.
//!
//! ```text
//!   /sys/dev/block/MAJOR:MINOR            a disk: queue/{read_ahead_kb,max_sectors_kb}
//!                             /..         the disk of a partition
//!   /sys/class/bdi/MAJOR:MINOR            FUSE, NFS: read_ahead_kb
//! ```
//! The kernel reads the larger of the window and the device's largest request, and drops what goes
//! beyond it without a word. Where nothing is told (overlay, btrfs) the kernel's own default
//! holds: too small a chunk costs calls, too large a one loses pages.
//!
//! # Sources
//! Linux `mm/readahead.c`, `force_page_cache_ra`: the larger of `bdi->io_pages` and `ra_pages`;
//! `block/blk-settings.c`: `io_pages` follows `max_sectors_kb`.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// The most that one call reads of a file on `device` (`st_dev`).
#[must_use]
pub fn chunk_bytes(device: u64) -> u64 {
    let bytes = below(Path::new("/sys"), device);
    assert!((CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes), "a call has its bounds");
    bytes
}

/// Whether the system says that `device` turns.
pub(super) fn is_rotational(device: u64) -> bool {
    let told = fs::read_to_string(queue(Path::new("/sys"), device).join("rotational"));
    told.is_ok_and(|text| text.trim() == "1")
}

/// The folder of the queue of `device`, where it has one.
fn queue(sys: &Path, device: u64) -> PathBuf {
    let disk = sys.join(format!("dev/block/{}:{}", major(device), minor(device)));
    let whole = if disk.join("partition").exists() { disk.join("..") } else { disk };
    whole.join("queue")
}

/// As [`chunk_bytes`], where `sys` is what `/sys` is elsewhere.
fn below(sys: &Path, device: u64) -> u64 {
    let number = format!("{}:{}", major(device), minor(device));
    let queue = queue(sys, device);
    let window = kib(&queue.join("read_ahead_kb"));
    let request = kib(&queue.join("max_sectors_kb"));
    if window.is_some() || request.is_some() {
        return window.max(request).unwrap_or(0).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
    }
    let window = kib(&sys.join("class/bdi").join(&number).join("read_ahead_kb"));
    window.unwrap_or(0).clamp(DEFAULT_BYTES, CHUNK_BYTES_MAX)
}

/// The bytes that the file `path` gives in KiB, if it does.
fn kib(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What a device reads that has no number of its own (`VM_READAHEAD_PAGES`).
const DEFAULT_BYTES: u64 = 128 << 10;
/// A page.
const CHUNK_BYTES_MIN: u64 = 4 << 10;
/// Beyond this one call is no asynchronous one any more.
const CHUNK_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_testkit::Scratch;
    use rustix::fs::makedev;

    #[test]
    fn a_chunk_is_the_larger_of_window_and_request() {
        let sys = Scratch::of(
            "sys",
            &[
                ("dev/block/8:0/queue/read_ahead_kb", "128\n"),
                ("dev/block/8:0/queue/max_sectors_kb", "512\n"),
                ("dev/block/8:16/queue/read_ahead_kb", "8192\n"),
                ("dev/block/8:16/queue/max_sectors_kb", "1280\n"),
                ("devices/sda/queue/read_ahead_kb", "4096\n"),
                ("devices/sda/queue/max_sectors_kb", "256\n"),
                ("devices/sda/sda1/partition", "1\n"),
                ("dev/block/9:0/queue/read_ahead_kb", "0\n"),
                ("dev/block/9:0/queue/max_sectors_kb", "?\n"),
                ("dev/block/9:1/queue/read_ahead_kb", "99999999999999999999\n"),
                ("dev/block/9:1/queue/max_sectors_kb", "18446744073709551615\n"),
                ("dev/block/9:2/queue/read_ahead_kb", "9999999999\n"),
                ("class/bdi/0:40/read_ahead_kb", "1024\n"),
                ("class/bdi/0:41/read_ahead_kb", "16\n"),
            ],
        );
        let link = sys.join("dev/block/8:1");
        std::os::unix::fs::symlink(sys.join("devices/sda/sda1"), link).unwrap();
        #[rustfmt::skip]
        let rows = [ // why                              device    KiB
            ("the request is larger",                    (8, 0),   512),
            ("the window is larger",                     (8, 16),  8192),
            ("a partition has the queue of its disk",    (8, 1),   4096),
            ("no readahead: a call still reads a page",  (9, 0),   4),
            ("numbers that are none",                    (9, 1),   128),
            ("a number beyond all devices",              (9, 2),   64 << 10),
            ("a file system of its own device",          (0, 40),  1024),
            ("a small window: a request is larger",      (0, 41),  128),
            ("nothing is told",                          (0, 99),  128),
        ];
        for (why, (major, minor), expected) in rows {
            assert_eq!(below(&sys, makedev(major, minor)) / 1024, expected, "{why}");
        }
    }

    #[test]
    fn a_chunk_is_found_on_this_machine() {
        use std::os::unix::fs::MetadataExt as _;
        for path in ["/", "/proc", "/dev", "/sys"] {
            let Ok(there) = fs::metadata(path) else { continue };
            let chunk = chunk_bytes(there.dev());
            assert!((CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk), "{path}: {chunk}");
        }
    }
}
