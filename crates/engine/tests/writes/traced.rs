//! System calls, by `strace`: the device gets the bytes and a sync before a flush returns.

use std::{
    env, fs,
    fs::OpenOptions,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use forerun_engine::{Access, Backend, Cache, Settings};
use forerun_testkit::{Scratch, installed, skip};

const NAME: &str = "traced::a_flush_returns_after_its_writes_and_a_sync_that_followed_them";

#[test]
fn a_flush_returns_after_its_writes_and_a_sync_that_followed_them() {
    if let Some(path) = env::var_os(CHILD) {
        return write_and_flush(Path::new(&path));
    }
    if !installed(NAME, "strace") {
        return;
    }
    let scratch = Scratch::on_disk("traced");
    let (path, trace) = (scratch.file("data", vec![0; 1 << 20]), scratch.file("trace", []));
    fs::write(path.with_extension("marks"), []).unwrap();
    let status = Command::new("strace")
        .args(["-f", "-e", "trace=pwrite64,pwritev,pwritev2,fdatasync,fsync,write", "-o"])
        .arg(&trace)
        .arg(env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(CHILD, &path)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    let trace = fs::read_to_string(&trace).unwrap();
    if !status.success() && !trace.contains("mark") {
        return skip(NAME, "strace may not trace here");
    }
    assert!(status.success(), "{trace}");
    let mut rounds = 0;
    let mut inside = None::<Vec<&str>>;
    for line in trace.lines() {
        if line.contains("mark begin") {
            inside = Some(Vec::new());
        } else if line.contains("mark end") {
            check(&inside.take().expect("marks come in pairs"));
            rounds += 1;
        } else if let Some(lines) = &mut inside {
            lines.push(line);
        }
    }
    assert_eq!(rounds, 2 * ROUNDS);
}

/// Checks the system calls of one flush or durable write.
fn check(lines: &[&str]) {
    let ended = |line: &str| !line.contains("unfinished") && !line.contains(" = -1");
    let wrote = lines.iter().rposition(|line| line.contains("pwrite") && ended(line));
    let wrote = wrote.unwrap_or_else(|| panic!("nothing was written: {lines:#?}"));
    let began = lines.iter().rposition(|line| line.contains("fdatasync("));
    let synced = lines.iter().rposition(|line| line.contains("fdatasync") && line.ends_with("= 0"));
    let (began, synced) = began.zip(synced).unwrap_or_else(|| panic!("no sync: {lines:#?}"));
    assert!(wrote < began && began <= synced, "the sync covers the write: {lines:#?}");
}

/// The child's part of the test.
fn write_and_flush(path: &Path) {
    let mut settings = Settings { cache_bytes: 1 << 20, ..Settings::default() };
    settings.files.backend = Backend::Threads; // Its writes are system calls that strace shows.
    let cache = Cache::new(settings).unwrap();
    let file = cache.open_with(path, Access::ReadWrite).unwrap();
    let mut marks = OpenOptions::new().append(true).open(path.with_extension("marks")).unwrap();
    for round in 0..ROUNDS {
        file.write_at(&[1; 10_000], round * 7_000).unwrap();
        marks.write_all(b"mark begin").unwrap();
        file.flush().unwrap();
        marks.write_all(b"mark end").unwrap();
        marks.write_all(b"mark begin").unwrap();
        file.write_durable_at(&[2; 3], round * 100).unwrap();
        marks.write_all(b"mark end").unwrap();
    }
}

const ROUNDS: u64 = 20;
const CHILD: &str = "FORERUN_TEST_TRACED";
