//! Journals in files: runs of eight threads replay byte for byte; a journal that is cut, corrupt or
//! foreign is reported as such, and one beyond its bounds ends at a whole event.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use forerun_core::{
    cache,
    drive::{Driver, drive},
    event::{Action, Actions, Event, FetchKind},
    prng::Prng,
    units::{FileId, FrameId, HandleId, Nanos, PageId, PartitionId, RequestId},
};
use forerun_engine::{
    Access, Cache, Settings,
    journal::{
        Bounds, Difference, End, JournalError, JournalFile, Part, Reader, Recorder, Replayed,
        Summary, replay,
    },
};
use forerun_io::{
    store::{memory, pattern::Pattern},
    wrap::fault::{Fault, Faults, Rule, When},
};
use forerun_testkit::{Scratch, on_threads, within};
use parking_lot::Mutex;

use crate::rig::{PAGE, WINDOW, next_read, read, readaheads, settings};

/// Eight threads read a pattern under faults.
fn storm(settings: &Settings, recorder: Box<dyn Recorder>, seed: u64, turns: u64) {
    let cache = Cache::recorded(settings.clone(), recorder).unwrap();
    let rule = Rule {
        fail: Some((When::Chance(100_000), 5)),
        delay: Some((When::Chance(20_000), Duration::from_micros(20))),
        cut: Some(When::Chance(100_000)),
    };
    let faults = Faults { reads: rule, ..Faults::default() };
    let store = Arc::new(Fault::new(Arc::new(Pattern::new(90 * PAGE + 1)), faults, seed));
    let first = cache.open_store(store.clone()).unwrap();
    on_threads(8, |thread| {
        let mut random = Prng::new(seed << 8 | thread);
        let own = (thread % 2 == 0).then(|| cache.open_store(store.clone()).unwrap());
        let file = own.unwrap_or_else(|| first.try_clone().unwrap());
        let mut at = 0;
        for _ in 0..turns {
            let (offset, bytes) = next_read(&mut random, file.len(), &mut at);
            let _ = read(&file, offset, bytes);
        }
    });
}

/// A journal of one storm, in a file.
fn recorded(path: &Path, settings: &Settings, seed: u64, turns: u64) -> Summary {
    let journal = JournalFile::create(path, Bounds::default()).unwrap();
    storm(settings, journal.record(&settings.core().unwrap()), seed, turns);
    journal.finish()
}

fn replayed(bytes: &[u8]) -> Result<Replayed, JournalError> {
    replay(bytes, |_| {})
}

#[test]
fn a_hundred_runs_of_eight_threads_under_faults_are_replayed_byte_for_byte() {
    let readaheads = readaheads();
    for seed in 0..100 {
        let readahead = readaheads[usize::try_from(seed).unwrap() % readaheads.len()].clone();
        within(move || {
            let scratch = Scratch::new("storm");
            let path = scratch.join("journal");
            let settings = settings(2 * WINDOW, &readahead);
            let summary = recorded(&path, &settings, seed, 12);
            assert_eq!((summary.runs, summary.dropped, &summary.end), (1, 0, &None));
            let bytes = fs::read(&path).unwrap();
            assert_eq!(summary.bytes, bytes.len() as u64);
            let replayed = replayed(&bytes).unwrap();
            assert!(replayed.byte_equal(), "{readahead}, seed {seed}: {replayed:?}");
            let [run] = replayed.runs.as_slice() else { panic!("{replayed:?}") };
            assert_eq!((run.events, replayed.cut_bytes), (summary.events, 0));
            assert_eq!(run.settings, settings.core().unwrap());
            assert!(run.events > 8 * 12 && run.actions > 0 && run.first < run.last);
            assert!(run.stats.demanded > 0 && run.stats.balanced());
        });
    }
}

