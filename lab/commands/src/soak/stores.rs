//! The stores of a soak: every kind, some with faults by turns.
//!
//! ```text
//!   pattern, 1 TiB      memory      a file                 always well
//!   fault(pattern)      fault(memory)      fault(file)     calm, errors, short, late, all at once
//! ```
//!
//! # Invariants
//! - Every byte of every store is that of the pattern at its offset, so each read can be verified
//!   by itself.
//! - The file has no name, so it is gone at the end, also after an error.

use std::fs::File as OsFile;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use forerun_io::store::memory::Memory;
use forerun_io::store::pattern::{self, Pattern};
use forerun_io::store::threads::{Access, Threads};
use forerun_io::store::{Store, StoreError};
use forerun_io::wrap::fault::{Fault, Faults, Rule, When};
use forerun_measure::pattern_file;

/// All stores.
pub(super) struct Stores {
    pub(super) files: Vec<File>,
    /// The last field, so that it is dropped after the stores that read it.
    _made: OsFile,
}

/// One store.
pub(super) struct File {
    opens: Opens,
    fault: Option<Arc<Fault>>,
    pub(super) bytes: u64,
}

/// The way to open the store.
enum Opens {
    /// The same store each time.
    Store(Arc<dyn Store>),
    /// The file, which takes a descriptor each time.
    Path(PathBuf),
}

impl Stores {
    /// Makes the stores, and a file in the temporary directory.
    pub(super) fn make() -> Result<Self> {
        let made = pattern_file::unnamed(&std::env::temp_dir(), FILE_BYTES)?;
        let path = pattern_file::own(&made);
        let open = || Threads::open(&path, Access::Read);
        let memory = |bytes| {
            let mut contents = vec![0; bytes];
            pattern::fill(0, &mut contents);
            Arc::new(Memory::new(contents, bytes))
        };
        let files = [
            File::sound(Arc::new(Pattern::new(1 << 40))),
            File::sound(memory((12 << 20) + 1)),
            Ok(File { bytes: FILE_BYTES, opens: Opens::Path(path.clone()), fault: None }),
            File::faulty(Arc::new(Pattern::new((24 << 20) + 777)), 1),
            File::faulty(memory(5_000), 2),
            File::faulty(Arc::new(open()?), 3),
        ];
        let files = files.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Self { files, _made: made })
    }

    /// Begins the phase of that number.
    pub(super) fn turn(&self, number: u64) {
        let at = usize::try_from(number % PHASES as u64).expect("few phases");
        for fault in self.files.iter().filter_map(|file| file.fault.as_ref()) {
            let reads = phases()[at].clone();
            fault.set(Faults { reads, ..Faults::default() });
        }
    }
}

impl File {
    fn sound(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        Ok(Self { bytes: store.bytes()?, opens: Opens::Store(store), fault: None })
    }

    fn faulty(inner: Arc<dyn Store>, seed: u64) -> Result<Self, StoreError> {
        let bytes = inner.bytes()?;
        let fault = Arc::new(Fault::new(inner, Faults::default(), seed));
        let opens = Opens::Store(Arc::clone(&fault) as Arc<dyn Store>);
        Ok(Self { opens, fault: Some(fault), bytes })
    }

    /// The store to open in the cache.
    pub(super) fn store(&self) -> Result<Arc<dyn Store>, StoreError> {
        match &self.opens {
            Opens::Store(store) => Ok(Arc::clone(store)),
            Opens::Path(path) => Ok(Arc::new(Threads::open(path, Access::Read)?)),
        }
    }

    /// Whether a read of it may fail.
    pub(super) fn may_fail(&self) -> bool {
        self.fault.is_some()
    }
}

/// The faults of reads in each phase.
fn phases() -> [Rule; PHASES] {
    let fail = Some((When::Chance(20_000), EIO));
    let cut = Some(When::Chance(20_000));
    let delay = Some((When::Chance(5_000), Duration::from_micros(300)));
    let calm = Rule::default;
    [
        calm(),
        Rule { fail, ..calm() },
        Rule { cut, ..calm() },
        Rule { delay, ..calm() },
        Rule { fail, delay, cut },
    ]
}

/// Larger than the cache, and not a whole number of pages.
const FILE_BYTES: u64 = (48 << 20) + 4_321;
const PHASES: usize = 5;
/// The error of a fault.
pub(super) const EIO: i32 = 5;
