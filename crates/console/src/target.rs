//! The target of reads: a device model over the pattern, or a file.
//!
//! # Invariants
//! - Each run gets a store of its own, as cold as possible: a model at rest, or a file after advice
//!   to the kernel to drop its pages.
//! - A file that changes between the first open and the last check is an error, not a figure.

use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use forerun_core::device::{self, Device};
use forerun_core::params;
use forerun_io::files::{Backend, Files, FilesSettings};
use forerun_io::store::file::Access;
use forerun_io::store::pattern::Pattern;
use forerun_io::store::{Store, Version};
use forerun_io::wrap::latency::Latency;
use rustix::fs::{Advice, fadvise};

use crate::failure::usage;
use crate::profile::place::Place;
use crate::specs;

/// See the module.
pub enum Target {
    /// A device model over the pattern.
    Model {
        /// Its specification.
        spec: String,
        /// Of its draws.
        seed: u64,
    },
    /// A file.
    File(Checked),
}

/// A file, and its first state.
pub struct Checked {
    path: PathBuf,
    version: Version,
    /// The opener of the file.
    files: Files,
    access: Access,
}

/// A store for one run.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The model in front of it, which keeps its own log.
    pub model: Option<Arc<Latency>>,
}

impl Target {
    /// The device model `spec`.
    pub fn model(spec: &str, seed: u64) -> Result<Self> {
        specs::device(spec, seed)?;
        Ok(Self::Model { spec: spec.to_owned(), seed })
    }

    /// The file at `path`, which has something to read.
    pub fn file(path: PathBuf, backend: Backend) -> Result<Self> {
        Self::file_for(path, backend, Access::Read)
    }

    /// As [`Target::file`], for writes too where `access` says so.
    pub fn file_for(path: PathBuf, backend: Backend, access: Access) -> Result<Self> {
        let files = Files::new(FilesSettings { backend, ..FilesSettings::default() });
        let files = files.map_err(|error| usage(format!("--io: {error}")))?;
        let store = files.open(&path, access)?;
        let version = store.version()?;
        if version.bytes == 0 {
            return Err(usage(format!("{} is empty: there is nothing to read", path.display())));
        }
        Ok(Self::File(Checked { path, version, files, access }))
    }

    /// The readable bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Model { .. } => self.device().map_or(0, |device| device.capacity_bytes()),
            Self::File(file) => file.version.bytes,
        }
    }

    /// A device at rest, if this is a model.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        let Self::Model { spec, seed } = self else { return None };
        Some(device::make(spec, *seed).expect("checked when it was named"))
    }

    /// Its name in reports, without the drive's cache, which reports show apart.
    #[must_use]
    pub fn name(&self) -> String {
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
    pub fn place(&self) -> Result<Place> {
        match self {
            Self::Model { spec, .. } => Ok(Place::model(spec)),
            Self::File(file) => Place::of(&file.path),
        }
    }

    /// The largest request to its store, as an engine makes them.
    #[must_use]
    pub fn request_bytes_max(&self) -> u32 {
        let device_max = self.device().map_or(u64::MAX, |device| device.request_bytes_max());
        let request_bytes_max = u32::try_from(device_max).unwrap_or(u32::MAX);
        request_bytes_max.clamp(PAGE_BYTES, REQUEST_BYTES_MAX)
    }

    /// A cold store for reads of a file of `bytes`.
    pub fn open(&self, bytes: u64) -> Result<Opened> {
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
                let store = file.files.open(&file.path, file.access)?;
                file.require_same(&*store)?;
                Ok(Opened { store, model: None })
            }
        }
    }
}

impl Checked {
    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its first state.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.version.bytes
    }

    /// Plain reads of the same bytes.
    pub fn plainly(&self) -> Result<File> {
        File::open(&self.path).with_context(|| format!("cannot open {}", self.path.display()))
    }

    /// The error of a changed file; it proposes a remedy.
    #[must_use]
    pub fn changed(&self, what: &str) -> anyhow::Error {
        changed(&self.path.display().to_string(), what)
    }

    /// Refuses a changed file.
    pub fn require_unchanged(&self) -> Result<()> {
        self.require_same(&*self.files.open(&self.path, Access::Read)?)
    }

    fn require_same(&self, store: &dyn Store) -> Result<()> {
        let version = store.version()?;
        if version.bytes < self.version.bytes {
            let text = format!("it shrank from {} to {} bytes", self.version.bytes, version.bytes);
            return Err(self.changed(&text));
        }
        if version != self.version {
            return Err(self.changed("it changed while it was read"));
        }
        Ok(())
    }

    /// Advises the kernel to drop the file's pages, so that the device is measured.
    pub fn forget(&self) -> Result<()> {
        let Some(whole) = NonZeroU64::new(self.version.bytes) else { bail!("an empty file") };
        forget(&self.plainly()?, whole);
        Ok(())
    }
}

/// The error of a changed file called `name`; it proposes a remedy.
#[must_use]
pub fn changed(name: &str, what: &str) -> anyhow::Error {
    anyhow!("{name}: {what}; measure a file that nobody changes")
}

/// Advises the kernel to drop the first `whole` bytes of `file`.
pub fn forget(file: &File, whole: NonZeroU64) {
    // Dirty pages stay: without the right to sync, the kernel's cache is measured.
    let _ = file.sync_data();
    // Only advice: where it is refused, the file is in memory, and so is the figure.
    let _ = fadvise(file, 0, Some(whole), Advice::DontNeed);
}

const PAGE_BYTES: u32 = specs::PAGE_BYTES;
/// The engine's default.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