#[test]
fn runs_of_one_file_are_replayed_one_by_one() {
    let scratch = Scratch::new("runs");
    let path = scratch.join("journal");
    let journal = JournalFile::create(&path, Bounds::default()).unwrap();
    let readaheads = readaheads();
    for (seed, readahead) in readaheads.iter().enumerate() {
        let settings = settings(2 * WINDOW, readahead);
        storm(&settings, journal.record(&settings.core().unwrap()), seed as u64, 4);
    }
    let summary = journal.finish();
    let replayed = replayed(&fs::read(&path).unwrap()).unwrap();
    assert!(replayed.byte_equal());
    let names: Vec<_> = replayed.runs.iter().map(|run| run.settings.readahead.clone()).collect();
    assert_eq!(names, readaheads);
    assert_eq!(replayed.runs.iter().map(|run| run.events).sum::<u64>(), summary.events);
    assert_eq!((summary.runs as usize, summary.dropped), (readaheads.len(), 0));
}

/// A file that tests can read while it is written.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A driver without pinned frames.
struct Through<'r>(&'r mut dyn Recorder);

impl Driver for Through<'_> {
    fn fetch(&mut self, _: FetchKind, _: PageId, _: &[FrameId]) {}

    fn sent(&mut self, now: Nanos, event: &Event<'_>) {
        self.0.sent(now, event);
    }
}

/// Sends an event to a core and a recorder, as the engine does.
struct Script {
    core: cache::Cache,
    recorder: Box<dyn Recorder>,
    now: u64,
}

impl Script {
    fn new(settings: &cache::Settings, recorder: Box<dyn Recorder>) -> Self {
        let core = cache::Cache::new(settings.clone()).unwrap();
        Self { core, recorder, now: 1_000 }
    }

    fn send(&mut self, event: Event<'_>) -> Actions {
        self.now += 1_000;
        let mut actions = Actions::new();
        let mut through = Through(&mut *self.recorder);
        drive(&mut self.core, Nanos(self.now), event, &mut actions, &mut through);
        self.recorder.came_back(&actions);
        actions
    }

    /// Opens a file and reads `count` of its pages, one after the other.
    fn read(&mut self, count: u64) {
        let (handle, file, partition) = (HandleId(0), FileId(0), PartitionId(0));
        self.send(Event::Open { handle, file, partition, file_pages: 1 << 20 });
        for page in 0..count {
            let (request, congested) = (RequestId(page), false);
            let previous_end = page.checked_sub(1).map(|_| page * PAGE);
            let read =
                Event::Read { request, handle, first: page, count: 1, previous_end, congested };
            let actions = self.send(read);
            if let Some(&first) = actions.frames.first() {
                self.send(Event::Arrived { first, count: 1 });
            }
        }
    }
}

fn small() -> cache::Settings {
    cache::Settings { page_bytes: 512, ..cache::Settings::new(64, "lru", "off") }
}

/// The bytes of a journal of `count` reads in `runs` runs.
fn script(runs: u32, count: u64) -> (Vec<u8>, Summary) {
    let memory = Memory::default();
    let journal = JournalFile::on(memory.clone(), Bounds::default()).unwrap();
    for _ in 0..runs {
        Script::new(&small(), journal.record(&small())).read(count);
    }
    let summary = journal.finish();
    let bytes = memory.0.lock().clone();
    (bytes, summary)
}

#[test]
fn a_journal_that_is_cut_anywhere_is_used_up_to_its_last_whole_block() {
    let (bytes, summary) = script(2, 5);
    assert_eq!((summary.runs, summary.events, summary.bytes), (2, 22, bytes.len() as u64));
    let mut ends = vec![0];
    let mut reader = Reader::new(bytes.as_slice());
    while !matches!(reader.part().unwrap(), Part::End { .. }) {
        ends.push(usize::try_from(reader.at()).unwrap());
    }
    assert!(ends.len() >= 5, "each run has a head and a block: {ends:?}");
    for cut in 0..bytes.len() {
        let replayed = replayed(&bytes[..cut]).unwrap();
        let whole = *ends.iter().rfind(|&&end| end <= cut).unwrap();
        assert_eq!(replayed.cut_bytes, (cut - whole) as u64, "cut at {cut}");
        assert!(replayed.byte_equal());
        assert_eq!(replayed.runs.is_empty(), whole == 0);
    }
}

