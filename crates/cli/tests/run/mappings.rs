//! Mappings that change while they are observed: what was touched is reported, and reported once.
//!
//! The program does one step for each line, then maps and touches a file that is there for that
//! step alone. An observer that holds that file has seen all that the step did.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::explain::file;
use crate::reading::compile;
use crate::rig::{Data, Reader, explain, folder, holds};
use forerun_testkit::{Scratch, installed, skip};

const STEPS: u64 = 8;
const STEP_BYTES: u64 = 1 << 20;

/// Files in a folder of `test`, one for each step and one before.
fn markers(test: &str) -> (Scratch, Vec<PathBuf>) {
    let folder = folder(test);
    let marker = |step| folder.file(&format!("{step}"), vec![1; 1 << 20]);
    let markers = (0..=STEPS).map(marker).collect();
    (folder, markers)
}

#[test]
fn what_is_touched_is_reported_once_however_mappings_change() {
    let test = "what_is_touched_is_reported_once_however_mappings_change";
    let folder = folder("mappings");
    let program = installed(test, "cc").then(|| compile(test, &folder, "cc", PROGRAM)).flatten();
    let Some((program, data)) = program.zip(Data::new(test, &folder, STEPS * STEP_BYTES)) else {
        return;
    };
    let (_folder, markers) = markers("mappings-markers");
    #[rustfmt::skip]
    let rows = [
        ("mapped",   "touched piece by piece"),
        ("guarded",  "not readable before"),
        ("reserved", "in the place of nothing, and of its size"),
        ("window",   "one part of the file in the place of another"),
        ("advised",  "split in two, elsewhere each time"),
    ];
    for (way, why) in rows {
        data.drop_from_cache();
        let mut command = explain("--json");
        command.arg(&program).arg(way).arg(&data.path).arg(markers[0].parent().unwrap());
        let (mut reader, output) = Reader::start_with_errors(&mut command);
        for (step, marker) in markers.iter().enumerate() {
            assert_eq!(reader.say(""), step.to_string());
            assert!(holds(reader.child.id(), marker), "{why}: step {step} is not seen");
        }
        assert_eq!(reader.end(), Some(0));
        let explained: Value = serde_json::from_str(&output.join().unwrap()).unwrap();
        assert_eq!(file(&explained, &data.path)["bytes_read"], data.bytes, "{why}: {explained}");
    }
}

#[test]
fn a_mapped_file_may_have_any_name() {
    let test = "a_mapped_file_may_have_any_name";
    let folder = folder("mappings-name");
    let Some(mut data) = Data::new(test, &folder, 4 << 20).filter(|_| installed(test, "python3"))
    else {
        return;
    };
    let name = folder.join(OsStr::from_bytes(b"\xff data"));
    if fs::rename(&data.path, &name).is_err() {
        return skip(test, "this file system wants names of UTF-8");
    }
    data.path = name;
    let program = "
import mmap, os, sys
fd = os.open(os.fsencode(sys.argv[1]), os.O_RDONLY)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
os.close(fd)
for line in sys.stdin:
    for at in range(0, len(m), 4096): m[at]
    print(line, file=sys.stderr, flush=True)
";
    let mut command = explain("--json");
    let (mut reader, output) =
        Reader::start_with_errors(command.args(["python3", "-c", program]).arg(&data.path));
    assert_eq!(reader.say("1"), "1");
    assert!(holds(reader.child.id(), &data.path), "it is not seen");
    assert_eq!(reader.end(), Some(0));
    output.join().unwrap();
}

/// Children are observed by a mapping: a read would count as one of theirs.
#[test]
fn what_a_parent_has_read_is_not_reported_of_its_children() {
    let test = "what_a_parent_has_read_is_not_reported_of_its_children";
    let folder = folder("mappings-children");
    let Some(data) = Data::new(test, &folder, 8 << 20).filter(|_| installed(test, "python3"))
    else {
        return;
    };
    let (_folder, markers) = markers("mappings-children-markers");
    let program = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
ends, end = os.pipe()
for line in sys.stdin:
    if line == 'read\\n':
        while os.read(fd, 1 << 20): pass
        print(line, file=sys.stderr, flush=True)
    elif os.fork() == 0:
        os.close(end)
        marker = os.open(line.strip(), os.O_RDONLY)
        m = mmap.mmap(marker, 0, prot=mmap.PROT_READ)
        os.close(marker)
        for at in range(0, len(m), 4096): m[at]
        print(line, file=sys.stderr, flush=True)
        os.read(ends, 1)
        os._exit(0)
";
    let mut command = explain("--json");
    let (mut reader, output) =
        Reader::start_with_errors(command.args(["python3", "-c", program]).arg(&data.path));
    assert_eq!(reader.say("read"), "read");
    assert!(holds(reader.child.id(), &data.path), "it is not observed to read");
    for marker in &markers {
        let path = marker.to_str().unwrap();
        reader.say(path);
        assert!(holds(reader.child.id(), marker), "a child is not seen");
    }
    assert_eq!(reader.end(), Some(0));
    let explained: Value = serde_json::from_str(&output.join().unwrap()).unwrap();
    assert_eq!(file(&explained, &data.path)["bytes_read"], data.bytes, "{explained}");
}

/// `argv`: the way, of which the first letter counts, the file, the folder of those for the steps.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static const size_t step = 1 << 20, steps = 8;
static volatile char sink;
int main(int argc, char **argv)
{
    char way = *argv[1], line[64], path[4096], *all;
    int file = open(argv[2], O_RDONLY);
    int shared = MAP_SHARED, nothing = MAP_PRIVATE | MAP_ANONYMOUS;
    /* Above the file, whose mapping is the next: a scan comes here last. */
    char *marks = mmap(NULL, (steps + 1) * step, PROT_NONE, nothing, -1, 0);
    if (way == 'g' || way == 'r')
        all = mmap(NULL, steps * step, PROT_NONE, way == 'r' ? nothing : shared, file, 0);
    else
        all = mmap(NULL, way == 'w' ? step : steps * step, PROT_READ, shared, file, 0);
    for (size_t at = 0; fgets(line, sizeof line, stdin); at++) {
        size_t from = at > 0 ? (at - 1) * step : 0;
        if (at == 1 && way == 'r') mmap(all, steps * step, PROT_READ, shared | MAP_FIXED, file, 0);
        if (at == 1 && way == 'g') mprotect(all, steps * step, PROT_READ);
        if (at > 0 && way == 'w') mmap(all, step, PROT_READ, shared | MAP_FIXED, file, from);
        if (at > 0 && way == 'a') madvise(all, at * step, MADV_RANDOM);
        char *begin = way == 'w' ? all : all + from;
        for (size_t to = 0; at > 0 && to < step; to += 4096) sink = begin[to];
        snprintf(path, sizeof path, "%s/%zu", argv[3], at);
        int seen = open(path, O_RDONLY);
        sink = *(char *)mmap(marks + at * step, step, PROT_READ, shared | MAP_FIXED, seen, 0);
        fprintf(stderr, "%zu\n", at);
    }
    return 0;
}
"#;
