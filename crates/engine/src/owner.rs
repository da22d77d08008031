//! The owner that a cache's clones and handles share: dropping the last of them closes the cache.
//!
//! # Invariants
//! - A closed cache starts no read and no write, and has no thread and no operation.
//! - What was written is durable when a cache has closed, or its closing says that it is not.
//! # Locking
//! The state's lock, never over a call of a store or the end of a thread.

use std::{sync::Arc, time::Duration};

use forerun_core::{device::remembered::DeviceRecord, event::Event, units::PartitionId};
use forerun_io::{
    devices::{DeviceKey, DeviceStore},
    files::Files,
    process::OwnerProcess,
    sync::thread,
};

use crate::{
    carry::Carrier,
    error::WriteError,
    file::{File, FileState},
    flusher::Flusher,
    shared::Shared,
    watch::Watch,
    write,
};

/// See the module.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) files: Files,
    pub(crate) watch: Watch,
    pub(crate) flusher: Flusher,
    pub(crate) memory: Option<DeviceMemory>,
    pub(crate) home: OwnerProcess,
}

/// Where what is learnt of the device is kept.
pub(crate) struct DeviceMemory {
    pub(crate) devices: DeviceStore,
    pub(crate) key: DeviceKey,
}

impl DeviceMemory {
    /// What an earlier run has learnt. A file that cannot be read says nothing.
    pub(crate) fn load(&self) -> Option<DeviceRecord> {
        self.devices.load(&self.key).ok().flatten()
    }

    /// Keeps `record`. Where that fails, the next run learns it again.
    fn save(&self, record: DeviceRecord) {
        let _ = self.devices.save(&[(self.key.clone(), record)], PATIENCE);
    }
}

impl Owner {
    /// Refuses new reads and writes, makes durable what was written, and ends all background work.
    /// The error of the first file that cannot be written. Another call waits for the end of the
    /// first, which has the error.
    pub(crate) fn close(&self) -> Result<(), WriteError> {
        let mut state = self.shared.state.lock();
        if std::mem::replace(&mut state.closed, true) {
            // In the child of a fork no thread goes on closing.
            while !state.has_closed && !self.home.is_forked() {
                self.shared.writer_left.wait(&mut state);
            }
            return Ok(());
        }
        drop(state);
        let _over = Closing(&self.shared);
        let mut state = self.shared.state.lock();
        while state.writers > 0 && !self.home.is_forked() {
            self.shared.writer_left.wait(&mut state);
        }
        let written = state.live.files.written_files();
        let files = state.live.files.open_files(false);
        drop(state);
        let mut flushed = Ok(());
        for file in &written {
            flushed = flushed.and(self.flush(file));
        }
        for file in written.iter().chain(&files) {
            file.end(FileState::Closed);
            file.close();
        }
        self.shared.backgrounds.close();
        self.watch.end();
        self.flusher.end(&self.shared);
        if let Some(memory) = &self.memory {
            let record = self.shared.state.lock().core.device_record();
            if let Some(record) = record {
                memory.save(record);
            }
        }
        flushed
    }

    /// Makes durable what was written to `file`, which may have no handle any more.
    fn flush(&self, file: &Arc<File>) -> Result<(), WriteError> {
        write::flush_at_end(&self.shared, || {
            let mut state = self.shared.state.lock();
            if !state.core.unwritten_file(file.id) {
                return Ok(());
            }
            let (handle, partition, file_pages) =
                (state.own_handle(), PartitionId(0), file.pages());
            state.send(None, Event::Open { handle, file: file.id, partition, file_pages });
            let flushed = write::flush(Carrier { shared: &self.shared, file }, state, handle);
            let mut state = self.shared.state.lock();
            state.send(None, Event::Close { handle });
            state.own_handle_closed(handle);
            self.shared.settle(state);
            flushed
        })
    }
}

/// A closing, which is over when this is dropped.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().has_closed = true;
        self.0.writer_left.notify_all();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        must_not_be_missed(self.close());
    }
}

/// How long closing waits for others that keep what they learnt.
const PATIENCE: Duration = Duration::from_millis(40);

/// Panics with the error of a flush that no caller can be given; in a thread that panics already,
/// prints it.
pub(crate) fn must_not_be_missed(flushed: Result<(), WriteError>) {
    let Err(error) = flushed else { return };
    if thread::panicking() {
        eprintln!("forerun: written bytes are not durable: {error}");
    } else {
        panic!("written bytes are not durable: {error}");
    }
}
