//! A slow volume that the demo serves itself: a file system in user space, each request of which
//! takes as long as on the model of a remote store.
//!
//! ```text
//!   program --> kernel (page cache, its readahead) --> /dev/fuse --> Volume
//!                                                          answer <-- model: when it is due
//! ```
//! Each of its top folders has the same files, as inodes of their own: a run in a folder that no
//! other run has used finds nothing in memory, without root.
//!
//! # Invariants
//! - It is read-only, and no byte of it lies on a disk.
//! - A process of its own unmounts it and removes its folder once this one has ended, however.

mod delay;
mod files;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use forerun_core::device::Device;
use fuser::{BackgroundSession, Config, MountOption};

use delay::Delay;
use files::Files;
pub(super) use files::{LOG, NOTES, Shape, TABLE};

/// See the module.
pub(super) struct Volume {
    folder: PathBuf,
    session: Option<BackgroundSession>,
    unmounter: Child,
}

impl Volume {
    /// Mounts one of `shape` behind `device`.
    ///
    /// # Errors
    /// The system has no FUSE, or does not let this user mount.
    pub(super) fn mount(device: Device, shape: Shape) -> Result<Self> {
        let name = format!("forerun-demo-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::FSName("forerun-demo".into()),
        ];
        let files = Files::new(shape, Delay::start(device)?);
        let mounted = unmounter(&folder)
            .and_then(|unmounter| Ok((fuser::spawn_mount(files, &folder, &config)?, unmounter)));
        match mounted {
            Ok((session, unmounter)) => Ok(Self { folder, session: Some(session), unmounter }),
            Err(error) => {
                // The unmounter has removed it by now, or will.
                let _ = fs::remove_dir(&folder);
                Err(error)
            }
        }
    }

    /// The path of `file` in the folder `side`.
    pub(super) fn path(&self, side: &str, file: &str) -> PathBuf {
        self.folder.join(side).join(file)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        drop(self.unmounter.stdin.take());
        let _ = self.unmounter.wait();
        drop(self.session.take());
    }
}

/// The process that unmounts `folder` when its input ends. A program that was left on the volume
/// holds it until it is gone: the mount goes at once, and its files with their last user.
fn unmounter(folder: &Path) -> Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", UNMOUNTS]).arg(folder).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("cannot start sh, which is to unmount the volume")
}

const UNMOUNTS: &str = "
trap '' HUP INT QUIT TERM
read -r _
umount -l \"$0\" || fusermount3 -uz \"$0\" || fusermount -uz \"$0\"
rmdir \"$0\"";
