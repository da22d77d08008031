//! The steps of a soak's thread: mostly small reads, rarely every other call.
//!
//! ```text
//!   of 4096 steps    2 open a store anew, 8 open a handle again, 10 close one,
//!                    16 prefetch, 16 pin, 1 resizes, the others read
//!   of 4 reads       3 continue at the handle's offset, 1 jumps: half of them to the file's head
//!   of 8 reads       1 goes through a handle that all threads share
//! ```
//!
//! # Invariants
//! - A read gives all of its bytes up to the end of the file, each of them right, or an error; an
//!   error only where the store has faults.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail};
use forerun_core::prng::Prng;
use forerun_engine::{Cache, Handle, ReadError};
use forerun_io::store::pattern;

use super::CACHE_BYTES;
use super::stores::{EIO, File, Stores};

/// The counts of a worker; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counts {
    pub(super) reads: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Reads that failed by a fault.
    pub(super) errors: AtomicU64,
    pub(super) opened: AtomicU64,
    pub(super) prefetched: AtomicU64,
    pub(super) pinned: AtomicU64,
    pub(super) resized: AtomicU64,
}

/// See the module.
pub(super) struct Worker<'a> {
    cache: &'a Cache,
    stores: &'a Stores,
    /// A handle on each file of the stores.
    shared: &'a [Handle],
    counts: &'a Counts,
    random: Prng,
    own: Vec<Own>,
    buf: Vec<u8>,
}

/// A handle of one's own.
struct Own {
    /// The file's place on the stores.
    file: usize,
    handle: Handle,
    /// Its offset.
    next: u64,
}

impl<'a> Worker<'a> {
    /// The worker of that number.
    pub(super) fn new(
        cache: &'a Cache,
        stores: &'a Stores,
        shared: &'a [Handle],
        counts: &'a Counts,
        seed: u64,
        number: u64,
    ) -> Self {
        let random = Prng::new(seed.wrapping_mul(1_000).wrapping_add(number));
        // Written to, so that it is in memory from the start.
        let buf = vec![1; READ_BYTES_MAX];
        Self { cache, stores, shared, counts, random, own: Vec::new(), buf }
    }

    /// Works until `stop` is set or a check fails.
    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        if self.own.is_empty() {
            return self.open_again();
        }
        match self.random.below(4096) {
            0..2 => self.open_anew(),
            2..10 => self.open_again(),
            10..20 => {
                let at = self.draw(self.own.len());
                self.own.swap_remove(at);
                Ok(())
            }
            20..36 => {
                let at = self.draw(self.own.len());
                let (first, bytes) = (self.own[at].next, self.random.below(1 << 20));
                self.own[at].handle.prefetch(first..first + bytes)?;
                add(&self.counts.prefetched, 1);
                Ok(())
            }
            36..52 => {
                let at = self.draw(self.own.len());
                let offset = self.random.below(self.own[at].handle.len().max(1));
                let Own { handle, file, .. } = &self.own[at];
                self.pin(&self.stores.files[*file], handle, offset)
            }
            52 => {
                // A small range, so that a leak stands out from what resizing takes and frees.
                let bytes = CACHE_BYTES - self.random.below(CACHE_BYTES / 8);
                self.cache.resize(bytes)?;
                add(&self.counts.resized, 1);
                Ok(())
            }
            _ => self.read(),
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        usize::try_from(self.random.below(below as u64)).expect("below a usize")
    }

    /// A store is opened as another file: its pages are not shared with the others'.
    fn open_anew(&mut self) -> Result<()> {
        let file = self.draw(self.stores.files.len());
        let handle = self.cache.open_store(self.stores.files[file].store()?);
        self.keep(file, handle.context("cannot open a store")?);
        Ok(())
    }

    fn open_again(&mut self) -> Result<()> {
        let file = self.draw(self.shared.len());
        let handle = self.shared[file].try_clone();
        self.keep(file, handle.context("cannot open a file again")?);
        Ok(())
    }

    fn keep(&mut self, file: usize, handle: Handle) {
        add(&self.counts.opened, 1);
        let own = Own { file, handle, next: 0 };
        if self.own.len() < HANDLES_MAX {
            self.own.push(own);
        } else {
            let at = self.draw(HANDLES_MAX);
            self.own[at] = own;
        }
    }

    fn read(&mut self) -> Result<()> {
        let at = self.draw(self.own.len());
        let bytes = self.read_bytes();
        let file = self.own[at].file;
        let end = self.stores.files[file].bytes;
        let offset = match self.random.below(8) {
            0 => self.random.below(end.min(HEAD_BYTES)),
            // Up to a little past the end.
            1 => self.random.below(end + 10_000),
            _ if self.own[at].next >= end => 0,
            _ => self.own[at].next,
        };
        let is_shared = self.random.below(8) == 0;
        let handle = if is_shared { &self.shared[file] } else { &self.own[at].handle };
        let result = handle.read_at(&mut self.buf[..bytes], offset);
        self.own[at].next = offset + bytes as u64;
        self.verify(&self.stores.files[file], offset, bytes, result)
            .with_context(|| format!("{bytes} bytes at {offset} of file {file}"))
    }

    /// Pins the page at `offset`, and verifies the rest of it.
    fn pin(&self, file: &File, handle: &Handle, offset: u64) -> Result<()> {
        let page = match handle.pin(offset) {
            Ok(page) => page,
            Err(error) => return self.failed(file, error),
        };
        if let Err(at) = pattern::verify(offset, &page) {
            bail!("a pinned page is wrong at byte {at:?}");
        }
        add(&self.counts.pinned, 1);
        Ok(())
    }

    /// Counts an error of a fault; any other ends the worker.
    fn failed(&self, file: &File, error: ReadError) -> Result<()> {
        match error {
            ReadError::Store { errno: EIO, .. } if file.may_fail() => {
                add(&self.counts.errors, 1);
                Ok(())
            }
            error => Err(error.into()),
        }
    }

    /// Mostly less than a page, seldom many.
    fn read_bytes(&mut self) -> usize {
        let max = match self.random.below(8192) {
            0 => READ_BYTES_MAX,
            1..128 => 64 << 10,
            _ => 4 << 10,
        };
        1 + self.draw(max)
    }

    fn verify(
        &self,
        file: &File,
        offset: u64,
        bytes: usize,
        result: Result<usize, ReadError>,
    ) -> Result<()> {
        add(&self.counts.reads, 1);
        let count = match result {
            Ok(count) => count,
            Err(error) => return self.failed(file, error),
        };
        let due = file.bytes.saturating_sub(offset).min(bytes as u64);
        if count as u64 != due {
            bail!("{count} bytes came, {due} are there");
        }
        if let Err(wrong) = pattern::verify(offset, &self.buf[..count]) {
            bail!("the byte at {wrong} is wrong");
        }
        add(&self.counts.bytes, count as u64);
        Ok(())
    }
}

/// Only its worker changes a count.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Handles of a worker's own.
const HANDLES_MAX: usize = 6;
const READ_BYTES_MAX: usize = 4 << 20;
/// The range of repeated reads.
const HEAD_BYTES: u64 = 2 << 20;
