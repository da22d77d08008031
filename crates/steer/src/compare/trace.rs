//! The first run: a program that stops at each call that opens or changes an entry, which tells
//! what it reads, and that it writes before it does.
//!
//! ```text
//!   the program                         the thread that traces it
//!     openat(.., O_RDONLY)   --stop-->    would it change anything?   yes: kill all of it
//!        | made                           no: go on to the end of the call
//!     a descriptor           --stop-->    its file is one that is read
//!     execve                 --stop-->    so are the files that the new program has mapped
//! ```
//! # Invariants
//! - Every process that the program starts is traced from its first instruction on, and is killed
//!   by the kernel when the thread that traces it ends.
//! - Tables are bounded; what was left out is counted.
//! # Sources
//! ptrace(2), waitpid(2): children and traced threads of the calling thread alone (`__WNOTHREAD`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use forerun_core::units::Nanos;
use rustix::fs::OFlags;
use rustix::process::Pid;

use super::ReadFile;
use super::calls::{Does, does};
use super::evict::mapped_by;
use super::filter;
use super::paths::Stopped;
use super::stops::{self, Next, Stop, ThreadId};
use super::timed::{end_group, shell_status};
use crate::clock::Clock;
use crate::session::StartError;

/// Whether the program may change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// It is killed before its first change.
    Refused,
    /// It runs on.
    Allowed,
}

/// What a program did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Its exit status as a shell reports it.
    pub status: u8,
    /// How long it ran.
    pub time: Nanos,
    /// The regular files that it read or mapped, in the order in which it opened them.
    pub files: Vec<ReadFile>,
    /// Files that were too many.
    pub files_left_out: u64,
    /// What it changed first, as words that follow its name; it was killed before, where changes
    /// are refused.
    pub change: Option<String>,
    /// It, or a program that it started, makes calls of which is not known what they do: by the
    /// numbers of another processor, or from memory that may not be read.
    pub is_foreign: bool,
    /// Processes that it started ran on after its end, and were killed.
    pub leaves_processes: bool,
}

/// Why a program was not traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The program does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system does not let this user trace.
    #[error("the system does not let programs be traced: {0}")]
    NotPermitted(io::Error),
}

/// Runs `words`, a program and its arguments, as `prepare` sets its input and output, and finds out
/// what it reads and changes. Nothing where `is_given_up` says so before its end.
///
/// # Errors
/// See [`TraceError`].
pub fn trace(
    words: &[OsString],
    prepare: impl FnOnce(&mut Command) + Send,
    changes: Changes,
    is_given_up: impl Fn() -> bool,
) -> Result<Option<Traced>, TraceError> {
    assert!(!words.is_empty(), "a program is named");
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let tracing = scope.spawn(move || {
            let mut tracer = Tracer::start(words, prepare, changes)?;
            let _ = tell.send(tracer.root);
            tracer.follow().map_err(TraceError::NotPermitted)?;
            Ok(tracer.traced)
        });
        let mut root = None;
        let mut is_over = false;
        loop {
            match told.recv_timeout(LOOKED_EVERY) {
                Ok(started) => root = Some(started),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                // The sender goes with the thread's work.
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if !is_over
                && is_given_up()
                && let Some(root) = root
            {
                is_over = true;
                end_group(root);
            }
        }
        let traced = tracing.join().expect("the tracer does not panic");
        traced.map(|traced| (!is_over).then_some(traced))
    })
}

/// A program that is traced by this thread.
struct Tracer {
    root: Pid,
    clock: Clock,
    changes: Changes,
    traced: Traced,
    /// Threads that are opening a file that they can read.
    opening: BTreeSet<ThreadId>,
    inodes: BTreeSet<(u64, u64)>,
}

impl Tracer {
    fn start(
        words: &[OsString],
        prepare: impl FnOnce(&mut Command),
        changes: Changes,
    ) -> Result<Self, TraceError> {
        let (name, arguments) = words.split_first().expect("a program is named");
        let mut command = Command::new(name);
        command.args(arguments).process_group(0);
        prepare(&mut command);
        filter::install_in(&mut command);
        let clock = Clock::start();
        let child = command.spawn().map_err(|error| match error.raw_os_error() {
            Some(filter::REFUSED) => {
                TraceError::NotPermitted(io::ErrorKind::PermissionDenied.into())
            }
            _ => TraceError::Start(StartError::new(name, error)),
        })?;
        let root = Pid::from_child(&child);
        Ok(Self {
            root,
            clock,
            changes,
            traced: Traced::default(),
            opening: BTreeSet::new(),
            inodes: BTreeSet::new(),
        })
    }

    /// Follows the program to its end.
    fn follow(&mut self) -> io::Result<()> {
        let root = self.root.as_raw_nonzero().get();
        self.begin(root)?;
        while let Some((tid, stop)) = stops::next() {
            if let Stop::Ended(status) = stop
                && tid == root
            {
                self.traced.status = shell_status(status);
                break;
            }
            self.stopped(tid, stop);
        }
        self.traced.time = self.clock.now();
        self.follow_rest();
        end_group(self.root);
        Ok(())
    }

