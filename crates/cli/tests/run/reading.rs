//! Files are read ahead of programs of many kinds, and never beyond the limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::{Data, MAPPED, PYTHON, Reader, folder, python, run, shim, stats};
use forerun_testkit::{installed, skip};

const LIMIT: u64 = 2 << 20;
/// The limit and a chunk, a chunk being at most a MiB.
const MOST: u64 = LIMIT + (1 << 20);
const STEP: u64 = 64 << 10;
const BYTES: u64 = 64 << 20;

#[test]
fn a_sequential_reader_is_prefetched_for_within_the_limit() {
    let test = "a_sequential_reader_is_prefetched_for_within_the_limit";
    let folder = folder("sequential");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    let record = folder.join("stats.json");
    let flags = format!("--limit 2M --stats-json {}", record.display());
    let mut reader = python(&data, &mut run(&flags));
    assert!(reader.is_prefetched(&data, STEP, MOST), "nothing was read ahead in {BYTES} bytes");
    // And to the end of the file, wherever the reader is.
    while reader.position + STEP < BYTES {
        reader.read(STEP);
        let beyond = (reader.position + MOST).min(BYTES);
        assert_eq!(data.cached(beyond, BYTES), Some(0), "at {}", reader.position);
    }
    assert_eq!(reader.end(), Some(0));
    let stats = stats(&record);
    assert!(stats["bytes_asked"].as_u64().unwrap() > 0, "{stats}");
    assert!(stats["distance_bytes_max"].as_u64().unwrap() <= MOST, "{stats}");
}

#[test]
fn a_mapped_file_is_read_ahead() {
    let test = "a_mapped_file_is_read_ahead";
    let folder = folder("mapped");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    let drops = "    if done: m.madvise(mmap.MADV_DONTNEED, 0, done)\n    for at";
    let dropping = MAPPED.replace("    for at", drops);
    for (why, program) in [("kept", MAPPED), ("dropped before the next is read", &dropping)] {
        data.drop_from_cache();
        let mut command = run("--limit 2M");
        let mut reader = Reader::start(command.args(["python3", "-c", program]).arg(&data.path));
        // The kernel maps 64 KiB around a touched page, so the reader may seem farther than it is.
        assert!(reader.is_prefetched(&data, STEP, MOST + STEP), "{why}: nothing was read ahead");
        assert_eq!(reader.end(), Some(0));
    }
}

/// A reader in C; linked statically it is none that a library could be loaded into.
pub(crate) const C: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static char block[65536];
int main(int argc, char **argv)
{
    char line[64];
    long done = 0;
    int fd;
    for (int i = 3; i < 256; i++) close(i);
    fd = open(argv[1], O_RDONLY);
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    while (fgets(line, sizeof line, stdin)) {
        long left = atol(line), got = 1;
        while (left > 0 && (got = read(fd, block, left < 65536 ? left : 65536)) > 0) {
            left -= got;
            done += got;
        }
        printf("%ld\n", done);
        fflush(stdout);
    }
    return 0;
}
"#;

pub(crate) const GO: &str = r#"
package main
import ("bufio"; "fmt"; "io"; "os"; "strconv"; "syscall")
func main() {
    file, _ := os.Open(os.Args[1])
    syscall.Syscall6(syscall.SYS_FADVISE64, file.Fd(), 0, 0, 1, 0, 0)
    lines, block, done := bufio.NewScanner(os.Stdin), make([]byte, 65536), int64(0)
    for lines.Scan() {
        left, _ := strconv.ParseInt(lines.Text(), 10, 64)
        for left > 0 {
            n, err := io.ReadFull(file, block[:min(left, 65536)])
            left, done = left - int64(n), done + int64(n)
            if err != nil { break }
        }
        fmt.Println(done)
    }
}
"#;

#[test]
fn static_programs_are_prefetched_for_too() {
    let test = "static_programs_are_prefetched_for_too";
    let folder = folder("static");
    for (compiler, source) in [("cc", C), ("go", GO)] {
        if !installed(test, compiler) {
            continue;
        }
        let Some(program) = compile(test, &folder, compiler, source) else { continue };
        let Some(data) = Data::new(test, &folder, BYTES) else { return };
        let mut command = run("--limit 2M");
        let mut reader = Reader::start(command.arg(&program).arg(&data.path));
        assert!(reader.is_prefetched(&data, STEP, MOST), "{compiler}: nothing was read ahead");
        assert_eq!(reader.end(), Some(0), "{compiler}");
    }
}