#[test]
fn a_journal_with_any_byte_bent_is_refused_at_the_byte_where_its_block_begins() {
    let (bytes, _) = script(1, 4);
    let head = {
        let mut reader = Reader::new(bytes.as_slice());
        reader.part().unwrap();
        usize::try_from(reader.at()).unwrap()
    };
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bent = bytes.clone();
            bent[at] ^= 1 << bit;
            let error = replayed(&bent).unwrap_err();
            match error {
                JournalError::Foreign => assert!(at < 23, "byte {at}"),
                JournalError::Format { .. } => assert!((23..28).contains(&at), "byte {at}"),
                JournalError::Corrupt { at: reported } => {
                    // A first block that no longer begins as one is not of this run.
                    let begins = if at < head { 0 } else { head as u64 };
                    assert!(reported <= at as u64 && reported >= begins, "byte {at}: {reported}");
                }
                other => panic!("byte {at}: {other}"),
            }
        }
    }
}

#[test]
fn blocks_that_are_missing_or_repeated_are_noticed() {
    let (bytes, summary) = script(1, 3_000);
    let mut reader = Reader::new(bytes.as_slice());
    let mut ends = Vec::new();
    while !matches!(reader.part().unwrap(), Part::End { .. }) {
        ends.push(usize::try_from(reader.at()).unwrap());
    }
    assert!(ends.len() >= 3, "{} events in {ends:?}", summary.events);
    let missing = [&bytes[..ends[0]], &bytes[ends[1]..]].concat();
    let twice = [&bytes[..ends[1]], &bytes[ends[0]..]].concat();
    for (bent, at) in [(missing, ends[0]), (twice, ends[1])] {
        let error = replayed(&bent).unwrap_err();
        assert!(matches!(error, JournalError::Corrupt { at: reported } if reported == at as u64));
    }
}

#[test]
fn other_files_and_versions_are_refused_in_one_line() {
    let (bytes, _) = script(1, 1);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(
        text.contains("\nevents=6\n") && text.contains("\npartition=rest\t64\t0\tlru\t-\trest\n"),
        "{text}"
    );
    let later = [b"forerun-journal format=00002 and more", &bytes[..]].concat();
    let rows: [(&[u8], &str); 5] = [
        (b"\x7fELF and so on", "no journal"),
        (b"x", "no journal"),
        (b"forerun-report format=00001", "no journal"),
        (b"\nblk", "no journal"),
        (&later, "format 2, and this program reads format 1"),
    ];
    for (bytes, says) in rows {
        let error = replayed(bytes).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
    }
}

/// A core whose recorded actions are bent: those of its `at`th group get one more.
struct Bent {
    recorder: Box<dyn Recorder>,
    groups: u32,
    at: u32,
}

impl Recorder for Bent {
    fn sent(&mut self, now: Nanos, event: &Event<'_>) {
        self.recorder.sent(now, event);
    }

    fn came_back(&mut self, actions: &Actions) {
        let mut actions = actions.clone();
        self.groups += 1;
        if self.groups == self.at {
            let request = RequestId(77);
            actions.list.push(Action::Done { request });
        }
        self.recorder.came_back(&actions);
    }
}

#[test]
fn the_first_event_that_gives_other_actions_is_reported() {
    let memory = Memory::default();
    let journal = JournalFile::on(memory.clone(), Bounds::default()).unwrap();
    let recorder = Box::new(Bent { recorder: journal.record(&small()), groups: 0, at: 4 });
    Script::new(&small(), recorder).read(3);
    assert_eq!(journal.finish().dropped, 0);
    let replayed = replayed(&memory.0.lock()).unwrap();
    assert!(!replayed.byte_equal());
    let run = &replayed.runs[0];
    let expected = Difference {
        event: 4,
        now: Nanos(5_000),
        what: "Read { request: RequestId(1), handle: HandleId(0), first: 1, count: 1, \
               congested: false, previous_end: Some(512) }"
            .to_owned(),
        action: 2,
        recorded: "Done request=77".to_owned(),
        came: "nothing".to_owned(),
    };
    assert_eq!((run.events, &run.difference), (4, &Some(expected)));
}

