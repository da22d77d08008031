//! The target of `bench reap` and `profile`: a file by rings or threads, or a model in real time.
//!
//! # Invariants
//! - Each thread has a port of its own to the same file or model.
//! - A file is read past the page cache, or refused; the kernel has dropped its cached pages.

use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use forerun_core::device::{DeviceServer, channel_model};
use forerun_io::files::{Backend, Files, FilesSettings};
use forerun_io::reaper::model::{Lateness, Model, ModelCompletion};
use forerun_io::reaper::{Port, Reaper, ReaperSettings};
use forerun_io::store::file::Access;
use forerun_report::quantity;
use forerun_report::quantity::float;
use forerun_steer::kernel::{self, Residency};
use serde::Serialize;

use crate::failure::usage;
use crate::names;
use crate::profile::place::Place;
use crate::target;

/// See the module.
pub struct ReapTarget {
    source: Source,
    name: String,
    bytes: u64,
    io: String,
}

enum Source {
    Model(Model),
    File { path: PathBuf, files: Files, unpolled: Option<String> },
}

/// The accuracy of a model's times.
#[derive(Clone, Copy, Serialize)]
pub struct Truth {
    reads: u64,
    /// By which a read was completed after its moment, in the mean.
    late_us: f64,
    wakes: u64,
    /// Of the device's thread, for a wake-up: in `cpu_us_per_io`, as a handler's time.
    wake_us: f64,
}

impl ReapTarget {
    /// The model of this name.
    pub fn model(name: &str, seed: u64) -> Result<Self> {
        let device = channel_model(name);
        let device = device.map_err(|error| names::refused("--device", &error, LISTER))?;
        let mut server = DeviceServer::new(device, seed);
        let model = Model::new(Box::new(move |now, read| ModelCompletion {
            at: server.serve(now, read.bytes as u64),
            fails: None,
        }));
        Ok(Self::of_model(device.name, model))
    }

    /// A model that was made already.
    #[must_use]
    pub fn of_model(name: &'static str, model: Model) -> Self {
        let (name, io) = (name.to_owned(), "a model".to_owned());
        Self { source: Source::Model(model), name, bytes: MODEL_BYTES, io }
    }

    /// The file at `path`.
    pub fn file(path: PathBuf, backend: Backend) -> Result<Self> {
        let name = path.display().to_string();
        let files = FilesSettings { backend, ..FilesSettings::default() };
        let files = Files::new(files).map_err(|error| usage(format!("--io: {error}")))?;
        let bytes = files.open(&path, Access::Read)?.bytes()?;
        if !Place::of(&path)?.is_direct {
            bail!("{name} cannot be read past the page cache: name a file of another file system");
        }
        if bytes < BYTES_MIN {
            bail!("{name} has {bytes} bytes: name a file of {BYTES_MIN} or more");
        }
        forget(&path, bytes)?;
        let unpolled = files.polled_port(&path, 1)?.err();
        let io = files.chosen().to_string();
        Ok(Self { source: Source::File { path, files, unpolled }, name, bytes, io })
    }

    /// A reaper of this thread for groups of `room`, with a port of its own, and one without
    /// interrupts where there is.
    pub fn reaper(&self, room: u32, settings: &ReaperSettings) -> Result<Reaper> {
        let (port, polled): (Box<dyn Port>, _) = match &self.source {
            Source::Model(model) => (model.port(room), None),
            Source::File { path, files, unpolled: None } => {
                (files.port(path, room)?, files.polled_port(path, room)?.ok())
            }
            Source::File { path, files, unpolled: Some(_) } => (files.port(path, room)?, None),
        };
        if port.capacity() < room as usize {
            let (name, least) = (port.name(), port.capacity());
            return Err(usage(format!("--group: {name} takes {least} reads at once here")));
        }
        let reaper = Reaper::new(port, settings).map_err(|error| anyhow!("{error}"))?;
        Ok(reaper.with_polled(polled))
    }

    /// Bytes that there are to read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Whether it is a model.
    #[must_use]
    pub fn is_model(&self) -> bool {
        matches!(self.source, Source::Model(_))
    }

    /// The interface of the system, with what was refused.
    #[must_use]
    pub fn io(&self) -> &str {
        &self.io
    }

    /// The reason why polling sees completions of interrupts, where it does.
    #[must_use]
    pub fn unpolled(&self) -> Option<String> {
        let Source::File { unpolled: Some(why), .. } = &self.source else { return None };
        Some(format!("looking is for completions that an interrupt brings: {why}"))
    }

    /// The lateness of the model so far; none for a file.
    #[must_use]
    pub fn model_lateness(&self) -> Option<Lateness> {
        match &self.source {
            Source::Model(model) => Some(model.lateness()),
            Source::File { .. } => None,
        }
    }

    /// The accuracy of the model; none for a file.
    #[must_use]
    pub fn lateness(&self) -> Option<Truth> {
        let Lateness { reads, late, wakes, waking } = self.model_lateness()?;
        let mean = |sum, count: u64| quantity::seconds(sum) * 1e6 / float(count.max(1));
        Some(Truth { reads, late_us: mean(late, reads), wakes, wake_us: mean(waking, wakes) })
    }
}

/// Drops the `bytes` of the file at `path` from the kernel's page cache.
fn forget(path: &Path, bytes: u64) -> Result<()> {
    let file = File::open(path)?;
    target::forget(&file, NonZeroU64::new(bytes).expect("it has the least size"));
    if let Ok(Residency::Pages(held)) = kernel::cached(&file, &(0..bytes))
        && held > bytes / PAGE_BYTES / HELD_ONE_IN
    {
        let name = path.display();
        bail!("{held} pages of {name} stay in the kernel's page cache: does somebody map it?");
    }
    Ok(())
}

impl Truth {
    /// The same as a sentence, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { reads, late_us, wakes, wake_us } = self;
        format!(
            "the model completed {reads} reads, {late_us:.2} us late in the mean; {wakes} wake-ups \
             of {wake_us:.1} us on its own thread, counted with cpu us/IO"
        )
    }
}

/// Names the models of this kind.
const LISTER: &str = names::lab("forerun sim reap --help");
/// Less would be read again and again, out of the drive's own memory.
const BYTES_MIN: u64 = 16 << 20;
/// A model has no end.
const MODEL_BYTES: u64 = 1 << 40;
const PAGE_BYTES: u64 = 4096;
/// One page in so many may stay in the kernel's page cache.
const HELD_ONE_IN: u64 = 1000;