pub(crate) fn compile(test: &str, folder: &Path, compiler: &str, source: &str) -> Option<PathBuf> {
    let program = folder.join(format!("{compiler}-reader"));
    let extension = if compiler == "go" { "go" } else { "c" };
    let listing = folder.join(format!("reader.{extension}"));
    fs::write(&listing, source).unwrap();
    let mut command = Command::new(compiler);
    if compiler == "go" {
        let cache = folder.join("go-cache");
        command.args(["build", "-o"]).arg(&program).env("CGO_ENABLED", "0").env("GOCACHE", cache);
    } else {
        command.args(["-O2", "-static", "-o"]).arg(&program);
    }
    let made = command.arg(&listing).stderr(Stdio::inherit()).status().unwrap().success();
    if !made {
        skip(test, &format!("{compiler} makes no static program here"));
    }
    made.then_some(program)
}

#[test]
fn children_are_prefetched_for_whose_parent_holds_the_file() {
    let test = "children_are_prefetched_for_whose_parent_holds_the_file";
    let folder = folder("children");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    // Each line is read by a child of its own, through the parent's descriptor.
    let program = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.read(fd, int(line))
        os._exit(0)
    os.waitpid(child, 0)
    print(os.lseek(fd, 0, os.SEEK_CUR), flush=True)
";
    let mut command = run("--limit 2M");
    let mut reader = Reader::start(command.args(["python3", "-c", program]).arg(&data.path));
    assert!(reader.is_prefetched(&data, STEP, MOST), "nothing was read ahead");
    assert_eq!(reader.end(), Some(0));
}

#[test]
fn a_program_that_another_became_is_prefetched_for() {
    let test = "a_program_that_another_became_is_prefetched_for";
    let folders = [folder("exec-first"), folder("exec")];
    let Some(before) = Data::new(test, &folders[0], BYTES).filter(|_| installed(test, "python3"))
    else {
        return;
    };
    let Some(data) = Data::new(test, &folders[1], BYTES) else { return };
    let becomes = "for line in sys.stdin:
    if line == 'become\\n':
        # Answered before: a line that is sent only then is the other program's.
        print(flush=True)
        os.execvp('python3', ['python3', '-c', sys.argv[2], sys.argv[3]])";
    for (why, program) in [("by calls", PYTHON), ("by a mapping", MAPPED)] {
        before.drop_from_cache();
        data.drop_from_cache();
        let first = program.replace("for line in sys.stdin:", becomes);
        let mut command = run("--limit 2M");
        command.args(["python3", "-c", &first]).arg(&before.path).arg(program).arg(&data.path);
        let mut reader = Reader::start(&mut command);
        // The first program is observed in the same way before it becomes the other.
        assert!(reader.is_prefetched(&before, STEP, MOST + STEP), "{why}: the first is not seen");
        assert_eq!(reader.say("become"), "");
        reader.position = 0;
        assert!(reader.is_prefetched(&data, STEP, MOST + STEP), "{why}: nothing was read ahead");
        assert_eq!(reader.end(), Some(0));
    }
}

#[test]
fn reads_that_move_no_position_are_seen_by_the_shim() {
    let test = "reads_that_move_no_position_are_seen_by_the_shim";
    let folder = folder("shim");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    // Two streams by one descriptor, in turns.
    let program = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
done, half = 0, os.fstat(fd).st_size // 2
for line in sys.stdin:
    for at in range(done, done + int(line), 32768):
        os.pread(fd, 32768, at)
        os.pread(fd, 32768, half + at)
    done += int(line)
    print(done, flush=True)
";
    let mut command = run("--limit 2M --observe preload");
    command.env("FORERUN_PRELOAD", shim());
    let mut reader = Reader::start(command.args(["python3", "-c", program]).arg(&data.path));
    let half = BYTES / 2;
    let is_prefetched = reader.reads_until(STEP, half, |position| {
        assert_eq!(data.cached((position + MOST).min(half), half), Some(0), "too far ahead");
        let first = data.cached(position, half);
        let second = data.cached(half + position, BYTES);
        first > Some(0) && second > Some(0)
    });
    assert!(is_prefetched, "no request for both streams");
    assert_eq!(reader.end(), Some(0));
}

