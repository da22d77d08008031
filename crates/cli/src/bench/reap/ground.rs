//! What `bench reap` reads: a file by rings, linux-aio or threads, or a model in real time.
//!
//! # Invariants
//! - Each thread has a port of its own to the same file or model.
//! - A file is read past the page cache, or refused.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use forerun_io::files::{Files, FilesSettings};
use forerun_io::reaper::model::{Lateness, Model, Served};
use forerun_io::reaper::{Port, Reaper, ReaperSettings};
use forerun_io::store::file::Access;
use forerun_sim::reap::Station;
use serde::Serialize;

use super::super::Io;
use crate::failure::{note, usage};
use crate::machine;
use crate::profile::place::Place;

/// See the module.
pub(super) enum Ground {
    Model { name: &'static str, model: Model },
    File { path: PathBuf, files: Files, bytes: u64, io: String, polled: bool },
}

/// How true a model was, as it is told.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Truth {
    reads: u64,
    /// By which a read was completed after its moment, in the mean.
    late_us: f64,
    wakes: u64,
    /// Of the device's thread, for a wake-up: in `cpu_us_per_io`, as a handler's time.
    wake_us: f64,
}

impl Ground {
    /// The model of this name.
    pub(super) fn model(name: &str, seed: u64) -> Result<Self> {
        let device = forerun_sim::reap::device(name);
        let device = device.map_err(|error| usage(format!("--device: {error}")))?;
        let mut station = Station::new(device, seed);
        let model = Model::new(Box::new(move |now, read| Served {
            at: station.serve(now, read.bytes as u64),
            fails: None,
        }));
        Ok(Self::Model { name: device.name, model })
    }

    /// The file at `path`.
    pub(super) fn file(path: PathBuf, io: Io) -> Result<Self> {
        let name = path.display();
        let files = FilesSettings { backend: io.backend(), ..FilesSettings::default() };
        let files = Files::new(files).map_err(|error| usage(format!("--io: {error}")))?;
        let bytes = files.open(&path, Access::Read)?.bytes()?;
        if !Place::of(&path)?.is_direct {
            bail!("{name} cannot be read past the page cache: name a file of another file system");
        }
        if bytes < BYTES_MIN {
            bail!("{name} has {bytes} bytes: name a file of {BYTES_MIN} or more");
        }
        let polled = match files.polled_port(&path, 1)? {
            Ok(_) => true,
            Err(why) => {
                note(&format!("looking is for completions that an interrupt brings: {why}"));
                false
            }
        };
        let io = files.chosen().to_string();
        Ok(Self::File { path, files, bytes, io, polled })
    }

    /// A reaper of this thread for groups of `room`, with a port of its own, and one without
    /// interrupts where there is.
    pub(super) fn reaper(&self, room: u32, settings: &ReaperSettings) -> Result<Reaper> {
        let (port, polled): (Box<dyn Port>, _) = match self {
            Self::Model { model, .. } => (model.port(room), None),
            Self::File { path, files, polled, .. } => {
                let polled = if *polled { files.polled_port(path, room)?.ok() } else { None };
                (files.port(path, room)?, polled)
            }
        };
        if port.room() < room as usize {
            let (name, least) = (port.name(), port.room());
            return Err(usage(format!("--group: {name} takes {least} reads at once here")));
        }
        let reaper = Reaper::new(port, settings).map_err(|error| anyhow!("{error}"))?;
        Ok(reaper.with_polled(polled))
    }

    /// Bytes that there are to read.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Model { .. } => MODEL_BYTES,
            Self::File { bytes, .. } => *bytes,
        }
    }

    /// Its name in reports.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Model { name, .. } => (*name).to_owned(),
            Self::File { path, .. } => path.display().to_string(),
        }
    }

    pub(super) fn is_model(&self) -> bool {
        matches!(self, Self::Model { .. })
    }

    /// The interface of the system, with what was refused.
    pub(super) fn io(&self) -> &str {
        match self {
            Self::Model { .. } => "a model",
            Self::File { io, .. } => io,
        }
    }

    /// What the model did so far; nothing of a file.
    pub(super) fn model_lateness(&self) -> Option<Lateness> {
        match self {
            Self::Model { model, .. } => Some(model.lateness()),
            Self::File { .. } => None,
        }
    }

    /// How true the model was, if this is one.
    pub(super) fn lateness(&self) -> Option<Truth> {
        let Lateness { reads, late, wakes, waking } = self.model_lateness()?;
        let mean = |sum, count: u64| machine::seconds(sum) * 1e6 / float(count.max(1));
        Some(Truth { reads, late_us: mean(late, reads), wakes, wake_us: mean(waking, wakes) })
    }
}

impl Truth {
    pub(super) fn told(&self) -> String {
        let Self { reads, late_us, wakes, wake_us } = self;
        format!(
            "the model completed {reads} reads, {late_us:.2} us late in the mean; {wakes} wake-ups \
             of {wake_us:.1} us on its own thread, counted with cpu us/IO"
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn float(count: u64) -> f64 {
    count as f64
}

/// Less would be read again and again, out of the drive's own memory.
const BYTES_MIN: u64 = 16 << 20;
/// A model has no end.
const MODEL_BYTES: u64 = 1 << 40;
