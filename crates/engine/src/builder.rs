//! A builder of caches: the settings that most programs choose, by name.
//!
//! # Invariants
//! - A builder only fills in [`Settings`]; `build` refuses settings that cannot work.

use std::path::Path;

use forerun_core::{cache::Sizing, device::estimate::DeviceProfile};
use forerun_io::{
    devices::{DeviceKey, DeviceStore},
    files::Backend,
};

use crate::{
    cache::Cache, error::BuildError, handle::Handle, journal::Recorder, owner::DeviceMemory,
    partitions::Partition, settings::Settings,
};

/// See [`Cache::builder`].
#[must_use]
#[derive(Default)]
pub struct Builder {
    settings: Settings,
    recorder: Option<Box<dyn Recorder>>,
    memory: Option<DeviceMemory>,
}

impl Cache {
    /// A builder with the default settings.
    ///
    /// ```
    /// use forerun_engine::Cache;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::current_exe()?;
    /// let cache = Cache::builder().memory(64 << 20).build()?;
    /// let file = cache.open(path)?;
    /// let mut start = [0; 4];
    /// file.read_at(&mut start, 0)?;
    /// assert_eq!(&start, b"\x7fELF");
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Memory for pages, in bytes.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.settings.cache_bytes = bytes;
        self
    }

    /// Bytes of a page: a power of two, from 512 to 16 MiB.
    pub fn page_bytes(mut self, bytes: u32) -> Self {
        self.settings.page_bytes = bytes;
        self
    }

    /// The replacement policy: as `NAME:key=value,...`, or by its type.
    ///
    /// ```
    /// use forerun_engine::{Cache, params::Share};
    /// use forerun_engine::eviction::{Eviction as _, two_q_star::{TwoQStar, TwoQStarParams}};
    /// # fn main() -> Result<(), forerun_engine::BuildError> {
    /// let by_text = Cache::builder().policy("2q-star:kin=0.25").build()?;
    /// let params = TwoQStarParams { kin: Share::percent(25), ..Default::default() };
    /// let by_type = Cache::builder().policy(TwoQStar::spec(&params)).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn policy(mut self, spec: impl Into<String>) -> Self {
        self.settings.policy = spec.into();
        self
    }

    /// The readahead policy: as `NAME:key=value,...`, or by its type.
    ///
    /// ```
    /// use forerun_engine::{Cache, params::Bytes};
    /// use forerun_engine::readahead::{Named as _, streams::{Streams, StreamsParams}};
    /// # fn main() -> Result<(), forerun_engine::BuildError> {
    /// let params = StreamsParams { max: Bytes(256 << 10), ..Default::default() };
    /// let cache = Cache::builder().readahead(Streams::spec(&params)).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn readahead(mut self, spec: impl Into<String>) -> Self {
        self.settings.readahead = spec.into();
        self
    }

    /// A partition: a share of the memory, for the pages that its rule takes, with policies of its
    /// own. Rules are matched in the order of these calls.
    ///
    /// ```
    /// use forerun_engine::{Cache, Partition, Rule};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mail = Partition::new("mail", 16 << 20, Rule::Client("mail".into())).policy("lru");
    /// let cache = Cache::builder()
    ///     .memory(64 << 20)
    ///     .partition(mail)
    ///     .partition("logs=8M:2q-star+off:file=*.log".parse()?)
    ///     .build()?;
    /// let mail = cache.client("mail"); // The same cache; what it opens is in `mail`.
    /// cache.resize_partition("logs", 24 << 20)?;
    /// for part in cache.partitions() {
    ///     println!("{} {} of {} bytes, {:?}", part.name, part.used_bytes, part.bytes, part.stats);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn partition(mut self, partition: Partition) -> Self {
        self.settings.partitions.push(partition);
        self
    }

    /// Whether memory moves between partitions by itself, to where it brings more hits. Default:
    /// it does not.
    ///
    /// ```
    /// use forerun_engine::{Cache, Sizing};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cache = Cache::builder()
    ///     .memory(64 << 20)
    ///     .partition("mail=24M,min=8M:2q-star:client=mail".parse()?)
    ///     .sizing(Sizing::Auto)
    ///     .build()?;
    /// for one in cache.moves() {
    ///     println!("{} bytes from {} to {}: {:?}", one.bytes, one.from, one.to, one.reason);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn sizing(mut self, sizing: Sizing) -> Self {
        self.settings.sizing = sizing;
        self
    }

    /// The memory that [`Sizing::Auto`] leaves to `rest` at least, as [`Partition::bytes_min`] says
    /// it of the others.
    pub fn rest_bytes_min(mut self, bytes: u64) -> Self {
        self.settings.rest_bytes_min = bytes;
        self
    }

    /// The system interface that reads files. Default: the best that works.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.settings.files.backend = backend;
        self
    }

    /// The measured device profile. Default: estimated from reads.
    pub fn device(mut self, facts: DeviceProfile) -> Self {
        self.settings.device = Some(facts);
        self
    }

    /// Where what is learnt of the device is kept from run to run, and under which name: the cache
    /// begins with what is there, and keeps what it has learnt when it closes. A device that cannot
    /// be read is not known, and one that cannot be kept is learnt again.
    ///
    /// ```
    /// use forerun_engine::{Cache, DeviceKey, DeviceStore};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::current_exe()?;
    /// # let folder = std::env::temp_dir().join(format!("forerun-state-{}", std::process::id()));
    /// let devices = DeviceStore::at(&folder)?; // `DeviceStore::of_user()` is shared with `run`.
    /// let cache = Cache::builder().remember(devices, DeviceKey::of_file(&path)?).build()?;
    /// # drop(cache);
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remember(mut self, devices: DeviceStore, key: DeviceKey) -> Self {
        self.memory = Some(DeviceMemory { devices, key });
        self
    }

    /// All settings at once.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The recorder of all events.
    pub fn recorder(mut self, recorder: Box<dyn Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// The cache.
    ///
    /// # Errors
    /// A setting cannot work, or the system refuses the memory.
    pub fn build(self) -> Result<Cache, BuildError> {
        let Self { mut settings, recorder, memory } = self;
        if let Some(memory) = &memory {
            settings.remembered = memory.load().or(settings.remembered);
        }
        Cache::build(settings, recorder, memory)
    }

    /// A handle on the file at `path`, with a cache that lives as long as the handles on it.
    ///
    /// ```
    /// use std::io::Read;
    /// use forerun_engine::Cache;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::current_exe()?;
    /// let mut file = Cache::builder().memory(16 << 20).open(path)?;
    /// let mut start = [0; 4];
    /// file.read_exact(&mut start)?;
    /// assert_eq!(&start, b"\x7fELF");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of [`Builder::build`] and [`Cache::open`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Handle, BuildError> {
        Ok(self.build()?.open(path)?)
    }
}
