//! What this process inherited, handed on to the program as it was.
//!
//! ```text
//!   the caller --exec--> forerun --fork--> hand_on --exec--> the program
//!                          |
//!                          +-- before `main`: Rust opens closed descriptors, ignores PIPE
//! ```
//! Most of what a process inherits is handed on by the kernel. Not so what Rust's runtime changes
//! at its start, what this process changes to do its work, and what belongs to one process alone:
//! its timers, the signal for the death of its parent, whether orphans become its children.
//!
//! # Invariants
//! - The state of before the runtime's start is recorded before it, by a function of `.init_array`.
//! - A descriptor of 0 to 2 that was closed is closed in the program: a placeholder that `exec`
//!   closes takes its number before the runtime looks, so that nothing else can get it.
//! - [`Inherited::hand_on`] makes system calls alone, which may be made between fork and exec.
//! # Sources
//! execve(2), fork(2), for what they keep; Rust `library/std/src/sys/pal/unix/mod.rs` (`init`).

#![expect(unsafe_code, reason = "dispositions of signals, masks and timers have no safe wrapper")]

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the program is to inherit.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    mask: libc::sigset_t,
    ignores_pipes: bool,
    ends_of_children: EndsOfChildren,
    parent_death: libc::c_int,
    is_subreaper: bool,
    timers: [libc::itimerval; TIMERS.len()],
    descriptors: libc::rlimit,
    stack: libc::rlimit,
    /// Where a fork would reset it.
    scheduling: Option<Scheduling>,
}

/// What becomes of the signal that tells the end of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndsOfChildren {
    Told,
    Ignored,
    /// One of the caller's waits to be let through.
    Pending,
}

/// How a process gets a processor: Linux `include/uapi/linux/sched/types.h` (`struct sched_attr`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Inherited {
    /// Takes over from the caller: from now on its timers and an ignored end of children are not
    /// this process's, which may have as many descriptors as the system allows it.
    pub(crate) fn take() -> Self {
        // SAFETY: each call gets pointers to values that live until it returns, or null where it
        // takes that for none, and writes what it was asked for; all zeros are valid for each type
        // here, so a call that fails leaves a value that says nothing was set.
        unsafe {
            let mut mask = MaybeUninit::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr());
            let (mut parent_death, mut subreaper): (libc::c_int, libc::c_int) = (0, 0);
            libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut parent_death);
            libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper);
            let timers = TIMERS.map(|timer| {
                let (none, mut left) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
                libc::setitimer(timer, none.as_ptr(), left.as_mut_ptr());
                left.assume_init()
            });
            let ends_of_children = match is_ignored(libc::SIGCHLD) {
                true => EndsOfChildren::Ignored,
                false if AWAITS_CHILD.load(Ordering::Relaxed) => EndsOfChildren::Pending,
                false => EndsOfChildren::Told,
            };
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let mut descriptors = MaybeUninit::<libc::rlimit>::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, descriptors.as_mut_ptr());
            let descriptors = descriptors.assume_init();
            let more = libc::rlimit { rlim_cur: descriptors.rlim_max, ..descriptors };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const more);
            Self {
                mask: mask.assume_init(),
                ignores_pipes: IGNORES_PIPES.load(Ordering::Relaxed),
                ends_of_children,
                parent_death,
                // Orphans of a namespace come to its first process, which the program would be.
                is_subreaper: subreaper != 0 || libc::getpid() == 1,
                timers,
                descriptors,
                stack: libc::rlimit {
                    rlim_cur: STACK[0].load(Ordering::Relaxed),
                    rlim_max: STACK[1].load(Ordering::Relaxed),
                },
                scheduling: Scheduling::reset_by_fork(),
            }
        }
    }

    /// Gives this process, which is about to become the program, what it is to inherit: its signals
    /// last, once `ready` has returned.
    pub(super) fn hand_on(&self, ready: impl FnOnce()) -> io::Result<()> {
        let ignored = |is: bool| if is { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: system calls on values that live until they return; none takes memory, and the
        // handlers are the kernel's own.
        unsafe {
            libc::signal(libc::SIGPIPE, ignored(self.ignores_pipes));
            match self.ends_of_children {
                EndsOfChildren::Told => {}
                EndsOfChildren::Ignored => drop(libc::signal(libc::SIGCHLD, libc::SIG_IGN)),
                EndsOfChildren::Pending => drop(libc::kill(libc::getpid(), libc::SIGCHLD)),
            }
            if self.parent_death != 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, self.parent_death);
            }
            if self.is_subreaper {
                libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
            }
            for (timer, left) in TIMERS.iter().zip(&self.timers) {
                if left.it_value.tv_sec != 0 || left.it_value.tv_usec != 0 {
                    libc::setitimer(*timer, left, ptr::null_mut());
                }
            }
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.descriptors);
            if self.stack.rlim_cur < STACK_BYTES_MIN {
                libc::setrlimit(libc::RLIMIT_STACK, &raw const self.stack);
            }
            if let Some(scheduling) = &self.scheduling {
                let set = libc::syscall(libc::SYS_sched_setattr, 0, &raw const *scheduling, 0);
                if set != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            ready();
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut()) {
                0 => Ok(()),
                failed => Err(io::Error::from_raw_os_error(failed)),
            }
        }
    }
}

