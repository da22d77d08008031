//! The same reads through the kernel: `pread`, its page cache, its readahead.
//!
//! ```text
//!   reader threads -> pread -> page cache -> block device
//!                      times                   requests counted by the kernel
//! ```
//! Readers, order, pace and checks are those of the engine's runs (`readers`), so that the two
//! differ by the cache alone.
//!
//! # Invariants
//! - The kernel drops the file's pages before the run; another reader spoils the result.
//! - Requests are those that the device completed by the end of the last read. They are counted for
//!   the device as a whole, and are 0 where the file system lies on none.
//! # Sources
//! Linux `Documentation/block/stat.rst`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow};
use forerun_console::machine;
use forerun_console::target::Checked;
use forerun_core::units::Nanos;
use forerun_engine::Stats;
use forerun_sim::workload::Access;
use rustix::fs::{major, minor};

use crate::readers::{ReadTimes, ReaderThreads};

use crate::cache::failed;
use crate::live::RunResult;
use crate::pattern::workload_of;
use crate::verify;

/// The setup of a run.
pub struct Kernel<'a> {
    /// The file that is read.
    pub file: &'a Checked,
    /// The workload's text.
    pub reads: &'a str,
    /// Readers stop after it.
    pub time_max: Option<Nanos>,
}

impl Kernel<'_> {
    /// Runs; `progress` receives the count of bytes read from time to time.
    pub fn run(&self, progress: &mut dyn FnMut(u64)) -> Result<RunResult> {
        let workload = workload_of(self.reads)?;
        let against = verify::against_file(self.file)?;
        let files = workload.handles.iter().map(|_| self.file.plainly());
        let files: Vec<File> = files.collect::<Result<_>>()?;
        let device = Device::below(&files[0])?;
        self.file.forget()?;
        let bytes = AtomicU64::new(0);
        let read = |access: Access, room: &mut [u8]| {
            let read = files[access.handle as usize].read_exact_at(room, access.offset);
            read.map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => failed(self.file, anyhow!("it shrank")),
                _ => failed(self.file, error),
            })?;
            bytes.fetch_add(room.len() as u64, Ordering::Relaxed);
            Ok(())
        };
        let (begun, before) = (machine::now(), device.counts());
        let ended = ReaderThreads::new(begun, against).run(workload, read, |passed| {
            progress(bytes.load(Ordering::Relaxed));
            self.time_max.is_some_and(|time_max| passed >= time_max)
        })?;
        let after = device.counts();
        self.file.require_unchanged()?;
        let ReadTimes { latency, .. } = &ended.times;
        let (requests, bytes, waited) = (latency.count(), bytes.into_inner(), ended.times.waited());
        let waited = waited.into();
        let stats = Stats { requests, bytes, waited, ..Stats::default() };
        Ok(RunResult {
            elapsed: ended.at.since(begun),
            bytes_wanted: bytes,
            device_requests: after.requests.saturating_sub(before.requests),
            bytes_read: after.bytes.saturating_sub(before.bytes),
            stats,
            latency: ended.times.latency,
            requests: Vec::new(),
            windows: Vec::new(),
            windows_left_out: 0,
            digests: ended.digests,
        })
    }

    /// The kernel's readahead settings, where sysfs has them.
    pub fn params(&self) -> Result<BTreeMap<String, String>> {
        let device = Device::below(&self.file.plainly()?)?;
        let name = "read_ahead_kb";
        let value = fs::read_to_string(device.backing.join(name)).unwrap_or_default();
        let known = !value.is_empty();
        Ok(known.then(|| (name.to_owned(), value.trim().to_owned())).into_iter().collect())
    }
}

/// The block device that holds a file.
struct Device {
    stat: PathBuf,
    backing: PathBuf,
}

/// The read counts of a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    requests: u64,
    bytes: u64,
}

impl Device {
    fn below(file: &File) -> Result<Self> {
        let metadata = file.metadata()?;
        let is_device = metadata.file_type().is_block_device();
        let number = if is_device { metadata.rdev() } else { metadata.dev() };
        let number = format!("{}:{}", major(number), minor(number));
        let backing = PathBuf::from("/sys/class/bdi").join(&number);
        Ok(Self { stat: PathBuf::from("/sys/dev/block").join(number).join("stat"), backing })
    }

    fn counts(&self) -> Counts {
        counts(&fs::read_to_string(&self.stat).unwrap_or_default())
    }
}

/// Reads completed, reads merged, sectors of 512 bytes read, and much more.
fn counts(text: &str) -> Counts {
    let mut words = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
    let (requests, sectors): (u64, u64) = (words.next().unwrap_or(0), words.nth(1).unwrap_or(0));
    Counts { requests, bytes: sectors * 512 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_counts_its_reads() {
        #[rustfmt::skip]
        let rows = [
            ("      10        3      160      7        0        0 ", 10, 160 * 512),
            ("",                                                      0,   0),
        ];
        for (text, requests, bytes) in rows {
            assert_eq!(counts(text), Counts { requests, bytes });
        }
    }
}
