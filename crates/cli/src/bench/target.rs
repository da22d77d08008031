//! What is read from: a device model over the pattern, or a file.
//!
//! # Invariants
//! - Each run gets a store of its own, as cold as can be had: a model at rest, a file whose pages
//!   the kernel was asked to forget.
//! - A file that changes between the first open and the last check is an error, not a figure.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use forerun_core::device::{self, Device};
use forerun_core::params;
use forerun_engine::{Cache, Handle, ReadError, Settings};
use forerun_io::files::{Backend, Files, FilesSettings};
use forerun_io::store::file::Access;
use forerun_io::store::pattern::Pattern;
use forerun_io::store::{Store, Version};
use forerun_io::wrap::latency::Latency;
use rustix::fs::{Advice, fadvise};

use super::pattern_file;
use super::verify::Against;
use crate::failure::usage;
use crate::profile::place::Place;
use crate::{sim, specs};

/// See the module.
pub(crate) enum Target {
    Model { spec: String, seed: u64 },
    File(Checked),
}

/// A file, and what it was at first.
pub(crate) struct Checked {
    path: PathBuf,
    version: Version,
    /// What opens it.
    files: Files,
}

/// A store for one run.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// The model in front of it, which keeps its own log.
    pub(super) model: Option<Arc<Latency>>,
}

impl Target {
    /// The device model `spec`.
    pub(crate) fn model(spec: &str, seed: u64) -> Result<Self> {
        specs::device(spec, seed)?;
        Ok(Self::Model { spec: spec.to_owned(), seed })
    }

    /// The file at `path`, which has something to read.
    pub(crate) fn file(path: PathBuf, backend: Backend) -> Result<Self> {
        let files = Files::new(FilesSettings { backend, ..FilesSettings::default() });
        let files = files.map_err(|error| usage(format!("--io: {error}")))?;
        let store = files.open(&path, Access::Read)?;
        let version = store.version()?;
        if version.bytes == 0 {
            return Err(usage(format!("{} is empty: there is nothing to read", path.display())));
        }
        Ok(Self::File(Checked { path, version, files }))
    }

    /// What there is to read.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Model { .. } => self.device().map_or(0, |device| device.capacity_bytes()),
            Self::File(file) => file.version.bytes,
        }
    }

    /// A device at rest, if this is a model.
    pub(crate) fn device(&self) -> Option<Device> {
        let Self::Model { spec, seed } = self else { return None };
        Some(device::make(spec, *seed).expect("checked when it was named"))
    }

    /// Its name in reports, without what they tell by itself: the drive's cache.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Model { spec, .. } => {
                let (name, pairs) = params::split(spec);
                let pairs: Vec<&str> =
                    pairs.split(',').filter(|pair| !pair.starts_with("cache=")).collect();
                format!("{name}:{}", pairs.join(",")).trim_end_matches(':').to_owned()
            }
            Self::File(file) => file.path.display().to_string(),
        }
    }

    /// Where it is, as profiles name it.
    pub(crate) fn place(&self) -> Result<Place> {
        match self {
            Self::Model { spec, .. } => Ok(Place::model(spec)),
            Self::File(file) => Place::of(&file.path),
        }
    }

    /// A cache for it.
    pub(crate) fn settings(&self, cache_bytes: u64) -> Settings {
        let default = Settings::default();
        let device_max = self.device().map_or(u64::MAX, |device| device.request_bytes_max());
        let request_bytes_max = u32::try_from(device_max).unwrap_or(u32::MAX);
        // No kernel is in front of the model: what a disk without a queue is given, it serves in
        // that order, so a demand would wait for all readahead before it.
        let queues = self.device().is_none_or(|device| sim::queues_commands(&device));
        let (least, most) = (default.background_depth, default.background_depth_max);
        Settings {
            cache_bytes,
            background_depth: if queues { least } else { 1 },
            background_depth_max: if queues { most } else { 1 },
            request_bytes_max: request_bytes_max
                .clamp(default.page_bytes, default.request_bytes_max),
            ..default
        }
    }

    /// What its bytes are compared with. A file is looked at, and not cold any more.
    pub(super) fn against(&self) -> Result<Against> {
        match self {
            Self::Model { .. } => Ok(Against::Pattern),
            Self::File(file) => file.against(),
        }
    }

    /// A cold store for reads of a file of `bytes`.
    pub(crate) fn open(&self, bytes: u64) -> Result<Opened> {
        match self {
            Self::Model { .. } => {
                let device = self.device().expect("it is a model");
                assert!(bytes <= device.capacity_bytes(), "the reads were fitted to the device");
                let model = Arc::new(Latency::new(Arc::new(Pattern::new(bytes)), device));
                let store: Arc<dyn Store> = Arc::clone(&model) as Arc<dyn Store>;
                Ok(Opened { store, model: Some(model) })
            }
            Self::File(file) => {
                file.forget()?;
                let store = file.files.open(&file.path, Access::Read)?;
                file.require_same(&*store)?;
                Ok(Opened { store, model: None })
            }
        }
    }
}

