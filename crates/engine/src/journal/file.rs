//! A journal in a file: recorders append to memory, a writer thread writes.
//!
//! ```text
//!   recorder --- group ---> filling [run|block|block|bl..]      under the engine's lock
//!                              | swapped, when a block is full, or soon after it began
//!   writer   ------------>  writing [block|block] ---> file     under no lock
//! ```
//!
//! Where memory or the file is full, or a write fails, the journal ends at the last whole event
//! that fits, and later events are counted. The run continues unchanged.
//! After a kill the file lacks the last tenth of a second. Nothing is synced.
//!
//! # Invariants
//! - A recorder never waits for the file; its memory is bounded, and allocated at the start.
//! - A journal that has ended takes no event: none is missing before its last one.
//! # Locking
//! One lock, taken under the state's by recorders. No thread holds it over a write.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use forerun_core::{
    cache::Settings,
    event::{Actions, Event, codec},
    units::Nanos,
};
use parking_lot::{Condvar, Mutex};

use super::Recorder;
use super::format::{self, BLOCK_BYTES, HEAD_BYTES, Head, LINE_BYTES, PAYLOAD_BYTES_MAX};
use super::settings;

/// The bounds of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of the file.
    pub file_bytes_max: u64,
    /// Bytes that wait to be written, at most 64 MiB; the largest event is half of them.
    pub memory_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { file_bytes_max: 1 << 30, memory_bytes_max: 16 << 20 }
    }
}

impl Bounds {
    /// One buffer is filled while the other is written.
    fn buffer_bytes(self) -> usize {
        self.memory_bytes_max.min(PAYLOAD_BYTES_MAX) / 2
    }
}

/// Why a journal ended before its runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// The next event would have made the file too large.
    #[error("the journal may take {file_bytes_max} bytes")]
    FileFull {
        /// The bound.
        file_bytes_max: u64,
    },
    /// The writer is slower than the run.
    #[error("writing did not keep up: {memory_bytes_max} bytes may wait for it")]
    Behind {
        /// The bound.
        memory_bytes_max: usize,
    },
    /// A write failed.
    #[error("{0}")]
    Write(String),
}

/// The summary of a finished journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs in the file.
    pub runs: u32,
    /// Events in the file.
    pub events: u64,
    /// Events after the last one in the file.
    pub dropped: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Why events were dropped. `None` if none were, or only events whose actions never came.
    pub end: Option<End>,
}

/// A journal that is being written; it ends at [`JournalFile::finish`] or when it is dropped.
pub struct JournalFile {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    inside: Mutex<Inside>,
    changed: Condvar,
    bounds: Bounds,
}

#[derive(Default)]
struct Inside {
    filling: Buffer,
    /// Bytes of the file, once all accepted ones are written.
    accepted_bytes: u64,
    /// Events that recorders were called with.
    sent: u64,
    /// Runs begun; only the last one is recorded.
    runs: u32,
    /// Counts of the file; `finish` fills in `dropped` and `end`.
    written: Summary,
    end: Option<End>,
    finished: bool,
}

/// Bytes to be written, and their division into pieces.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// Events after the last piece.
    open_events: u32,
}

/// A piece of a buffer, by its end.
enum Piece {
    /// The line and text at the head of a run.
    Run { end: usize, sum: u64 },
    /// A block's payload.
    Block { end: usize, events: u32 },
}

impl JournalFile {
    /// A journal in a file at `path`, which replaces an existing one.
    ///
    /// # Errors
    /// The file cannot be created, or the thread cannot be started.
    pub fn create(path: &Path, bounds: Bounds) -> io::Result<Self> {
        let file = File::create(path)?;
        let cut = file.try_clone()?;
        // Cuts a partial block off; where that fails, readers ignore it.
        Self::start(file, bounds, move |bytes| drop(cut.set_len(bytes)))
    }

