//! Tests on real programs: each waits in a call for good, so polls meet it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use forerun_testkit::{Scratch, compile_c, installed, skip, until};
use rustix::fs::{FileType, Mode, mknodat};
use rustix::process::{Pid, getpid};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::super::access::recording::RecordingSink;
use super::super::poll::Allowance;
use super::super::processes::ProcessTree;
use super::*;

/// A program that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tree_of(program: &Running) -> ProcessTree {
    ProcessTree::new(Pid::from_child(&program.0), Some(getpid()))
}

fn poll(tree: &mut ProcessTree, sink: &mut RecordingSink) -> bool {
    let has_run = tree.has_run();
    has_run && tree.poll_blocked(Nanos(0), Allowance::endless(), sink)
}

/// Polls until all of `expected` were met. Where the system refuses that, or the program ends,
/// `test` is skipped, and they were not.
fn are_met(
    test: &str,
    program: &mut Running,
    tree: &mut ProcessTree,
    sink: &mut RecordingSink,
    expected: &[(Vec<u8>, EntryCall)],
) -> bool {
    loop {
        poll(tree, sink);
        if expected.iter().all(|entry| sink.entries.contains(entry)) {
            return true;
        }
        let why = if tree.blocked_counts().refused > 0 {
            "processes may not be observed here"
        } else if program.0.try_wait().expect("it was started").is_some() {
            "the program cannot run here"
        } else {
            std::thread::yield_now();
            continue;
        };
        skip(test, why);
        return false;
    }
}

/// The folder of this process in `/proc`.
fn own_folder() -> File {
    File::open("/proc/self").expect("there is one")
}

/// Opens `DIRECTORY|PATH` of each argument on a thread of its own. A path lies at the end of a page
/// with nothing behind it, or across two pages.
const OPENS: &str = r"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <sys/syscall.h>
static int count;
static void *opens(void *argument) {
    char *path = strchr(argument, '|'), *pages;
    int directory = AT_FDCWD, nth = __sync_fetch_and_add(&count, 1);
    *path++ = 0;
    if (*(char *)argument) directory = open(argument, O_RDONLY | O_DIRECTORY);
    pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nth % 2) munmap(pages + 4096, 4096);
    pages += 4096 - (nth % 2 ? strlen(path) + 1 : strlen(path) / 2);
    syscall(SYS_openat, directory, strcpy(pages, path), O_RDONLY);
    return 0;
}
int main(int argc, char **argv) {
    pthread_t thread;
    for (int i = 1; i < argc; i++) pthread_create(&thread, 0, opens, argv[i]);
    for (;;) if (count < 0) return 0;
}
";

/// Names of pipes, as the program names them: its working directory is `work`.
const NAMES: [(&str, &[u8], &[u8]); 8] = [
    ("", b"one", b"work/one"),
    ("", b"./two", b"work/two"),
    ("", b"../other//three", b"other/three"),
    ("../other", b"four", b"other/four"),
    ("../other", b"../other/./deep/../five", b"other/five"),
    ("../other/deep", b"six", b"other/deep/six"),
    ("../other", b"seven \xff\n", b"other/seven \xff\n"),
    ("", b"/", b"other/eight"),
];

#[test]
fn opens_that_eight_threads_wait_in_are_met_once_each() {
    let test = "opens_that_eight_threads_wait_in_are_met_once_each";
    for flags in [&[][..], &["-static"]] {
        let scratch = Scratch::new("blocked");
        let Some(program) = compiled(test, &scratch, flags) else { return };
        fs::create_dir_all(scratch.join("work")).expect("there is room");
        fs::create_dir_all(scratch.join("other/deep")).expect("there is room");
        let scratch_path = fs::canonicalize(&scratch).expect("it is there");
        let mut command = Command::new(program);
        let mut expected = Vec::new();
        for (directory, name, place) in NAMES {
            let place = scratch_path.join(OsStr::from_bytes(place));
            pipe(&place);
            let name = if name == b"/" { place.as_os_str().as_bytes() } else { name };
            let argument = [directory.as_bytes(), b"|", name].concat();
            command.arg(OsString::from_vec(argument));
            expected.push((place.into_os_string().into_vec(), EntryCall::Open));
        }
        command.current_dir(scratch.join("work")).stdin(Stdio::null());
        let mut program = Running(command.spawn().expect("it was compiled"));
        let (mut tree, mut sink) = (tree_of(&program), RecordingSink::default());
        if !are_met(test, &mut program, &mut tree, &mut sink, &expected) {
            return;
        }
        // Its first thread runs on, so each of these looks at all the others.
        for _ in 0..100 {
            poll(&mut tree, &mut sink);
        }
        let mut met = sink.entries.clone();
        met.retain(|entry| expected.contains(entry));
        met.sort_by_key(|entry| expected.iter().position(|known| known == entry));
        assert_eq!(met, expected, "{flags:?}");
        assert_eq!(tree.blocked_counts().refused, 0);
    }
}

