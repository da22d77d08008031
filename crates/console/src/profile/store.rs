//! Profiles of devices in a file: TOML, a table a device.
//!
//! ```text
//!   ["259:0, Example NVMe, ext4, linux 6.18.5"]
//!   kind = "parallel"
//!   access_us = 84.2
//!   mb_per_second = 3120.5                      10^6 bytes
//!   ...
//!   [["259:0, ...".classes]]                    a table a class of reads
//!   ["259:0, ...".latency]                      if it was measured on an idle machine
//!   [["259:0, ...".latency.waits]]              a table a size and way of waiting
//!   [["259:0, ...".latency.sleeps]]             a table a length
//! ```
//!
//! # Invariants
//! - Latencies that were not measured anew stay as they were.
//! - What is written is read back as the same facts, to the nanosecond and the byte.
//! - Another file is an error with its position; it is not overwritten.
//! - A command locks the file from reading to writing it: two commands lose no table.

mod latency;
mod lock;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use forerun_core::device::DeviceKind;
use forerun_core::device::estimate::{DeviceProfile, Evidence};
use forerun_core::units::Nanos;
use forerun_report::quantity::{self, float};
use serde::{Deserialize, Serialize};

use super::latency::Latencies;
use super::measure::{ClassRates, Order};
use super::place::Place;
use crate::output;
use latency::Latency;

/// All profiles of a file, by the names of their places.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Profiles(BTreeMap<String, Profile>);

/// One device's.
#[derive(Debug, Serialize, Deserialize)]
pub struct Profile {
    device: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    file_system: String,
    kernel: String,
    kind: String,
    access_us: f64,
    mb_per_second: f64,
    depth: u32,
    request_bytes: u32,
    /// Facts without evidence.
    assumed: Vec<String>,
    classes: Vec<Row>,
    /// Unknown in older files, and where the machine was busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
}

/// The entry of a file for a place.
pub enum Lookup {
    /// Its facts, and the names of those without evidence.
    Here(DeviceProfile, Vec<String>),
    /// That of this device under another kernel.
    OtherKernel(String),
    /// No profile of this device.
    Nothing,
}

/// A class of reads.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    reads: String,
    bytes: u32,
    depth: u32,
    requests: u64,
    mb_per_second: f64,
    latency_mean_us: f64,
    latency_stdev_us: f64,
}

impl Profiles {
    /// The profiles in `path`; none if there is no such file.
    ///
    /// # Errors
    /// It cannot be read, or holds something else.
    pub fn load(path: &Path) -> Result<Self> {
        let name = path.display();
        let unread = || format!("cannot read {name}");
        let file = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(unread),
            Ok(found) if !found.is_file() => bail!("{name} is no regular file: name another"),
            Ok(_) => File::open(path).with_context(unread)?,
        };
        let mut text = String::new();
        file.take(BYTES_MAX + 1).read_to_string(&mut text).with_context(unread)?;
        if text.len() as u64 > BYTES_MAX {
            bail!("{name} has more than {}, which profiles never have", quantity::bytes(BYTES_MAX));
        }
        Self::parse(&text).with_context(|| format!("{name} holds no profiles: name another file"))
    }

    /// The profiles that `path` keeps when one is added; none for a pipe or a terminal.
    ///
    /// # Errors
    /// As [`Profiles::load`].
    pub fn to_add_to(path: &Path) -> Result<Self> {
        if output::is_written_in_place(path) { Ok(Self::default()) } else { Self::load(path) }
    }

    /// Applies `change` to the profiles in `path`, and writes them back.
    ///
    /// # Errors
    /// It cannot be read or written, holds something else, or is not free for long.
    pub fn update<R>(path: &Path, change: impl FnOnce(&mut Self) -> R) -> Result<R> {
        let _held =
            if output::is_written_in_place(path) { None } else { lock::take(path, lock::WAIT)? };
        let mut profiles = Self::to_add_to(path)?;
        let done = change(&mut profiles);
        output::file(path, profiles.text()?.as_bytes())?;
        Ok(done)
    }

    /// Bytes a second of small random reads on the device of `place`: at the best of the measured
    /// depths, and one by one.
    #[must_use]
    pub fn small(&self, place: &Place) -> Option<[f64; 2]> {
        let rows = &self.0.get(&place.key())?.classes;
        let random = || rows.iter().filter(|row| row.reads == Order::Random.name());
        let bytes = random().map(|row| row.bytes).min()?;
        let small = || random().filter(|row| row.bytes == bytes);
        let alone = small().find(|row| row.depth == 1)?.mb_per_second * 1e6;
        let best = small().map(|row| row.mb_per_second * 1e6).fold(alone, f64::max);
        Some([best, alone])
    }

    /// The profiles in `text`.
    ///
    /// # Errors
    /// It is not TOML, or not of this form.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| anyhow!("{}", error.to_string().trim_end()))
    }

    /// As a file has them.
    ///
    /// # Errors
    /// None is known.
    pub fn text(&self) -> Result<String> {
        toml::to_string(self).context("cannot write TOML")
    }

    /// Adds `profile`, or replaces the one before, keeping its latencies where `profile` has none;
    /// returns whether they are kept.
    pub fn insert(&mut self, place: &Place, mut profile: Profile) -> bool {
        let former = self.0.remove(&place.key()).and_then(|former| former.latency);
        let is_kept = profile.latency.is_none() && former.is_some();
        profile.latency = profile.latency.or(former);
        self.0.insert(place.key(), profile);
        is_kept
    }

    /// The entry for `place`.
    ///
    /// # Errors
    /// Its facts cannot be.
    pub fn find(&self, place: &Place) -> Result<Lookup> {
        if let (Some(facts), Some(profile)) = (self.facts(place), self.0.get(&place.key())) {
            return Ok(Lookup::Here(facts?, profile.assumed.clone()));
        }
        let other = self.0.values().find(|profile| profile.is_of(place));
        Ok(other.map_or(Lookup::Nothing, |profile| Lookup::OtherKernel(profile.kernel.clone())))
    }

    /// The facts of `place`, if it is here.
    ///
    /// # Errors
    /// They cannot be.
    #[must_use]
    pub fn facts(&self, place: &Place) -> Option<Result<DeviceProfile>> {
        let key = place.key();
        let profile = self.0.get(&key)?;
        Some(profile.facts().with_context(|| format!("the profile of {key}")))
    }
}

