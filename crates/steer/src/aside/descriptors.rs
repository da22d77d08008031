//! The descriptors that this process inherited and hands on to a program: they are closed here once
//! a process has them that is about to be the program.
//!
//! ```text
//!   caller --9: a file--> this process --9--> the program
//!                           |   closed by a process that shares this one's descriptors
//!                           `-- kept where the file has a POSIX lock of the caller's
//!          --8: a pipe-->   closed at once, as is what else waits for nothing
//!          --7: a device->  closed by another such process
//! ```
//! A lock by `flock(2)`, a program that is written before it is run, a file system that is to be
//! unmounted: each is free once the program alone has the file, and has closed it.
//!
//! # Invariants
//! - A file system may block a close, and so may a device, a terminal that sends what was written,
//!   and a socket that lingers: this process closes none of them itself, and what is no file and
//!   blocks keeps no file from being closed.
//! - A file stays open, by all descriptors that lead to it, where closing one would give up a lock:
//!   a POSIX lock is of the process that took it, which became this one.
//! # Sources
//! `close(2)`, `clone(2)` (`CLONE_FILES`), `socket(7)` (`SO_LINGER`); Linux `block/bdev.c`
//! (`bdev_release`: the last close writes), `drivers/tty/tty_port.c` (`tty_port_close_start`),
//! `fs/open.c` (`filp_close`), `fs/locks.c` (`show_fd_locks`: the locks of the table of
//! descriptors).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

use forerun_core::units::Nanos;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, fcntl_getfl, major};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::sockopt::socket_linger;
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

use super::{LEFT_AFTER, is_readable};
use crate::clock::Clock;
use crate::kernel::stat;
use crate::observe::procfs::text;
use crate::open::writes;

/// Processes that close what may block.
#[derive(Debug)]
#[must_use]
pub(crate) struct Closers {
    all: Vec<Closer>,
    /// How long their ends are waited for.
    left_after: Nanos,
}

impl Default for Closers {
    fn default() -> Self {
        Self { all: Vec::new(), left_after: LEFT_AFTER }
    }
}

/// A process that closes descriptors of this one.
#[derive(Debug)]
struct Closer {
    pid: Pid,
    end: Option<OwnedFd>,
    has_ended: bool,
}

/// What may become of a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Close {
    /// It waits for nothing.
    AtOnce,
    /// A device, a terminal or a peer may block it.
    Device,
    /// A file system may.
    File,
}

impl Closer {
    /// Starts to close `numbers`, descriptors of this process that nothing in it owns.
    fn start(numbers: &[RawFd]) -> io::Result<Self> {
        let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
        // SAFETY: as `fork`, but for the descriptors, which both processes share. The child runs
        // this program's code on with a copy of its memory, and no other thread holds a lock that
        // it takes, as of `Aside::start`.
        match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
            0 => {
                release(numbers.iter().copied());
                // SAFETY: ends the process, and nothing else.
                unsafe { libc::_exit(0) }
            }
            pid => {
                let pid = i32::try_from(pid).ok().filter(|&pid| pid > 0).and_then(Pid::from_raw);
                let pid = pid.ok_or_else(io::Error::last_os_error)?;
                let end = pidfd_open(pid, PidfdFlags::empty()).ok();
                Ok(Self { pid, end, has_ended: false })
            }
        }
    }

    /// Whether it runs, or waits for a processor.
    fn is_runnable(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero()));
        stat.ok().and_then(|stat| text::state(&stat)).is_some_and(|state| state.letter == b'R')
    }

    /// Whether it has ended.
    fn has_ended(&mut self) -> bool {
        self.has_ended |= !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None));
        self.has_ended
    }
}

impl Closers {
    /// Forgets those that have ended.
    pub(crate) fn reap(&mut self) {
        self.all.retain_mut(|closer| !closer.has_ended());
    }

    /// From now on their ends are waited for no longer than `time`, all together.
    pub(crate) fn leave_after(&mut self, time: Nanos) {
        self.left_after = time;
    }

    /// Takes in what `others` close.
    pub(crate) fn extend(&mut self, mut others: Self) {
        self.all.append(&mut others.all);
    }

    /// Waits for their ends, no longer than `time`, all together, but for those that wait for a
    /// processor: no file system and no device blocks them.
    pub(crate) fn wait_while_they_run(&mut self, time: Nanos) {
        self.wait(time);
        let clock = Clock::start();
        while clock.now() < RUN_WITHIN
            && self.all.iter_mut().any(|closer| !closer.has_ended() && closer.is_runnable())
        {
            self.wait(LOOKED_AGAIN_EVERY);
        }
    }

