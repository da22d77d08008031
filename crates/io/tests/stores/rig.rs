//! Operations and queues for tests: nothing here may hang for ever.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use forerun_io::{
    frames::Frame,
    store::{Completion, Op, OpKind, Queue, QueueKind, Store, Wait},
};

/// The pages of these tests: small, so that an operation spans several.
pub(crate) const PAGE_BYTES: usize = 64;

/// Both kinds of queue, shallow and deep.
pub(crate) const KINDS: [QueueKind; 3] =
    [QueueKind::Caller, QueueKind::Background { depth: 1 }, QueueKind::Background { depth: 4 }];

/// Says that `test` did not run, and why: on stderr, and in the file that `FORERUN_SKIPPED` names.
pub(crate) fn skip(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    // Written at once, so that lines of parallel tests do not mix.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("FORERUN_SKIPPED") {
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// What `body` returns, or a failed test when it hangs.
pub(crate) fn within<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || sender.send(body()));
    match receiver.recv_timeout(Duration::from_secs(20)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it sent nothing"))
        }
    }
}

/// A thread that waits for one operation of `queue`, and gives what it got.
pub(crate) fn reaping(queue: &Arc<dyn Queue>) -> thread::JoinHandle<Vec<Completion>> {
    let queue = Arc::clone(queue);
    thread::spawn(move || {
        let mut out = Vec::new();
        queue.reap(Wait::One, &mut out);
        out
    })
}

/// An operation whose frames just hold `bytes`, filled with `0xee`.
pub(crate) fn op(kind: OpKind, token: u64, offset: u64, bytes: usize) -> Op {
    let count = bytes.div_ceil(PAGE_BYTES);
    let mut frames: Vec<_> = (0..count).map(|_| Frame::new(PAGE_BYTES).unwrap()).collect();
    for frame in &mut frames {
        frame.fill(0xee);
    }
    Op { token, kind, offset, bytes, frames }
}

/// A write of `data` at `offset`.
pub(crate) fn write(token: u64, offset: u64, data: &[u8]) -> Op {
    let mut op = op(OpKind::Write, token, offset, data.len());
    let mut rest = data;
    for piece in op.pieces_mut() {
        let (now, later) = rest.split_at(piece.len());
        piece.copy_from_slice(now);
        rest = later;
    }
    op
}

/// All that the frames hold, one after the other.
pub(crate) fn held(done: &Completion) -> Vec<u8> {
    done.op.frames.iter().flat_map(|frame| frame.iter().copied()).collect()
}

/// Submits one operation on a queue of its own and reaps it.
pub(crate) fn one(store: &Arc<dyn Store>, kind: QueueKind, op: Op) -> Completion {
    let queue = store.queue(kind);
    queue.submit(op);
    let mut done = drain(&queue);
    assert_eq!(done.len(), 1);
    done.pop().unwrap()
}

/// Reaps until nothing is in flight.
pub(crate) fn drain(queue: &Arc<dyn Queue>) -> Vec<Completion> {
    let queue = Arc::clone(queue);
    within(move || {
        let mut out = Vec::new();
        loop {
            let before = out.len();
            queue.reap(Wait::One, &mut out);
            if out.len() == before {
                return out;
            }
        }
    })
}

/// A path in the temporary folder, removed when this goes.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// A path that nothing is at.
    pub(crate) fn new() -> Self {
        Self::in_folder(&std::env::temp_dir())
    }

    /// A path in `folder` that nothing is at.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forerun-io-{}-{count}", std::process::id());
        Self(folder.join(name))
    }

    /// A file that holds `contents`.
    pub(crate) fn holding(contents: &[u8]) -> Self {
        let scratch = Self::new();
        std::fs::write(&scratch.0, contents).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir(&self.0));
    }
}