impl Profile {
    /// The measurements at `place`.
    pub fn new(
        place: &Place,
        facts: DeviceProfile,
        known: Evidence,
        rates: &[ClassRates],
        latencies: Option<&Latencies>,
    ) -> Self {
        let all = [("kind", known.kind), ("access", known.access), ("mb_per_second", known.rate)];
        let assumed = all.into_iter().filter(|(_, known)| !known).map(|(name, _)| name.to_owned());
        Self {
            device: place.device.clone(),
            model: place.model.clone(),
            file_system: place.file_system.clone(),
            kernel: place.kernel.clone(),
            kind: super::kind(facts.kind).to_owned(),
            access_us: scaled(facts.access.0, 1e3),
            mb_per_second: scaled(facts.bytes_per_second, 1e6),
            depth: facts.depth,
            request_bytes: facts.request_bytes,
            assumed: assumed.collect(),
            classes: rates.iter().map(Row::new).collect(),
            latency: latencies.map(Latency::new),
        }
    }

    /// Whether it is of this device, under whichever kernel.
    fn is_of(&self, place: &Place) -> bool {
        let own = (&self.device, &self.model, &self.file_system);
        own == (&place.device, &place.model, &place.file_system)
    }

    /// Its facts.
    ///
    /// # Errors
    /// There can be no such device.
    fn facts(&self) -> Result<DeviceProfile> {
        let kinds = [DeviceKind::SeekBound, DeviceKind::Parallel];
        let Some(kind) = kinds.into_iter().find(|&kind| super::kind(kind) == self.kind) else {
            bail!("kind = \"{}\": expected positional or parallel", self.kind);
        };
        let access = whole(self.access_us, 1e3);
        let access = access.context("access_us: expected microseconds, from 0")?;
        let rate = whole(self.mb_per_second, 1e6).filter(|&rate| rate > 0);
        let bytes_per_second = rate.context("mb_per_second: expected a rate above 0")?;
        if self.depth == 0 || self.request_bytes == 0 {
            bail!("depth and request_bytes: expected numbers from 1");
        }
        let (depth, request_bytes) = (self.depth, self.request_bytes);
        Ok(DeviceProfile { kind, access: Nanos(access), bytes_per_second, depth, request_bytes })
    }
}

impl Row {
    fn new(rates: &ClassRates) -> Self {
        Self {
            reads: rates.class.order.name().to_owned(),
            bytes: rates.class.bytes,
            depth: rates.class.depth,
            requests: rates.requests,
            mb_per_second: scaled(rates.bytes_per_second, 1e6),
            latency_mean_us: scaled(rates.latency_mean.0, 1e3),
            latency_stdev_us: scaled(rates.latency_stdev.0, 1e3),
        }
    }
}

fn scaled(count: u64, scale: f64) -> f64 {
    float(count) / scale
}

/// The count that [`scaled`] made `value` of, if there is one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds")]
fn whole(value: f64, scale: f64) -> Option<u64> {
    let count = (value * scale).round();
    (0.0..COUNT_MAX).contains(&count).then_some(count as u64)
}

/// Every count below has its own `f64`.
const COUNT_MAX: f64 = 9e15;
/// Of a file: more than thousands of profiles have.
const BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests;
