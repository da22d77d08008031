//! The emulated device under a real file system, for as long as a [`Bed`] lives.
//!
//! ```text
//!   compare -- stdin --> bed.sh: tmpfs, slowdisk, loop        stdin ends: unmounted, detached
//!     |  mounts ext4, sets the queue and the model
//! ```
//!
//! # Invariants
//! - The script has a process group of its own, so a signal from the terminal does not meet it; it
//!   ends with its input, so also when the bench is killed.
//! - Before each run caches are dropped and the model is at rest.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::device::Device;
use crate::forerun::output_of;

/// An emulated device, mounted for the lifetime of the value.
pub(crate) struct Bed {
    script: Child,
    folder: PathBuf,
    /// `/dev/loopN`.
    loop_device: String,
    mounted: Option<Folios>,
}

/// The largest unit of the kernel's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Folios {
    Large,
    Small,
}

impl Folios {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Large => "large folios",
            Self::Small => "small folios",
        }
    }

    fn mount_options(self) -> &'static str {
        match self {
            Self::Large => "ro,noatime",
            // The only mode of ext4 that has none; reads are the same otherwise.
            Self::Small => "ro,noatime,data=journal",
        }
    }
}

/// The missing requirements of an emulated device on this machine.
pub(crate) fn lacking() -> Option<String> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        return Some("root".to_owned());
    }
    let missing = |tool: &&&str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
        !found.is_ok_and(|found| found.status.success())
    };
    if let Some(tool) = ["bash", "cc", "losetup", "mkfs.ext4", "mountpoint"].iter().find(missing) {
        return Some((*tool).to_owned());
    }
    let absent = ["/dev/fuse", "/dev/loop-control"].iter().find(|path| !Path::new(path).exists());
    absent.map(|path| (*path).to_owned())
}

impl Bed {
    /// A device without delay with a file of `file_mib` and the files of the folder `contents`; or
    /// the missing requirements.
    pub(crate) fn up(
        root: &Path,
        target: &Path,
        forerun: &Path,
        file_mib: u32,
        contents: Option<&Path>,
    ) -> Result<Result<Self, String>> {
        if let Some(lacking) = lacking() {
            return Ok(Err(lacking));
        }
        let sources = root.join("lab/testbed");
        let folder = target.join(format!("bed-{}", std::process::id()));
        let slowdisk = target.join(format!("slowdisk-{}", std::process::id()));
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-o"]).arg(&slowdisk).arg(sources.join("slowdisk.c"));
        output_of(compiler.args(["-lm", "-lpthread"]))?;
        let mut script = Command::new("bash");
        script.arg(sources.join("bed.sh")).args([&slowdisk, forerun, &folder]);
        script.arg(file_mib.to_string()).args(contents).process_group(0);
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let answer = script.stdout.take().expect("it is piped");
        BufReader::new(answer).read_line(&mut line).context("bed.sh")?;
        // The server has it open.
        fs::remove_file(&slowdisk).context("slowdisk")?;
        let mut bed = Self { script, folder, loop_device: String::new(), mounted: None };
        match line.trim().split_once(' ') {
            Some(("ready", device)) => device.clone_into(&mut bed.loop_device),
            Some(("lacks", what)) => return Ok(Err(what.to_owned())),
            _ => anyhow::bail!("bed.sh did not come up"),
        }
        Ok(Ok(bed))
    }

    /// The path of the large file, mounted with `folios`.
    pub(crate) fn file(&mut self, folios: Folios) -> Result<PathBuf> {
        let ext = self.folder.join("ext");
        if self.mounted != Some(folios) {
            self.model("null")?;
            if self.mounted.take().is_some() {
                unmount(&ext)?;
            }
            let mut mount = Command::new("mount");
            output_of(mount.args(["-o", folios.mount_options(), &self.loop_device]).arg(&ext))?;
            self.mounted = Some(folios);
        }
        Ok(ext.join("data"))
    }

    /// The path of the device itself, past the kernel's cache.
    pub(crate) fn direct(&self) -> PathBuf {
        self.folder.join("mnt/disk")
    }

