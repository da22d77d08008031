//! The files of the server.
//!
//! ```text
//!   /small   64 KiB      /large   64 MiB      each byte is the number of its page, modulo 251
//! ```
//! What is written is taken, and kept by the kernel's cache alone.
//!
//! # Invariants
//! - The kernel keeps no names and no attributes: it asks again each time.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, WriteFlags,
};
use rustix::process::{getgid, getuid};

use super::{Operation, Shared};

/// See the module.
pub(super) struct Files(pub(super) Arc<Shared>);

impl Filesystem for Files {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(file) = FILES.iter().position(|(known, _)| name == *known) else {
            return reply.error(Errno::ENOENT);
        };
        self.0.answer(Operation::Lookup, move |answer| match answer {
            Err(error) => reply.error(error),
            Ok(bytes) => {
                let attributes = attributes(file as u64 + 2, bytes);
                reply.entry(&Duration::ZERO, &attributes, Generation(0));
            }
        });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let ino = u64::from(ino);
        if ino == 1 {
            return reply.attr(&Duration::ZERO, &attributes(1, None));
        }
        self.0.answer(Operation::Attributes, move |answer| match answer {
            Err(error) => reply.error(error),
            Ok(bytes) => reply.attr(&Duration::ZERO, &attributes(ino, bytes)),
        });
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.0.answer(Operation::Open, move |answer| match answer {
            Err(error) => reply.error(error),
            Ok(_) => reply.opened(FileHandle(1), FopenFlags::FOPEN_KEEP_CACHE),
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
        let (mut bytes, mut at) = (Vec::new(), offset);
        while at < end {
            let next = end.min((at / 4096 + 1) * 4096);
            let count = usize::try_from(next - offset).expect("it is no more than was asked for");
            bytes.resize(count, u8::try_from(at / 4096 % 251).expect("below 251"));
            at = next;
        }
        if offset + u64::from(size) <= ILL_FROM {
            return reply.data(&bytes);
        }
        self.0.answer(Operation::Read, move |answer| match answer {
            Err(error) => reply.error(error),
            Ok(most) => {
                let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
                reply.data(&bytes[..bytes.len().min(most)]);
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = u32::try_from(data.len()).expect("a request is short");
        self.0.answer(Operation::Write, move |answer| match answer {
            Err(error) => reply.error(error),
            Ok(most) => {
                let most = most.and_then(|most| u32::try_from(most).ok()).unwrap_or(u32::MAX);
                reply.written(bytes.min(most));
            }
        });
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.0.answer(Operation::Sync, move |answer| match answer {
            Err(error) => reply.error(error),
            Ok(_) => reply.ok(),
        });
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.0.answer(Operation::Entries, move |answer| {
            let absent = match answer {
                Err(error) => return reply.error(error),
                Ok(absent) => absent.unwrap_or(0),
            };
            let absent = (0..absent).map(|at| (at + 100, format!("absent-{at}")));
            let files = (2..).zip(FILES.iter().map(|(name, _)| (*name).to_owned()));
            let entries = (1..).zip(files.chain(absent));
            for (at, (inode, name)) in entries.filter(|(at, _)| *at > offset) {
                if reply.add(INodeNo(inode), at, FileType::RegularFile, name) {
                    break;
                }
            }
            reply.ok();
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
        self.0.answer(Operation::Flush, move |answer| match answer {
            Err(error) => reply.error(error),
            Ok(_) => reply.ok(),
        });
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.0.answer(Operation::Release, move |answer| match answer {
            Err(error) => reply.error(error),
            Ok(_) => reply.ok(),
        });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.0.answer(Operation::Statistics, move |answer| match answer {
            Err(error) => reply.error(error),
            Ok(blocks) => reply.statfs(blocks.unwrap_or(9), 0, 0, 0, 0, 512, 255, 0),
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
        // The kernel tells only the owner what is cached of a file that is not to be written.
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

/// Reads beyond are those that fall ill.
pub(crate) const ILL_FROM: u64 = 4 << 20;
const FILES: [(&str, u64); 2] = [("small", 64 << 10), ("large", 64 << 20)];
