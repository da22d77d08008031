//! A file system that falls ill on command: it hangs, delays, fails or lies at one operation, until
//! it is healed.
//!
//! ```text
//!   a request --> its operation is healthy    answered
//!                 hangs                       held until the server is healed
//!                 delays                      held for a time, or until then
//!                 takes turns                 held until all that is held is answered
//!                 fails                       answered by an error
//!                 lies                        answered with another size
//! ```
//! # Invariants
//! - A request that is held keeps no other from being answered.
//! - No mount outlives the process of the test.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use forerun_testkit::{Scratch, skip};
use fuser::{BackgroundSession, Config, Errno, MountOption};
use rustix::process::Pid;
use rustix::thread::gettid;

use files::Files;
pub(crate) use files::ILL_FROM;

use crate::rig::is_waiting;

mod files;

/// The operations that may fall ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Lookup,
    Attributes,
    Open,
    /// Reads from [`ILL_FROM`] on.
    Read,
    Write,
    Sync,
    /// The entries of the folder.
    Entries,
    Flush,
    Release,
    /// Those of the file system.
    Statistics,
}

/// All of them.
pub(crate) const OPERATIONS: [Operation; 10] = [
    Operation::Lookup,
    Operation::Attributes,
    Operation::Open,
    Operation::Read,
    Operation::Write,
    Operation::Sync,
    Operation::Entries,
    Operation::Flush,
    Operation::Release,
    Operation::Statistics,
];

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Illness {
    Hangs,
    Delays(Duration),
    TakesTurns,
    Fails(Errno),
    /// A file has so many bytes, a read gives and a write takes so many at most, a folder has so
    /// many entries that are not there, a file system so many blocks.
    Lies(u64),
}

/// A mounted file system.
pub(crate) struct Server {
    pub(crate) folder: Scratch,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    unmounter: Unmounter,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when the server is healed.
    healed: Condvar,
}

#[derive(Default)]
struct State {
    ill: Option<(Operation, Illness)>,
    held: Vec<Box<dyn FnOnce() + Send>>,
    /// The thread that takes requests, once it took one.
    thread: Option<Pid>,
}

impl Server {
    /// Mounts one; `None`, and `test` is skipped by name, where that is not possible.
    pub(crate) fn mount(test: &str) -> Option<Self> {
        let folder = Scratch::new("sick");
        let shared = Arc::new(Shared::default());
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("sick".into())];
        match fuser::spawn_mount(Files(Arc::clone(&shared)), &*folder, &config) {
            Ok(session) => {
                let unmounter = Unmounter::start(&folder);
                Some(Self { folder, shared, session: Some(session), unmounter })
            }
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

    /// Whether it waits for requests: all that came are answered or held.
    pub(crate) fn is_idle(&self) -> bool {
        let thread = self.shared.lock().thread;
        thread.is_some_and(|thread| is_waiting(&format!("/proc/self/task/{thread}")))
    }

    /// Answers all that hangs, and all that comes.
    pub(crate) fn heals(&self) {
        let mut state = self.shared.lock();
        state.ill = None;
        drop(state);
        self.shared.healed.notify_all();
        self.takes_a_turn();
    }

    /// Answers all that is held.
    pub(crate) fn takes_a_turn(&self) {
        let held = std::mem::take(&mut self.shared.lock().held);
        for answer in held {
            answer();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.heals();
        self.unmounter.unmount();
        drop(self.session.take());
    }
}

/// A process that unmounts a folder once it is told to, or once this one has ended, however: a test
/// that is killed leaves no file system behind that does not answer.
struct Unmounter(Child);

impl Unmounter {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", UNMOUNTS]).arg(folder).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("sh starts"))
    }

    /// Unmounts the folder.
    fn unmount(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A process that was left in a call on the file system holds it until it is gone: the mount goes
/// now, and its files with their last user.
const UNMOUNTS: &str = "
trap '' HUP INT QUIT TERM
read -r _
umount -l \"$0\" || fusermount3 -uz \"$0\"
rmdir \"$0\"";

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers with `answer`, which is given an error where the operation fails and a size where it
    /// lies: at once, later, or when the server is healed.
    fn answer(
        self: &Arc<Self>,
        operation: Operation,
        answer: impl FnOnce(Answer) + Send + 'static,
    ) {
        let mut state = self.lock();
        state.thread = Some(gettid());
        let ill = state.ill.filter(|(ill, _)| *ill == operation).map(|(_, illness)| illness);
        match ill {
            Some(Illness::Hangs | Illness::TakesTurns) => {
                state.held.push(Box::new(move || answer(Ok(None))));
            }
            Some(Illness::Delays(time)) => {
                let shared = Arc::clone(self);
                thread::spawn(move || {
                    let state = shared.lock();
                    let is_ill = |state: &mut State| state.ill.is_some();
                    drop(shared.healed.wait_timeout_while(state, time, is_ill));
                    answer(Ok(None));
                });
            }
            Some(Illness::Fails(errno)) => answer(Err(errno)),
            Some(Illness::Lies(size)) => answer(Ok(Some(size))),
            None => answer(Ok(None)),
        }
    }
}

/// The error of an operation that fails, or the size of one that lies.
type Answer = Result<Option<u64>, Errno>;
