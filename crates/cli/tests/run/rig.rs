//! Programs that read on command, files that are not cached, and what a run says of itself.
//!
//! A reader takes a line with a number, reads so many bytes, and answers with the bytes that it has
//! read so far. It advises the kernel of random reads, so that only what is prefetched for it is
//! cached beyond its position.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::{self, JoinHandle};

use forerun_steer::kernel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Advice, fadvise, fsync};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use forerun_testkit::{Scratch, skip, stat_fields, until};

/// `forerun run` with `flags`.
pub(crate) fn run(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.arg("run").args(flags.split_whitespace()).arg("--");
    // However the tests are started: learned lists are of those that ask for them by a flag.
    command.env("FORERUN_LEARN", "off");
    command
}

/// `forerun explain` with `flags`.
pub(crate) fn explain(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.arg("explain").args(flags.split_whitespace()).arg("--");
    // A folder without profiles.
    command.env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// The process that observes for `forerun`: its child, and the same program. Returns once it is
/// there, and its thread polls.
pub(crate) fn observing(forerun: u32) -> u32 {
    let mut found = None;
    until(|| {
        found = child_of_its_own(forerun);
        found.is_some()
    });
    found.expect("it is there")
}

fn child_of_its_own(forerun: u32) -> Option<u32> {
    let own = fs::read_link(format!("/proc/{forerun}/exe")).ok()?;
    let list = fs::read_to_string(format!("/proc/{forerun}/task/{forerun}/children")).ok()?;
    let mut children = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    let polls =
        |pid: &u32| fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|all| all.count() > 1);
    children.find(|pid| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == own) && polls(pid)
    })
}

/// Waits until what observes for the process `forerun` has the file `path` open; false where that
/// ends before.
pub(crate) fn holds(forerun: u32, path: &Path) -> bool {
    let mut is_there = true;
    until(|| {
        // A process that has ended and was not waited for has no program.
        is_there = fs::read_link(format!("/proc/{forerun}/exe")).is_ok();
        let Some(observing) = child_of_its_own(forerun) else { return !is_there };
        let Ok(mut links) = fs::read_dir(format!("/proc/{observing}/fd")) else { return false };
        let is_it = |to: PathBuf| to == path;
        links.any(|link| link.is_ok_and(|link| fs::read_link(link.path()).is_ok_and(is_it)))
    });
    is_there
}

/// Sends `signal` to the process `pid`, which is there.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("it is a process's");
    kill_process(pid, signal).expect("it is there");
}