/// The program of [`OPENS`], compiled in `folder`; `None`, and `test` is skipped, where it is not.
fn compiled(test: &str, folder: &Scratch, flags: &[&str]) -> Option<std::path::PathBuf> {
    let program = folder.join("opens");
    compile_c(test, &folder.file("opens.c", OPENS), flags, &program)?;
    Some(program)
}

#[test]
fn paths_are_those_in_the_root_of_the_process() {
    let test = "paths_are_those_in_the_root_of_the_process";
    if !installed(test, "unshare") || !installed(test, "chroot") {
        return;
    }
    let scratch = Scratch::new("root");
    let Some(_) = compiled(test, &scratch, &["-static"]) else { return };
    fs::create_dir(scratch.join("deep")).expect("there is room");
    for name in ["one", "deep/two", "deep/three"] {
        pipe(&scratch.join(name));
    }
    let mut command = Command::new("unshare");
    command.args(["-r", "chroot"]).arg(scratch.as_os_str());
    command.args(["/opens", "|one", "deep|two", "|/deep/three"]).stderr(Stdio::null());
    let mut program = Running(command.spawn().expect("it is installed"));
    let (mut tree, mut sink) = (tree_of(&program), RecordingSink::default());
    let expected = ["/one", "/deep/two", "/deep/three"];
    let expected = expected.map(|path| (path.as_bytes().to_vec(), EntryCall::Open));
    are_met(test, &mut program, &mut tree, &mut sink, &expected);
}

#[test]
fn a_process_that_may_not_be_observed_is_counted_once() {
    let scratch = Scratch::new("refused");
    let place = fs::canonicalize(&scratch).expect("it is there").join("pipe");
    pipe(&place);
    let mut command = Command::new("cat");
    let program = Running(command.arg(&place).spawn().expect("every system has it"));
    // The filter is that of this thread alone.
    let observed = std::thread::spawn(move || {
        let (mut tree, mut sink) = (tree_of(&program), RecordingSink::default());
        refuse(libc::SYS_process_vm_readv);
        until(|| {
            poll(&mut tree, &mut sink);
            tree.blocked_counts().refused > 0
        });
        for _ in 0..9 {
            tree.has_run();
            assert!(!tree.poll_blocked(Nanos(0), Allowance::endless(), &mut sink));
        }
        (tree.blocked_counts().refused, sink.entries)
    });
    let (refused, entries) = observed.join().expect("it does not panic");
    assert_eq!(refused, 1);
    assert!(entries.iter().all(|(path, _)| path != place.as_os_str().as_bytes()), "{entries:?}");
}

#[test]
fn each_poll_says_of_which_process_its_reports_are() {
    let mut command = Command::new("cat");
    let program = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let program = Running(program.expect("every system has it"));
    let (mut tree, mut sink) = (tree_of(&program), RecordingSink::default());
    let pid = Pid::from_child(&program.0).as_raw_nonzero().get();
    for polls in 1..4 {
        tree.poll_blocked(Nanos(0), Allowance::endless(), &mut sink);
        assert_eq!(sink.processes, vec![pid; polls], "an answer about it holds for one poll");
    }
}

#[test]
fn nothing_is_tried_where_attaching_is_restricted() {
    #[rustfmt::skip]
    let rows = [ // scope, allowed, allowed to a capable process
        (None,        true,  true,  "no Yama"),
        (Some("0\n"), true,  true,  "processes of one user"),
        (Some("1\n"), false, true,  "ancestors"),
        (Some("2\n"), false, true,  "the administrator"),
        (Some("3\n"), false, false, "none"),
        (Some(""),    false, false, "unknown"),
    ];
    for (scope, allowed, capable, why) in rows {
        let is = [false, true].map(|is_capable| allows_attaching(scope, is_capable));
        assert_eq!(is, [allowed, capable], "{why}");
    }
}

/// Has the system answer this thread `EPERM` to `call` from now on.
fn refuse(call: i64) {
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known machine");
    let eperm = u32::try_from(Errno::PERM.raw_os_error()).expect("it is positive");
    let rules = [(call, Vec::new())].into_iter().collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(eperm), arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a small filter");
    seccompiler::apply_filter(&program).expect("a thread may give up a call");
}

#[test]
fn a_program_that_waits_without_running_is_not_looked_at_again() {
    let test = "a_program_that_waits_without_running_is_not_looked_at_again";
    let scratch = Scratch::new("waits");
    let place = fs::canonicalize(&scratch).expect("it is there").join("pipe");
    pipe(&place);
    let mut command = Command::new("cat");
    let mut program = Running(command.arg(&place).spawn().expect("every system has it"));
    let (mut tree, mut sink) = (tree_of(&program), RecordingSink::default());
    let expected = [(place.into_os_string().into_vec(), EntryCall::Open)];
    if !are_met(test, &mut program, &mut tree, &mut sink, &expected) {
        return;
    }
    until(|| !tree.has_run());
    assert!(!tree.poll_blocked(Nanos(0), Allowance::endless(), &mut sink));
    assert_eq!(sink.entries.iter().filter(|entry| expected.contains(entry)).count(), 1);
}

