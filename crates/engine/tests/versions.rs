//! A handle serves one version, whatever another process does to the file while four threads read.
//!
//! The writer is a second process of this program; an environment variable gives its task. Every
//! word of the file holds its generation and its number:
//!
//! ```text
//!   word    63..32        31..0           a generation is written whole, or behind the gate:
//!         generation   number of word     no open while the file is of no generation
//!
//!   writer: "steps" -> waits -> ... -> "complete N"   -> waits for a line -> the next
//!   test:    gate shut              gate open, opens the file anew, sends a line
//! ```
//!
//! # Invariants
//! - Readers use their open handles while the file is of no generation.
//! - Nothing here is decided by time: the writer and the test wait for each other's lines.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use forerun_core::prng::Prng;
use forerun_engine::{Cache, Handle, OpenError, ReadError, Settings};
use forerun_io::files::{Backend, FilesSettings};
use forerun_testkit::{Scratch, skip, until_tick, within};
use parking_lot::RwLock;

/// The change that the writer repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Each generation is one write in place.
    Rewrite,
    /// As `Rewrite`, and the time of modification is set back; the length stays.
    Touch,
    /// Written in place, piece by piece.
    Pieces,
    /// Cut, grown again with zeros, then written.
    Truncate,
    /// Another file takes its name.
    Rename,
    /// Deleted; the next file is created under another name first.
    Delete,
    /// The same words, and more of them.
    Append,
}

const KINDS: [Kind; 7] = [
    Kind::Rewrite,
    Kind::Touch,
    Kind::Pieces,
    Kind::Truncate,
    Kind::Rename,
    Kind::Delete,
    Kind::Append,
];

#[test]
fn no_read_ever_mixes_two_versions_and_a_new_handle_gets_the_newest() {
    if env::var_os(WRITER).is_some() {
        return;
    }
    within(|| KINDS.map(|kind| Scene::new(&env::temp_dir(), kind, Backend::Auto).play()));
}

#[test]
fn the_same_holds_for_files_in_memory() {
    if env::var_os(WRITER).is_some() {
        return;
    }
    let folder: &'static Path = Path::new("/dev/shm");
    if !folder.is_dir() {
        return skip("the_same_holds_for_files_in_memory", "no /dev/shm here");
    }
    within(|| KINDS.map(|kind| Scene::new(folder, kind, Backend::Auto).play()));
}

#[test]
fn the_same_holds_by_threads_where_rings_are_refused() {
    if env::var_os(WRITER).is_some() {
        return;
    }
    within(|| KINDS.map(|kind| Scene::new(&env::temp_dir(), kind, Backend::Threads).play()));
}

/// The writer, where the variable names a task; else no test.
#[test]
fn the_writer_writes_the_file_of_its_variable() {
    let Ok(what) = env::var(WRITER) else { return };
    let (kind, path) = what.split_once(' ').expect("a kind and a path");
    let kind = KINDS.into_iter().find(|at| format!("{at:?}") == kind).expect("a kind");
    Writer { kind, path: path.into() }.run();
}

/// A file, its readers and its writer.
struct Scene {
    kind: Kind,
    path: PathBuf,
    _scratch: Scratch,
    cache: Cache,
    /// The newest generation that is whole.
    newest: AtomicU64,
    ended: AtomicBool,
    /// Shut while the file is of no generation.
    gate: RwLock<()>,
    reads: AtomicU64,
    refused: AtomicU64,
}

