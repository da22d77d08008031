//! Common programs: the ring has each byte that they read.
//!
//! # Invariants
//! - What is compared is the set of bytes: in which pieces a program reads is its own affair.

use std::{fs, ops::Range, path::Path};

use forerun_testkit::{Scratch, installed};

use crate::rig::{PAGE, numbered, pages, run};
use forerun_steer::shim::Kind;

#[test]
fn what_programs_read_is_recorded_to_the_byte() {
    const TEST: &str = "what_programs_read_is_recorded_to_the_byte";
    let scratch = Scratch::on_disk("programs");
    let file = numbered(&scratch, 200, 123);
    let all = 0..fs::metadata(&file).unwrap().len();
    let name = file.to_str().unwrap();
    let (source, quiet) = (format!("if={name}"), "status=none");
    let python = "import os, sys; f = os.open(sys.argv[1], os.O_RDONLY)\n";
    let python_read = format!("{python}while os.read(f, 10000): pass\nos.close(f)");
    let python_preadv =
        format!("{python}b = bytearray(5000)\nassert os.preadv(f, [b], 8192) == 5000\nos.close(f)");
    #[rustfmt::skip]
    let rows: &[(&str, &[&str], Range<u64>)] = &[
        ("cat", &[name], all.clone()),
        ("grep", &["-c", "nothing", name], all.clone()),
        ("dd", &[&source, "of=/dev/null", "bs=4k", quiet], all.clone()),
        ("dd", &[&source, "of=/dev/null", "bs=64k", quiet], all.clone()),
        ("dd", &[&source, "of=/dev/null", "bs=4k", "skip=3", "count=5", quiet], pages(3, 5)),
        ("tail", &["-c", "1000", name], all.end - 1000..all.end),
        ("python3", &["-c", &python_read, name], all.clone()),
        ("python3", &["-c", &python_preadv, name], 8192..13192),
    ];
    for (program, arguments, expected) in rows {
        let what = format!("{program} {}", arguments[0]);
        if !installed(TEST, program) {
            continue;
        }
        let recorded = run(program, arguments);
        assert_eq!(recorded.lost, 0, "{what}");
        assert_eq!(recorded.bytes(Kind::Read, &file), std::slice::from_ref(expected), "{what}");
        let kinds = recorded.kinds(&file);
        assert_eq!((kinds[0], kinds.last()), (Kind::Open, Some(&Kind::Close)), "{what}");
        assert_eq!(recorded.of(&file)[0].length, all.end, "{what}: the file's length");
    }
}

#[test]
fn a_mapping_is_recorded_as_a_whole() {
    const TEST: &str = "a_mapping_is_recorded_as_a_whole";
    if !installed(TEST, "python3") {
        return;
    }
    let scratch = Scratch::on_disk("mapping");
    let file = numbered(&scratch, 64, 0);
    let script = "import mmap, os, sys; f = os.open(sys.argv[1], os.O_RDONLY)\n\
        m = mmap.mmap(f, 40960, prot=mmap.PROT_READ, offset=16384); assert m[0] == 4";
    let recorded = run("python3", &["-c".as_ref(), script.as_ref(), file.as_os_str()]);
    recorded.is_well(TEST);
    assert_eq!(recorded.bytes(Kind::Map, &file), [pages(4, 10)]);
    assert_eq!(recorded.bytes(Kind::Read, &file), []);
}

#[test]
fn of_a_program_that_reads_by_streams_the_opening_is_recorded() {
    const TEST: &str = "of_a_program_that_reads_by_streams_the_opening_is_recorded";
    let scratch = Scratch::on_disk("md5sum");
    let file = numbered(&scratch, 64, 0);
    let recorded = run("md5sum", &[&file]);
    recorded.is_well(TEST);
    assert_eq!(recorded.kinds(&file), [Kind::Open, Kind::Close]);
    assert_eq!(recorded.of(&file)[0].length, 64 * PAGE);
}

#[test]
fn programs_that_copy_by_one_call_are_recorded_and_copy_the_same_bytes() {
    const TEST: &str = "programs_that_copy_by_one_call_are_recorded_and_copy_the_same_bytes";
    let scratch = Scratch::on_disk("copies");
    let file = numbered(&scratch, 1000, 123);
    let copy = scratch.join("copy");
    let python = "import shutil, sys; shutil.copyfile(sys.argv[1], sys.argv[2])";
    #[rustfmt::skip]
    let rows: &[(&str, &[&str])] = &[
        ("sh",      &["-c", "cat \"$1\" > \"$2\"", "sh"]),
        ("sh",      &["-c", "cp --reflink=never \"$1\" \"$2\"", "sh"]),
        ("sh",      &["-c", "install \"$1\" \"$2\"", "sh"]),
        ("python3", &["-c", python]),
    ];
    for (program, arguments) in rows {
        if *program != "sh" && !installed(TEST, program) {
            continue;
        }
        let what = format!("{program} {}", arguments[1]);
        let arguments = arguments.iter().map(Path::new).chain([&*file, &*copy]);
        let recorded = run(program, &arguments.collect::<Vec<_>>());
        recorded.is_well(&what);
        let all = 0..fs::metadata(&file).unwrap().len();
        assert_eq!(recorded.bytes(Kind::Read, &file), [all], "{what}");
        assert!(fs::read(&file).unwrap() == fs::read(&copy).unwrap(), "{what}");
        fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn pipes_and_devices_are_not_recorded() {
    let recorded = run("sh", &["-c", "head -c 300000 /dev/zero | cat | cat >/dev/null"]);
    recorded.is_well("pipes");
    let pipes = rustix::fs::fstat(std::io::pipe().unwrap().0).unwrap().st_dev;
    assert!(recorded.records.iter().all(|record| record.dev != pipes));
    assert_eq!(recorded.of(Path::new("/dev/zero")), []);
}

#[test]
fn a_program_that_is_started_by_another_is_recorded() {
    let scratch = Scratch::on_disk("shell");
    let file = numbered(&scratch, 32, 0);
    let script = "exec 3<\"$1\"; cat <&3; (cat \"$1\"); cat \"$1\" | cat";
    let recorded = run("sh", &["-c".as_ref(), script.as_ref(), "sh".as_ref(), file.as_os_str()]);
    recorded.is_well("shell");
    assert_eq!(recorded.output.stdout.len() as u64, 3 * 32 * PAGE);
    assert_eq!(recorded.bytes(Kind::Read, &file), [pages(0, 32)]);
    assert!(recorded.processes(&file) >= 3);
}