impl Checked {
    /// The file as `cache` opens files by itself, as cold as can be had.
    pub(super) fn opened_cold(&self, cache: &Cache) -> Result<Handle> {
        self.forget()?;
        self.require_unchanged()?;
        Ok(cache.open(&self.path)?)
    }

    /// What its bytes are compared with: the pattern, where it looks like a file of it.
    pub(super) fn against(&self) -> Result<Against> {
        let file = self.plainly()?;
        // No readahead of these few looks may be under way when the file is to be cold.
        let _ = fadvise(&file, 0, None, Advice::Random);
        let is_pattern = pattern_file::is_pattern(&file, self.version.bytes);
        Ok(if is_pattern { Against::Pattern } else { Against::Later })
    }

    /// A plain way to the same bytes.
    pub(super) fn plainly(&self) -> Result<File> {
        File::open(&self.path).with_context(|| format!("cannot open {}", self.path.display()))
    }

    /// An error that names the file and, unless the system is the reason, says how to come to a
    /// figure.
    pub(super) fn failed(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        let (path, error) = (self.path.display(), error.into());
        if error.chain().any(is_of_the_system) {
            return error.context(path.to_string());
        }
        anyhow!("{path}: {error:#}; measure a file that nobody changes")
    }

    /// Refuses a file that is not what it was.
    pub(super) fn require_unchanged(&self) -> Result<()> {
        self.require_same(&*self.files.open(&self.path, Access::Read)?)
    }

    fn require_same(&self, store: &dyn Store) -> Result<()> {
        let version = store.version()?;
        if version.bytes < self.version.bytes {
            let text = format!("it shrank from {} to {} bytes", self.version.bytes, version.bytes);
            return Err(self.failed(anyhow!(text)));
        }
        if version != self.version {
            return Err(self.failed(anyhow!("it changed while it was read")));
        }
        Ok(())
    }

    /// Asks the kernel to forget the file's pages, so that the device is measured.
    pub(super) fn forget(&self) -> Result<()> {
        let Some(whole) = NonZeroU64::new(self.version.bytes) else { bail!("an empty file") };
        forget(&self.plainly()?, whole);
        Ok(())
    }
}

/// Asks the kernel to forget the first `whole` bytes of `file`.
pub(super) fn forget(file: &File, whole: NonZeroU64) {
    // Dirty pages stay; whoever may not sync measures what the kernel holds.
    let _ = file.sync_data();
    // Only advice: where it is refused, the file is in memory, and so is the figure.
    let _ = fadvise(file, 0, Some(whole), Advice::DontNeed);
}

/// Whether the reason is another than a change of the file.
fn is_of_the_system(cause: &(dyn std::error::Error + 'static)) -> bool {
    let read = cause.downcast_ref::<ReadError>();
    let changed =
        |error: &ReadError| matches!(error, ReadError::Changed | ReadError::Shrunk { .. });
    cause.is::<io::Error>() || read.is_some_and(|error| !changed(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_change_explains_asks_for_a_file_that_nobody_changes() {
        let path = std::env::current_exe().expect("a test is a file");
        let Ok(Target::File(file)) = Target::file(path, Backend::Threads) else {
            panic!("it can be read")
        };
        #[rustfmt::skip]
        let rows = [
            ("a change",       ReadError::Changed.into(),                             true),
            ("shorter",        ReadError::Shrunk { file_bytes: 1 }.into(),            true),
            ("other bytes",    anyhow!("the bytes are others"),                       true),
            ("a broken disk",  ReadError::Store { offset: 0, errno: 5 }.into(),       false),
            ("no thread",      anyhow::Error::from(io::Error::from_raw_os_error(11)), false),
        ];
        for (why, error, expected) in rows {
            let told = format!("{:#}", file.failed(error));
            assert_eq!(told.ends_with("; measure a file that nobody changes"), expected, "{why}");
            assert!(told.starts_with('/'), "{why}: {told}");
        }
    }
}
