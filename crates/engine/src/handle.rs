//! Handles: how programs read.
//!
//! ```text
//!   read_at:  |= found in the index: copied, recorded =|= from the first other page: Read =|
//!             no lock, no system call, no memory          events under the lock, fetches
//! ```
//!
//! # Invariants
//! - A read gives bytes of one version of the file, or an error.
//! - A page is pinned while it is copied, and no longer; a [`Pinned`] pins it until it is dropped.
//! - A handle owns its cache's state: it may outlive every clone of its [`Cache`](crate::Cache).
//! # Locking
//! The state's lock alone: on a miss, at a marker, with a full stripe of the hit buffer, and when a
//! page is unpinned while a miss waits for a frame.

use std::{
    fmt, io,
    ops::{Deref, Range},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use forerun_core::{
    event::{Error, Event, Hit},
    units::{HandleId, PageId, PartitionId},
};
use forerun_io::{frames::Pin, index::PinnedPage, store::Version};

mod changes;
mod ends;
mod position;

pub use changes::Zeroing;

use crate::{
    cancel::Cancel,
    carry::Carrier,
    error::{OpenError, ReadError, WriteError},
    file::File,
    owner::Owner,
    read::{NEVER_READ, Read, Take},
    shared::Shared,
    state::State,
    write::{self, Write},
};

/// An open file. Any thread may read through a handle. Readahead treats each handle as one reader,
/// so threads that read different parts do best with [`Handle::try_clone`].
///
/// [`std::io::Read`] and [`std::io::Seek`], of `Handle` and of `&Handle`, use a position of the
/// handle's own, which begins at 0; [`Handle::read_at`] leaves it alone.
pub struct Handle {
    pub(crate) owner: Arc<Owner>,
    pub(crate) file: Arc<File>,
    id: HandleId,
    writable: bool,
    partition: PartitionId,
    /// For `Read` and `Seek`.
    position: AtomicU64,
    previous_end: PreviousEnd,
}

/// The byte after the previous read; `NEVER_READ` before the first. In a cache line of its own, as
/// every read writes it.
#[repr(align(128))]
struct PreviousEnd(AtomicU64);

/// A pinned page: its bytes from the requested offset to the end of the page or the file. The frame
/// serves no other page while the pin lives.
pub struct Pinned<'a> {
    /// `None` at the end of the file, and while it is dropped.
    pin: Option<Pin<'a>>,
    within: Range<usize>,
    shared: &'a Arc<Shared>,
}

impl Handle {
    /// Opens a handle on `file`, which has a row; `version` if the file is new and can be found by
    /// it. Its pages are of `partition`.
    pub(crate) fn open(
        owner: &Arc<Owner>,
        state: &mut State,
        (file, version): (&Arc<File>, Option<Version>),
        writable: bool,
        partition: PartitionId,
    ) -> Result<Self, OpenError> {
        if state.closed {
            return Err(OpenError::Closed);
        }
        let id = state.free_handle()?;
        if let Err(error) = state.core.check_open(id, file.id) {
            state.handle_closed(id);
            return Err(error.into());
        }
        state.live.files.open(file, version);
        let file_pages = file.pages();
        state.send(None, Event::Open { handle: id, file: file.id, partition, file_pages });
        let previous_end = PreviousEnd(AtomicU64::new(NEVER_READ));
        let (owner, file, position) = (Arc::clone(owner), Arc::clone(file), AtomicU64::new(0));
        Ok(Self { owner, file, id, writable, partition, position, previous_end })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Reads from `offset` on into `buf` and returns the number of bytes: less than `buf.len()`
    /// only at the end of the file, and 0 at or past it. Its arguments are those of
    /// [`FileExt::read_at`](std::os::unix::fs::FileExt::read_at).
    ///
    /// # Errors
    /// See [`ReadError`]. A failed readahead is not an error of a read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        self.read_pieces(buf, offset, None)
    }

