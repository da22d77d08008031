//! The end of a handle: the last one of a file makes durable what was written.
//!
//! # Invariants
//! - Of handles that end at a time the one that comes last flushes, after all writes through the
//!   others; no bound of requests keeps it from that.
//! - What cannot be made durable is a panic, and stays in the cache.
//! # Locking
//! The state's lock, never over a call of a store.

use forerun_core::event::Event;

use super::Handle;
use crate::{error::WriteError, owner, write};

impl Handle {
    /// Makes durable what the last handle of a file leaves unwritten; of several that close at a
    /// time, the one that comes last.
    fn flush_last(&self) -> Result<(), WriteError> {
        let is_last = self.shared().state.lock().live.files.handle_closes(self.file.id);
        if !is_last || self.file.writer.get().is_none() {
            return Ok(());
        }
        let flush = || {
            write::flush_at_end(self.shared(), || {
                let state = self.shared().state.lock();
                if state.closed || !state.core.unwritten_file(self.file.id) {
                    return Ok(());
                }
                write::flush(self.carrier(), state, self.id)
            })
        };
        // The first flush reports failures of before, also where the bytes are durable since.
        flush().or_else(|_| flush())
    }

    fn close(&self) {
        let (shared, file) = (self.shared(), &self.file);
        let mut state = shared.state.lock();
        state.send(None, Event::Close { handle: self.id });
        state.handle_closed(self.id);
        let unwritten = state.core.unwritten_file(file.id);
        let (last, pages_go) = state.live.files.handle_closed(file.id, unwritten);
        if pages_go {
            state.drop_pages(file.id);
        }
        shared.settle(state);
        if last {
            file.close();
            shared.state.lock().live.files.drop_unused(file.id);
        }
    }
}

impl Drop for Handle {
    /// # Panics
    /// It is the last handle of its file, and bytes that were written cannot be made durable: see
    /// [`Handle::flush`], which says so without a panic.
    fn drop(&mut self) {
        let flushed = self.flush_last();
        self.close();
        owner::must_not_be_missed(flushed);
    }
}
