//! What a replay may write to: a file of the pattern, or what `--destroy-data` gives up.
//!
//! ```text
//!   file          open by others, behind a loop device --> refused
//!   block device  mounted, swap, part of a set         --> refused (the kernel: O_EXCL)
//!                 a loop device whose file has another --> refused
//!   the pattern --> written        anything else --> written with --destroy-data alone
//! ```
//! # Invariants
//! - No flag lets a replay write to what is in use.
//! - The target stays claimed until the replay ends: what locks files as QEMU does keeps off, and
//!   so does a mount of a device.
//! - A file of the pattern stays one, as the pattern is what a replay writes.
//! # Sources
//! `open(2)`: `O_EXCL` of a block device fails with `EBUSY` where it is in use, also by way of its
//! partitions. `fcntl(2)`: leases.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::usage;
use forerun_io::lock::{self, Claim, ClaimError};
use forerun_io::store::pattern;
use forerun_measure::pattern_file;
use rustix::fs::{OFlags, major, minor};

/// A target that may be written, until this is dropped.
pub(super) struct Claimed {
    _file: File,
}

impl Claimed {
    /// Claims `path`, to lose what it holds where `destroy` is set.
    pub(super) fn new(path: &Path, destroy: bool) -> Result<Self> {
        let name = path.display();
        let there = fs::metadata(path).with_context(|| format!("cannot write {name}"))?;
        let kind = there.file_type();
        let flags = if kind.is_block_device() {
            OFlags::EXCL
        } else if kind.is_file() {
            OFlags::empty()
        } else {
            bail!("cannot write {name}: it is neither a file nor a block device; name one");
        };
        let flags = i32::try_from(flags.bits()).expect("a flag of open");
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => bail!(
                "{name} is in use: it is mounted, or swap, or a part of a set of devices; \
                 nothing was written; unmount it, or name another"
            ),
            opened => opened.with_context(|| format!("cannot write {name}"))?,
        };
        if kind.is_block_device() {
            let number = (major(there.rdev()), minor(there.rdev()));
            let backing =
                backing_file(&PathBuf::from(format!("/sys/dev/block/{}:{}", number.0, number.1)));
            if let Some(backing) = backing.and_then(|path| fs::metadata(path).ok()) {
                refuse_loops(path, &backing, Some(number))?;
            }
        } else {
            refuse_loops(path, &there, None)?;
            // Where the system does not say, the locks below do, for those that lock.
            if lock::is_open_elsewhere(&file).unwrap_or(false) {
                bail!(
                    "{name} is in use: another program has it open; nothing was written; end that \
                     program, or name another file"
                );
            }
        }
        match lock::claim(&file, Claim::Write) {
            Ok(()) | Err(ClaimError::NoLocks(_)) => {}
            Err(error) => bail!("{name} is in use: {error}; nothing was written"),
        }
        let may = destroy || kind.is_file() && is_pattern(&file, there.len());
        if !may {
            return Err(usage(format!(
                "{name} may hold something, and --write overwrites it: add --destroy-data if its \
                 bytes may be lost, or let --make make a new file"
            )));
        }
        Ok(Self { _file: file })
    }
}

/// Whether `file` holds the pattern alone, as far as its beginning and a check of a few places
/// tell: the first bytes are where file systems, partitions and archives have their marks.
fn is_pattern(file: &File, bytes: u64) -> bool {
    let head = usize::try_from(bytes).map_or(HEAD_BYTES, |bytes| bytes.min(HEAD_BYTES));
    let mut room = vec![0; head];
    bytes > 0
        && file.read_exact_at(&mut room, 0).is_ok()
        && pattern::verify(0, &room).is_ok()
        && pattern_file::is_pattern(file, bytes)
}

/// Refuses a file that a loop device has, but for the device `own`.
fn refuse_loops(path: &Path, file: &Metadata, own: Option<(u32, u32)>) -> Result<()> {
    let own = own.map(|(major, minor)| format!("{major}:{minor}"));
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let Some(backing) = backing_file(&device.path()) else { continue };
        let same = fs::metadata(backing)
            .is_ok_and(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()));
        let number = fs::read_to_string(device.path().join("dev")).unwrap_or_default();
        if same && own.as_deref() != Some(number.trim()) {
            bail!(
                "{} is in use: /dev/{} is the same bytes; nothing was written; detach that \
                 (losetup -d), or name another",
                path.display(),
                device.file_name().display()
            );
        }
    }
    Ok(())
}

/// The file behind the loop device that `folder` of sysfs describes.
fn backing_file(folder: &Path) -> Option<PathBuf> {
    let name = fs::read_to_string(folder.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(name.strip_suffix('\n').unwrap_or(&name)))
}

/// Bytes that are compared in a row.
const HEAD_BYTES: usize = 4 << 20;
