//! What may go wrong in a program, each by `cases.c`.
//!
//! # Invariants
//! - Each case checks for itself that the program sees what it would see without the shim, and
//!   ends with 0 only then.

use std::{
    ffi::OsStr,
    fs,
    ops::Range,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use forerun_steer::shim::{Kind, Record};

use forerun_testkit::{Scratch, skip};

use crate::rig::{PAGE, Told, before, cases, library, numbered, pages, run, run_after};

const FORTIFIED: &[&str] = &["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"];

/// Pages of the file.
const PAGES: u64 = 256;

/// `cases`, and its file.
fn scene(test: &str, flags: &[&str]) -> Option<(Scratch, PathBuf, PathBuf)> {
    let scratch = Scratch::on_disk(test);
    let program = cases(test, &scratch, flags)?;
    let file = numbered(&scratch, PAGES, 0);
    Some((scratch, program, file))
}

fn case(program: &Path, name: &str, file: &Path) -> Told {
    run(program, &[name.as_ref(), file.as_os_str()])
}

/// What each case reads: its name, the bytes, and how many processes do.
fn expectations() -> Vec<(&'static str, Vec<Range<u64>>, usize)> {
    let every_other = (0..13).map(|number| pages(2 * number, 1)).collect();
    #[rustfmt::skip]
    let rows = vec![
        ("forms", every_other, 1),
        ("fortified", vec![pages(0, 6)], 1),
        ("vforks", vec![pages(0, 32), pages(PAGES - 1, 1)], 2),
        ("tail", vec![pages(PAGES - 1, 1)], 1),
        ("forks", vec![pages(0, 8), pages(10, 2)], 2),
        ("closes", vec![pages(0, 5)], 1),
        ("threads", vec![pages(0, 256)], 1),
        ("renumbers", vec![pages(0, 4)], 1),
        ("early", vec![pages(0, 1)], 1),
        ("confined", vec![pages(0, 1)], 1),
        ("streams", vec![], 1),
        ("maps", vec![], 1),
        ("cancel", vec![], 0),
        ("errnos", vec![pages(0, 1)], 1),
        ("moves", (0..7).map(|number| pages(2 * number, 1)).collect(), 1),
        ("long_moves", vec![pages(1, PAGES - 1)], 1),
        ("refused_moves", vec![], 1),
    ];
    rows
}

#[test]
fn a_case_reads_what_it_would_read_and_all_of_it_is_recorded() {
    const TEST: &str = "a_case_reads_what_it_would_read_and_all_of_it_is_recorded";
    let Some((_scratch, program, file)) = scene("cases", FORTIFIED) else { return };
    for (name, expected, processes) in expectations() {
        let recorded = case(&program, name, &file);
        recorded.is_well(&format!("{TEST}: {name}"));
        assert_eq!(recorded.bytes(Kind::Read, &file), expected, "{name}");
        assert_eq!(recorded.processes(&file), processes, "{name}");
    }
}

#[test]
fn the_fortified_program_calls_the_fortified_functions() {
    let Some((_scratch, program, file)) = scene("fortified", FORTIFIED) else { return };
    let code = fs::read(&program).unwrap();
    for name in ["__read_chk", "__pread_chk", "__pread64_chk", "__open_2", "__openat64_2"] {
        assert!(code.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
    }
    let recorded = case(&program, "overflow", &file);
    assert_eq!(recorded.output.status.signal(), Some(6), "an overflow still ends the program");
    assert!(String::from_utf8_lossy(&recorded.output.stderr).contains("buffer overflow"));
}

#[test]
fn a_child_of_vfork_leaves_what_its_parent_knows_alone() {
    let Some((_scratch, program, file)) = scene("vfork", &[]) else { return };
    let recorded = case(&program, "vforks", &file);
    recorded.is_well("vforks");
    let parent = recorded.of(&file)[0].pid;
    let of_parent = recorded.of(&file).into_iter().filter(|record| record.pid == parent);
    let kinds: Vec<_> = of_parent.map(|record| record.kind).collect();
    assert_eq!(kinds.first(), Some(&Kind::Open));
    assert_eq!(kinds.last(), Some(&Kind::Close));
    let rest = &kinds[1..kinds.len() - 1];
    assert!(rest.iter().all(|kind| *kind == Kind::Read), "neither closed nor opened: {kinds:?}");
}

#[test]
fn what_a_signal_handler_reads_is_recorded_read_by_read() {
    let Some((_scratch, program, file)) = scene("signals", &[]) else { return };
    let recorded = case(&program, "signals", &file);
    recorded.is_well("signals");
    let reads = recorded.of(&file).iter().filter(|record| record.kind == Kind::Read).count();
    assert_eq!(String::from_utf8_lossy(&recorded.output.stdout).trim(), reads.to_string());
}

#[test]
fn an_input_that_was_open_before_is_known_at_its_first_read() {
    let Some((_scratch, program, file)) = scene("inherited", &[]) else { return };
    let recorded = run_after(None, &file, &program, &["inherited", "-"]);
    recorded.is_well("inherited");
    assert_eq!(recorded.bytes(Kind::Read, &file), [pages(0, 6)]);
    assert_eq!(recorded.kinds(&file).first(), Some(&Kind::Open));
}

#[test]
fn mappings_and_streams_are_recorded_as_far_as_they_can_be() {
    let Some((_scratch, program, file)) = scene("maps", &[]) else { return };
    let recorded = case(&program, "maps", &file);
    recorded.is_well("maps");
    assert_eq!(recorded.bytes(Kind::Map, &file), [pages(1, 1), pages(16, 8)]);
    let recorded = case(&program, "streams", &file);
    recorded.is_well("streams");
    let twice = [Kind::Open, Kind::Close, Kind::Open, Kind::Close];
    assert_eq!(recorded.kinds(&file), twice);
}

#[test]
fn a_long_move_is_announced_with_where_it_goes_and_its_end_is_told() {
    let Some((_scratch, program, file)) = scene("moves", &[]) else { return };
    let recorded = case(&program, "long_moves", &file);
    recorded.is_well("long_moves");
    let is_told = |record: &&Record| !matches!(record.kind, Kind::Open | Kind::Close);
    let records = recorded.of(&file);
    let told: Vec<_> = records.iter().filter(is_told).collect();
    let kinds: Vec<_> = told.iter().map(|record| record.kind).collect();
    let (begins, ends, reads) = (Kind::Move, Kind::Moved, Kind::Read);
    assert_eq!(kinds, [begins, ends, reads, begins, ends, begins, ends, reads]);
    let all = PAGES * PAGE;
    let most = i64::MAX as u64;
    let moved: Vec<_> =
        told.iter().map(|record| (record.offset, record.length, record.to.1)).collect();
    assert_eq!(moved[0], (PAGE, most - PAGE, 0), "as much as can be");
    assert_eq!(moved[2], (PAGE, all - PAGE, 0));
    assert_eq!(moved[3], (all, most - all, all - PAGE), "at the end");
    assert_eq!(moved[5], (200 * PAGE, 1 << 30, all - PAGE), "from an offset");
    assert_eq!(moved[7], (200 * PAGE, all - 200 * PAGE, 0));
    assert!(told.iter().all(|record| record.kind != begins || record.to.0 > record.fd));
    let short = case(&program, "moves", &file).of(&file);
    assert!(short.iter().all(|record| !matches!(record.kind, Kind::Move | Kind::Moved)));
}

#[test]
fn a_static_program_runs_and_tells_nothing() {
    let Some((_scratch, program, file)) = scene("static", &["-static"]) else { return };
    for name in ["forms", "vforks", "threads", "signals"] {
        let recorded = case(&program, name, &file);
        recorded.is_well(name);
        assert_eq!(recorded.records, [], "{name}");
    }
}

#[test]
fn a_set_uid_program_runs_without_the_shim() {
    const TEST: &str = "a_set_uid_program_runs_without_the_shim";
    if !rustix::process::geteuid().is_root() {
        return skip(TEST, "not root: no file of another user's");
    }
    let Some((scratch, program, file)) = scene("setuid", &[]) else { return };
    let file_of_all = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&file, file_of_all).unwrap();
    std::os::unix::fs::chown(&program, Some(NOBODY), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let recorded = case(&program, "tail", &file);
    drop(scratch);
    recorded.is_well(TEST);
    assert_eq!(recorded.records, []);
}

#[test]
fn nothing_is_written_to_what_is_no_ring() {
    let Some((scratch, program, file)) = scene("no-ring", &[]) else { return };
    let other = scratch.join("other");
    fs::write(&other, vec![9; 1 << 21]).unwrap();
    let mut preload = before().unwrap_or_default();
    if !preload.is_empty() {
        preload.push(":");
    }
    preload.push(library());
    for value in ["", "x", "-1", "0", "1", "99999", "4294967297"] {
        let output = Command::new(&program)
            .args(["forms".as_ref(), file.as_os_str()])
            .env("LD_PRELOAD", &preload)
            .env("FORERUN_RING", value)
            .stdin(fs::File::options().read(true).write(true).open(&other).unwrap())
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{value}: {output:?}");
    }
    assert!(fs::read(&other).unwrap().iter().all(|byte| *byte == 9), "it is left as it was");
}

#[test]
fn a_sanitized_program_reports_nothing() {
    const TEST: &str = "a_sanitized_program_reports_nothing";
    let Some((_scratch, program, file)) = scene("asan", &["-fsanitize=address", "-g"]) else {
        return;
    };
    let runtime = Command::new("cc").arg("-print-file-name=libasan.so").output().unwrap();
    let runtime = PathBuf::from(String::from_utf8(runtime.stdout).unwrap().trim());
    let Ok(runtime) = runtime.canonicalize() else {
        return skip(TEST, "the compiler's AddressSanitizer has no shared library");
    };
    for (name, expected, _) in expectations() {
        // The sanitizer's own start and its reports need the calls that `confined` forbids.
        if matches!(name, "confined" | "early") {
            continue;
        }
        let arguments = [OsStr::new(name), file.as_os_str()];
        let preloaded = Some(runtime.as_os_str());
        let recorded = run_after(preloaded, Path::new("/dev/null"), &program, &arguments);
        recorded.is_well(name);
        assert_eq!(recorded.bytes(Kind::Read, &file), expected, "{name}");
    }
}

#[test]
fn the_cost_of_a_cached_read_is_printed() {
    let Some((_scratch, program, file)) = scene("costs", &[]) else { return };
    println!("ns of processor: a 4 KiB read in order, at random (pread), open and close");
    for _ in 0..3 {
        let arguments = [OsStr::new("costs"), file.as_os_str()];
        let plain = Command::new(&program).args(arguments).output().unwrap();
        let recorded = run(&program, &arguments);
        assert!(plain.status.success() && recorded.output.status.success());
        assert!(recorded.lost > 0 && recorded.bytes(Kind::Read, &file).len() <= 1);
        for (what, output) in [("plain", plain), ("shim", recorded.output)] {
            println!("{what:>6}: {}", String::from_utf8_lossy(&output.stdout).trim());
        }
    }
    assert_eq!(fs::metadata(&file).unwrap().len(), PAGES * PAGE);
}

const NOBODY: u32 = 65534;