    /// The path of the folder of all files, mounted anew: nothing of them is in memory.
    pub(crate) fn fresh(&mut self, folios: Folios) -> Result<PathBuf> {
        let ext = self.folder.join("ext");
        if self.mounted.take().is_some() {
            unmount(&ext)?;
        }
        self.file(folios)?;
        Ok(ext)
    }

    /// Sets `device` for the next run, and drops all caches of the machine.
    pub(crate) fn cold(&self, device: &Device, read_ahead_kib: u32) -> Result<()> {
        output_of(&mut Command::new("sync"))?;
        put(Path::new("/proc/sys/vm/drop_caches"), "3")?;
        self.on(device, read_ahead_kib)
    }

    /// Sets `device` for the next run.
    pub(crate) fn on(&self, device: &Device, read_ahead_kib: u32) -> Result<()> {
        self.queue(
            "max_sectors_kb",
            if device.request_kib < 1_024 { device.request_kib } else { 1_280 },
        )?;
        self.queue("read_ahead_kb", read_ahead_kib)?;
        self.queue("rotational", u32::from(device.is_rotational))?;
        self.model(device.name)
    }

    /// Bytes read from the device since its model was set.
    pub(crate) fn bytes(&self) -> Result<u64> {
        self.count("bytes ")
    }

    /// Requests that the device was given since its model was set.
    pub(crate) fn requests(&self) -> Result<u64> {
        self.count("n ")
    }

    fn count(&self, name: &str) -> Result<u64> {
        let path = self.folder.join("mnt/ctl");
        // slowdisk answers the first read, which has to be long enough.
        let mut text = [0; 4096];
        let file = fs::File::open(&path).and_then(|mut file| file.read(&mut text));
        let count = file.with_context(|| path.display().to_string())?;
        let text = String::from_utf8_lossy(&text[..count]);
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.context("slowdisk does not count it")?.trim().parse().context("a count of slowdisk")
    }

    /// A memory cgroup, where the system has them; it holds `mib` from now on.
    pub(crate) fn memory(&self, mib: u32) -> Result<Option<PathBuf>> {
        let name = self.folder.file_name().expect("it was made of a name");
        let group = Path::new("/sys/fs/cgroup/memory").join(name);
        if !group.is_dir() {
            return Ok(None);
        }
        put(&group.join("memory.limit_in_bytes"), &(u64::from(mib) << 20).to_string())?;
        Ok(Some(group.join("cgroup.procs")))
    }

    /// Requests of the device are written to `path` from now on, or no more.
    pub(crate) fn log(&self, path: Option<&Path>) -> Result<()> {
        let path = path.map_or("off".into(), |path| path.display().to_string());
        put(&self.folder.join("mnt/ctl"), &format!("log {path}"))
    }

    fn model(&self, name: &str) -> Result<()> {
        put(&self.folder.join("mnt/ctl"), &format!("model={name} reset"))
    }

    fn queue(&self, name: &str, value: u32) -> Result<()> {
        let device = self.loop_device.trim_start_matches("/dev/");
        let folder = Path::new("/sys/block").join(device).join("queue");
        put(&folder.join(name), &value.to_string())
    }
}

/// Unmounts `folder`. A process that was killed while it waited for the device holds a file until
/// its request is answered: that is tried for [`BUSY_MAX`].
fn unmount(folder: &Path) -> Result<()> {
    let mut tries = BUSY_MAX.as_millis() / BUSY_PAUSE.as_millis();
    loop {
        let done = output_of(Command::new("umount").arg(folder));
        if done.is_ok() || tries == 0 {
            return done.map(drop);
        }
        tries -= 1;
        thread::sleep(BUSY_PAUSE);
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        // The script has printed the reason of a failure.
        let _ = self.script.wait();
    }
}

fn put(path: &Path, text: &str) -> Result<()> {
    ensure!(path.exists(), "{} is missing", path.display());
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Requests of the slowest model are answered within that.
const BUSY_MAX: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(20);