    /// Waits for their ends, no longer than `time`, all together.
    fn wait(&mut self, time: Nanos) {
        let clock = Clock::start();
        for closer in &mut self.all {
            while !closer.has_ended() && clock.now() < time {
                let left = time.since(clock.now());
                match &closer.end {
                    Some(end) => _ = is_readable(end.as_fd(), left),
                    None => thread::sleep(Duration::from_nanos(left.min(LOOKED_AGAIN_EVERY).0)),
                }
            }
        }
    }
}

impl Drop for Closers {
    /// Waits for their ends; one that a file system or a device blocks is left.
    fn drop(&mut self) {
        self.wait(self.left_after);
    }
}

/// Closes all that this process inherited and hands on; what leads to a file is closed last, as a
/// file system may block that.
pub(crate) fn detach() {
    let Descriptors { at_once, devices, files } = Descriptors::find();
    release(at_once.into_iter().chain(devices).chain(files));
}

/// Closes `numbers`; input, output and errors lead nowhere from now on.
fn release(numbers: impl Iterator<Item = RawFd>) {
    let nowhere = placeholder();
    for number in numbers {
        // Where the last fails they are closed with this process.
        match (number, &nowhere) {
            (0, Some(nowhere)) => drop(rustix::stdio::dup2_stdin(nowhere)),
            (1, Some(nowhere)) => drop(rustix::stdio::dup2_stdout(nowhere)),
            (2, Some(nowhere)) => drop(rustix::stdio::dup2_stderr(nowhere)),
            (0..=2, None) => {}
            // SAFETY: the descriptor came with this process: nothing in it owns the number.
            (number, _) => drop(unsafe { OwnedFd::from_raw_fd(number) }),
        }
    }
}

/// A descriptor that reads nothing and keeps nothing, where there is one.
pub(crate) fn placeholder() -> Option<OwnedFd> {
    let null = fs::File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    null.ok().or_else(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok())
}

/// The descriptors that a program inherits from this process, by what may become of their close.
/// All that this process opens for itself is closed by `exec`.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    at_once: Vec<RawFd>,
    devices: Vec<RawFd>,
    files: Vec<RawFd>,
}

impl Descriptors {
    pub(crate) fn find() -> Self {
        let Ok(entries) = fs::read_dir("/proc/self/fd") else {
            // Without `/proc` nothing tells what they are, nor which locks they have.
            return Self { at_once: vec![0, 1, 2], ..Self::default() };
        };
        let numbers = entries.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
        let numbers: Vec<RawFd> = numbers.collect();
        let mut all = Self::default();
        for number in numbers {
            // SAFETY: the descriptor is used for these calls alone, which fail where it is closed.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            if number > 2 && !fcntl_getfd(fd).is_ok_and(|it| !it.contains(FdFlags::CLOEXEC)) {
                continue;
            }
            match close_of(fd) {
                Close::AtOnce => all.at_once.push(number),
                Close::Device => all.devices.push(number),
                Close::File => all.files.push(number),
            }
        }
        all
    }

    /// Leaves out all that lead to a file on which this process has a POSIX lock, a device and a
    /// named pipe too: the first of them that is closed gives it up.
    pub(crate) fn without_locked(mut self) -> Self {
        let inode = |number: RawFd| {
            // SAFETY: the descriptor is used for this call alone, which fails where it is closed.
            let found = stat(unsafe { BorrowedFd::borrow_raw(number) }).ok()?;
            Some((found.st_dev, found.st_ino))
        };
        let mut lists = [&mut self.at_once, &mut self.devices, &mut self.files];
        let all = lists.iter().flat_map(|list| list.iter().copied());
        let locked: BTreeSet<_> = all.filter(|&number| has_lock(number)).map(inode).collect();
        for list in lists.iter_mut().filter(|_| !locked.is_empty()) {
            list.retain(|&number| !locked.contains(&inode(number)));
        }
        self
    }

    /// Takes out those beyond input, output and errors.
    pub(crate) fn take_others(&mut self) -> Self {
        let take = |list: &mut Vec<RawFd>| list.extract_if(.., |number| *number > 2).collect();
        let others = Self {
            at_once: take(&mut self.at_once),
            devices: take(&mut self.devices),
            files: take(&mut self.files),
        };
        assert!(self.files.len() + self.devices.len() + self.at_once.len() <= 3, "three are left");
        others
    }

    pub(crate) fn is_empty(&self) -> bool {
        [&self.at_once, &self.devices, &self.files].iter().all(|list| list.is_empty())
    }

    /// Closes all of them but what is in `kept`: they are the program's alone then, and the reader
    /// of a pipe sees the end when the program closes it. What may block is closed by other
    /// processes, which are returned; where there can be none it stays open.
    pub(crate) fn release_all_but(mut self, kept: &[RawFd]) -> Closers {
        for list in [&mut self.at_once, &mut self.devices, &mut self.files] {
            list.retain(|number| !kept.contains(number));
        }
        release(self.at_once.into_iter());
        let lists = [self.devices, self.files].into_iter().filter(|list| !list.is_empty());
        let all = lists.filter_map(|list| Closer::start(&list).ok()).collect();
        Closers { all, ..Closers::default() }
    }
}

