//! Directories as workers go to them, and the handles that are kept of them.
//!
//! ```text
//!   Root <-- Place "usr" <-- Place "include" <-- Place "sys"
//!             gone by the program: from the root, by the path
//!             not yet: from the handle of its parent, by the name
//! ```
//! # Invariants
//! - At most [`HANDLES_MAX`] handles are kept, none for longer than [`HANDLE_LASTS`] after its use:
//!   a file system that the program has left can be unmounted. As one of its processes ends, those
//!   that no worker uses are closed.
//! - No lock is held while something is opened or closed.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forerun_core::units::Nanos;

use crate::kernel::{Stat, stat};
use crate::open::Refusal;
use crate::open::entries::{Root, subdirectory};

/// A directory of a tree.
#[derive(Debug)]
pub(in crate::prefetch) struct Place {
    root: Arc<Root>,
    /// Its parent and its name there; none for the root.
    above: Option<(Arc<Place>, Box<[u8]>)>,
    depth: usize,
    /// The program has been there.
    is_entered: AtomicBool,
    /// Its device, once that is known.
    device: AtomicU64,
    /// When its entries changed last, as far as was looked.
    stamp: Mutex<Option<Stamp>>,
    /// When that was, in nanoseconds.
    looked: AtomicU64,
}

/// The times of a directory's last changes.
type Stamp = [(i64, u32); 2];

impl Place {
    pub(in crate::prefetch) fn top(root: Arc<Root>) -> Arc<Self> {
        Arc::new(Self {
            root,
            above: None,
            depth: 0,
            is_entered: AtomicBool::new(true),
            device: AtomicU64::new(UNKNOWN),
            stamp: Mutex::new(None),
            looked: AtomicU64::new(0),
        })
    }

    /// The directory `name` of `parent`.
    pub(in crate::prefetch) fn below(parent: &Arc<Self>, name: &[u8]) -> Arc<Self> {
        assert!(!name.is_empty() && !name.contains(&b'/'), "a directory has a name");
        assert!(!parent.is_deepest(), "places are no deeper than the bound");
        Arc::new(Self {
            root: Arc::clone(&parent.root),
            above: Some((Arc::clone(parent), name.into())),
            depth: parent.depth + 1,
            is_entered: AtomicBool::new(false),
            device: AtomicU64::new(UNKNOWN),
            stamp: Mutex::new(None),
            looked: AtomicU64::new(0),
        })
    }

    /// Whether its directories lie too deep to be followed.
    pub(in crate::prefetch) fn is_deepest(&self) -> bool {
        self.depth >= DEPTH_MAX
    }

    pub(in crate::prefetch) fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Whether it is the directory `name` of `parent`.
    pub(in crate::prefetch) fn is_below(&self, parent: &Arc<Self>, name: &[u8]) -> bool {
        self.above.as_ref().is_some_and(|(above, own)| Arc::ptr_eq(above, parent) && **own == *name)
    }

    /// The program has been in it.
    pub(in crate::prefetch) fn enter(&self) {
        self.is_entered.store(true, Ordering::Relaxed);
    }

    /// Its device, or that of the nearest directory above that is known.
    pub(in crate::prefetch) fn device(&self) -> Option<u64> {
        let mut at = self;
        loop {
            let device = at.device.load(Ordering::Relaxed);
            if device != UNKNOWN {
                return Some(device);
            }
            at = &at.above.as_ref()?.0;
        }
    }

    /// Takes in what is known of the directory now. Whether its entries may have changed since the
    /// last look.
    pub(super) fn note(&self, now: &Stat) -> bool {
        self.device.store(now.st_dev, Ordering::Relaxed);
        let stamp = [now.st_mtime, now.st_ctime];
        let mut last = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        last.replace(stamp).is_some_and(|before| before != stamp)
    }