#[test]
fn a_backward_reader_is_prefetched_for_by_what_the_shim_records() {
    let test = "a_backward_reader_is_prefetched_for_by_what_the_shim_records";
    let folder = folder("back");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    let program = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
size, done = os.fstat(fd).st_size, 0
for line in sys.stdin:
    for at in range(done, done + int(line), 32768):
        os.pread(fd, 32768, size - at - 32768)
    done += int(line)
    print(done, flush=True)
";
    let mut command = run("--limit 2M --observe preload");
    command.env("FORERUN_PRELOAD", shim());
    let mut reader = Reader::start(command.args(["python3", "-c", program]).arg(&data.path));
    let is_prefetched = reader.reads_until(STEP, BYTES, |read| {
        let position = BYTES - read;
        assert_eq!(data.cached(0, position.saturating_sub(MOST)), Some(0), "too far ahead");
        // More than a read beside it.
        data.cached(0, position.saturating_sub(STEP)) > Some(0)
    });
    assert!(is_prefetched, "no request");
    assert_eq!(reader.end(), Some(0));
}

#[test]
fn threads_on_one_mapping_are_prefetched_for_each_in_its_place() {
    let test = "threads_on_one_mapping_are_prefetched_for_each_in_its_place";
    let folder = folder("threads");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    let program = "
import mmap, os, sys, threading
fd = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
m.madvise(mmap.MADV_RANDOM)
os.close(fd)
half, done = len(m) // 2, 0
def touch(start, count):
    for at in range(start, start + count, 4096): m[at]
for line in sys.stdin:
    count = min(int(line), half - done)
    both = [threading.Thread(target=touch, args=(at + done, count)) for at in (0, half)]
    for one in both: one.start()
    for one in both: one.join()
    done += count
    print(done, flush=True)
";
    let mut command = run("--limit 2M");
    let mut reader = Reader::start(command.args(["python3", "-c", program]).arg(&data.path));
    let half = BYTES / 2;
    let is_prefetched = reader.reads_until(STEP, half - STEP, |position| {
        let position = position.next_multiple_of(STEP);
        [0, half].iter().all(|at| data.cached(at + position, at + half) > Some(0))
    });
    assert!(is_prefetched, "no request for both threads");
    assert_eq!(reader.end(), Some(0));
}

#[test]
fn without_its_library_the_shim_is_refused() {
    let mut command = run("--observe preload");
    let output = command.env("FORERUN_PRELOAD", "/no/such.so").arg("true").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("FORERUN_PRELOAD") && errors.lines().count() == 1, "{errors}");
}

#[test]
fn a_random_reader_is_left_alone() {
    let test = "a_random_reader_is_left_alone";
    let folder = folder("random");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    let program = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
# None lies beside another, by chance.
places, at = os.fstat(fd).st_size // 65536, 1
for line in sys.stdin:
    at = (at * 1103515245 + 12345) % (1 << 31)
    os.lseek(fd, at // 65536 % places * 65536, os.SEEK_SET)
    os.read(fd, 4096)
    print(at, flush=True)
";
    let record = folder.join("stats.json");
    let flags = format!("--stats-json {}", record.display());
    let mut command = run(&flags);
    let mut reader = Reader::start(command.args(["python3", "-c", program]).arg(&data.path));
    for _ in 0..400 {
        reader.say("");
    }
    assert_eq!(reader.end(), Some(0));
    let (stats, cached) = (stats(&record), data.cached(0, BYTES).unwrap());
    assert!(cached <= 420 * 4096, "{cached} bytes came of 400 pages: {stats}");
}

#[test]
fn a_cached_file_is_not_asked_for() {
    let test = "a_cached_file_is_not_asked_for";
    let folder = folder("cached");
    // A program that maps nothing, of which something may not be cached.
    let program = installed(test, "cc").then(|| compile(test, &folder, "cc", C)).flatten();
    let Some((program, data)) = program.zip(Data::new(test, &folder, 16 << 20)) else { return };
    fs::read(&data.path).unwrap();
    let record = folder.join("stats.json");
    let mut command = run(&format!("--stats-json {}", record.display()));
    let mut reader = Reader::start(command.arg(&program).arg(&data.path));
    while reader.position < data.bytes {
        reader.read(STEP);
    }
    assert_eq!(reader.end(), Some(0));
    let stats = stats(&record);
    assert_eq!(stats["bytes_asked"], 0, "{stats}");
}
