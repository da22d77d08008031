//! The filter of a traced program's calls: those of the table stop it, the others cost nothing.
//!
//! # Invariants
//! - A call of another processor's numbers stops the program, so that it is known that such calls
//!   were not understood.
//! - Rings of requests are refused, as kernels do that have them switched off: what a program opens
//!   through them does not stop it. Programs do without.
//! # Sources
//! seccomp(2); Linux `Documentation/userspace-api/seccomp_filter.rst`,
//! `include/uapi/linux/audit.h`.

#![expect(unsafe_code, reason = "seccomp and ptrace have no safe wrapper")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::calls::CALLS;

/// The filter, as instructions.
fn program() -> Vec<libc::sock_filter> {
    let statement = |code: u32, k| instruction(code, 0, 0, k);
    let returns = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let unless = |k| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, k);
    let is = |k| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, k);
    let mut program = vec![load(ARCH_OFFSET), unless(ARCH), returns(libc::SECCOMP_RET_TRACE)];
    program.push(load(NUMBER_OFFSET));
    let below = instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, FOREIGN_FROM);
    program.extend([below, returns(libc::SECCOMP_RET_TRACE)]);
    let absent = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let ring = (libc::SYS_io_uring_setup, absent);
    let stops = CALLS.iter().map(|(number, _)| (*number, libc::SECCOMP_RET_TRACE));
    for (number, action) in stops.chain([ring]) {
        let number = u32::try_from(number).expect("numbers of calls are small");
        program.extend([is(number), returns(action)]);
    }
    program.push(returns(libc::SECCOMP_RET_ALLOW));
    assert!(program.len() <= INSTRUCTIONS_MAX, "the kernel takes no longer one");
    program
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).expect("codes are small"), jt, jf, k }
}

/// Has `command` traced by this thread, and filtered, once it is started. Where the system refuses
/// it, the start fails with [`REFUSED`].
pub(super) fn install_in(command: &mut Command) {
    let program = program();
    // SAFETY: the closure makes system calls alone, on memory that was allocated before.
    unsafe {
        command
            .pre_exec(move || install(&program).map_err(|_| io::Error::from_raw_os_error(REFUSED)));
    }
}

/// Has this process, which is about to become the program, traced by its parent and filtered. It
/// makes system calls alone, as is right between `fork` and `exec`.
fn install(program: &[libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: calls on numbers, and on a filter that the kernel copies while it is borrowed.
    let failed = unsafe {
        libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) < 0
            || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An error that no call of a start gives.
pub(super) const REFUSED: i32 = libc::EDOTDOT;
const INSTRUCTIONS_MAX: usize = 4096;
/// Of `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;
/// The numbers of this processor.
#[cfg(target_arch = "x86_64")]
pub(super) const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCH: u32 = 0xC000_00B7;
/// None that the kernel names: every call stops the program.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) const ARCH: u32 = 0;
/// Where the numbers of x32 begin; no other processor has any.
pub(super) const FOREIGN_FROM: u32 = 0x4000_0000;
