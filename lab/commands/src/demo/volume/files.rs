//! The files of the volume: a long log, a table by columns, a folder of notes; twice.
//!
//! ```text
//!   /kernel, /forerun       the same in both
//!      backup.log           text
//!      table.parquet        text, too: of what it would hold only its columns' places matter
//!      notes/0000.txt ...
//! ```
//! A byte depends on its file and its place alone, so nothing is stored.
//!
//! # Invariants
//! - Lookups, lists and reads take the time of the device; attributes that were given once do not.
//! - A number of an inode that was not given out is answered by an error.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use forerun_core::prng::Prng;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    ReplyOpen, Request,
};

use super::delay::Delay;

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of the log.
    pub(crate) log_bytes: u64,
    /// Bytes of the table.
    pub(crate) table_bytes: u64,
    /// Files in the folder.
    pub(crate) notes: u32,
}

/// The folders with the same files.
pub(crate) const SIDES: [&str; 2] = ["kernel", "forerun"];
pub(crate) const LOG: &str = "backup.log";
pub(crate) const TABLE: &str = "table.parquet";
pub(crate) const NOTES: &str = "notes";

struct Node {
    name: String,
    parent: usize,
    /// Of a file; none of a folder.
    bytes: Option<u64>,
}

/// See the module.
pub(super) struct Files {
    delay: Delay,
    nodes: Arc<Vec<Node>>,
    text: Arc<Vec<u8>>,
    user: (u32, u32),
}

impl Files {
    pub(super) fn new(shape: Shape, delay: Delay) -> Self {
        let mut nodes = vec![Node { name: String::new(), parent: ROOT, bytes: None }];
        let mut add = |name: &str, parent, bytes| {
            nodes.push(Node { name: name.to_owned(), parent, bytes });
            nodes.len() - 1
        };
        for side in SIDES {
            let side = add(side, ROOT, None);
            add(LOG, side, Some(shape.log_bytes));
            add(TABLE, side, Some(shape.table_bytes));
            let folder = add(NOTES, side, None);
            for number in 0..shape.notes {
                add(&format!("{number:04}.txt"), folder, Some(NOTE_BYTES));
            }
        }
        let user = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Self { delay, nodes: Arc::new(nodes), text: Arc::new(text()), user }
    }

    fn node(&self, ino: INodeNo) -> Option<(usize, &Node)> {
        let number = usize::try_from(u64::from(ino).checked_sub(1)?).ok()?;
        Some((number, self.nodes.get(number)?))
    }

    fn attributes(&self, number: usize) -> FileAttr {
        let bytes = self.nodes[number].bytes;
        let (kind, perm) = match bytes {
            Some(_) => (FileType::RegularFile, 0o444),
            None => (FileType::Directory, 0o555),
        };
        let size = bytes.unwrap_or(0);
        let at = UNIX_EPOCH + AGE;
        FileAttr {
            ino: INodeNo(number as u64 + 1),
            size,
            blocks: size.div_ceil(512),
            atime: at,
            mtime: at,
            ctime: at,
            crtime: at,
            kind,
            perm,
            nlink: 1,
            uid: self.user.0,
            gid: self.user.1,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

impl Filesystem for Files {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The kernel keeps as many of its own requests under way as it is asked for by readahead.
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = self.node(parent).map(|(number, _)| number);
        let found = self.nodes.iter().enumerate().skip(1);
        let found = found
            .filter(|(_, node)| Some(node.parent) == parent)
            .find(|(_, node)| name == node.name.as_str());
        let found = found.map(|(number, _)| self.attributes(number));
        // A refused answer is dropped, which answers with an error.
        let _ = self.delay.give(
            ENTRY_BYTES,
            Box::new(move || match found {
                Some(found) => reply.entry(&KEPT, &found, Generation(0)),
                None => reply.error(Errno::ENOENT),
            }),
        );
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino) {
            Some((number, _)) => reply.attr(&KEPT, &self.attributes(number)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // What is in memory stays when the file is opened once more.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
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
        let Some((number, &Node { bytes: Some(bytes), .. })) = self.node(ino) else {
            return reply.error(Errno::EISDIR);
        };
        let count = u64::from(size).min(bytes.saturating_sub(offset));
        let text = Arc::clone(&self.text);
        let _ = self.delay.give(
            count,
            Box::new(move || {
                reply.data(&content(&text, number as u64, offset, count));
            }),
        );
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some((folder, Node { bytes: None, .. })) = self.node(ino) else {
            return reply.error(Errno::ENOTDIR);
        };
        let nodes = Arc::clone(&self.nodes);
        let _ = self.delay.give(
            ENTRY_BYTES,
            Box::new(move || {
                let within =
                    nodes.iter().enumerate().skip(1).filter(|(_, node)| node.parent == folder);
                for (place, (number, node)) in (1..).zip(within) {
                    let kind = if node.bytes.is_some() {
                        FileType::RegularFile
                    } else {
                        FileType::Directory
                    };
                    let ino = INodeNo(number as u64 + 1);
                    if place > offset && reply.add(ino, place, kind, &node.name) {
                        break;
                    }
                }
                reply.ok();
            }),
        );
    }
}

/// `count` bytes of file `number` from `offset` on.
fn content(text: &[u8], number: u64, offset: u64, count: u64) -> Vec<u8> {
    let from = usize::try_from((offset + number * 4_099) % text.len() as u64).unwrap_or(0);
    let count = usize::try_from(count).unwrap_or(0);
    let mut content = Vec::with_capacity(count);
    let mut rest = &text[from..];
    while content.len() < count {
        content.extend_from_slice(&rest[..rest.len().min(count - content.len())]);
        rest = text;
    }
    content
}

/// Lines as of a log: they compress as such lines do.
fn text() -> Vec<u8> {
    let mut prng = Prng::new(1);
    let mut text = Vec::with_capacity(TEXT_BYTES + 100);
    while text.len() < TEXT_BYTES {
        let (time, user, bytes) = (prng.below(86_400), prng.below(5_000), prng.below(1 << 20));
        let word = ["GET", "PUT", "LIST", "HEAD"][usize::try_from(prng.below(4)).unwrap_or(0)];
        let line = format!("{time:05} user-{user:04} {word} /objects/{bytes:07x} {bytes} ok\n");
        text.extend_from_slice(line.as_bytes());
    }
    text
}

const ROOT: usize = 0;
/// Of one note.
const NOTE_BYTES: u64 = 6_000;
/// What a lookup or a list takes of the device.
const ENTRY_BYTES: u64 = 4_096;
/// When all was last changed: a time that gzip can write down.
const AGE: Duration = Duration::from_secs(1_700_000_000);
/// How long the kernel keeps names and attributes.
const KEPT: Duration = Duration::from_secs(3_600);
/// Requests of readahead that the kernel keeps under way.
const BACKGROUND: u16 = 128;
/// After which the text begins again; more than gzip looks back.
const TEXT_BYTES: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_depends_on_its_file_and_place_alone() {
        let text = text();
        let whole = content(&text, 3, 0, 600_000);
        for (offset, count) in [(0, 10), (262_140, 40), (599_990, 10)] {
            let at = usize::try_from(offset).unwrap();
            let part = content(&text, 3, offset, count);
            assert_eq!(part, whole[at..at + part.len()], "{offset}");
            assert_eq!(part.len() as u64, count);
        }
        assert_ne!(content(&text, 2, 0, 100), content(&text, 3, 0, 100), "files differ");
    }
}