/// How often a process has waited.
pub(crate) fn waits(pid: u32) -> u64 {
    let of = |path: PathBuf| {
        // A thread may end meanwhile.
        let text = fs::read_to_string(path.join("status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some(line.expect("it is there").trim().parse::<u64>().expect("it is there"))
    };
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    threads.filter_map(|thread| of(thread.ok()?.path())).sum()
}

/// Whether the process or thread whose folder in `/proc` is `folder` waits.
pub(crate) fn is_waiting(folder: &str) -> bool {
    stat_fields(folder).first().is_some_and(|state| ["S", "D"].contains(&state.as_str()))
}

/// A folder for one test, empty, which all users may enter.
pub(crate) fn folder(test: &str) -> Scratch {
    Scratch::on_disk(&format!("run-{test}"))
}

/// A file that can be dropped from the cache.
pub(crate) struct Data {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    file: File,
}

impl Data {
    /// A file of `bytes`, of which nothing is cached. `None`, and `test` is skipped by name, where
    /// the cache cannot be emptied or seen, as on tmpfs.
    pub(crate) fn new(test: &str, folder: &Path, bytes: u64) -> Option<Self> {
        let path = folder.join("data");
        let mut file = File::create(&path).expect("the folder takes a file");
        let block: Vec<u8> = (0..1_u32 << 16).map(|at| (at % 251).to_le_bytes()[0]).collect();
        for _ in 0..bytes >> 16 {
            file.write_all(&block).expect("there is room");
        }
        drop(file);
        let file = File::open(&path).expect("it was written");
        let data = Self { path, bytes, file };
        data.drop_from_cache();
        if data.cached(0, bytes) == Some(0) {
            return Some(data);
        }
        skip(test, "this file system's cache cannot be emptied or seen");
        None
    }

    pub(crate) fn drop_from_cache(&self) {
        fsync(&self.file).expect("it can be synced");
        fadvise(&self.file, 0, None, Advice::DontNeed).expect("advice is taken");
    }

    /// Bytes of `start..end` that are cached or in flight, where the kernel tells.
    pub(crate) fn cached(&self, start: u64, end: u64) -> Option<u64> {
        match kernel::cached(&self.file, &(start..end)) {
            Ok(kernel::Residency::Pages(pages)) => Some(pages * 4096),
            Ok(kernel::Residency::Unknown) | Err(_) => None,
        }
    }
}

/// A reader under `forerun run`.
pub(crate) struct Reader {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    answers: Box<dyn BufRead>,
    /// What the answers come from.
    pipe: OwnedFd,
    pub(crate) position: u64,
}

impl Reader {
    /// Starts `command`, a reader.
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let input = child.stdin.take();
        let output = child.stdout.take().expect("it is piped");
        let pipe = output.as_fd().try_clone_to_owned().expect("there are descriptors");
        Self { child, input, answers: Box::new(BufReader::new(output)), pipe, position: 0 }
    }

    /// Starts `command`, a reader that answers on stderr; what comes on stdout.
    pub(crate) fn start_with_errors(command: &mut Command) -> (Self, JoinHandle<String>) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let input = child.stdin.take();
        let errors = child.stderr.take().expect("it is piped");
        let pipe = errors.as_fd().try_clone_to_owned().expect("there are descriptors");
        let answers = Box::new(BufReader::new(errors));
        let mut output = child.stdout.take().expect("it is piped");
        let output = thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).expect("it is text");
            text
        });
        (Self { child, input, answers, pipe, position: 0 }, output)
    }

    /// Has it read `bytes` more.
    pub(crate) fn read(&mut self, bytes: u64) {
        let answer = self.say(&bytes.to_string());
        self.position = answer.parse().expect("it answers with its position");
    }

    /// Sends a line; its answer.
    pub(crate) fn say(&mut self, line: &str) -> String {
        let input = self.input.as_mut().expect("it was not ended");
        writeln!(input, "{line}").expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        answer.trim_end().to_owned()
    }

    /// The same; nothing where it has ended.
    pub(crate) fn say_if_it_can(&mut self, line: &str) -> String {
        if self.hears(line) { self.answer() } else { String::new() }
    }

    /// Sends a line, whose answer is awaited for itself; false where it has ended.
    pub(crate) fn hears(&mut self, line: &str) -> bool {
        self.input.as_mut().is_some_and(|input| writeln!(input, "{line}").is_ok())
    }

    /// Whether [`Self::answer`] would not wait.
    pub(crate) fn has_answered(&self) -> bool {
        let mut awaited = [PollFd::new(&self.pipe, PollFlags::IN)];
        poll(&mut awaited, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// The answer to the last line.
    pub(crate) fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it is text");
        answer.trim_end().to_owned()
    }

    /// Has it end; its exit status.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().expect("it ends").code()
    }

    /// Has it end; its exit status with what `then` returns at once, and its last line.
    pub(crate) fn end_with_answer<T>(
        mut self,
        then: impl FnOnce() -> T,
    ) -> ((Option<i32>, T), String) {
        self.input = None;
        let status = self.child.wait().expect("it ends").code();
        let ended = (status, then());
        let mut last = String::new();
        self.answers.read_line(&mut last).expect("it is text");
        (ended, last.trim_end().to_owned())
    }

    /// Has it read `step` at a time until something beyond it is cached, and asserts that this
    /// is never more than `most` beyond.
    pub(crate) fn is_prefetched(&mut self, data: &Data, step: u64, most: u64) -> bool {
        self.reads_until(step, data.bytes, |position| {
            let beyond = (position + most).min(data.bytes);
            assert_eq!(data.cached(beyond, data.bytes), Some(0), "too far ahead");
            data.cached(position.next_multiple_of(4096), data.bytes) > Some(0)
        })
    }

    /// Has it read `step` at a time, before `end`, until `is_prefetched` finds so of its position.
    pub(crate) fn reads_until(
        &mut self,
        step: u64,
        end: u64,
        is_prefetched: impl Fn(u64) -> bool,
    ) -> bool {
        while self.position + step < end {
            self.read(step);
            for _ in 0..POLLS {
                if is_prefetched(self.position) {
                    return true;
                }
                thread::yield_now();
            }
        }
        false
    }
}

/// The reader in Python.
pub(crate) fn python(data: &Data, run: &mut Command) -> Reader {
    Reader::start(run.args(["python3", "-c", PYTHON]).arg(&data.path))
}

/// The shim, which cargo leaves beside the tests.
pub(crate) fn shim() -> PathBuf {
    std::env::current_exe().expect("a test has a path").with_file_name("libforerun_preload.so")
}

/// What `run --stats-json` wrote.
pub(crate) fn stats(path: &Path) -> Value {
    let text = fs::read(path).expect("there are statistics");
    serde_json::from_slice(&text).expect("they are JSON")
}

/// Polls of the cache after each step of a reader.
const POLLS: u32 = 2_000;

/// The reader of [`python`].
pub(crate) const PYTHON: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
done = 0
for line in sys.stdin:
    left = int(line)
    while left > 0:
        got = len(os.read(fd, min(left, 65536)))
        if got == 0: break
        left, done = left - got, done + got
    print(done, flush=True)
";

/// For each line of its input, a number of bytes: reads so many more of a mapped file, whose kernel
/// readahead is off, and says how many it has.
pub(crate) const MAPPED: &str = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
m.madvise(mmap.MADV_RANDOM)
os.close(fd)
done = 0
for line in sys.stdin:
    for at in range(done, min(done + int(line), len(m)), 4096): m[at]
    done += int(line)
    print(done, flush=True)
";
