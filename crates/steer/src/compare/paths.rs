//! What the paths of a stopped thread name, and what a call would change there.
//!
//! ```text
//!   absolute name  -> /proc/TID/root/NAME   however long the way there is: the kernel follows it
//!   by descriptor  -> /proc/TID/fd/N/NAME
//!   relative name  -> /proc/TID/cwd/NAME
//! ```
//! # Invariants
//! - Nothing of the program is changed, and no file is opened but those of `/proc`: of others there
//!   are handles (`O_PATH`).
//! - A call that would fail for what is there, or for lack of permission, changes nothing. Where
//!   this process cannot find out (a name with the way before it is too long; another root, in
//!   which links and `..` lead elsewhere), it is a change.
//! - Devices of characters, pipes and terminals are no files, and what a process writes to shared
//!   memory or of itself in `/proc` is left on no storage. It is the place that counts, after all
//!   links, and not how it is named.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat, accessat,
    fstat, fstatfs, lstat, open, stat,
};

use super::calls::{At, Does, Flags};
use crate::open::path_of;

/// A thread that is stopped at a call, with the call's arguments.
pub(super) struct Stopped<'a> {
    pub(super) tid: i32,
    pub(super) arguments: &'a [u64; 6],
}

impl Stopped<'_> {
    /// What the call would change, as words that follow the program's name.
    pub(super) fn change(&self, does: Does) -> Option<String> {
        let (named, what) = match does {
            Does::Opens(at, given) => {
                let flags = self.flags(given);
                if !is_writing(flags) && !flags.contains(OFlags::CREATE) {
                    return None;
                }
                let named = self.named(at)?;
                let what = if self.is_unknown(&named) || self.is_rooted(given) {
                    Some("opens for writing")
                } else {
                    written(&named.path, flags)
                };
                (named, what?)
            }
            Does::OpensHandle(flags) => {
                return is_writing(self.flags(flags))
                    .then(|| "opens a file by its handle, for writing".to_owned());
            }
            Does::Makes(at) => {
                let named = self.named(at)?;
                let path = &named.path;
                let is_new = kind(path).is_none() && may_write(parent(path));
                let makes = self.is_unknown(&named) || is_new && !is_passing(path);
                (named, makes.then_some("makes")?)
            }
            Does::Changes(at) => {
                let named = self.named(at)?;
                let path = &named.path;
                // The link that is removed may lead elsewhere.
                let is_passing =
                    || is_passing(path) && (!is_link(path) || is_passing(parent(path)));
                let found = if named.is_open {
                    kind(path).is_some_and(is_file)
                } else {
                    // The name of a pipe or of a socket is an entry like any other.
                    kind_of_link(path).is_some_and(|kind| kind != FileType::CharacterDevice)
                };
                let changes = self.is_unknown(&named) || found && !is_passing();
                (named, changes.then_some("changes")?)
            }
            Does::ChangesOpen => {
                let named = self.descriptor(self.number(0), PathBuf::new());
                let is_there = kind(&named.path).is_some_and(is_file);
                let changes = is_there && !is_passing(&named.path);
                (named, changes.then_some("changes")?)
            }
            Does::Mounts => return Some("changes what is mounted".to_owned()),
            Does::System => {
                return Some("changes the system's accounting or swap space".to_owned());
            }
        };
        Some(format!("{what} {}", named.shown.display()))
    }

    /// Whether an opening takes its path for one below another root.
    fn is_rooted(&self, flags: Flags) -> bool {
        let Flags::Structure(at) = flags else { return false };
        let mut words = [0; 24];
        let read =
            self.memory().and_then(|it| it.read_exact_at(&mut words, self.arguments[at]).ok());
        // The third word of the structure says how the path is resolved.
        let resolve = read.and_then(|()| words[16..].try_into().ok()).map_or(0, u64::from_ne_bytes);
        resolve & ResolveFlags::IN_ROOT.bits() != 0
    }

    /// Whether this process cannot find what is there.
    fn is_unknown(&self, named: &Named) -> bool {
        let own = |it: rustix::io::Result<Stat>| it.ok().map(|it| (it.st_dev, it.st_ino));
        let root = own(stat(format!("/proc/{}/root", self.tid)));
        named.path.as_os_str().len() >= PATH_MAX || root.is_none() || root != own(stat("/"))
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

    /// What the arguments name; nothing where they name nothing. Links are not followed.
    fn named(&self, at: At) -> Option<Named> {
        let name = match self.arguments[at.path] {
            0 => PathBuf::new(),
            address => self.text(address)?,
        };
        if name.is_absolute() {
            let name = self.own(name);
            let mut path = OsString::from(format!("/proc/{}/root", self.tid));
            path.push(&name);
            return Some(Named { path: path.into(), shown: name, is_open: false });
        }
        Some(match at.directory.map(|at| self.number(at)) {
            Some(number) if number != libc::AT_FDCWD => self.descriptor(number, name),
            _ => Named::from(format!("/proc/{}/cwd", self.tid), name),
        })
    }

    /// What `name` is from a descriptor on; that itself where it is empty.
    fn descriptor(&self, number: i32, name: PathBuf) -> Named {
        Named::from(format!("/proc/{}/fd/{number}", self.tid), name)
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
}

/// What a call names.
struct Named {
    /// Where this process finds it.
    path: PathBuf,
    /// As the program would say.
    shown: PathBuf,
    /// It is open: its path is a link to it.
    is_open: bool,
}

impl Named {
    /// `name` from where the link `from` of the kernel leads.
    fn from(from: String, name: PathBuf) -> Self {
        let is_open = name.as_os_str().is_empty();
        let base = PathBuf::from(from);
        // The kernel gives no way that is too long.
        let told = fs::read_link(&base).unwrap_or_else(|_| PathBuf::from("..."));
        let shown = if is_open { told } else { told.join(&name) };
        Self { path: if is_open { base } else { base.join(name) }, shown, is_open }
    }
}

/// What an opening with `flags` would do to the file at `path`.
fn written(path: &Path, flags: OFlags) -> Option<&'static str> {
    if flags.contains(OFlags::PATH) || flags.contains(OFlags::TMPFILE) || is_passing(path) {
        return None;
    }
    match kind(path) {
        Some(kind) => {
            let writes = is_writing(flags) && is_file(kind) && kind != FileType::Directory;
            (writes && may_write(path)).then_some("opens for writing")
        }
        // A link that leads nowhere is made to lead somewhere, wherever that is.
        None if flags.contains(OFlags::CREATE) => {
            let may_make = kind_of_link(path).is_some() || may_write(parent(path));
            may_make.then_some("makes")
        }
        None => None,
    }
}

