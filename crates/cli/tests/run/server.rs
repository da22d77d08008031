//! A file system that falls ill on command: it hangs, fails or lies at one operation, until it is
//! healed.
//!
//! ```text
//!   /small   64 KiB      /large   64 MiB      each byte is the number of its page, modulo 251
//! ```
//! # Invariants
//! - A request that hangs is held, and answered when the server is healed; all others are answered
//!   meanwhile.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use forerun_testkit::{Scratch, skip};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, Request,
};

/// The operations that may fall ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Lookup,
    Attributes,
    Open,
    /// Reads from [`ILL_FROM`] on.
    Read,
    Flush,
}

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Illness {
    Hangs,
    Fails(Errno),
    /// Attributes have another size.
    Lies(u64),
}

/// A mounted file system.
pub(crate) struct Server {
    pub(crate) folder: Scratch,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    held: Condvar,
}

#[derive(Default)]
struct State {
    ill: Option<(Operation, Illness)>,
    held: Vec<Box<dyn FnOnce() + Send>>,
}

impl Server {
    /// Mounts one; `None`, and `test` is skipped by name, where that is not possible.
    pub(crate) fn mount(test: &str) -> Option<Self> {
        let folder = Scratch::new("sick");
        let shared = Arc::new(Shared::default());
        let mut config = Config::default();
        config.mount_options = vec![MountOption::RO, MountOption::FSName("sick".into())];
        match fuser::spawn_mount(Files(Arc::clone(&shared)), &*folder, &config) {
            Ok(session) => Some(Self { folder, shared, session: Some(session) }),
            Err(error) => {
                skip(test, &format!("FUSE (/dev/fuse and root, or fuse3): {error}"));
                None
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// From now on `operation` is ill.
    pub(crate) fn falls_ill(&self, operation: Operation, illness: Illness) {
        self.shared.lock().ill = Some((operation, illness));
    }

    /// Requests that hang.
    pub(crate) fn held(&self) -> usize {
        self.shared.lock().held.len()
    }

    /// Answers all that hangs, and all that comes.
    pub(crate) fn heals(&self) {
        let mut state = self.shared.lock();
        state.ill = None;
        let held = std::mem::take(&mut state.held);
        drop(state);
        for answer in held {
            answer();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.heals();
        // A process that was left in a call on it holds the mount until it is gone: it goes now,
        // and its files with their last user.
        let ways = [("umount", "-l"), ("fusermount3", "-uz")];
        let _ = ways.iter().any(|(program, lazily)| {
            let mut command = Command::new(program);
            let command = command.arg(lazily).arg(&*self.folder).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        });
        drop(self.session.take());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    /// Answers with `answer`, which is given an error where the operation fails and a size where it
    /// lies: at once, or when the server is healed.
    fn answer(
        &self,
        operation: Operation,
        answer: impl FnOnce(Option<Errno>, Option<u64>) + Send + 'static,
    ) {
        let mut state = self.lock();
        match state.ill.filter(|(ill, _)| *ill == operation) {
            Some((_, Illness::Hangs)) => {
                state.held.push(Box::new(move || answer(None, None)));
                self.held.notify_all();
            }
            Some((_, Illness::Fails(errno))) => answer(Some(errno), None),
            Some((_, Illness::Lies(bytes))) => answer(None, Some(bytes)),
            None => answer(None, None),
        }
    }
}

/// The files of the server.
struct Files(Arc<Shared>);

impl Filesystem for Files {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(file) = FILES.iter().position(|(known, _)| name == *known) else {
            return reply.error(Errno::ENOENT);
        };
        let attributes = attributes(file as u64 + 2, None);
        self.0.answer(Operation::Lookup, move |error, _| match error {
            Some(error) => reply.error(error),
            None => reply.entry(&Duration::ZERO, &attributes, Generation(0)),
        });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let ino = u64::from(ino);
        if ino == 1 {
            return reply.attr(&Duration::ZERO, &attributes(1, None));
        }
        self.0.answer(Operation::Attributes, move |error, bytes| match error {
            Some(error) => reply.error(error),
            None => reply.attr(&Duration::ZERO, &attributes(ino, bytes)),
        });
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.0.answer(Operation::Open, move |error, _| match error {
            Some(error) => reply.error(error),
            None => reply.opened(FileHandle(1), FopenFlags::FOPEN_KEEP_CACHE),
        });
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = attributes(u64::from(ino), None).size.min(offset + u64::from(size));
        let byte = |at: u64| u8::try_from(at / 4096 % 251).expect("below 251");
        let bytes: Vec<u8> = (offset..end).map(byte).collect();
        if offset + u64::from(size) <= ILL_FROM {
            return reply.data(&bytes);
        }
        self.0.answer(Operation::Read, move |error, _| match error {
            Some(error) => reply.error(error),
            None => reply.data(&bytes),
        });
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.0.answer(Operation::Flush, move |error, _| match error {
            Some(error) => reply.error(error),
            None => reply.ok(),
        });
    }
}

/// The attributes of the folder, which is 1, or of a file; `bytes` is what it lies about its size.
fn attributes(ino: u64, bytes: Option<u64>) -> FileAttr {
    let file = ino.checked_sub(2).and_then(|at| FILES.get(usize::try_from(at).ok()?));
    let size = bytes.or(file.map(|(_, bytes)| *bytes)).unwrap_or(0);
    let kind = if file.is_some() { FileType::RegularFile } else { FileType::Directory };
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: size / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

/// Reads beyond are those that fall ill.
pub(crate) const ILL_FROM: u64 = 4 << 20;
const FILES: [(&str, u64); 2] = [("small", 64 << 10), ("large", 64 << 20)];
