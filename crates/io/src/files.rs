//! Opens files on the kernel's best interface that works here, and says which one that is.
//!
//! ```text
//!   Auto:  io_uring, tried --refused--> threads
//! ```
//!
//! All files that one [`Files`] opens share what the interface needs: readers' rings from one
//! bounded pool, one ring for the background.
//!
//! # Invariants
//! - What was chosen is said, and why nothing better was: [`Files::chosen`].
//! - An interface that was asked for by name is used, or its refusal is the error.

use std::{fmt, path::PathBuf, sync::Arc};

use rustix::io::Errno;

use crate::{
    frames::Frames,
    reaper::port::{Port, QueuePort},
    store::{
        Store, StoreError,
        file::{Access, OpenFile},
        threads::Threads,
        uring::{Region, RingPort, Uring},
    },
};

/// Which of the kernel's interfaces carries operations out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The best one that works.
    #[default]
    Auto,
    /// `io_uring`.
    Uring,
    /// `preadv` on threads.
    Threads,
}

/// How files are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesSettings {
    /// The kernel's interface.
    pub backend: Backend,
    /// Whether to go past the kernel's page cache where that works.
    pub direct: bool,
    /// Readers' rings at most, over all files; readers beyond do without. 0: all do.
    pub rings_max: u32,
    /// Operations that a ring takes at once: from 1 to [`RING_ENTRIES_MAX`].
    pub ring_entries: u32,
}

/// The largest [`FilesSettings::ring_entries`].
pub const RING_ENTRIES_MAX: u32 = 4096;
const _: () = assert!(RING_ENTRIES_MAX.is_power_of_two(), "the kernel rounds up to one");

impl Default for FilesSettings {
    fn default() -> Self {
        Self { backend: Backend::Auto, direct: true, rings_max: 64, ring_entries: 128 }
    }
}

/// Why files cannot be opened as wished. With [`Backend::Auto`] only settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The interface that was asked for does not work here; another may.
    #[error("{backend} does not work here: {why}")]
    Refused {
        /// The interface.
        backend: &'static str,
        /// What the system said to what.
        why: String,
    },
    /// A ring of so many operations cannot be made.
    #[error("a ring takes 1 to {RING_ENTRIES_MAX} operations, not {entries}")]
    RingEntries {
        /// What was asked for.
        entries: u32,
    },
}

/// Which interface was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenBackend {
    /// `io_uring` or `threads`.
    pub backend: &'static str,
    /// Why nothing better: what the system refused.
    pub why: Option<String>,
    /// Bytes of frames that the kernel keeps pinned.
    pub registered_bytes: u64,
}

impl fmt::Display for ChosenBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend)?;
        if self.registered_bytes > 0 {
            write!(f, ", {} KiB of frames registered", self.registered_bytes >> 10)?;
        }
        match &self.why {
            Some(why) => write!(f, " ({why})"),
            None => Ok(()),
        }
    }
}

/// An opener of files on one interface. Clones share it.
#[derive(Clone)]
pub struct Files(Arc<Shared>);

struct Shared {
    interface: Interface,
    why: Option<String>,
    settings: FilesSettings,
}

/// The interface in use.
enum Interface {
    Uring(Uring),
    Threads,
}

impl Files {
    /// Tries the interfaces.
    ///
    /// # Errors
    /// The one that was asked for does not work here, or the settings make no sense.
    pub fn new(settings: FilesSettings) -> Result<Self, BackendError> {
        let FilesSettings { backend, rings_max, ring_entries, .. } = settings;
        if !(1..=RING_ENTRIES_MAX).contains(&ring_entries) {
            return Err(BackendError::RingEntries { entries: ring_entries });
        }
        let uring = || Uring::new(rings_max, ring_entries).map(Interface::Uring).map_err(refusal);
        let (interface, why) = match backend {
            Backend::Auto => match uring() {
                Ok(rings) => (rings, None),
                Err(why) => (Interface::Threads, Some(why)),
            },
            Backend::Uring => {
                let refused = |why| BackendError::Refused { backend: URING, why };
                (uring().map_err(refused)?, None)
            }
            Backend::Threads => (Interface::Threads, None),
        };
        Ok(Self(Arc::new(Shared { interface, why, settings })))
    }

    /// Opens the file or block device at `path`, which must be there.
    ///
    /// # Errors
    /// It is missing, may not be opened so, or is neither.
    pub fn open(
        &self,
        path: impl Into<PathBuf>,
        access: Access,
    ) -> Result<Arc<dyn Store>, StoreError> {
        let file = self.opened(path.into(), access)?;
        Ok(match &self.0.interface {
            Interface::Uring(rings) => Arc::new(rings.file(file)),
            Interface::Threads => Arc::new(Threads::over(file)),
        })
    }

    /// A port of this thread to the file at `path`, for groups of `depth` reads; where the system
    /// makes no ring for it, on threads.
    ///
    /// # Errors
    /// As [`Files::open`].
    ///
    /// # Panics
    /// `depth` is 0.
    pub fn port(&self, path: impl Into<PathBuf>, depth: u32) -> Result<Box<dyn Port>, StoreError> {
        let file = self.opened(path.into(), Access::Read)?;
        if let Interface::Uring(_) = &self.0.interface
            && let Ok(port) = RingPort::new(Arc::clone(&file), depth)
        {
            return Ok(Box::new(port));
        }
        Ok(Box::new(QueuePort::new(THREADS, &Threads::over(file), depth)))
    }

    /// As [`Files::port`], without interrupts, where the device is polled.
    ///
    /// # Errors
    /// The file cannot be opened; in words, why the device is not polled.
    pub fn polled_port(
        &self,
        path: impl Into<PathBuf>,
        depth: u32,
    ) -> Result<Result<Box<dyn Port>, String>, StoreError> {
        let file = self.opened(path.into(), Access::Read)?;
        Ok(match &self.0.interface {
            Interface::Uring(_) => RingPort::polled(file, depth).map(|port| Box::new(port) as _),
            Interface::Threads => Err("it takes io_uring".to_owned()),
        })
    }

    fn opened(&self, path: PathBuf, access: Access) -> Result<Arc<OpenFile>, StoreError> {
        let open = if self.0.settings.direct { OpenFile::open_direct } else { OpenFile::open };
        open(path, access).map(Arc::new)
    }

    /// Has the kernel keep `frames` pinned, as far as it allows: reads into them cost less.
    /// Without that they work as well. Only the frames of the first call are kept so.
    pub fn register(&self, frames: &Frames) {
        if let Interface::Uring(rings) = &self.0.interface {
            let (base, bytes) = frames.region();
            rings.register(Region::new(base.expose_provenance(), bytes, frames.keep()));
        }
    }

    /// What is in use.
    #[must_use]
    pub fn chosen(&self) -> ChosenBackend {
        let (backend, registered_bytes) = match &self.0.interface {
            Interface::Uring(rings) => (URING, rings.registered_bytes()),
            Interface::Threads => (THREADS, 0),
        };
        ChosenBackend { backend, why: self.0.why.clone(), registered_bytes }
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Files").field(&self.chosen()).finish()
    }
}

/// What the system refused, in words.
fn refusal((what, errno): (&'static str, Errno)) -> String {
    let text = std::io::Error::from(errno).to_string();
    let reason = text.split(" (os error").next().unwrap_or_default();
    format!("{what}: {reason}")
}

const URING: &str = "io_uring";
const THREADS: &str = "threads";