#[test]
fn a_poll_without_an_allowance_looks_at_one_process_and_the_next_goes_on() {
    let test = "a_poll_without_an_allowance_looks_at_one_process_and_the_next_goes_on";
    let scratch = Scratch::new("parts");
    let folder = fs::canonicalize(&scratch).expect("it is there");
    let mut expected = Vec::new();
    for name in ["one", "two", "three"] {
        pipe(&folder.join(name));
        expected.push((folder.join(name).into_os_string().into_vec(), EntryCall::Open));
    }
    let script = "for pipe in one two three; do : <$pipe & done; wait";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(&folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let program = Running(command.spawn().expect("every system has it"));
    let (mut tree, mut sink) = (tree_of(&program), RecordingSink::default());
    let mut most = 0;
    until(|| {
        let met = sink.entries.len();
        tree.discover(Nanos(0), Allowance::endless(), &mut sink);
        // The shell and its three children.
        if tree.has_run() && tree.seen() == 4 {
            tree.poll_blocked(Nanos(0), Allowance::of(Nanos(0)), &mut sink);
        }
        most = most.max(sink.entries.len() - met);
        let is_refused = tree.blocked_counts().refused > 0;
        is_refused || expected.iter().all(|entry| sink.entries.contains(entry))
    });
    for name in ["one", "two", "three"] {
        // Its shell goes on.
        drop(File::options().write(true).open(folder.join(name)));
    }
    if tree.blocked_counts().refused > 0 {
        return skip(test, "processes may not be observed here");
    }
    assert_eq!(most, 1);
}

#[test]
fn a_read_is_of_a_regular_file_and_ends_there_or_before() {
    let scratch = Scratch::new("reads");
    let file = File::open(scratch.file("data", vec![7; 5000])).expect("it is there");
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(1000)).expect("it is a file");
    let process = own_folder();
    let number = file.as_raw_fd();
    #[rustfmt::skip]
    let rows = [ // offset, bytes, to the end
        (None,       Some(4000), true,  "from the position on"),
        (None,       Some(3999), false, "a byte before"),
        (Some(0),    Some(5000), true,  "all"),
        (Some(0),    Some(4000), false, "the head"),
        (Some(4096), Some(4096), true,  "beyond"),
        (Some(9000), Some(1),    true,  "behind the end"),
        (Some(u64::MAX), Some(9), true, "at no place"),
        (None,       None,       false, "how much is not told"),
    ];
    for (offset, bytes, to_end, why) in rows {
        let read = reading(process.as_fd(), number, offset, bytes);
        assert_eq!(read.map(|(read, _)| read), Some(EntryCall::Read { to_end }), "{why}");
    }
    let folder = File::open(&scratch).expect("it is there");
    assert_eq!(reading(process.as_fd(), folder.as_raw_fd(), None, Some(9)), None);
    assert_eq!(reading(process.as_fd(), -1, None, Some(9)), None);
}

#[test]
fn what_a_descriptor_stands_for_is_named_until_it_is_deleted() {
    let scratch = Scratch::new("named");
    let path = fs::canonicalize(scratch.file("data", "x")).expect("it is there");
    let file = File::open(&path).expect("it is there");
    let process = own_folder();
    let named = || path::of_descriptor(process.as_fd(), file.as_raw_fd());
    assert_eq!(named().as_deref(), Some(path.as_os_str().as_bytes()));
    fs::remove_file(&path).expect("it is there");
    assert_eq!(named(), None);
    let (pipe, _other) = std::io::pipe().expect("there is room");
    assert_eq!(path::of_descriptor(process.as_fd(), pipe.as_raw_fd()), None);
    assert_eq!(path::of_descriptor(process.as_fd(), -100), None);
}

#[test]
fn texts_end_where_their_memory_ends() {
    let pid = getpid().as_raw_nonzero().get();
    let long = vec![b'x'; memory::PATH_BYTES_MAX + 1];
    let mut whole = vec![b'y'; memory::PATH_BYTES_MAX - 1];
    whole.push(0);
    let text = |bytes: &[u8]| memory::text_at(pid, bytes.as_ptr().addr() as u64);
    assert_eq!(text(b"a\xff b\0c").unwrap().as_deref(), Some(&b"a\xff b"[..]));
    assert_eq!(text(b"\0").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(text(&whole).unwrap().as_deref(), whole.strip_suffix(b"\0"));
    assert_eq!(text(&long).unwrap(), None);
    assert_eq!(memory::text_at(pid, 1), Err(Errno::FAULT));
    assert_eq!(memory::text_at(pid, u64::MAX), Err(Errno::FAULT));
}

fn pipe(place: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(rustix::fs::CWD, place, FileType::Fifo, mode, 0).expect("a folder takes a pipe");
}
