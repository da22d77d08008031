//! Decoders of `/proc/PID/task/TID/syscall`: the call that a thread is blocked in, and what it does
//! with an entry of a directory tree.
//!
//! ```text
//!   257 0xffffff9c 0x7ffd..10 0x80000 0x0 0x0 0x0 0x7ffd..00 0x7f01..9e
//!   |   '------------- six arguments -----------' stack      code
//!   number, by a table for each architecture       --> openat: a path at 0x7ffd..10
//!   running     -1 0x7ffd..00 0x7f01..9e           --> no call
//! ```
//! # Invariants
//! - A number that is in no table, and a text that is not as expected, is no call.
//! - Calls of 32-bit programs and of x32 have other numbers and arguments, and are not decoded.
//! # Sources
//! proc(5); Linux `fs/proc/base.c` (`proc_pid_syscall`), `arch/x86/entry/syscalls/syscall_64.tbl`,
//! `scripts/syscall.tbl`.

/// What the kernel tells of a thread that is blocked in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    number: u64,
    arguments: [u64; 6],
    stack: u64,
    code: u64,
}

/// A call that uses an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It asks for the inode's facts.
    Stat(Place),
    /// It opens what is there.
    Open(Place),
    /// It executes it.
    Execute(Place),
    /// It lists the directory of the descriptor.
    List(i32),
    /// It reads bytes.
    Read {
        descriptor: i32,
        /// The first one; the position of the descriptor where it is not told.
        offset: Option<u64>,
        /// How many at most, where that is told.
        bytes: Option<u64>,
    },
}

/// A call that moves bytes of one descriptor to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MoveCall {
    pub(super) from: (i32, Offset),
    pub(super) to: (i32, Offset),
    /// How many at most.
    pub(super) bytes: u64,
}

/// Where in a file a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offset {
    /// At the position of the descriptor.
    Position,
    /// At what the program has at this address.
    At(u64),
}

/// What names an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Descriptor(i32),
    /// The path at this address; one that is relative begins at the directory, a descriptor, or at
    /// the working directory.
    Path {
        directory: Option<i32>,
        address: u64,
    },
}

/// A call by what can be made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// It uses an entry.
    Entry(Call),
    /// It is one of another interface, whose numbers mean other calls.
    Foreign,
    /// It uses none.
    Other,
}

impl Registers {
    /// Those in the text of `syscall`; `None` where the thread is in no call, or runs.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = word()?;
        }
        Some(Self { number, arguments, stack: word()?, code: word()? })
    }

    /// What the call does.
    pub(super) fn decode(&self) -> Decoded {
        self.decode_by(TABLE)
    }

    /// The move of bytes that the call is, if it is one that may take a whole file.
    pub(super) fn moves(&self) -> Option<MoveCall> {
        self.moves_by(SENDFILE, COPY_FILE_RANGE)
    }

    fn moves_by(&self, sendfile: u64, copy_file_range: u64) -> Option<MoveCall> {
        let a = &self.arguments;
        let at = |address| if address == 0 { Offset::Position } else { Offset::At(address) };
        if self.stack < FOUR_GIB {
            None
        } else if self.number == sendfile {
            let (from, to) = ((descriptor(a[1]), at(a[2])), (descriptor(a[0]), Offset::Position));
            Some(MoveCall { from, to, bytes: a[3] })
        } else if self.number == copy_file_range {
            let (from, to) = ((descriptor(a[0]), at(a[1])), (descriptor(a[2]), at(a[3])));
            Some(MoveCall { from, to, bytes: a[4] })
        } else {
            None
        }
    }

    fn decode_by(&self, table: &[(u64, Decode)]) -> Decoded {
        if self.number & X32 != 0 || self.stack < FOUR_GIB {
            return Decoded::Foreign;
        }
        let row = table.iter().find(|(number, _)| *number == self.number);
        let call = row.and_then(|(_, decode)| decode(&self.arguments));
        call.map_or(Decoded::Other, Decoded::Entry)
    }
}

/// Makes a call of six arguments; `None` where it uses no entry that is there already.
type Decode = fn(&[u64; 6]) -> Option<Call>;

const fn descriptor(argument: u64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "the kernel takes the lower 32 bits")]
    let number = argument as u32;
    number.cast_signed()
}

fn path(argument: u64) -> Place {
    Place::Path { directory: None, address: argument }
}

fn path_at(directory: u64, argument: u64) -> Place {
    let directory = Some(descriptor(directory)).filter(|&number| number != libc::AT_FDCWD);
    Place::Path { directory, address: argument }
}

#[expect(clippy::unnecessary_wraps, reason = "a row of the table")]
fn stat(place: Place) -> Option<Call> {
    Some(Call::Stat(place))
}

/// What is created, or opened to be written alone, is not read.
fn open(place: Place, flags: u64) -> Option<Call> {
    let flags = descriptor(flags);
    let is_read = flags & libc::O_ACCMODE != libc::O_WRONLY && flags & libc::O_CREAT == 0;
    is_read.then_some(Call::Open(place))
}

#[expect(clippy::unnecessary_wraps, reason = "a row of the table")]
fn list(argument: u64) -> Option<Call> {
    Some(Call::List(descriptor(argument)))
}

