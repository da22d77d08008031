//! From this process to the program: fork and exec, while signals go on to be forwarded.
//!
//! ```text
//!   this process --fork--> [output] -> [inherited] -> ready ... [signals] -> exec: the program
//!        |  <------------------------------------------ |    ^       |
//!        |  --- what it inherits is closed here: go ---------'       |
//!        |  <--- closed by exec, or why there is none ---------------'
//!        '--- signals -----------------------------------------------^
//! ```
//! A lock, an address, a pipe that the program inherits and closes is free then: nothing else has
//! it. Where it inherits no more than input, output and errors it waits for nothing.
//!
//! An exec takes as long as the file system takes, or what watches over it (`fanotify(7)`): a
//! signal ends one that waits, as it does alone.
//!
//! # Invariants
//! - Between fork and exec the child makes system calls alone; what they take is made before.
//! - Its signals are blocked until it has what is inherited, the mask among it: none meets it in
//!   another state than the program's.
//! # Sources
//! signal-safety(7), execve(2).

#![expect(unsafe_code, reason = "fork and exec, with signals as they were inherited")]

use std::ffi::{CString, OsString, c_char};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::ptr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, getpid, waitpid};

use super::addressed::Addressed;
use super::inherited::Inherited;
use super::signals::Forwarded;

/// What the call takes.
pub(super) struct Exec {
    words: Vec<CString>,
    inherited: Inherited,
    output: Option<OwnedFd>,
    /// What was pending for this process is for the program.
    pending: Vec<Forwarded>,
}

/// Why a program did not start.
pub(super) struct Refused {
    pub(super) source: io::Error,
    /// There is no process for the program, or it could not be made what it should be.
    pub(super) before_exec: bool,
}

/// A process that is about to become the program.
pub(super) struct Started {
    pub(super) pid: Pid,
    /// Tells that it is ready, if it was to wait; ends once it is the program, or tells why it is
    /// not.
    pub(super) answer: UnixStream,
}

/// What a process that is about to become the program tells.
pub(super) enum Answer {
    /// It waits for [`Started::go`].
    Ready,
    /// It is the program now.
    Program,
}

impl Exec {
    /// The words of a program, whose output goes to `output` if that is there, and for which
    /// signals are `pending`.
    ///
    /// # Errors
    /// A word has a zero byte.
    pub(super) fn new(
        words: &[OsString],
        inherited: &Inherited,
        output: Option<OwnedFd>,
        pending: Vec<Forwarded>,
    ) -> io::Result<Self> {
        assert!(!words.is_empty(), "a program is named");
        let words = words.iter().map(|word| CString::new(word.as_bytes()));
        let words = words.collect::<Result<_, _>>()?;
        Ok(Self { words, inherited: *inherited, output, pending })
    }

    /// More signals are pending for the program.
    pub(super) fn add_pending(&mut self, signals: Vec<Forwarded>) {
        self.pending.extend(signals);
    }

    /// This process becomes the program. Why it did not.
    pub(super) fn replace(&self) -> Refused {
        let words = self.pointers();
        self.become_with(&words, || {})
    }

    /// Starts a process that becomes the program; if it `waits`, after [`Started::go`].
    ///
    /// # Errors
    /// There is no room for one, or the system refuses it.
    pub(super) fn start(&self, waits: bool) -> io::Result<Started> {
        let (answer, mut told) = UnixStream::pair()?;
        let (words, mut addressed) = (self.pointers(), Addressed::find());
        // SAFETY: the child makes system calls alone, on what was made before, until it becomes the
        // program or ends.
        match unsafe { libc::fork() } {
            0 => {
                addressed.hand_on();
                drop(answer);
                let wait = || {
                    let is_sent = waits && (&told).write_all(&[READY]).is_ok();
                    let mut go = [PollFd::new(&told, PollFlags::IN)];
                    // Its signals are blocked: nothing interrupts this but a stop.
                    while is_sent && poll(&mut go, Some(&GO_WITHIN)) == Err(Errno::INTR) {}
                };
                let Refused { source, before_exec } = self.become_with(&words, wait);
                let errno = source.raw_os_error().unwrap_or(libc::EINVAL);
                let [a, b, c, d] = errno.to_ne_bytes();
                let _ = told.write_all(&[u8::from(before_exec), a, b, c, d]);
                // SAFETY: ends the process, and nothing else.
                unsafe { libc::_exit(127) }
            }
            pid => {
                let pid = if pid > 0 { Pid::from_raw(pid) } else { None };
                let pid = pid.ok_or_else(io::Error::last_os_error)?;
                Ok(Started { pid, answer })
            }
        }
    }

    /// The words as the system takes them, which live as long as `self`.
    fn pointers(&self) -> Vec<*const c_char> {
        self.words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
    }

    /// Makes this process the program, as soon as `ready` has returned; `words` are those of
    /// [`Exec::pointers`].
    fn become_with(&self, words: &[*const c_char], ready: impl FnOnce()) -> Refused {
        let before = |source| Refused { source, before_exec: true };
        if let Some(output) = &self.output {
            // SAFETY: a call on descriptors; what the second one was is closed.
            if unsafe { libc::dup2(output.as_raw_fd(), 1) } < 0 {
                return before(io::Error::last_os_error());
            }
        }
        // It runs with them, whenever this process gets a processor.
        Forwarded::send_all(&self.pending, getpid());
        if let Err(source) = self.inherited.hand_on(ready) {
            return before(source);
        }
        assert!(words.last().is_some_and(|last| last.is_null()), "as the system takes them");
        // SAFETY: the words end with null and live until the call returns, each ends with zero.
        unsafe { libc::execvp(words[0], words.as_ptr()) };
        Refused { source: io::Error::last_os_error(), before_exec: false }
    }
}

impl Started {
    /// What it tells; called once [`Started::answer`] can be read.
    pub(super) fn answered(&mut self) -> Result<Answer, Refused> {
        let (mut first, mut errno) = ([0], [0; 4]);
        // Or it has ended, which its status tells.
        if self.answer.read_exact(&mut first).is_err() {
            return Ok(Answer::Program);
        }
        if first == [READY] {
            return Ok(Answer::Ready);
        }
        if self.answer.read_exact(&mut errno).is_err() {
            return Ok(Answer::Program);
        }
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
        Err(Refused { source, before_exec: first != [0] })
    }

    /// Has it become the program.
    pub(super) fn go(&mut self) {
        // Where it has ended nothing reads that.
        let _ = self.answer.write_all(&[0]);
    }
}

/// Tells that a process waits to become the program; the first byte of an error is 0 or 1.
const READY: u8 = 2;
/// The process becomes the program then, whatever has become of this one.
const GO_WITHIN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
