//! Handles for asynchronous programs, by the traits of `futures-io` and without a runtime.
//!
//! ```text
//!   poll_read --- in the cache: copied at once
//!        \------- else: a job ---> a thread reads (`Handle::read_at`) ---> wakes the task
//! ```
//! [`ReaderThreads`] are threads of their own, so the future of a read runs on any executor.
//!
//! # Invariants
//! - A task never waits for a page: a poll copies what the cache has, or hands a job over. It takes
//!   the cache's lock where a hit does, as at a marker, and submits the readahead that follows.
//! - A future that is dropped cancels its read.
//! # Sources
//! `futures-io` 0.3: `AsyncRead`, `AsyncSeek`.

mod threads;

use std::{
    fmt,
    future::Future,
    io::{self, SeekFrom},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_io::{AsyncRead, AsyncSeek};

use crate::{error::ReadError, handle::Handle};
use threads::Job;
pub use threads::ReaderThreads;

/// A handle whose reads are futures. See [`ReaderThreads::wrap`].
///
/// It is [`AsyncRead`] and [`AsyncSeek`], by a position of its own, which begins at 0.
pub struct AsyncHandle {
    handle: Arc<Handle>,
    threads: ReaderThreads,
    position: u64,
    /// The read of a poll that was pending.
    job: Option<Job>,
}

/// The future of [`AsyncHandle::read_at`]. Dropped, it cancels the read.
#[must_use = "a future does nothing but when it is polled"]
pub struct ReadAt {
    job: Job,
}

impl ReaderThreads {
    /// `handle`, read by these threads.
    #[must_use]
    pub fn wrap(&self, handle: Handle) -> AsyncHandle {
        let (handle, threads) = (Arc::new(handle), self.clone());
        AsyncHandle { handle, threads, position: 0, job: None }
    }
}

impl AsyncHandle {
    /// Reads from `offset` on into `buf`, which comes back with the number of bytes, as of
    /// [`Handle::read_at`]. The read begins now.
    pub fn read_at(&self, mut buf: Vec<u8>, offset: u64) -> ReadAt {
        let job = match self.handle.read_cached(&mut buf, offset) {
            Ok(count) if count == self.handle.bytes_from(offset, buf.len()) => {
                Job::done(Ok(count), buf)
            }
            Ok(_) => self.threads.submit(Arc::clone(&self.handle), buf, offset),
            Err(error) => Job::done(Err(error), buf),
        };
        ReadAt { job }
    }

    /// The handle itself, whose reads block.
    #[must_use]
    pub fn get_ref(&self) -> &Handle {
        &self.handle
    }
}

impl Future for ReadAt {
    type Output = (Result<usize, ReadError>, Vec<u8>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.job.poll(context)
    }
}

impl AsyncRead for AsyncHandle {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let me = &mut *self;
        let wanted = me.handle.bytes_from(me.position, buf.len()).min(JOB_BYTES_MAX);
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        if me.job.is_none() {
            let count = me.handle.read_cached(&mut buf[..wanted], me.position)?;
            if count > 0 {
                me.position += count as u64;
                return Poll::Ready(Ok(count));
            }
            let handle = Arc::clone(&me.handle);
            me.job = Some(me.threads.submit(handle, vec![0; wanted], me.position));
        }
        let job = me.job.as_ref().expect("one was submitted");
        let (result, bytes) = ready!(job.poll(context));
        me.job = None;
        // A poll may bring a smaller buffer than the one before: the rest is read again.
        let count = result?.min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        me.position += count as u64;
        Poll::Ready(Ok(count))
    }
}

impl AsyncSeek for AsyncHandle {
    fn poll_seek(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.handle.len().checked_add_signed(by),
        };
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "a position before the start");
        self.position = target.ok_or_else(invalid)?;
        self.job = None;
        Poll::Ready(Ok(self.position))
    }
}

impl fmt::Debug for AsyncHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("AsyncHandle");
        fields.field("handle", &self.handle).field("position", &self.position);
        fields.finish_non_exhaustive()
    }
}

/// The most bytes that a poll asks a thread for: a buffer of any size costs no more.
const JOB_BYTES_MAX: usize = 1 << 20;