/// Events that no driver sends: a journal of them is refused, whatever the core does.
#[test]
fn a_journal_of_what_no_core_takes_is_refused_by_its_event() {
    let (handle, file, partition) = (HandleId(0), FileId(0), PartitionId(0));
    let open = Event::Open { handle, file, partition, file_pages: u64::MAX };
    let far = HandleId(u32::MAX - 1);
    let far = Event::Open { handle: far, file, partition, file_pages: 1 };
    let nowhere = Event::Open { handle, file, partition: PartitionId(9), file_pages: 1 };
    let first = FrameId(0);
    let (request, congested, previous_end) = (RequestId(0), false, None);
    let count = u32::MAX;
    let read = Event::Read { request, handle, first: 0, count, previous_end, congested };
    #[rustfmt::skip]
    let rows = [
        ("a handle that is not open",    vec![Event::Close { handle }]),
        ("opened twice",                 vec![open, open]),
        ("a handle out of all bounds",   vec![far]),
        ("no such partition",            vec![nowhere]),
        ("nothing was fetched",          vec![Event::Arrived { first, count: 1 }]),
        ("more than there are frames",   vec![open, Event::Failed { first, count, errno: 5 }]),
        ("a read without end",           vec![open, read]),
        ("a share that is too large",    vec![Event::Resize { partition, frames: count }]),
        ("a policy that is none",        vec![Event::Policy { partition, policy: count }]),
    ];
    for (why, events) in rows {
        let memory = Memory::default();
        let journal = JournalFile::on(memory.clone(), Bounds::default()).unwrap();
        let bounds = cache::Settings { handles_max: u32::MAX, ..small() };
        let mut recorder = journal.record(&bounds);
        for event in &events {
            recorder.sent(Nanos(1), event);
            recorder.came_back(&Actions::new());
        }
        assert_eq!(journal.finish().events, events.len() as u64);
        let error = replayed(&memory.0.lock()).expect_err(why).to_string();
        let reported = format!("the journal is not of this core: event {} at 0.0", events.len());
        assert!(error.starts_with(&reported), "{why}: {error}");
    }
    let cores = [
        ("memory", cache::Settings { frames: u32::MAX, ..small() }, "more than there is"),
        ("waiters", cache::Settings { waiters_max: u32::MAX, ..small() }, "more than there is"),
        ("ghosts", cache::Settings::new(1 << 22, "2q:kout=1000", "off"), "more than there is"),
        ("a policy of another version", cache::Settings::new(64, "later", "off"), "`later`"),
    ];
    for (why, settings, says) in cores {
        let memory = Memory::default();
        let journal = JournalFile::on(memory.clone(), Bounds::default()).unwrap();
        drop(journal.record(&settings));
        assert_eq!(journal.finish().runs, 1);
        let error = replayed(&memory.0.lock()).expect_err(why).to_string();
        assert!(error.contains("not of this core") && error.contains(says), "{why}: {error}");
    }
}