    /// A journal written to `output`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn on(output: impl Write + Send + 'static, bounds: Bounds) -> io::Result<Self> {
        Self::start(output, bounds, |_| {})
    }

    fn start(
        output: impl Write + Send + 'static,
        bounds: Bounds,
        cut: impl FnOnce(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let half = bounds.buffer_bytes();
        let buffer = || Buffer { bytes: Vec::with_capacity(half), ..Buffer::default() };
        let inside = Mutex::new(Inside { filling: buffer(), ..Inside::default() });
        let shared = Arc::new(Shared { inside, changed: Condvar::new(), bounds });
        let writer = Writer { shared: Arc::clone(&shared), output, before: 0 };
        let mine = buffer();
        let writer = thread::Builder::new()
            .name("forerun-journal".into())
            .spawn(move || writer.run(mine, cut))?;
        Ok(Self { shared, writer: Some(writer) })
    }

    /// The recorder of a core with these settings. Its run ends the recording of earlier runs.
    #[must_use]
    pub fn record(&self, core: &Settings) -> Box<dyn Recorder> {
        let mut inside = self.shared.inside.lock();
        let text = settings::encode(core);
        inside.filling.close();
        inside.runs += 1;
        if self.shared.accept(&mut inside, LINE_BYTES + text.len(), 0) {
            let sum = format::checksum(text.as_bytes());
            let filling = &mut inside.filling;
            filling.bytes.extend(format::line(text.len(), sum).bytes());
            filling.bytes.extend(text.bytes());
            filling.pieces.push(Piece::Run { end: filling.bytes.len(), sum });
        }
        let run = inside.runs;
        Box::new(FileRecorder::new(Arc::clone(&self.shared), run))
    }

    /// Writes the rest and returns the summary. Later events are not counted.
    #[must_use]
    pub fn finish(mut self) -> Summary {
        self.stop();
        let inside = self.shared.inside.lock();
        let dropped = inside.sent - inside.written.events;
        Summary { dropped, end: inside.end.clone(), ..inside.written.clone() }
    }

    fn stop(&mut self) {
        self.shared.inside.lock().finished = true;
        self.shared.changed.notify_one();
        if let Some(writer) = self.writer.take() {
            let ended = writer.join();
            assert!(ended.is_ok() || thread::panicking(), "the journal's writer panicked");
        }
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Whether `bytes` more fit in memory, and with `head_bytes` in the file. Ends the journal if
    /// they do not fit.
    fn accept(&self, inside: &mut Inside, bytes: usize, head_bytes: usize) -> bool {
        let Bounds { file_bytes_max, memory_bytes_max } = self.bounds;
        let after = inside.accepted_bytes + (bytes + head_bytes) as u64;
        if inside.end.is_some() || inside.finished {
            return false;
        }
        if after > file_bytes_max {
            inside.end = Some(End::FileFull { file_bytes_max });
        } else if inside.filling.bytes.len() + bytes > self.bounds.buffer_bytes() {
            inside.end = Some(End::Behind { memory_bytes_max });
        } else {
            inside.accepted_bytes = after;
        }
        inside.end.is_none()
    }
}

impl Buffer {
    /// Bytes of the open block.
    fn open_bytes(&self) -> usize {
        let ends = self.pieces.last().map_or(0, |piece| match *piece {
            Piece::Run { end, .. } | Piece::Block { end, .. } => end,
        });
        self.bytes.len() - ends
    }

    /// Ends the open block, if there is one.
    fn close(&mut self) {
        if self.open_bytes() > 0 {
            let events = std::mem::take(&mut self.open_events);
            self.pieces.push(Piece::Block { end: self.bytes.len(), events });
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        self.open_events = 0;
    }
}

/// Records one run.
struct FileRecorder {
    shared: Arc<Shared>,
    run: u32,
    /// Events whose actions are not recorded yet.
    events: Vec<u8>,
    count: u32,
    /// Buffers of the encoded group and its actions.
    group: Vec<u8>,
    actions: Vec<u8>,
    /// Whether the recorder appends no more.
    ended: bool,
}

impl FileRecorder {
    fn new(shared: Arc<Shared>, run: u32) -> Self {
        let (events, group, actions) = (Vec::new(), Vec::new(), Vec::new());
        Self { shared, run, events, count: 0, group, actions, ended: false }
    }

    /// Appends the group, or ends the journal.
    fn append(&mut self) {
        let shared = &*self.shared;
        let mut inside = shared.inside.lock();
        inside.sent += u64::from(self.count);
        let begins = inside.filling.open_bytes() == 0;
        let head_bytes = if begins { HEAD_BYTES } else { 0 };
        self.ended =
            self.run != inside.runs || !shared.accept(&mut inside, self.group.len(), head_bytes);
        if self.ended {
            return;
        }
        let filling = &mut inside.filling;
        filling.bytes.extend_from_slice(&self.group);
        filling.open_events += self.count;
        let full = filling.open_bytes() >= BLOCK_BYTES;
        if full {
            filling.close();
        }
        drop(inside);
        if begins || full {
            shared.changed.notify_one();
        }
    }
}

impl Recorder for FileRecorder {
    fn sent(&mut self, now: Nanos, event: &Event<'_>) {
        self.count += 1;
        if !self.ended {
            codec::encode(now, event, &mut self.events);
        }
    }

    fn came_back(&mut self, actions: &Actions) {
        if !self.ended {
            self.actions.clear();
            codec::encode_actions(actions, &mut self.actions);
            self.group.clear();
            codec::put_varint(self.count.into(), &mut self.group);
            codec::put_varint(self.actions.len() as u64, &mut self.group);
            self.group.append(&mut self.events);
            self.group.extend_from_slice(&self.actions);
        }
        self.append();
        self.count = 0;
    }
}

impl Drop for FileRecorder {
    fn drop(&mut self) {
        self.shared.inside.lock().sent += u64::from(self.count);
    }
}

/// The writer thread.
struct Writer<W> {
    shared: Arc<Shared>,
    output: W,
    /// The checksum of the previous piece.
    before: u64,
}

impl<W: Write> Writer<W> {
    /// Writes until the journal is finished. A failed write calls `cut` with the length to cut the
    /// file to.
    fn run(mut self, mut mine: Buffer, cut: impl FnOnce(u64)) {
        let mut cut = Some(cut);
        loop {
            let finished = self.swap(&mut mine);
            let mut written = Summary::default();
            let failed = self.write(&mine, &mut written).err();
            mine.clear();
            let mut inside = self.shared.inside.lock();
            inside.written.add(&written);
            if let Some(error) = failed {
                // Waiting bytes would follow a gap.
                inside.filling.clear();
                inside.end = Some(End::Write(error.to_string()));
                let bytes = inside.written.bytes;
                drop(inside);
                if let Some(cut) = cut.take() {
                    cut(bytes);
                }
            }
            if finished {
                return;
            }
        }
    }

    /// Takes the filled buffer, once it is worth a write. Returns whether it is the last.
    fn swap(&self, mine: &mut Buffer) -> bool {
        let mut inside = self.shared.inside.lock();
        while inside.filling.bytes.is_empty() && !inside.finished {
            self.shared.changed.wait(&mut inside);
        }
        if inside.filling.bytes.len() < BLOCK_BYTES && !inside.finished {
            self.shared.changed.wait_for(&mut inside, WAIT);
        }
        inside.filling.close();
        std::mem::swap(&mut inside.filling, mine);
        inside.finished
    }

    /// Writes a buffer and counts each piece that was written whole.
    fn write(&mut self, buffer: &Buffer, written: &mut Summary) -> io::Result<()> {
        let mut begin = 0;
        for piece in &buffer.pieces {
            let (end, events, sum) = match *piece {
                Piece::Run { end, sum } => (end, None, sum),
                Piece::Block { end, events } => {
                    let head = Head::of(&buffer.bytes[begin..end], events);
                    self.output.write_all(&head.encode(self.before))?;
                    written.bytes += HEAD_BYTES as u64;
                    (end, Some(events), head.sum)
                }
            };
            self.output.write_all(&buffer.bytes[begin..end]).inspect_err(|_| {
                // A head without its payload is useless.
                written.bytes -= if events.is_some() { HEAD_BYTES as u64 } else { 0 };
            })?;
            written.bytes += (end - begin) as u64;
            written.events += u64::from(events.unwrap_or(0));
            written.runs += u32::from(events.is_none());
            (begin, self.before) = (end, sum);
        }
        self.output.flush()
    }
}

impl Summary {
    fn add(&mut self, more: &Self) {
        self.runs += more.runs;
        self.events += more.events;
        self.bytes += more.bytes;
    }
}

/// How long the writer waits for a block to fill.
const WAIT: Duration = Duration::from_millis(100);