/// What may become of the close of `fd`.
fn close_of(fd: BorrowedFd<'_>) -> Close {
    let stat = match stat(fd) {
        Ok(stat) => stat,
        // It is not open.
        Err(Errno::BADF) => return Close::AtOnce,
        Err(_) => return Close::File,
    };
    match stat.kind() {
        FileType::RegularFile | FileType::Directory | FileType::Symlink => Close::File,
        // What has no kind is an object of the kernel's: an eventfd, a process.
        FileType::Fifo | FileType::Unknown => Close::AtOnce,
        FileType::CharacterDevice if major(stat.st_rdev) == MEMORY_MAJOR => Close::AtOnce,
        FileType::Socket if socket_linger(fd).is_ok_and(|time| time.is_none()) => Close::AtOnce,
        FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice => Close::Device,
    }
}

/// A process that waits for a processor so long is on a machine that does nothing else.
const RUN_WITHIN: Nanos = Nanos::from_millis(1_000);
/// Where the system has no descriptor of a process's end.
const LOOKED_AGAIN_EVERY: Nanos = Nanos::from_millis(1);
/// `/dev/null` and its like: Linux `include/uapi/linux/major.h`.
const MEMORY_MAJOR: u32 = 1;

/// A descriptor beyond the standard ones through which a program that inherits it can write a file:
/// no call on a path shows that.
#[must_use]
pub fn inherited_for_writing() -> Option<RawFd> {
    let Descriptors { at_once, devices, files } = Descriptors::find();
    let mut all = files.into_iter().chain(devices).chain(at_once).filter(|number| *number > 2);
    all.find(|&number| {
        // SAFETY: the descriptor is used for these calls alone, which fail where it is closed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let kind = stat(fd).map(|stat| stat.kind());
        kind.is_ok_and(|kind| matches!(kind, FileType::RegularFile | FileType::BlockDevice))
            && fcntl_getfl(fd).is_ok_and(|flags| writes(flags.bits()))
    })
}

/// Whether a POSIX lock of this process was taken by what the descriptor `number` is open to.
fn has_lock(number: RawFd) -> bool {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
    // What cannot be seen may have one.
    info.map_or(true, |info| {
        let mut locks = info.lines().filter(|line| line.starts_with("lock:"));
        locks.any(|line| line.split_ascii_whitespace().any(|word| word == "POSIX"))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use rustix::net::sockopt::set_socket_linger;

    use super::*;

    #[test]
    fn what_waits_for_nothing_is_closed_at_once_and_the_rest_is_not() {
        let own = |file: File| OwnedFd::from(file);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let lingers = connect();
        set_socket_linger(&lingers, Some(Duration::from_secs(60))).unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let exe = std::env::current_exe().unwrap();
        let folder = exe.parent().unwrap();
        #[rustfmt::skip]
        let rows = [ // what, its close
            ("a pipe",                 OwnedFd::from(reader),                  Close::AtOnce),
            ("a socket",               connect().into(),                       Close::AtOnce),
            ("a socket of this host",  UnixStream::pair().unwrap().0.into(),   Close::AtOnce),
            ("a socket that lingers",  lingers.into(),                         Close::Device),
            ("/dev/null",              own(File::open("/dev/null").unwrap()),  Close::AtOnce),
            ("a terminal",             own(File::open("/dev/ptmx").unwrap()),  Close::Device),
            ("an event",               eventfd(0, EventfdFlags::CLOEXEC).unwrap(), Close::AtOnce),
            ("a file",                 own(File::open(&exe).unwrap()),         Close::File),
            ("a folder",               own(File::open(folder).unwrap()),       Close::File),
        ];
        for (what, fd, expected) in rows {
            assert_eq!(close_of(fd.as_fd()), expected, "{what}");
        }
    }
}