#[expect(clippy::unnecessary_wraps, reason = "a row of the table")]
fn read(argument: u64, offset: Option<u64>, bytes: Option<u64>) -> Option<Call> {
    Some(Call::Read { descriptor: descriptor(argument), offset, bytes })
}

#[expect(clippy::unnecessary_wraps, reason = "a row of the table")]
fn execute(place: Place) -> Option<Call> {
    Some(Call::Execute(place))
}

#[rustfmt::skip]
const X86_64: &[(u64, Decode)] = &[
    (0,   |a| read(a[0], None, Some(a[2]))),
    (2,   |a| open(path(a[0]), a[1])),
    (4,   |a| stat(path(a[0]))),                      // stat
    (5,   |a| stat(Place::Descriptor(descriptor(a[0])))), // fstat
    (6,   |a| stat(path(a[0]))),                      // lstat
    (17,  |a| read(a[0], Some(a[3]), Some(a[2]))),    // pread64
    (19,  |a| read(a[0], None, None)),                // readv
    (21,  |a| stat(path(a[0]))),                      // access
    (40,  |a| read(a[1], None, Some(a[3]))),          // sendfile
    (59,  |a| execute(path(a[0]))),                   // execve
    (78,  |a| list(a[0])),                            // getdents
    (89,  |a| stat(path(a[0]))),                      // readlink
    (191, |a| stat(path(a[0]))),                      // getxattr
    (192, |a| stat(path(a[0]))),                      // lgetxattr
    (194, |a| stat(path(a[0]))),                      // listxattr
    (195, |a| stat(path(a[0]))),                      // llistxattr
    (217, |a| list(a[0])),                            // getdents64
    (257, |a| open(path_at(a[0], a[1]), a[2])),       // openat
    (262, |a| stat(path_at(a[0], a[1]))),             // newfstatat
    (267, |a| stat(path_at(a[0], a[1]))),             // readlinkat
    (269, |a| stat(path_at(a[0], a[1]))),             // faccessat
    (295, |a| read(a[0], Some(a[3]), None)),          // preadv
    (322, |a| execute(path_at(a[0], a[1]))),          // execveat
    (326, |a| read(a[0], None, Some(a[4]))),          // copy_file_range
    (327, |a| read(a[0], position(a[3]), None)),      // preadv2
    (332, |a| stat(path_at(a[0], a[1]))),             // statx
    (437, |a| open(path_at(a[0], a[1]), 0)),          // openat2
    (439, |a| stat(path_at(a[0], a[1]))),             // faccessat2
];

/// The table that newer architectures share.
#[rustfmt::skip]
const GENERIC: &[(u64, Decode)] = &[
    (8,   |a| stat(path(a[0]))),                      // getxattr
    (9,   |a| stat(path(a[0]))),                      // lgetxattr
    (11,  |a| stat(path(a[0]))),                      // listxattr
    (12,  |a| stat(path(a[0]))),                      // llistxattr
    (48,  |a| stat(path_at(a[0], a[1]))),             // faccessat
    (56,  |a| open(path_at(a[0], a[1]), a[2])),       // openat
    (61,  |a| list(a[0])),                            // getdents64
    (63,  |a| read(a[0], None, Some(a[2]))),
    (65,  |a| read(a[0], None, None)),                // readv
    (67,  |a| read(a[0], Some(a[3]), Some(a[2]))),    // pread64
    (69,  |a| read(a[0], Some(a[3]), None)),          // preadv
    (71,  |a| read(a[1], None, Some(a[3]))),          // sendfile
    (78,  |a| stat(path_at(a[0], a[1]))),             // readlinkat
    (79,  |a| stat(path_at(a[0], a[1]))),             // newfstatat
    (80,  |a| stat(Place::Descriptor(descriptor(a[0])))), // fstat
    (221, |a| execute(path(a[0]))),                   // execve
    (281, |a| execute(path_at(a[0], a[1]))),          // execveat
    (285, |a| read(a[0], None, Some(a[4]))),          // copy_file_range
    (286, |a| read(a[0], position(a[3]), None)),      // preadv2
    (291, |a| stat(path_at(a[0], a[1]))),             // statx
    (437, |a| open(path_at(a[0], a[1]), 0)),          // openat2
    (439, |a| stat(path_at(a[0], a[1]))),             // faccessat2
];

/// The position of a call that takes -1 for that of its descriptor.
fn position(argument: u64) -> Option<u64> {
    Some(argument).filter(|&offset| offset != u64::MAX)
}

const TABLE: &[(u64, Decode)] = if cfg!(target_arch = "x86_64") {
    X86_64
} else if cfg!(any(target_arch = "aarch64", target_arch = "riscv64")) {
    GENERIC
} else {
    &[]
};

const SENDFILE: u64 = libc::SYS_sendfile.cast_unsigned();
const COPY_FILE_RANGE: u64 = libc::SYS_copy_file_range.cast_unsigned();

/// The bit of x32's numbers.
const X32: u64 = 0x4000_0000;
/// The stack of a 32-bit program lies below.
const FOUR_GIB: u64 = 1 << 32;

#[cfg(test)]
mod tests;