    /// The program has ended: what it leaves running has some time to end as well, and more while
    /// it makes calls, as a processor that others use makes all of it slow.
    fn follow_rest(&mut self) {
        let ended = self.clock.now();
        let mut seen = ended;
        while !self.is_refused() {
            let now = self.clock.now();
            let may_go_on = now.since(ended) < REST_MAX;
            match stops::next_now() {
                Next::NoneLeft => return,
                Next::Stopped(tid, stop) if may_go_on => {
                    self.stopped(tid, stop);
                    seen = now;
                }
                Next::Running if may_go_on && now.since(seen) < QUIET_MAX => {
                    thread::sleep(REST_LOOKED_EVERY);
                }
                Next::Stopped(..) | Next::Running => {
                    self.traced.leaves_processes = true;
                    return;
                }
            }
        }
    }

    fn stopped(&mut self, tid: ThreadId, stop: Stop) {
        match stop {
            Stop::Ended(_) => drop(self.opening.remove(&tid)),
            Stop::Call => self.calls(tid),
            Stop::EndOfCall => {
                self.called(tid);
                stops::go_on(tid, 0);
            }
            Stop::Program => {
                self.starts(tid);
                stops::go_on(tid, 0);
            }
            Stop::New => stops::go_on(tid, 0),
            Stop::Signal(signal) => stops::go_on(tid, signal),
        }
    }

    /// Whether the program may not go on.
    fn is_refused(&self) -> bool {
        let is_change = self.traced.is_foreign || self.traced.change.is_some();
        is_change && self.changes == Changes::Refused
    }

    /// The program waits for its first instruction.
    fn begin(&mut self, root: ThreadId) -> io::Result<()> {
        let begun = stops::next();
        let begun = match begun {
            Some((tid, Stop::Signal(libc::SIGTRAP))) if tid == root => stops::set_options(root),
            _ => Err(io::ErrorKind::Other.into()),
        };
        if let Err(error) = begun {
            end_group(self.root);
            return Err(error);
        }
        if !stops::tells_calls(root) {
            end_group(self.root);
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.starts(root);
        stops::go_on(root, 0);
        Ok(())
    }

    /// A thread is stopped before a call.
    fn calls(&mut self, tid: ThreadId) {
        let Some(call) = stops::call(tid) else { return stops::go_on(tid, 0) };
        let mut is_read = false;
        let stopped = Stopped { tid, arguments: &call.arguments };
        if call.is_foreign || !stopped.is_readable() {
            self.traced.is_foreign = true;
        } else if let Some(does) = does(call.number) {
            if self.traced.change.is_none() {
                self.traced.change = stopped.change(does);
            }
            if let Does::Opens(_, flags) | Does::OpensHandle(flags) = does {
                let flags = stopped.flags(flags);
                is_read = !flags.intersects(OFlags::PATH | OFlags::WRONLY | OFlags::DIRECTORY);
            }
        }
        if self.is_refused() {
            return end_group(self.root);
        }
        if is_read {
            self.opening.insert(tid);
            stops::to_end_of_call(tid);
        } else {
            stops::go_on(tid, 0);
        }
    }

    /// A thread has opened what it named, or failed to.
    fn called(&mut self, tid: ThreadId) {
        let result = if self.opening.remove(&tid) { stops::result(tid) } else { None };
        let Some(number) = result.and_then(|value| i32::try_from(value).ok()) else { return };
        if number >= 0 {
            let path = Stopped { tid, arguments: &[0; 6] }.opened(number);
            self.reads(Path::new(&format!("/proc/{tid}/fd/{number}")), path);
        }
    }

    /// A thread is a new program.
    fn starts(&mut self, tid: ThreadId) {
        for (path, _) in mapped_by(Path::new(&format!("/proc/{tid}"))) {
            self.reads(&path, path.clone());
        }
    }

    /// The program reads the file at `there`, whose path is `path`.
    fn reads(&mut self, there: &Path, path: PathBuf) {
        let Some(found) = ReadFile::at(there) else { return };
        if !path.is_absolute() || self.inodes.contains(&found.inode) {
            return;
        }
        if self.traced.files.len() >= FILES_MAX {
            self.traced.files_left_out += 1;
            return;
        }
        let is_new = self.inodes.insert(found.inode);
        assert!(is_new && found.bytes > 0, "a file with bytes is listed once");
        self.traced.files.push(ReadFile { path, ..found });
        assert!(self.traced.files.len() <= FILES_MAX, "files have a bound");
    }
}

/// More than the ends of a pipeline take, whose last process the program did not wait for, from one
/// call to the next.
const QUIET_MAX: Nanos = Nanos::from_millis(1_000);
/// A process that makes calls again and again is followed for no longer.
const REST_MAX: Nanos = Nanos::from_millis(10_000);
const REST_LOOKED_EVERY: Duration = Duration::from_millis(1);
const FILES_MAX: usize = 100_000;
/// How long a request to give up may take to be noticed; the program's end is noticed at once.
const LOOKED_EVERY: Duration = Duration::from_millis(50);
