//! How long a run outlives its program, whatever keeps forerun busy at the program's end.
//!
//! ```text
//!   program    ... read the clock, tell it, _exit
//!   forerun                                      ... end
//!   test                                             waited for, read the clock
//!                   |<----------- outlived ---------->|
//! ```
//! `cargo xtask bounds` runs long series, and prints the table; a short one runs with all tests.
//!
//! # Invariants
//! - What is measured has the program's own exit in it, and the waking of the test: it is never
//!   less than what `run` adds.
//! - A series is judged by the least of it beside a program alone: what the machine does besides
//!   makes a time longer, never shorter.

use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use forerun_testkit::{Scratch, compile_c, within};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};

use crate::rig::{Reader, observing, run, shim, waits};
use crate::server::{Illness, Operation, Server};

/// Does what each line says, and tells the time as its last act.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Writes what comes to mind where the shim writes records, as fast as it can. */
static void *garbage(void *of) {
    int ring = atoi(getenv("FORERUN_RING"));
    struct stat stat;
    fstat(ring, &stat);
    uint64_t *words = mmap(0, stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    uint64_t count = stat.st_size / 8, x = 88172645463325252, head = 1 << 20;
    for (;;) {
        for (int i = 0; i < 4096; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            /* Such as look whole, and such as do not. */
            words[16 + x % (count - 16)] = x & 1 << 20 ? x : x % 4096;
        }
        __atomic_store_n(&words[8], head += 8192, __ATOMIC_RELEASE);
    }
    return of;
}

int main(int count, char **words) {
    char line[64], *data = malloc(1 << 20);
    int fd = -1;
    pthread_t thread;
    signal(SIGUSR1, SIG_IGN), signal(SIGUSR2, SIG_IGN), signal(SIGHUP, SIG_IGN);
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++) signal(i, SIG_IGN);
    while (fgets(line, sizeof line, stdin)) {
        long answer = getpid();
        if (!strncmp(line, "open", 4)) answer = fd = open(words[1], O_RDONLY);
        if (!strncmp(line, "random", 6)) posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
        if (!strncmp(line, "read", 4)) answer = read(fd, data, 65536);
        if (!strncmp(line, "close", 5)) close(fd);
        if (!strncmp(line, "garbage", 7)) pthread_create(&thread, 0, garbage, 0);
        if (!strncmp(line, "spin", 4)) for (volatile int i = 0; i < 300000; i++);
        printf("%ld\n", answer);
        fflush(stdout);
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%lld\n", now.tv_sec * 1000000000ll + now.tv_nsec);
    fflush(stdout);
    _exit(0);
}
"#;

/// What goes on when the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// The program runs alone.
    Alone,
    Calm,
    Attributes,
    Open,
    Read,
    Close,
    /// Signals come to forerun and to the program as fast as two threads can send them.
    Storm,
    Garbage,
}

const CASES: [Case; 8] = [
    Case::Alone,
    Case::Calm,
    Case::Attributes,
    Case::Open,
    Case::Read,
    Case::Close,
    Case::Storm,
    Case::Garbage,
];

/// What a series needs.
struct Rig {
    server: Server,
    program: Scratch,
}

impl Rig {
    fn new(test: &str) -> Option<Self> {
        let server = Server::mount(test)?;
        let program = Scratch::new("ends");
        let source = program.file("program.c", PROGRAM);
        compile_c(test, &source, &[], &program.join("program"))?;
        Some(Self { server, program })
    }

    fn start(&self, mut command: Command) -> Reader {
        let command = command.arg(self.program.join("program")).arg(self.server.path("large"));
        Reader::start(command)
    }

    /// Nanoseconds from the last act of one program to the end of its run.
    fn outlived(&self, case: Case, flags: &str) -> u64 {
        let mut command = match case {
            Case::Alone => Command::new("env"),
            Case::Garbage => run(&format!("--observe preload {flags}")),
            _ => run(flags),
        };
        command.env("FORERUN_PRELOAD", shim()).env("XDG_STATE_HOME", &*self.program);
        let mut reader = self.start(command);
        let program = pid(reader.say("pid").parse().expect("it is a number"));
        self.brings_about(case, &mut reader);
        let has_ended = AtomicBool::new(false);
        let outlived = thread::scope(|scope| {
            if case == Case::Storm {
                let forerun = pid(reader.child.id().try_into().expect("it is a number"));
                for process in [forerun, program] {
                    let process = pidfd_open(process, PidfdFlags::empty()).expect("it runs");
                    let has_ended = &has_ended;
                    scope.spawn(move || storm(&process, has_ended));
                }
                for _ in 0..10 {
                    reader.say("spin");
                }
            }
            let (status, last) = reader.end_with_answer(|| {
                has_ended.store(true, Ordering::Relaxed);
                monotonic()
            });
            assert_eq!(status.0, Some(0), "{case:?}");
            let last: u64 = last.parse().expect("it tells the time");
            assert!(last <= status.1, "{case:?}: time goes on");
            status.1 - last
        });
        self.server.heals();
        outlived
    }

