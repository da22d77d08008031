//! The place of a file: its device, that device's model, the file system, from /sys and /proc.
//!
//! ```text
//!   file --stat--> 259:2 --/sys/dev/block/259:2--> partition --> drive: model
//!                        --/proc/self/mountinfo--> ext4
//! ```
//! A device may have another number after the next start, so its model and the kernel's release
//! are part of its name as well.
//!
//! # Invariants
//! - Values that the system lacks stay empty; a place always has a name.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::fs::{OFlags, major, minor};

use crate::machine;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its number, `major:minor`, or the model's specification.
    pub device: String,
    /// The drive's model.
    pub model: String,
    /// The file system between the device and the file.
    pub file_system: String,
    /// The kernel's release.
    pub kernel: String,
    /// Whether reads can go past the kernel's page cache.
    pub is_direct: bool,
}

impl Place {
    /// The place of the file or block device at `path`.
    ///
    /// # Errors
    /// The system would not say.
    pub fn of(path: &Path) -> Result<Self> {
        let found = fs::metadata(path);
        let found = found.with_context(|| format!("cannot stat {}", path.display()))?;
        let is_device = found.file_type().is_block_device();
        let number = if is_device { found.rdev() } else { found.dev() };
        let device = format!("{}:{}", major(number), minor(number));
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let file_system = if is_device { String::new() } else { file_system(&mounts, &device) };
        let opens = || OpenOptions::new().read(true).custom_flags(direct).open(path).is_ok();
        Ok(Self {
            model: model(&device),
            is_direct: !IN_MEMORY.contains(&file_system.as_str()) && opens(),
            file_system,
            device,
            kernel: machine::machine().kernel,
        })
    }

    /// The place of a device model.
    #[must_use]
    pub fn model(spec: &str) -> Self {
        Self {
            device: format!("model {spec}"),
            kernel: machine::machine().kernel,
            is_direct: true,
            ..Self::default()
        }
    }

    /// Its name among profiles.
    pub fn key(&self) -> String {
        let parts = [&self.device, &self.model, &self.file_system, &self.kernel];
        let parts: Vec<&str> =
            parts.into_iter().filter(|part| !part.is_empty()).map(String::as_str).collect();
        parts.join(", ")
    }
}

/// The model of the drive with this number, or of the drive that contains it.
fn model(device: &str) -> String {
    let Ok(folder) = fs::canonicalize(format!("/sys/dev/block/{device}")) else {
        return String::new();
    };
    let mut drives = folder.ancestors().take(2);
    let model = drives.find_map(|drive| fs::read_to_string(drive.join("device/model")).ok());
    model.unwrap_or_default().trim().to_owned()
}

/// The file system on the device with this number, by the lines of `mountinfo`.
fn file_system(mounts: &str, device: &str) -> String {
    let found = mounts.lines().rev().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        (place.split(' ').nth(2)? == device).then(|| kind.split(' ').next())?
    });
    found.unwrap_or_default().to_owned()
}

/// These accept direct reads, but read from the page cache.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_found_by_its_device() {
        let mounts = "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
                      23 22 0:21 / /proc rw - proc proc rw\n\
                      not a mount\n";
        for (device, expected) in [("259:2", "ext4"), ("0:21", "proc"), ("9:2", "")] {
            assert_eq!(file_system(mounts, device), expected);
        }
    }

    #[test]
    fn a_place_has_a_name_by_what_is_known() {
        let place = Place { device: "8:0".into(), kernel: "linux 6".into(), ..Place::default() };
        assert_eq!(place.key(), "8:0, linux 6");
        let full = Place { model: "M".into(), file_system: "xfs".into(), ..place };
        assert_eq!(full.key(), "8:0, M, xfs, linux 6");
        let here = Place::of(&std::env::current_exe().expect("a test is a file")).expect("a stat");
        assert!(here.key().starts_with(&here.device) && here.device.contains(':'));
    }
}
