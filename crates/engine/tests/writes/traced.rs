//! What the system is asked for, as it tells itself: the device gets the bytes and a sync before a
//! flush returns.
//!
//! ```text
//!   threads   strace:   pwrite64 ... = n    fdatasync ... = 0          marks: write to a file
//!   io_uring  tracefs:  submit WRITE, complete n, submit FSYNC, complete 0    marks: trace_marker
//! ```
//!
//! Writes through a ring are no system calls, so the tracepoints of the kernel show them: the
//! second test needs root. Both trace a process of their own.
//!
//! # Invariants
//! - Between the marks around a flush lie a write, a sync that began when all writes had ended, and
//!   the end of that sync.
//! - Events of a trace are numbered by one counter, so those of several processors have an order.

use std::{
    env, fs,
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use forerun_engine::{Access, Backend, Cache, Settings};
use forerun_testkit::{Scratch, installed, skip};

const NAME: &str = "traced::a_flush_returns_after_its_writes_and_a_sync_that_followed_them";
const RING_NAME: &str = "traced::so_it_does_where_writes_go_through_a_ring";

#[test]
fn a_flush_returns_after_its_writes_and_a_sync_that_followed_them() {
    if let Some(path) = env::var_os(CHILD) {
        let path = Path::new(&path);
        let marks = OpenOptions::new().append(true).open(path.with_extension("marks"));
        let mut marks = marks.unwrap();
        let mark = |text: &str| marks.write_all(text.as_bytes()).unwrap();
        return write_and_flush(&cache(Backend::Threads), path, mark);
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
        if line.contains(BEGIN) {
            inside = Some(Vec::new());
        } else if line.contains(END) {
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

#[test]
fn so_it_does_where_writes_go_through_a_ring() {
    if let Some(path) = env::var_os(CHILD) {
        return trace_ring(Path::new(&path));
    }
    let scratch = Scratch::on_disk("traced-ring");
    let (path, tracing) = (scratch.file("data", vec![0; 1 << 20]), scratch.join("tracing"));
    fs::create_dir(&tracing).unwrap();
    // The mount is the child's own, and goes with it.
    let script = "mount -t tracefs tracefs \"$1\" && test -d \"$1/events/io_uring\" || exit 0
        shift; exec \"$@\"";
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&tracing)
        .arg(env::current_exe().unwrap())
        .args(["--exact", RING_NAME])
        .env(CHILD, &path)
        .output();
    let outcome = fs::read_to_string(path.with_extension("outcome"));
    match (ran, outcome.as_deref()) {
        (Ok(_), Ok(NO_RING)) => skip(RING_NAME, "the system gives no ring"),
        (Ok(ran), Ok(outcome)) => {
            let (said, failed) =
                (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert!(ran.status.success() && outcome == CHECKED, "{outcome}: {said}{failed}");
        }
        (Ok(_) | Err(_), _) => skip(RING_NAME, "no tracepoints of io_uring: they are root's"),
    }
}

/// The part of the child: traces its own flushes, and says what came of it.
fn trace_ring(path: &Path) {
    let outcome = path.with_extension("outcome");
    fs::write(&outcome, "the tracing began").unwrap();
    let tracing = Tracing::begin(&path.with_file_name("tracing"));
    let cache = cache(Backend::Auto);
    if cache.chosen().backend != "io_uring" {
        return fs::write(&outcome, NO_RING).unwrap();
    }
    let rings = tracing.rings();
    assert!(!rings.is_empty(), "a ring was made");
    let mut rounds = 0;
    let mark = |text: &str| {
        if text == BEGIN {
            return tracing.clear();
        }
        // What the rings do from here on is none of the flush.
        tracing.set("trace_marker", text);
        let lines = tracing.lines();
        let before = lines.iter().map(String::as_str).take_while(|line| !line.contains(text));
        let is_ours = |line: &&str| rings.iter().any(|ring| line.contains(ring));
        check_ring(&before.filter(is_ours).collect::<Vec<_>>());
        rounds += 1;
    };
    write_and_flush(&cache, path, mark);
    assert_eq!(rounds, 2 * ROUNDS);
    fs::write(&outcome, CHECKED).unwrap();
}

/// Checks what the rings did for one flush or durable write, which has returned.
fn check_ring(lines: &[&str]) {
    let is_submitted = |line: &str, what: &str| {
        line.contains("io_uring_submit_req:") && line.contains(&format!("opcode {what}"))
    };
    let end = |at: usize| {
        let name = field(lines[at], "user_data ");
        let is_its =
            |line: &&str| line.contains("io_uring_complete:") && field(line, "user_data ") == name;
        let after = lines[at..].iter().position(is_its);
        let after = after.unwrap_or_else(|| panic!("no end of {}: {lines:#?}", lines[at]));
        let result: i64 = field(lines[at + after], "result ").parse().unwrap();
        (at + after, result)
    };
    let submitted = |what: &str| -> Vec<usize> {
        (0..lines.len()).filter(|&at| is_submitted(lines[at], what)).collect()
    };
    let writes: Vec<_> = submitted("WRITE").into_iter().map(end).collect();
    let wrote = writes.iter().map(|&(at, _)| at).max();
    let wrote = wrote.unwrap_or_else(|| panic!("nothing was written: {lines:#?}"));
    assert!(writes.iter().all(|&(_, result)| result > 0), "a write failed: {lines:#?}");
    let syncs = submitted("FSYNC");
    let began = *syncs.last().unwrap_or_else(|| panic!("no sync: {lines:#?}"));
    let (_, result) = end(began);
    assert!(wrote < began && result == 0, "the sync covers the write: {lines:#?}");
}

/// The word after `name` in `line`.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let at = line.find(name).unwrap_or_else(|| panic!("no {name}in {line}"));
    line[at + name.len()..].split([',', ' ']).next().unwrap()
}

/// A trace of the kernel of its own, of `io_uring` alone.
struct Tracing(PathBuf);

impl Tracing {
    fn begin(tracefs: &Path) -> Self {
        let folder = tracefs.join(format!("instances/forerun-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let this = Self(folder);
        this.set("trace_clock", "counter");
        this.set("buffer_size_kb", "8192");
        for event in ["create", "submit_req", "complete"] {
            this.set(&format!("events/io_uring/io_uring_{event}/enable"), "1");
        }
        this
    }

    fn set(&self, name: &str, value: &str) {
        let path = self.0.join(name);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn clear(&self) {
        self.set("trace", "");
    }

    /// Its events, in their order.
    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.join("trace")).unwrap();
        let lost = text.lines().any(|line| line.contains("LOST"));
        assert!(!lost, "the buffer took less than one flush");
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    /// The rings that this thread made, as events name them.
    fn rings(&self) -> Vec<String> {
        let thread = fs::read_link("/proc/thread-self").unwrap();
        let thread = format!("-{} ", thread.file_name().unwrap().to_str().unwrap());
        let lines = self.lines();
        let made = lines.iter().filter(|line| line.contains("io_uring_create:"));
        let own = made.filter(|line| line.contains(&thread));
        own.map(|line| format!("ring {},", field(line, "ring "))).collect()
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn cache(backend: Backend) -> Cache {
    let mut settings = Settings { cache_bytes: 1 << 20, ..Settings::default() };
    settings.files.backend = backend;
    Cache::new(settings).unwrap()
}

/// The part of a traced process: writes, and marks the beginning and the end of each flush.
fn write_and_flush(cache: &Cache, path: &Path, mut mark: impl FnMut(&str)) {
    let file = cache.open_with(path, Access::ReadWrite).unwrap();
    for round in 0..ROUNDS {
        file.write_at(&[1; 10_000], round * 7_000).unwrap();
        mark(BEGIN);
        file.flush().unwrap();
        mark(END);
        mark(BEGIN);
        file.write_durable_at(&[2; 3], round * 100).unwrap();
        mark(END);
    }
}

const BEGIN: &str = "mark begin";
const END: &str = "mark end";
const ROUNDS: u64 = 20;
const CHILD: &str = "FORERUN_TEST_TRACED";
/// What the child says.
const NO_RING: &str = "no ring";
const CHECKED: &str = "checked";