fn kind(path: &Path) -> Option<FileType> {
    stat(path).ok().map(|found| FileType::from_raw_mode(found.st_mode))
}

/// As [`kind`], of a link itself.
fn kind_of_link(path: &Path) -> Option<FileType> {
    lstat(path).ok().map(|found| FileType::from_raw_mode(found.st_mode))
}

fn is_link(path: &Path) -> bool {
    kind_of_link(path) == Some(FileType::Symlink)
}

/// Whether nothing of what is written to `path` is left on storage: it has no name, is in shared
/// memory, or a process's own in `/proc`.
fn is_passing(path: &Path) -> bool {
    let handle = |path: &Path| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let found = match handle(path) {
        // What a link that leads nowhere would have made lies where it leads.
        Err(_) if is_link(path) => return false,
        Err(_) => handle(parent(path)),
        found => found,
    };
    let Ok(found) = found else { return false };
    let (Ok(place), Ok(system)) = (fstat(&found), fstatfs(&found)) else { return false };
    if system.f_type == PROC_SUPER_MAGIC {
        let is_process = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
        let name = path_of(&found);
        let below = name.as_deref().and_then(|name| name.strip_prefix(b"/proc/"));
        return below.and_then(|it| it.split(|&byte| byte == b'/').next()).is_some_and(is_process);
    }
    // Shared memory is where something in memory is mounted for it.
    let device = |path: &str| stat(path).ok().map(|found| found.st_dev);
    let shared = device("/dev/shm").filter(|shared| Some(*shared) != device("/dev"));
    place.st_nlink == 0 || system.f_type == TMPFS_MAGIC && shared == Some(place.st_dev)
}

fn may_write(path: &Path) -> bool {
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
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
/// Linux `include/uapi/linux/magic.h`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// A part of a page, and of all larger ones.
const PIECE: u64 = 256;