    /// Its path below its root.
    pub(in crate::prefetch) fn path(&self) -> Vec<u8> {
        let (mut names, mut at) = (Vec::new(), self);
        while let Some((above, name)) = &at.above {
            names.push(&**name);
            at = above;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// A handle of the directory, opened by the rights of this thread.
    fn open(&self, handles: &Handles, now: Nanos) -> Result<(OwnedFd, Stat), Refusal> {
        match &self.above {
            Some((above, name)) if !self.is_entered.load(Ordering::Relaxed) => {
                let (parent, _) = handles.get(above, now)?;
                subdirectory(&*parent, name)
            }
            Some(_) | None => self.root.directory(&self.path()),
        }
    }
}

/// The handles of the directories that were used last.
#[derive(Debug, Default)]
pub(in crate::prefetch) struct Handles {
    rows: Mutex<BTreeMap<usize, Row>>,
    /// When unused ones were looked for last, in nanoseconds.
    expired: AtomicU64,
}

#[derive(Debug)]
struct Row {
    /// Kept, as its address is the row's key.
    place: Arc<Place>,
    handle: Arc<OwnedFd>,
    used: Nanos,
}

impl Handles {
    /// A handle of `place`, and what is known of it, if the last look was [`LOOK_EVERY`] ago.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(in crate::prefetch) fn get(
        &self,
        place: &Arc<Place>,
        now: Nanos,
    ) -> Result<(Arc<OwnedFd>, Option<Stat>), Refusal> {
        let key = Arc::as_ptr(place).addr();
        let kept = self.lock().get_mut(&key).map(|row| {
            row.used = row.used.max(now);
            Arc::clone(&row.handle)
        });
        if let Some(handle) = kept {
            let last = Nanos(place.looked.load(Ordering::Relaxed));
            if now.since(last) < LOOK_EVERY {
                return Ok((handle, None));
            }
            place.looked.store(now.0, Ordering::Relaxed);
            let stat = stat(&*handle).map_err(Refusal::Absent)?;
            return Ok((handle, Some(stat)));
        }
        let (handle, stat) = place.open(self, now)?;
        let handle = Arc::new(handle);
        let row = Row { place: Arc::clone(place), handle: Arc::clone(&handle), used: now };
        let mut rows = self.lock();
        let mut out = vec![rows.insert(key, row)];
        if rows.len() > HANDLES_MAX {
            let oldest = rows.iter().min_by_key(|(_, row)| row.used).map(|(&key, _)| key);
            out.push(oldest.and_then(|key| rows.remove(&key)));
        }
        assert!(rows.len() <= HANDLES_MAX, "handles are bounded");
        drop(rows);
        drop(out);
        place.looked.store(now.0, Ordering::Relaxed);
        Ok((handle, Some(stat)))
    }

    /// Closes the handle of `place`.
    pub(super) fn close(&self, place: &Arc<Place>) {
        let row = self.lock().remove(&Arc::as_ptr(place).addr());
        drop(row);
    }

    /// Closes all that no worker uses.
    pub(in crate::prefetch) fn close_all(&self) {
        let rows = std::mem::take(&mut *self.lock());
        drop(rows);
    }

    /// Closes what was not used for a time.
    pub(in crate::prefetch) fn expire(&self, now: Nanos) {
        let last = Nanos(self.expired.load(Ordering::Relaxed));
        if now.since(last) < HANDLE_LASTS {
            return;
        }
        self.expired.store(now.0, Ordering::Relaxed);
        let is_old = |row: &Row| now.since(row.used) >= HANDLE_LASTS;
        let mut old = Vec::new();
        let mut rows = self.lock();
        let keys: Vec<usize> = rows.iter().filter(|(_, row)| is_old(row)).map(|it| *it.0).collect();
        old.extend(keys.into_iter().filter_map(|key| rows.remove(&key)));
        drop(rows);
        assert!(old.iter().all(|row| row.place.depth <= DEPTH_MAX), "places are bounded");
    }

    #[cfg(test)]
    pub(in crate::prefetch) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No device has this number.
const UNKNOWN: u64 = u64::MAX;
/// Directories above a directory; core compares no more.
const DEPTH_MAX: usize = 64;
const HANDLES_MAX: usize = 256;
/// Between two looks whether the entries of a directory have changed.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);
const HANDLE_LASTS: Nanos = Nanos::from_millis(50);