    /// As [`Handle::read_at`], of exactly `buf.len()` bytes.
    ///
    /// # Errors
    /// That of `read_at`; [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) where the file ends
    /// before.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_at(buf, offset)? < buf.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// As [`Handle::read_at`], until `cancel` is cancelled.
    ///
    /// # Errors
    /// See [`ReadError`]; when cancelled, [`ReadError::Cancelled`].
    pub fn read_at_cancellable(
        &self,
        buf: &mut [u8],
        offset: u64,
        cancel: &Cancel,
    ) -> Result<usize, ReadError> {
        if cancel.is_cancelled() {
            return Err(ReadError::Cancelled);
        }
        self.read_pieces(buf, offset, Some(cancel))
    }

    /// The page at `offset`, from there on, without a copy; empty at or past the end of the file.
    /// Keep pins short: a cache whose frames are all pinned fails every miss.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn pin(&self, offset: u64) -> Result<Pinned<'_>, ReadError> {
        loop {
            match self.pin_of_length(offset, self.file.bytes()) {
                // Another handle has cut the file, and may have extended it again.
                Err(error) if is_past_end(&error) => {}
                pinned => return pinned,
            }
        }
    }

    /// As [`Handle::pin`], of a file of `bytes`; an error where it was cut below them.
    fn pin_of_length(&self, offset: u64, bytes: u64) -> Result<Pinned<'_>, ReadError> {
        let shared = self.shared();
        if offset >= bytes {
            return Ok(Pinned { pin: None, within: 0..0, shared });
        }
        self.file.require_current()?;
        let page_bytes = u64::from(self.file.page_bytes);
        let (page, from) = (offset / page_bytes, offset % page_bytes);
        let to = page_bytes.min(bytes - page * page_bytes);
        let within = at(from)..at(to);
        let end = offset + 1;
        if !shared.sees_requests
            && let Some(found) = shared.index.find(PageId { file: self.file.id, index: page })
        {
            let previous_end = self.previous_end.0.load(Ordering::Relaxed);
            self.previous_end.0.store(end, Ordering::Relaxed);
            shared.record(found.hit, 1, true);
            if found.marker {
                self.trigger_readahead(found.hit, 1, previous_end);
            }
            return Ok(Pinned { pin: Some(found.pin), within, shared });
        }
        let mut kept = None;
        let take = &mut |_, pin| kept = Some(shared.frames().resume(pin));
        self.read_locked(offset, 1, None, take)?;
        assert!(kept.is_some(), "a read of a page gives it");
        Ok(Pinned { pin: kept, within, shared })
    }

    /// As [`Handle::read_at`], where the cache has all of it at once; `None`, and nothing is read,
    /// where it has not. Never waits for a device.
    ///
    /// # Errors
    /// The file or the cache has ended.
    pub fn read_at_cached(&self, buf: &mut [u8], offset: u64) -> Result<Option<usize>, ReadError> {
        let bytes = self.bytes_from(offset, buf.len());
        if bytes == 0 {
            return Ok(Some(0));
        }
        self.file.require_current()?;
        if self.shared().sees_requests {
            return Ok(None);
        }
        if self.cached_bytes(offset, bytes) < bytes {
            self.shared().frames_unpinned();
            return Ok(None);
        }
        let done = self.copy_hits(offset, &mut buf[..bytes], true);
        if done < bytes {
            // Pages were evicted meanwhile: a read goes on from there.
            let rest = self.read_at(&mut buf[done..bytes], offset + done as u64)?;
            return Ok(Some(done + rest));
        }
        Ok(Some(bytes))
    }

    /// The bytes from `offset` on, `bytes` at most, that lie in cached pages.
    fn cached_bytes(&self, offset: u64, bytes: usize) -> usize {
        let (page_bytes, index) = (u64::from(self.file.page_bytes), &self.shared().index);
        let mut cached = 0;
        while cached < bytes {
            let from = offset + cached as u64;
            let page = PageId { file: self.file.id, index: from / page_bytes };
            let Some(found) = index.find(page) else { break };
            self.shared().unpin(found.pin);
            cached = bytes.min(cached + at(page_bytes - from % page_bytes));
        }
        cached
    }

    /// Copies as many whole pages from `offset` on as the cache has at once.
    #[cfg(feature = "futures")]
    pub(crate) fn read_cached(&self, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        let bytes = self.bytes_from(offset, buf.len());
        if bytes == 0 {
            return Ok(0);
        }
        self.file.require_current()?;
        let cached = self.cached_bytes(offset, bytes);
        // Its end is that of the read, which is counted so.
        Ok(self.copy_hits(offset, &mut buf[..cached], true))
    }

    /// The bytes that a read of at most `bytes` from `offset` on gives.
    pub(crate) fn bytes_from(&self, offset: u64, bytes: usize) -> usize {
        let left = self.file.bytes().saturating_sub(offset);
        usize::try_from(left).map_or(bytes, |left| left.min(bytes))
    }

    /// Requests a prefetch of `range` in the background, as far as the bounds of readahead allow.
    /// Returns at once; pages beyond the bounds are not fetched.
    ///
    /// # Errors
    /// The file or the cache has ended.
    pub fn prefetch(&self, range: Range<u64>) -> Result<(), ReadError> {
        let (start, end) = (range.start, range.end.min(self.file.bytes()));
        if start >= end {
            return Ok(());
        }
        let page_bytes = u64::from(self.file.page_bytes);
        let (first, last) = (start / page_bytes, (end - 1) / page_bytes);
        let shared = self.shared();
        // Pages beyond the number of frames are never fetched.
        let count = u32::try_from(last - first + 1).unwrap_or(u32::MAX);
        let count = count.min(shared.frames().count());
        let mut state = shared.state.lock();
        self.file.require_current()?;
        state.send(None, Event::Prefetch { handle: self.id, first, count });
        shared.settle(state);
        Ok(())
    }

    /// The length of the file, in bytes: at its opening, and as the cache's own writes extend it.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.file.bytes()
    }

    /// Whether the file is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens another handle on the same file. The handles share its pages; unlike clones of
    /// [`std::fs::File`], each has a position of its own, which begins at 0.
    ///
    /// # Errors
    /// The cache is closed, or a bound of the settings is reached.
    pub fn try_clone(&self) -> Result<Self, OpenError> {
        self.clone_into(self.partition)
    }

    /// Another handle, whose misses are of `partition`.
    pub(crate) fn clone_into(&self, partition: PartitionId) -> Result<Self, OpenError> {
        let mut state = self.shared().state.lock();
        let file = (&self.file, None);
        Self::open(&self.owner, &mut state, file, self.writable, partition)
    }

    /// Writes all of `buf` at `offset`; the file grows as far as needed. Reads through any handle
    /// see the bytes from the return on. They are durable after [`Handle::flush`], or at the return
    /// where [`Settings::write_through`](crate::Settings::write_through) is set.
    ///
    /// # Errors
    /// See [`WriteError`]. A write that fails may have changed some of its pages.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), WriteError> {
        self.write_pieces(buf, offset, self.shared().settings.write_through)
    }

    /// As [`Handle::write_at`], and durable at the return, with all that was written to the file
    /// before (FUA).
    ///
    /// # Errors
    /// As of `write_at` and [`Handle::flush`].
    pub fn write_durable_at(&self, buf: &[u8], offset: u64) -> Result<(), WriteError> {
        self.write_pieces(buf, offset, true)
    }

    /// Makes all that was written to the file durable, through any handle.
    ///
    /// # Errors
    /// [`WriteError::Writeback`] once on each handle for every failure since its last flush, also
    /// where a later attempt has succeeded. The bytes stay in the cache, and are written again.
    pub fn flush(&self) -> Result<(), WriteError> {
        let state = self.shared().state.lock();
        if state.closed {
            return Err(WriteError::Closed);
        }
        write::flush(self.carrier(), state, self.id)
    }

    fn carrier(&self) -> Carrier<'_> {
        Carrier { shared: self.shared(), file: &self.file }
    }

    fn write_pieces(&self, buf: &[u8], offset: u64, durable: bool) -> Result<(), WriteError> {
        self.require_writable()?;
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= FILE_BYTES_MAX);
        let end = end.ok_or(WriteError::TooLong)?;
        if buf.is_empty() {
            return if durable { self.flush() } else { Ok(()) };
        }
        self.require_room(end)?;
        let (mut from, mut pages_max) = (offset, u32::MAX);
        while from < end {
            self.file.require_current()?;
            let piece = self.write_piece(from).min(self.bytes_to(from, pages_max));
            let to = end.min(from + piece as u64);
            let bytes = &buf[at(from - offset)..at(to - offset)];
            // A flush covers what was written before it.
            let durable = durable && to == end;
            let (carrier, handle) = (self.carrier(), self.id);
            match (Write { carrier, handle, offset: from, bytes, durable }).run() {
                // The partition has shrunk meanwhile, or is another one's here: less fits.
                Err(WriteError::Core(Error::TooLarge { pages, bound }))
                    if 0 < bound && 1 < pages =>
                {
                    pages_max = bound;
                }
                written => {
                    written?;
                    (from, pages_max) = (to, u32::MAX);
                }
            }
        }
        Ok(())
    }

    fn require_writable(&self) -> Result<(), WriteError> {
        if self.writable { Ok(()) } else { Err(WriteError::ReadOnly) }
    }

    /// Refuses what ends at `end`, where the store can never have as many bytes.
    fn require_room(&self, end: u64) -> Result<(), WriteError> {
        let bytes_max = self.file.bytes_max;
        if end <= bytes_max { Ok(()) } else { Err(WriteError::NoRoom { bytes_max }) }
    }

    /// The bytes of one request to write from `offset` on: up to a page's end, and a small part of
    /// what may be dirty, so that it fits beside files that take all they may.
    fn write_piece(&self, offset: u64) -> usize {
        let shared = self.shared();
        let (dirty, waiters) = (shared.dirty_pages_max, shared.settings.waiters_max);
        let pages = (dirty.min(shared.shares.frames(self.partition)) / 32).min(waiters).max(1);
        self.bytes_to(offset, pages)
    }

    /// The bytes from `offset` on up to the end of the page that comes `pages - 1` later.
    fn bytes_to(&self, offset: u64, pages: u32) -> usize {
        let page_bytes = u64::from(self.file.page_bytes);
        let pages = u64::from(pages);
        let end = (offset / page_bytes).saturating_add(pages).saturating_mul(page_bytes);
        usize::try_from(end - offset).unwrap_or(usize::MAX)
    }

    fn read_pieces(
        &self,
        buf: &mut [u8],
        offset: u64,
        cancel: Option<&Cancel>,
    ) -> Result<usize, ReadError> {
        let mut bytes = self.bytes_from(offset, buf.len());
        if bytes == 0 {
            return Ok(0);
        }
        self.file.require_current()?;
        let mut done = self.copy_hits(offset, &mut buf[..bytes], true);
        while done < bytes {
            let from = offset + done as u64;
            let piece = self.piece(from).min(bytes - done);
            let page_bytes = u64::from(self.file.page_bytes);
            let room = &mut buf[done..done + piece];
            let shared = self.shared();
            let read = self.read_locked(from, piece, cancel, &mut |page, pin| {
                let pin = shared.frames().resume(pin);
                copy(&pin, page * page_bytes, from, room);
                shared.unpin(pin);
            });
            if let Err(error) = read {
                if !is_past_end(&error) {
                    return Err(error);
                }
                // Another handle has cut the file, and may have extended it again.
                bytes = self.bytes_from(offset, bytes);
                continue;
            }
            done += piece;
            done += self.copy_hits(offset + done as u64, &mut buf[done..bytes], false);
        }
        // What a cut has taken meanwhile was zeros, or of before.
        Ok(self.bytes_from(offset, bytes))
    }

    /// Reads through the lock: from the first page that the index lacks.
    fn read_locked(
        &self,
        offset: u64,
        bytes: usize,
        cancel: Option<&Cancel>,
        take: Take<'_>,
    ) -> Result<(), ReadError> {
        let (shared, file, handle) = (self.shared(), &self.file, self.id);
        let previous_end = &self.previous_end.0;
        Read { shared, file, handle, offset, bytes, previous_end, cancel }.run(take)
    }

    /// Copies pages from `offset` on as long as the index has them; returns the number of bytes.
    /// `opens`: the read begins at `offset`.
    fn copy_hits(&self, offset: u64, buf: &mut [u8], opens: bool) -> usize {
        let shared = self.shared();
        if shared.sees_requests || buf.is_empty() {
            return 0;
        }
        let page_bytes = u64::from(self.file.page_bytes);
        let previous_end = self.previous_end.0.load(Ordering::Relaxed);
        let end = offset + buf.len() as u64;
        let mut done = 0;
        while done < buf.len() {
            let from = offset + done as u64;
            let (index, within) = (from / page_bytes, at(from % page_bytes));
            let page = PageId { file: self.file.id, index };
            let Some(PinnedPage { pin, hit, marker }) = shared.index.find(page) else { break };
            let room = &mut buf[done..];
            let bytes = room.len().min(pin.len() - within);
            room[..bytes].copy_from_slice(&pin[within..within + bytes]);
            shared.unpin(pin);
            done += bytes;
            shared.record(hit, bytes, opens && done == buf.len());
            if marker {
                let pages = (end - 1) / page_bytes - index + 1;
                self.trigger_readahead(hit, u32::try_from(pages).unwrap_or(u32::MAX), previous_end);
            }
        }
        if done > 0 {
            // What is left of a read goes on from the read before it, as the core sees it, not
            // from its own first pages: a lone read across two pages is no stream of two.
            if !opens || done == buf.len() {
                self.previous_end.0.store(offset + done as u64, Ordering::Relaxed);
            }
            shared.frames_unpinned();
        }
        done
    }

    /// Sends a hit on a marker to the core, which triggers the next readahead.
    fn trigger_readahead(&self, hit: Hit, count: u32, previous_end: u64) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        state.take_hits(&shared.hit_buffer);
        let congested = state.ahead_count() >= shared.settings.congested_requests;
        let previous_end = Some(previous_end).filter(|&end| end != NEVER_READ);
        let handle = self.id;
        state.send(None, Event::Marker { handle, hit, count, previous_end, congested });
        shared.settle(state);
    }

    /// The bytes of one request from `offset` on: up to a page's end and at most half of the
    /// cache, so that a read of any length gets frames and waiters.
    fn piece(&self, offset: u64) -> usize {
        let shared = self.shared();
        let frames = shared.shares.frames(self.partition);
        let waiters = shared.settings.waiters_max;
        self.bytes_to(offset, (frames / 2).clamp(1, PIECE_PAGES_MAX).min(waiters))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("bytes", &self.file.bytes()).finish_non_exhaustive()
    }
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pin.as_ref().map_or(&[], |pin| &pin[self.within.clone()])
    }
}

impl fmt::Debug for Pinned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("bytes", &self.within.len()).finish_non_exhaustive()
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.shared.unpin(pin);
            self.shared.frames_unpinned();
        }
    }
}

/// Whether a read failed as its file ends before it.
fn is_past_end(error: &ReadError) -> bool {
    matches!(error, ReadError::Core(Error::PastEnd { .. }))
}

/// Copies to `buf`, read from `offset` on, its part of the page that begins at `page_at`.
fn copy(page: &[u8], page_at: u64, offset: u64, buf: &mut [u8]) {
    let (end, page_end) = (offset + buf.len() as u64, page_at.saturating_add(page.len() as u64));
    let (from, to) = (offset.max(page_at), end.min(page_end));
    buf[at(from - offset)..at(to - offset)]
        .copy_from_slice(&page[at(from - page_at)..at(to - page_at)]);
}

/// An offset within a buffer or a page.
fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("within a buffer or a page")
}

/// The longest file that Linux has.
const FILE_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// The most pages of one request, so that long reads leave turns to other readers.
const PIECE_PAGES_MAX: u32 = 1 << 16;