impl Scene {
    fn new(folder: &Path, kind: Kind, backend: Backend) -> Self {
        let scratch = Scratch::within(folder, "versions");
        let path = scratch.join("data");
        let settings = Settings {
            cache_bytes: WORDS * 4,
            readahead: "linux-6:max=128K,io=128K".into(),
            version_interval: Duration::from_millis(5),
            files: FilesSettings { backend, ..FilesSettings::default() },
            ..Settings::default()
        };
        write_new(&path, 1, words(kind, 1));
        Self {
            kind,
            path,
            _scratch: scratch,
            cache: Cache::new(settings).unwrap(),
            newest: AtomicU64::new(1),
            ended: AtomicBool::new(false),
            gate: RwLock::new(()),
            reads: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    fn play(self) {
        thread::scope(|scope| {
            // Ends the readers, and so the scope, after any failure.
            let _ends = Ends(&self.ended);
            for number in 0..4 {
                let scene = &self;
                scope.spawn(move || scene.read_on(number));
            }
            self.direct();
        });
        let (reads, refused) = (&self.reads, &self.refused);
        assert!(reads.load(Ordering::Relaxed) > 0, "{:?}", self.kind);
        assert!(refused.load(Ordering::Relaxed) > 0, "{:?}", self.kind);
        let (frames, free) = self.cache.frames();
        assert!(free <= frames && self.cache.stats().core.balanced(), "{:?}", self.kind);
        assert!(self.cache.stats().files_changed >= ROUNDS, "{:?}", self.kind);
    }

    /// Follows the writer, round by round.
    fn direct(&self) {
        let mut writer = Process::start(self.kind, &self.path);
        for generation in 2..ROUNDS + 2 {
            let before = self.cache.open(&self.path).unwrap();
            assert_eq!(read_all(&before), Ok(tag(self.kind, generation - 1)), "{:?}", self.kind);
            let mut shut = None;
            writer.go();
            let complete = loop {
                let line = writer.line();
                if line == "steps" {
                    shut = Some(self.gate.write());
                    writer.go();
                } else {
                    break line;
                }
            };
            let bytes = words(self.kind, generation) * 8;
            assert_eq!(complete, format!("complete {generation}"));
            self.newest.store(tag(self.kind, generation), Ordering::SeqCst);
            drop(shut);
            let after = self.cache.open(&self.path).unwrap();
            assert_eq!(after.len(), bytes, "{:?}", self.kind);
            assert_eq!(read_all(&after), Ok(tag(self.kind, generation)), "{:?}", self.kind);
            self.see_it_end(&before);
        }
        drop(writer);
    }

    /// The handle on the generation before gives that one, or an error: soon, only that.
    fn see_it_end(&self, before: &Handle) {
        let in_place = !matches!(self.kind, Kind::Rename | Kind::Delete);
        loop {
            match read_all(before) {
                Err(ReadError::Changed | ReadError::Shrunk { .. }) => return,
                // Opening anew has compared the versions; the watch compares those of another file.
                Ok(_) if in_place => panic!("{:?}: the old pages are still there", self.kind),
                Ok(_) => thread::yield_now(),
                Err(error) => panic!("{:?}: {error}", self.kind),
            }
        }
    }

    /// Reads at random until the scene has ended.
    fn read_on(&self, number: u64) {
        let mut random = Prng::new(number);
        while !self.ended.load(Ordering::SeqCst) {
            let open = self.gate.read();
            let oldest = self.newest.load(Ordering::SeqCst);
            let opened = self.cache.open(&self.path);
            drop(open);
            match opened {
                Ok(file) => self.read_one(&file, oldest, &mut random),
                Err(OpenError::Store(error)) if error.errno() == ENOENT => {
                    assert_eq!(self.kind, Kind::Delete, "it is always there");
                }
                Err(error) => panic!("{:?}: {error}", self.kind),
            }
        }
    }

    /// Reads through one handle until its file has changed.
    fn read_one(&self, file: &Handle, oldest: u64, random: &mut Prng) {
        let mut buf = vec![0; PAGES_MAX * 4096];
        let mut known = None;
        while !self.ended.load(Ordering::SeqCst) {
            let words = file.len() / 8;
            let (at, count) =
                (random.below(words.max(1)), 1 + random.below(PAGES_MAX as u64 * 512));
            let room = &mut buf[..usize::try_from(count * 8).unwrap()];
            let generation = match file.read_at(room, at * 8) {
                Ok(bytes) => {
                    assert_eq!(bytes as u64, (count * 8).min(file.len() - at * 8));
                    check(at, &room[..bytes]).unwrap_or_else(|why| panic!("{:?}: {why}", self.kind))
                }
                Err(ReadError::Changed | ReadError::Shrunk { .. }) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(error) => panic!("{:?}: {error}", self.kind),
            };
            self.reads.fetch_add(1, Ordering::Relaxed);
            if let Some(generation) = generation {
                assert!(generation >= oldest, "{:?}: {generation} after {oldest}", self.kind);
                let known = *known.get_or_insert(generation);
                assert_eq!(generation, known, "{:?}: two versions of one handle", self.kind);
            }
        }
    }
}

/// Ends the readers when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The one generation of all words, which are those from `at` on; none where there is no word.
fn check(at: u64, bytes: &[u8]) -> Result<Option<u64>, String> {
    let mut first = None;
    for (word, number) in bytes.chunks(8).zip(at..) {
        let word = u64::from_le_bytes(word.try_into().map_err(|_| "a part of a word")?);
        let (generation, place) = (word >> 32, word & u64::from(u32::MAX));
        let expected = *first.get_or_insert(generation);
        if generation != expected || place != number || generation == 0 {
            return Err(format!("word {number}: {place} of {generation}, not of {expected}"));
        }
    }
    Ok(first)
}

/// The generation of the whole file.
fn read_all(file: &Handle) -> Result<u64, ReadError> {
    let mut buf = vec![0; usize::try_from(file.len()).unwrap()];
    let count = file.read_at(&mut buf, 0)?;
    assert_eq!(count, buf.len());
    let generation = check(0, &buf).unwrap_or_else(|why| panic!("{why}"));
    Ok(generation.expect("no generation is empty"))
}

/// The words of a generation.
fn words(kind: Kind, generation: u64) -> u64 {
    match kind {
        Kind::Rewrite | Kind::Touch | Kind::Pieces => WORDS,
        Kind::Append => WORDS / 2 + generation * 77,
        Kind::Truncate | Kind::Rename | Kind::Delete => WORDS - generation % 5 * 1_003,
    }
}

/// The generation in the words of a file: a growing file keeps its words, and its length differs.
fn tag(kind: Kind, generation: u64) -> u64 {
    if kind == Kind::Append { 1 } else { generation }
}

fn contents(generation: u64, words: std::ops::Range<u64>) -> Vec<u8> {
    words.flat_map(|number| (generation << 32 | number).to_le_bytes()).collect()
}

fn write_new(path: &Path, generation: u64, words: u64) {
    fs::write(path, contents(generation, 0..words)).unwrap();
}

/// Where the next file waits for its name.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("next")
}

/// The writer process, for the test.
struct Process {
    child: Child,
    stdin: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn start(kind: Kind, path: &Path) -> Self {
        let me = env::current_exe().unwrap();
        let mut child = Command::new(me)
            .args(["--exact", "the_writer_writes_the_file_of_its_variable", "--nocapture"])
            .env(WRITER, format!("{kind:?} {}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, said: BufReader::new(said) }
    }

    fn go(&mut self) {
        self.stdin.write_all(b"go\n").unwrap();
    }

    /// The next line of the writer; the test harness around it has lines of its own.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the writer has ended");
            if let Some(at) = line.find("writer: ") {
                return line[at + "writer: ".len()..].trim().to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The writer process itself.
struct Writer {
    kind: Kind,
    path: PathBuf,
}

impl Writer {
    fn run(&self) {
        let mut generation = 1;
        while hear() {
            generation += 1;
            self.write(generation, words(self.kind, generation));
            say(&format!("complete {generation}"));
        }
    }

    fn write(&self, generation: u64, count: u64) {
        until_tick(&self.path);
        match self.kind {
            Kind::Rewrite => {
                self.rewrite(generation, count);
            }
            Kind::Touch => {
                let modified = fs::metadata(&self.path).unwrap().modified().unwrap();
                self.rewrite(generation, count);
                self.open().set_modified(modified).unwrap();
            }
            Kind::Pieces => {
                steps();
                let (file, contents) = (self.open(), contents(generation, 0..count));
                for (piece, at) in contents.chunks(10_000).zip(0..) {
                    file.write_all_at(piece, at * 10_000).unwrap();
                }
                file.sync_all().unwrap();
            }
            Kind::Truncate => {
                steps();
                let file = self.open();
                file.set_len(count / (generation % 3 + 1) / 2 * 8 + 3).unwrap();
                file.set_len(count * 8).unwrap();
                file.write_all_at(&contents(generation, 0..count), 0).unwrap();
            }
            Kind::Rename => {
                write_new(&beside(&self.path), generation, count);
                fs::rename(beside(&self.path), &self.path).unwrap();
            }
            Kind::Delete => {
                write_new(&beside(&self.path), generation, count);
                fs::remove_file(&self.path).unwrap();
                fs::rename(beside(&self.path), &self.path).unwrap();
            }
            Kind::Append => {
                let from = words(self.kind, generation - 1);
                let more = contents(1, from..count);
                let file = self.open();
                assert_eq!(file.write_at(&more, from * 8).unwrap(), more.len(), "one write");
            }
        }
    }

    /// One write in place.
    fn rewrite(&self, generation: u64, words: u64) {
        let contents = contents(generation, 0..words);
        let file = self.open();
        assert_eq!(file.write_at(&contents, 0).unwrap(), contents.len(), "one write");
        file.sync_all().unwrap();
    }

    fn open(&self) -> fs::File {
        fs::OpenOptions::new().write(true).open(&self.path).unwrap()
    }
}

/// Requests a shut gate.
fn steps() {
    say("steps");
    assert!(hear(), "the test goes on");
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "writer: {line}").and_then(|()| out.flush()).expect("the test listens");
}

/// Whether the test continues.
fn hear() -> bool {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).expect("a line") > 0
}

/// The variable that makes the program the writer.
const WRITER: &str = "FORERUN_TEST_WRITER";
/// The words of a file: a megabyte.
const WORDS: u64 = 1 << 17;
/// The pages of the longest read.
const PAGES_MAX: usize = 40;
const ROUNDS: u64 = 25;
const ENOENT: i32 = 2;