impl Scheduling {
    /// This process's, if it is one that a child does not inherit.
    fn reset_by_fork() -> Option<Self> {
        let (mut own, bytes) = (Self::default(), size_of::<Self>());
        // SAFETY: the kernel writes no more than as many bytes to a value that lives until it
        // returns.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, bytes, 0_u32) };
        (got == 0 && own.flags & RESET_ON_FORK != 0).then_some(own)
    }
}

/// From now on the working folder is of this process alone: a caller may share its own
/// (`CLONE_FS`). Where that is refused, it is as rare.
pub(super) fn leave_shared_folder() {
    // SAFETY: a call on a number.
    let _ = unsafe { libc::unshare(libc::CLONE_FS) };
}

/// `SCHED_FLAG_RESET_ON_FORK` of Linux.
const RESET_ON_FORK: u64 = 1;

/// Adds variables to this process's environment, where the program's comes from.
pub(super) fn add(variables: &[(OsString, OsString)]) {
    for (name, value) in variables {
        // SAFETY: the commands start no thread that reads the environment before the program's
        // start; in Python, which has one interpreter thread here, that thread is this one.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Whether this process ignores the signal of this number.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: null asks for no change; the old action is written to a value that lives until the
    // call returns, and all zeros are one, too.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Whether the signal of this number waits to be let through.
pub(super) fn is_pending(signal: libc::c_int) -> bool {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the call initialises the set, which all zeros are, too.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        libc::sigismember(set.as_ptr(), signal) == 1
    }
}

/// Runs before `main`, and before Rust's runtime. In a library that another program loads it does
/// nothing: the descriptors and signals there are that program's.
extern "C" fn record() {
    if !is_of_executable() {
        return;
    }
    IGNORES_PIPES.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    AWAITS_CHILD.store(is_pending(libc::SIGCHLD), Ordering::Relaxed);
    take_stack();
    for number in 0..3 {
        // SAFETY: calls on numbers alone, and a path that ends with a zero byte. A descriptor that
        // is opened here has the lowest free number, which is this one: those below are open.
        unsafe {
            if libc::fcntl(number, libc::F_GETFD) >= 0 {
                continue;
            }
            if libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) < 0 {
                libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            }
        }
    }
}

/// Has the stack of this thread grow as far as this program needs, where that is allowed.
fn take_stack() {
    // SAFETY: calls on values that live until they return; all zeros are valid for each.
    unsafe {
        let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
        if libc::getrlimit(libc::RLIMIT_STACK, limit.as_mut_ptr()) != 0 {
            return;
        }
        let libc::rlimit { rlim_cur, rlim_max } = limit.assume_init();
        if rlim_cur >= STACK_BYTES_MIN {
            return;
        }
        STACK[0].store(rlim_cur, Ordering::Relaxed);
        STACK[1].store(rlim_max, Ordering::Relaxed);
        let rlim_max = rlim_max.max(STACK_BYTES_MIN);
        let more = libc::rlimit { rlim_cur: STACK_BYTES_MIN, rlim_max };
        libc::setrlimit(libc::RLIMIT_STACK, &raw const more);
    }
}

/// The bytes that the stack of this program may have, where these are less than
/// [`STACK_BYTES_MIN`]: it was not allowed more.
#[must_use]
pub fn small_stack() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack);
    // Where a filter of system calls refuses to tell it is 0.
    limit.current.filter(|bytes| (1..STACK_BYTES_MIN).contains(bytes))
}

/// Whether this code is part of the executable, and not of a library that it has loaded.
fn is_of_executable() -> bool {
    let base = |address: *const libc::c_void| {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the call takes any address, and writes to a value that lives until it returns;
        // all zeros are valid for it.
        unsafe {
            libc::dladdr(address, found.as_mut_ptr());
            found.assume_init().dli_fbase
        }
    };
    // SAFETY: a call without memory.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) };
    let own: extern "C" fn() = record;
    let entry = usize::try_from(entry).expect("an address of this process");
    base(own as *const libc::c_void) == base(ptr::with_exposed_provenance(entry))
}

// SAFETY: the section holds addresses of functions, which the C library calls once, before `main`
// and on its thread; `record` is such a function and takes no argument of those it is given.
#[unsafe(link_section = ".init_array")]
#[used]
static RECORD: extern "C" fn() = record;

/// Whether PIPE was ignored before Rust's runtime did so.
static IGNORES_PIPES: AtomicBool = AtomicBool::new(false);
/// Whether the end of a child was pending then.
static AWAITS_CHILD: AtomicBool = AtomicBool::new(false);

/// The limits of the stack where they were raised: the soft one, and the hard one.
static STACK: [AtomicU64; 2] = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];

/// What this program needs of a stack: its longest help takes half of it.
pub const STACK_BYTES_MIN: u64 = 256 << 10;

const TIMERS: [libc::c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];