    /// Has the program do what comes before its end, until forerun is where it is to be.
    fn brings_about(&self, case: Case, reader: &mut Reader) {
        let ill = match case {
            Case::Alone | Case::Calm | Case::Storm => None,
            Case::Garbage => {
                reader.say("garbage");
                None
            }
            Case::Attributes => Some(Operation::Attributes),
            Case::Open => Some(Operation::Open),
            Case::Read => Some(Operation::Read),
            Case::Close => Some(Operation::Flush),
        };
        reader.say("open");
        reader.say("random");
        if let Some(operation) = ill.filter(|operation| *operation != Operation::Flush) {
            self.server.falls_ill(operation, Illness::Hangs);
        }
        for _ in 0..8 {
            assert_eq!(reader.say("read"), "65536");
        }
        if case == Case::Alone {
            return;
        }
        let observing = observing(reader.child.id());
        self.is_polled(observing, reader);
        reader.say("close");
        if case == Case::Close {
            self.server.falls_ill(Operation::Flush, Illness::Hangs);
        }
        self.is_polled(observing, reader);
    }

    /// Has the program run until a request of the server's hangs, or it was polled.
    fn is_polled(&self, observing: u32, reader: &mut Reader) {
        let enough = waits(observing) + POLLS;
        while self.server.held() == 0 && waits(observing) < enough {
            reader.say("spin");
        }
    }
}

/// Sends signals to `process` until the run has ended.
fn storm(process: &OwnedFd, has_ended: &AtomicBool) {
    let signals = [
        Signal::CHILD,
        Signal::USR1,
        Signal::WINCH,
        Signal::USR2,
        Signal::CONT,
        Signal::URG,
        Signal::HUP,
    ];
    while !has_ended.load(Ordering::Relaxed) {
        for signal in signals {
            // The process may have ended.
            let _ = pidfd_send_signal(process, signal);
        }
    }
}

/// How many ends a series has.
fn count() -> usize {
    let set = std::env::var("FORERUN_ENDS").ok();
    set.map_or(ENDS, |text| text.parse().expect("FORERUN_ENDS is a number"))
}

#[test]
fn a_run_ends_with_its_program() {
    let Some(rig) = Rig::new("a_run_ends_with_its_program") else { return };
    within(move || rig.series(""));
}

#[test]
fn a_run_that_writes_statistics_ends_with_its_program() {
    let Some(rig) = Rig::new("a_run_that_writes_statistics_ends_with_its_program") else { return };
    let flags = format!("--stats-json {}", rig.program.join("stats.json").display());
    within(move || rig.series(&flags));
}

#[test]
fn a_run_that_learns_ends_with_its_program() {
    let Some(rig) = Rig::new("a_run_that_learns_ends_with_its_program") else { return };
    within(move || rig.series("--learn auto"));
}

impl Rig {
    /// A series of each case, as a table.
    fn series(&self, flags: &str) {
        // The storms of one would be in the way of the other's ends.
        let _one_at_a_time = SERIES.lock().unwrap_or_else(PoisonError::into_inner);
        println!("\n| at the end | ends | median ms | p99 ms | most ms | beyond 100 ms |");
        println!("|---|---|---|---|---|---|");
        let mut least_alone = u64::MAX;
        for case in CASES {
            let mut all: Vec<u64> = (0..count()).map(|_| self.outlived(case, flags)).collect();
            all.sort_unstable();
            let at = |per_mille: usize| millis(all[(all.len() - 1) * per_mille / 1_000]);
            let beyond = all.iter().filter(|&&nanos| nanos > OUTLIVED_MAX).count();
            let (median, p99, most) = (at(500), at(990), at(1_000));
            println!("| {case:?} | {} | {median} | {p99} | {most} | {beyond} |", all.len());
            let least = all[0];
            if case == Case::Alone {
                least_alone = least;
            }
            assert!(least <= least_alone + OUTLIVED_MAX, "{case:?} {flags}: {least} ns");
        }
    }
}

fn pid(number: i32) -> Pid {
    Pid::from_raw(number).expect("it is a process's")
}

fn millis(nanos: u64) -> String {
    format!("{}.{}", nanos / 1_000_000, nanos / 100_000 % 10)
}

/// Nanoseconds, of the clock that the program reads.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).expect("it is not negative")
}

static SERIES: Mutex<()> = Mutex::new(());
/// Ends of a short series.
const ENDS: usize = 10;
/// What a run outlives its program at most, in nanoseconds.
const OUTLIVED_MAX: u64 = 100_000_000;
/// Polls after which the observers have seen what the program did.
const POLLS: u64 = 4;
