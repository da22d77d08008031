//! What the paths of a stopped thread name, and what a call would change there.
//!
//! # Invariants
//! - Nothing of the program is changed, and no file is opened but those of `/proc`.
//! - A call that would fail for what is there, or for lack of permission, changes nothing. Where
//!   that cannot be told, it is a change.
//! - Devices of characters, pipes and terminals are no files, and what a process writes to shared
//!   memory or of itself in `/proc` is left on no storage. It is the place that counts, after all
//!   links, and not how it is named.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType, OFlags, accessat, stat};

use super::calls::{At, Does, Flags};

/// A thread that is stopped at a call, with the call's arguments.
pub(super) struct Stopped<'a> {
    pub(super) tid: i32,
    pub(super) arguments: &'a [u64; 6],
}

impl Stopped<'_> {
    /// What the call would change, as words that follow the program's name.
    pub(super) fn change(&self, does: Does) -> Option<String> {
        match does {
            Does::Opens(at, flags) => {
                let path = self.path(at)?;
                let opens = self.flags(flags);
                self.written(&path, opens).map(|what| format!("{what} {}", path.display()))
            }
            Does::OpensHandle(flags) => is_writing(self.flags(flags))
                .then(|| "opens a file by its handle, for writing".to_owned()),
            Does::Makes(at) => {
                let path = self.path(at)?;
                let is_new = self.kind(&path).is_none() && self.may_write(parent(&path));
                (is_new && !self.is_passing(&path)).then(|| format!("makes {}", path.display()))
            }
            Does::Changes(at) => {
                let path = self.path(at)?;
                let is_there = self.kind_of_link(&path).is_some_and(is_file);
                (is_there && !self.is_passing(&path)).then(|| format!("changes {}", path.display()))
            }
            Does::ChangesOpen => {
                let path = self.opened(self.number(0));
                let is_there = self.kind(&path).is_some_and(is_file);
                (is_there && !self.is_passing(&path)).then(|| format!("changes {}", path.display()))
            }
            Does::Mounts => Some("changes what is mounted".to_owned()),
        }
    }

    /// What an opening with `flags` would do to the file at `path`.
    fn written(&self, path: &Path, flags: OFlags) -> Option<&'static str> {
        let is_unnamed = flags.contains(OFlags::TMPFILE);
        if flags.contains(OFlags::PATH) || is_unnamed || self.is_passing(path) {
            return None;
        }
        match self.kind(path) {
            Some(kind) => {
                let writes = is_writing(flags) && is_file(kind) && kind != FileType::Directory;
                (writes && self.may_write(path)).then_some("opens for writing")
            }
            // A link that leads nowhere is made to lead somewhere, wherever that is.
            None if flags.contains(OFlags::CREATE) => {
                let may_make = self.kind_of_link(path).is_some() || self.may_write(parent(path));
                may_make.then_some("makes")
            }
            None => None,
        }
    }

    /// The flags of an opening.
    pub(super) fn flags(&self, flags: Flags) -> OFlags {
        let bits = match flags {
            Flags::Argument(at) => self.arguments[at],
            Flags::Structure(at) => {
                let mut word = [0; 8];
                let memory = self.memory();
                let read =
                    memory.and_then(|it| it.read_exact_at(&mut word, self.arguments[at]).ok());
                // What cannot be read fails in the call as well.
                read.map_or(0, |()| u64::from_ne_bytes(word))
            }
            Flags::Create => return OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC,
        };
        OFlags::from_bits_retain(u32::try_from(bits & u64::from(u32::MAX)).expect("masked"))
    }

    /// The full path that the arguments name; nothing where they name none. Its links are not
    /// followed.
    fn path(&self, at: At) -> Option<PathBuf> {
        let directory = at.directory.map(|at| self.number(at));
        let named = match self.arguments[at.path] {
            0 => PathBuf::new(),
            address => self.text(address)?,
        };
        let from = match directory {
            _ if named.is_absolute() => return Some(self.own(named)),
            Some(number) if number != libc::AT_FDCWD => self.opened(number),
            _ => fs::read_link(format!("/proc/{}/cwd", self.tid)).ok()?,
        };
        Some(if named.as_os_str().is_empty() { from } else { from.join(named) })
    }

    /// `path`, where names that mean another thing to each process mean what they do to this one.
    fn own(&self, path: PathBuf) -> PathBuf {
        let process = PathBuf::from(format!("/proc/{}", self.tid));
        for (name, place) in OWN {
            if let Ok(below) = path.strip_prefix(name) {
                let place = process.join(place);
                return if below.as_os_str().is_empty() { place } else { place.join(below) };
            }
        }
        path
    }

    /// Whether what a call would need to be understood can be read.
    pub(super) fn is_readable(&self) -> bool {
        self.memory().is_some()
    }

    /// The argument as a descriptor's number.
    fn number(&self, at: usize) -> i32 {
        let low = u32::try_from(self.arguments[at] & u64::from(u32::MAX)).expect("masked");
        low.cast_signed()
    }

    /// The path of an open descriptor; empty where it has none.
    pub(super) fn opened(&self, number: i32) -> PathBuf {
        fs::read_link(format!("/proc/{}/fd/{number}", self.tid)).unwrap_or_default()
    }

    fn memory(&self) -> Option<File> {
        File::open(format!("/proc/{}/mem", self.tid)).ok()
    }

    /// The text at `address`.
    fn text(&self, address: u64) -> Option<PathBuf> {
        let memory = self.memory()?;
        let (mut text, mut piece) = (Vec::new(), [0; 256]);
        while text.len() < PATH_MAX {
            // The rest of a page: the next one may not be there.
            let from = address.checked_add(text.len() as u64)?;
            let room = usize::try_from(PIECE - from % PIECE).expect("a piece is small");
            let count = memory.read_at(&mut piece[..room], from).ok().filter(|count| *count > 0)?;
            assert!(count <= room, "no more than was asked for");
            let piece = &piece[..count];
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&piece[..end]);
                return Some(PathBuf::from(OsString::from_vec(text)));
            }
            text.extend_from_slice(piece);
        }
        None
    }

    /// `path` in the root of the thread.
    fn in_root(&self, path: &Path) -> PathBuf {
        let mut full = OsString::from(format!("/proc/{}/root", self.tid));
        full.push(path);
        full.into()
    }

    fn kind(&self, path: &Path) -> Option<FileType> {
        let found = stat(self.in_root(path)).ok()?;
        Some(FileType::from_raw_mode(found.st_mode))
    }

    /// As [`Self::kind`], of a link itself.
    fn kind_of_link(&self, path: &Path) -> Option<FileType> {
        let found = rustix::fs::lstat(self.in_root(path)).ok()?;
        Some(FileType::from_raw_mode(found.st_mode))
    }

    /// Whether nothing of what is written to `path` is left on storage: it is in shared memory, or
    /// a process's own in `/proc`.
    fn is_passing(&self, path: &Path) -> bool {
        let full = self.in_root(path);
        let found = fs::canonicalize(&full).or_else(|_| fs::canonicalize(parent(&full)));
        let found = found.unwrap_or(full);
        let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        let in_proc = found.strip_prefix("/proc").ok().and_then(|below| below.iter().next());
        found.starts_with("/dev/shm")
            || in_proc.and_then(|name| name.to_str()).is_some_and(is_process)
    }

    fn may_write(&self, path: &Path) -> bool {
        accessat(CWD, self.in_root(path), Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }
}

/// Whether an opening is for more than reading.
fn is_writing(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC)
}

fn is_file(kind: FileType) -> bool {
    !matches!(kind, FileType::CharacterDevice | FileType::Fifo | FileType::Socket)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Names that mean another thing to each process, and what below its folder in `/proc` they mean.
const OWN: [(&str, &str); 6] = [
    ("/proc/self", ""),
    ("/proc/thread-self", ""),
    ("/dev/fd", "fd"),
    ("/dev/stdin", "fd/0"),
    ("/dev/stdout", "fd/1"),
    ("/dev/stderr", "fd/2"),
];
const PATH_MAX: usize = 4096;
/// A part of a page, and of all larger ones.
const PIECE: u64 = 256;