/// Takes so many bytes, then fails.
struct Full {
    memory: Memory,
    left: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let count = bytes.len().min(self.left);
        self.left -= count;
        self.memory.write(&bytes[..count])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_journal_ends_where_the_disk_is_full_and_counts_what_follows() {
    let (_, whole) = script(1, 3_000);
    let size = usize::try_from(whole.bytes).unwrap();
    for left in [0, 10, 300, 400, size / 2, size / 10 * 9] {
        let memory = Memory::default();
        let full = Full { memory: memory.clone(), left };
        let journal = JournalFile::on(full, Bounds::default()).unwrap();
        Script::new(&small(), journal.record(&small())).read(3_000);
        let summary = journal.finish();
        assert_eq!(summary.events + summary.dropped, whole.events, "{left}");
        assert!(matches!(&summary.end, Some(End::Write(_))) && summary.dropped > 0, "{left}");
        let bytes = memory.0.lock();
        let replayed = replayed(&bytes).unwrap();
        assert_eq!(replayed.cut_bytes, bytes.len() as u64 - summary.bytes, "{left}");
        let events: u64 = replayed.runs.iter().map(|run| run.events).sum();
        assert!(replayed.byte_equal() && events == summary.events, "{left}");
    }
}

#[test]
fn a_run_whose_journal_goes_to_a_full_device_goes_on() {
    let settings = settings(2 * WINDOW, "off");
    let summary = within(move || recorded(Path::new("/dev/full"), &settings, 1, 10));
    assert_eq!((summary.runs, summary.events, summary.bytes), (0, 0, 0));
    assert!(summary.dropped > 80, "{summary:?}");
    assert!(summary.end.unwrap().to_string().contains("No space"));
    assert!(JournalFile::create(Path::new("/no/such/folder"), Bounds::default()).is_err());
}

/// Waits for the test before each write.
struct Slow {
    gate: Arc<Mutex<()>>,
    memory: Memory,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _open = self.gate.lock();
        self.memory.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_journal_ends_where_its_bounds_are_and_counts_what_follows() {
    let (_, whole) = script(1, 3_000);
    let rows: [(&str, Bounds, bool); 4] = [
        ("a small file", Bounds { file_bytes_max: 20_000, ..Bounds::default() }, false),
        ("no file", Bounds { file_bytes_max: 0, ..Bounds::default() }, false),
        ("a slow one", Bounds { memory_bytes_max: 20_000, ..Bounds::default() }, true),
        ("no memory", Bounds { memory_bytes_max: 0, ..Bounds::default() }, false),
    ];
    for (why, bounds, slow) in rows {
        let (gate, memory) = (Arc::new(Mutex::new(())), Memory::default());
        let output = Slow { gate: Arc::clone(&gate), memory: memory.clone() };
        let held = slow.then(|| gate.lock());
        let journal = JournalFile::on(output, bounds).unwrap();
        Script::new(&small(), journal.record(&small())).read(3_000);
        drop(held);
        // A run that begins after the end is not recorded, however small.
        Script::new(&small(), journal.record(&small())).read(0);
        let summary = journal.finish();
        assert_eq!(summary.events + summary.dropped, whole.events + 1, "{why}");
        let Bounds { file_bytes_max, memory_bytes_max } = bounds;
        let end = match (slow, memory_bytes_max) {
            (false, 1..) => End::FileFull { file_bytes_max },
            (true, _) | (false, 0) => End::Behind { memory_bytes_max },
        };
        assert_eq!(summary.end, Some(end), "{why}");
        let bytes = memory.0.lock();
        assert!(bytes.len() as u64 <= file_bytes_max && summary.bytes == bytes.len() as u64);
        let replayed = replayed(&bytes).unwrap();
        let events: u64 = replayed.runs.iter().map(|run| run.events).sum();
        assert!(replayed.byte_equal() && events == summary.events, "{why}");
        assert_eq!((replayed.cut_bytes, events > 100), (0, bytes.len() > 5_000), "{why}");
    }
}

#[test]
fn what_a_cache_flushes_at_its_end_is_replayed_whatever_its_bound_of_handles() {
    for handles_max in [1, 2, u32::MAX] {
        let settings = Settings { handles_max, ..settings(64, "off") };
        let scratch = Scratch::new("journal-end");
        let path = scratch.join("journal");
        let journal = JournalFile::create(&path, Bounds::default()).unwrap();
        let recorder = journal.record(&settings.core().unwrap());
        let cache = Cache::recorded(settings, recorder).unwrap();
        let store = Arc::new(memory::Memory::new(vec![0; 1_000], 1 << 24));
        let file = cache.open_store_with(store, Access::ReadWrite).unwrap();
        file.write_at(&[1; 100], 0).unwrap();
        cache.close().unwrap();
        drop((file, cache));
        let summary = journal.finish();
        assert_eq!(summary.dropped, 0, "{summary:?}");
        let replayed = replayed(&fs::read(&path).unwrap()).unwrap();
        assert!(replayed.byte_equal() && replayed.runs.len() == 1, "{handles_max}: {replayed:?}");
    }
}
