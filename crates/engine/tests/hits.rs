//! A hit makes no allocation and no system call, drained batches included.
//!
//! Each case runs in a child process of this program, as the filter lasts as long as its process:
//!
//! ```text
//!   thread of the child: filter on | 100k hits, allocations counted | done: spins
//!   its parent:    warms up         waits                             prints them, exits
//! ```
//!
//! # Invariants
//! - Filter and count cover the reading thread alone, which also drains the batches. The threads of
//!   the cache and of the test harness call and allocate as they like.

use std::{
    env, fs,
    io::Write,
    process::{self, Command},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use forerun_core::prng::Prng;
use forerun_engine::{Cache, Handle, Settings, Stats};
use forerun_io::store::pattern::{self, Pattern};
use forerun_testkit::{Scratch, skip};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Reads cached pages.
type Hit = fn(&Handle, &mut Prng);

/// The work of a child, by its name.
const CASES: [(&str, Hit); 3] = [("reads", read_one), ("pins", pin_one), ("longer", read_some)];

#[test]
fn a_hundred_thousand_hits_make_no_allocation_and_no_system_call() {
    if env::var_os(CHILD).is_some() {
        return;
    }
    let name = "a_hundred_thousand_hits_make_no_allocation_and_no_system_call";
    let clock = fs::read_to_string(CLOCK).unwrap_or_default();
    if !CLOCKS.contains(&clock.trim()) {
        return skip(name, "the time here is a system call, and each batch has one");
    }
    for (case, _) in CASES {
        for file in ["pattern", "file"] {
            let (code, text) = child(&format!("{case} {file}"));
            if code == Some(NO_FILTER) {
                return skip(name, "the system lets no process filter its calls");
            }
            assert_eq!(code, Some(0), "{case} {file}: {text}");
            assert!(text.contains("allocations: 0\n"), "{case} {file}: {text}");
        }
    }
}

#[test]
fn the_filter_kills_a_child_that_makes_a_system_call_and_allocations_are_counted() {
    if env::var_os(CHILD).is_some() {
        return;
    }
    let (code, text) = child("call pattern");
    if code != Some(NO_FILTER) {
        assert_eq!(code, None, "killed by a signal: {text}");
    }
    let (_, text) = child("allocate pattern");
    assert!(!text.contains("allocations: 0\n"), "{text}");
}

/// The child, where the variable names a case; else no test.
#[test]
fn the_child_runs_the_case_of_its_variable() {
    let Ok(what) = env::var(CHILD) else { return };
    let (case, file) = what.split_once(' ').expect("a case and a file");
    let hit = CASES.iter().find(|at| at.0 == case).map_or(read_one as Hit, |at| at.1);
    let cache = Cache::new(settings()).unwrap();
    let handle = open(&cache, file);
    let mut random = Prng::new(1);
    // Every page, and batches of hits: one-time allocations happen now.
    handle.read_at(&mut vec![0; BYTES], 0).unwrap();
    (0..10_000).for_each(|_| hit(&handle, &mut random));
    let before = cache.stats();
    let failed = AtomicBool::new(false);
    let (done, made) = (AtomicBool::new(false), Mutex::new(None));
    thread::scope(|scope| {
        scope.spawn(|| {
            let program = filter();
            // A reallocation counts as an allocation.
            let counted = allocation_counter::measure(|| {
                if seccompiler::apply_filter(&program).is_err() {
                    process::exit(NO_FILTER);
                }
                (0..HITS).for_each(|_| hit(&handle, &mut random));
                match case {
                    "call" => drop(fs::metadata("/")),
                    "allocate" => drop(std::hint::black_box(vec![0_u8; 100])),
                    _ => {}
                }
            });
            *made.lock().unwrap() = Some(counted.count_total);
            done.store(true, Ordering::SeqCst);
            // The end of a thread makes system calls: the thread ends only where the test fails.
            while !failed.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        });
        let _failed = Fails(&failed);
        while !done.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        say(&cache, &before, made.lock().unwrap().expect("it was measured"));
        process::exit(0);
    });
}

/// Lets the filtered thread end.
struct Fails<'a>(&'a AtomicBool);

impl Drop for Fails<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Checks the counts of the hits and prints their cost.
fn say(cache: &Cache, before: &Stats, allocations: u64) {
    let now = cache.stats();
    // Drained meanwhile: all but the hits in the stripe of this thread.
    let drained = now.core.hits - before.core.hits;
    assert!(drained >= HITS && now.requests - before.requests >= HITS, "{now:?}");
    assert_eq!((now.requests - now.unlocked, now.dropped_hits), (before.latency.count(), 0));
    println!("allocations: {allocations}");
    std::io::stdout().flush().expect("the test listens");
}

fn read_one(file: &Handle, random: &mut Prng) {
    let mut buf = [0; PAGE];
    let page = random.below((BYTES / PAGE) as u64) * PAGE as u64;
    assert_eq!(file.read_at(&mut buf, page), Ok(PAGE));
    assert_eq!(pattern::verify(page, &buf[..8]), Ok(()));
}

fn pin_one(file: &Handle, random: &mut Prng) {
    let offset = random.below(BYTES as u64 - 8);
    let pinned = file.pin(offset).expect("it is there");
    assert_eq!(pattern::verify(offset, &pinned[..pinned.len().min(8)]), Ok(()));
}

/// A few pages, not aligned.
fn read_some(file: &Handle, random: &mut Prng) {
    let mut buf = [0; 3 * PAGE];
    let offset = random.below((BYTES - buf.len()) as u64);
    assert_eq!(file.read_at(&mut buf, offset), Ok(buf.len()));
    assert_eq!(pattern::verify(offset + PAGE as u64, &buf[PAGE..][..8]), Ok(()));
}

fn settings() -> Settings {
    // An interval that keeps the watch of a file opened by path from taking the lock.
    let version_interval = Duration::from_secs(3_600);
    Settings { cache_bytes: 2 * BYTES as u64, version_interval, ..Settings::default() }
}

fn open(cache: &Cache, file: &str) -> Handle {
    if file == "pattern" {
        return cache.open_store(Arc::new(Pattern::new(BYTES as u64))).unwrap();
    }
    let mut contents = vec![0; BYTES];
    pattern::fill(0, &mut contents);
    let scratch = Scratch::new("hits");
    let path = scratch.file("data", contents);
    let handle = cache.open(&path).unwrap();
    // A deleted file has changed, which only a fetch would notice: this test has none.
    handle.read_at(&mut vec![0; BYTES], 0).unwrap();
    handle
}

/// Allows the output of a failed assertion, and kills the process at any other call.
fn filter() -> BpfProgram {
    let rules = [(libc::SYS_write, Vec::new())].into();
    let (kill, allow) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let arch = env::consts::ARCH.try_into().expect("a machine that seccomp knows");
    let filter = SeccompFilter::new(rules, kill, allow, arch).expect("one rule");
    filter.try_into().expect("a program of a few steps")
}

/// Runs a child to its end: its code, if it was not killed, and its output.
fn child(what: &str) -> (Option<i32>, String) {
    let me = env::current_exe().unwrap();
    let output = Command::new(me)
        .args(["--exact", "the_child_runs_the_case_of_its_variable", "--nocapture"])
        .env(CHILD, what)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// The variable that makes the program the child.
const CHILD: &str = "FORERUN_TEST_HITS";
/// The exit code of a child that could not filter its calls.
const NO_FILTER: i32 = 77;
const HITS: u64 = 100_000;
const PAGE: usize = 4096;
const BYTES: usize = 1_000 * PAGE;
/// The kernel's clock source, and those that programs read without a system call.
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "riscv_clocksource"];
