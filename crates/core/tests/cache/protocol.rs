//! What is refused, what errors say, the order of events, and the journal's record of actions.

use super::World;
use forerun_core::cache::{Cache, PartitionSettings, Rule, Settings, SettingsError};
use forerun_core::drive::{Driver, drive};
use forerun_core::event::codec::{self, DecodeError};
use forerun_core::event::{Action, Actions, Error, Event, FetchKind, FrameRun, PrefetchOutcomes};
use forerun_core::readahead::{Cause, Decision, StreamId, Window};
use forerun_core::units::{FileId, FrameId, HandleId, Nanos, PageId, RequestId};

type Change<'a> = &'a dyn Fn(&mut Settings);

type Act<'a> = &'a dyn Fn(&mut World);

fn refused(change: impl Fn(&mut Settings)) -> String {
    let mut settings = Settings::new(64, "lru", "fixed:size=16K");
    change(&mut settings);
    Cache::new(settings).err().map_or_else(String::new, |error| error.to_string())
}

#[test]
fn settings_that_cannot_work_are_refused_in_one_line() {
    let share = |frames| PartitionSettings::new(&format!("of-{frames}"), frames, "lru");
    let log = || PartitionSettings { rule: Rule::Client("log".into()), ..share(0) };
    #[rustfmt::skip] // A table test: add a row, not a function.
    let rows: [(&str, Change); 23] = [
        ("", &|_| {}),
        ("", &|s| s.page_bytes = 512),
        ("", &|s| s.partitions = vec![share(4), share(60)]),
        ("", &|s| s.partitions.push(log())),
        ("every partition has a rule: one without is needed for all other pages",
            &|s| s.partitions[0].rule = log().rule),
        ("two partitions are named `of-0`",
            &|s| s.partitions = vec![share(64), share(0), share(0)]),
        ("a partition named `a b`: a name has letters, and no blanks",
            &|s| s.partitions[0].name = "a b".into()),
        ("a partition named ``: a name has letters, and no blanks",
            &|s| s.partitions[0].name = String::new()),
        ("a cache of 3 pages is smaller than one readahead window of 4 pages: give it more, or the \
          policy a smaller max", &|s| s.partitions = vec![share(60), share(3)]),
        ("no parameter `z`; there are: size",
            &|s| s.partitions[0].readahead = Some("fixed:z=1".into())),
        ("a page of 256 bytes: it must be a power of two of at least 512", &|s| s.page_bytes = 256),
        ("a page of 513 bytes: it must be a power of two of at least 512", &|s| s.page_bytes = 513),
        ("frames is 0: it must be at least 1", &|s| s.frames = 0),
        ("request_pages_max is 0: it must be at least 1", &|s| s.request_pages_max = 0),
        ("waiters_max is 0: it must be at least 1", &|s| s.waiters_max = 0),
        ("handles_max is 0: it must be at least 1", &|s| s.handles_max = 0),
        ("files_max is 0: it must be at least 1", &|s| s.files_max = 0),
        ("dirty_pages_max is 0: it must be at least 1", &|s| s.dirty_pages_max = 0),
        ("partitions is 0: it must be at least 1", &|s| s.partitions.clear()),
        ("the partitions want 65 frames and there are 64",
            &|s| s.partitions = vec![share(5), share(60)]),
        ("a cache of 3 pages is smaller than one readahead window of 4 pages: give it more, or the \
          policy a smaller max", &|s| s.partitions = vec![share(3)]),
        ("no parameter `y`; there are none", &|s| s.partitions[0].policy = "lru:y=1".into()),
        ("no parameter `x`; there are: size", &|s| s.readahead = "fixed:x=1".into()),
    ];
    for (text, change) in rows {
        assert_eq!(refused(change), text);
        assert!(!text.contains('\n'));
    }
}

#[test]
fn the_plain_settings_are_in_proportion_to_the_frames() {
    let settings = Settings::new(64, "lru", "off");
    let bounds = (settings.ahead_pages_max, settings.dirty_pages_max, settings.partitions.len());
    assert_eq!(bounds, (56, 16, 1));
    assert_eq!(Settings::new(2, "lru", "off").dirty_pages_max, 1);
    assert_eq!(settings.partitions[0], PartitionSettings::new("rest", 64, "lru"));
    assert_eq!(World::new(64, "off").cache.settings().frames, 64);
    let wrong: SettingsError = Cache::new(Settings::new(1, "x", "off")).err().expect("no policy");
    assert!(matches!(wrong, SettingsError::Policy(_)));
}

#[test]
fn every_error_has_its_errno_and_its_line() {
    let page = PageId { file: FileId(1), index: 7 };
    #[rustfmt::skip] // A table test: add a row, not a function.
    let rows = [
        (Error::Store { page, errno: 74 }, 74,
            "the store failed at page 7: errno 74"),
        (Error::Writeback { errno: 28 }, 28,
            "written bytes are not durable yet: errno 28; they are kept"),
        (Error::PastEnd { page: 9, file_pages: 8 }, 22,
            "page 9 is beyond the end of a file of 8 pages"),
        (Error::Changed { page: 7 }, 116,
            "the file changed at page 7: read it again"),
        (Error::NoFrames { capacity: 3 }, 11,
            "no frame came free: all 3 are held, dirty or in flight"),
        (Error::Busy { bound: 3 }, 11,
            "more than 3 requests wait already"),
        (Error::TooLarge { pages: 4, bound: 3 }, 22,
            "a request of 4 pages; at most 3 fit"),
        (Error::DirtyFull { bound: 3 }, 11,
            "all 3 pages that may be dirty belong to files whose store fails"),
        (Error::Cancelled, 125, "cancelled"),
    ];
    for (error, errno, text) in rows {
        assert_eq!((error.errno(), error.to_string().as_str()), (errno, text));
    }
}

#[test]
fn decoding_errors_say_what_is_wrong() {
    let texts = [DecodeError::Cut, DecodeError::UnknownTag(9), DecodeError::OutOfRange];
    let texts = texts.map(|error| error.to_string());
    assert_eq!(texts, ["the record is cut off", "9 is no event", "a field is out of range"]);
}

#[test]
fn actions_are_recorded_field_by_field() {
    let (request, page, frame) = (RequestId(9), 300, FrameId(4));
    let id = PageId { file: FileId(2), index: page };
    let window = Window { start: 5, size: 6, async_size: 7 };
    let decision = Decision::new(Cause::Async, window);
    let named = Decision { stream: Some(StreamId(13)), ..decision };
    let (frames, handle) = (FrameRun { at: 1, count: 2 }, HandleId(3));
    let fail = |error| Action::Fail { request, error };
    let fetch = |kind| Action::Fetch { kind, page: id, frames };
    let explain = |Decision { cause, window, stream }| Action::Explain {
        handle,
        page,
        cause,
        window,
        fresh: 8,
        stream,
    };
    let outcomes = PrefetchOutcomes { used: 1, late: 2, wasted: 3, failed: 4 };
    let publish = Action::Publish { page: id, frame, generation: 8, marker: true };
    #[rustfmt::skip] // A table test: add a row, not a function.
    let rows: [(Action, &[u8]); 23] = [
        (Action::Serve { request, page, frame },                       &[1, 9, 172, 2, 4]),
        (Action::Fill { request, page, frame, fresh: false },          &[2, 9, 172, 2, 4, 0]),
        (Action::Fill { request, page, frame, fresh: true },           &[2, 9, 172, 2, 4, 1]),
        (fetch(FetchKind::Demand),                                     &[3, 2, 172, 2, 2, 11, 12]),
        (fetch(FetchKind::Readahead),                                  &[4, 2, 172, 2, 2, 11, 12]),
        (Action::Write { page: id, frames },                           &[5, 2, 172, 2, 2, 11, 12]),
        (Action::Sync { file: FileId(2) },                             &[6, 2]),
        (Action::Done { request },                                     &[7, 9]),
        (fail(Error::Store { page: id, errno: 5 }),                    &[8, 9, 1, 172, 2, 5]),
        (fail(Error::Writeback { errno: 5 }),                          &[8, 9, 2, 5, 0]),
        (fail(Error::PastEnd { page: 7, file_pages: 6 }),              &[8, 9, 3, 7, 6]),
        (fail(Error::Changed { page: 7 }),                             &[8, 9, 4, 7, 0]),
        (fail(Error::NoFrames { capacity: 7 }),                        &[8, 9, 5, 7, 0]),
        (fail(Error::Busy { bound: 7 }),                               &[8, 9, 6, 7, 0]),
        (fail(Error::TooLarge { pages: 8, bound: 7 }),                 &[8, 9, 7, 8, 7]),
        (fail(Error::Cancelled),                                       &[8, 9, 8, 0, 0]),
        (fail(Error::DirtyFull { bound: 7 }),                          &[8, 9, 9, 7, 0]),
        (publish,                                                      &[9, 2, 172, 2, 4, 8, 1]),
        (Action::Retract { frame, gone: true },                        &[10, 4, 1]),
        (Action::Retract { frame, gone: false },                       &[10, 4, 0]),
        (explain(decision),                       &[11, 3, 172, 2, 2, 5, 6, 7, 8, 0]),
        (explain(named),                          &[11, 3, 172, 2, 2, 5, 6, 7, 8, 14]),
        (Action::Outcomes { window: 300, outcomes },                   &[12, 172, 2, 1, 2, 3, 4]),
    ];
    let mut all = Actions::new();
    let mut expected = Vec::new();
    all.frames = [10, 11, 12].map(FrameId).to_vec();
    for (action, bytes) in rows {
        all.list.push(action);
        expected.extend_from_slice(bytes);
    }
    let mut out = Vec::new();
    codec::encode_actions(&all, &mut out);
    assert_eq!(out, expected);
    all.clear();
    assert_eq!(all, Actions::new());
}

/// Records actions and events, in order; has frame 0 pinned.
#[derive(Default)]
struct Notes(Vec<String>);

impl Driver for Notes {
    fn fetch(&mut self, _: FetchKind, _: PageId, frames: &[FrameId]) {
        let named: Vec<u32> = frames.iter().map(|frame| frame.0).collect();
        self.0.push(format!("fetch {} {named:?}", named.len()));
    }

    fn retract(&mut self, frame: FrameId, _gone: bool) -> bool {
        self.0.push(format!("retract {}", frame.0));
        frame.0 != 0
    }

    fn sent(&mut self, now: Nanos, event: &Event<'_>) {
        let text = format!("{event:?}");
        let name = text.split([' ', '{']).next().unwrap_or_default().to_owned();
        self.0.push(format!("{name} at {}", now.0));
    }
}

#[test]
fn a_retraction_is_settled_before_any_other_event() {
    let (mut cache, mut actions, mut notes) =
        (Cache::new(Settings::new(2, "lru", "off")).unwrap(), Actions::new(), Notes::default());
    let (request, handle) = (RequestId(1), HandleId(0));
    let read = |first, count| Event::Read {
        request,
        handle,
        first,
        count,
        previous_end: None,
        congested: false,
    };
    let file = FileId(0);
    let partition = forerun_core::units::PartitionId(0);
    let open = Event::Open { handle, file, partition, file_pages: 9 };
    let arrived = Event::Arrived { first: FrameId(0), count: 2 };
    for (now, event) in [(1, open), (2, read(0, 2)), (3, arrived), (4, read(5, 1))] {
        drive(&mut cache, Nanos(now), event, &mut actions, &mut notes);
    }
    let expected = [
        "Open at 1",
        "Read at 2",
        "fetch 2 [0, 1]",
        "Arrived at 3",
        "Read at 4",
        "retract 0",
        "Pinned at 4",
        "retract 1",
        "Settled at 4",
        "fetch 1 [1]",
    ];
    assert_eq!(notes.0, expected);
}

#[test]
fn more_handles_or_files_than_the_bounds_are_refused_before_they_are_opened() {
    let mut world = World::with(8, "off", |settings| {
        (settings.handles_max, settings.files_max) = (3, 2);
    });
    let check = |world: &World, handle, file| {
        world.cache.check_open(HandleId(handle), FileId(file)).map_err(|error| error.to_string())
    };
    world.open(1, 1, 0, 9);
    world.through(1).load(0, 1);
    let files = Err("too many files: at most 2 are known at once".to_owned());
    let handles = Err("too many handles: at most 3 may be open".to_owned());
    assert_eq!(check(&world, 2, 2), files);
    assert_eq!((check(&world, 2, 1), check(&world, 3, 1)), (Ok(()), handles));
    world.close(1);
    assert_eq!(check(&world, 1, 2), files, "its page is still there");
    world.through(1).invalidate(0, 1);
    assert_eq!(check(&world, 1, 2), Ok(()));
    world.open(1, 2, 0, 9);
    assert_eq!(check(&world, 2, 1), files);
}

fn ends_two(world: &mut World, index: u64) {
    world.read(2, index + 1, 1);
    let first = world.frame(index);
    world.send(Event::Arrived { first, count: 2 });
}

#[test]
fn broken_protocol_is_found() {
    let broken = |act: &dyn Fn(&mut World)| {
        let mut world = World::new(4, "off");
        world.now = Nanos(5);
        world.load(0, 2);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&mut world)));
        caught.is_err()
    };
    assert!(!broken(&|_| {}));
    #[rustfmt::skip] // A table test: add a row, not a function.
    let rows: [(&str, Act); 9] = [
        ("time ran backwards",       &|world| { world.now = Nanos(4); world.tick(0); }),
        ("a handle opened twice",    &|world| { world.open(0, 0, 0, 9); }),
        ("a handle out of bounds",   &|world| { world.open(1 << 16, 0, 0, 9); }),
        ("an unknown partition",     &|world| { world.open(1, 0, 1, 9); }),
        ("a handle closed twice",    &|world| { world.close(0); world.close(0); }),
        ("nothing is read",          &|world| { world.read(1, 0, 0); }),
        ("a page arrives twice",     &|world| { world.arrive(0, 1); }),
        ("two of a run of one",      &|world| { world.read(1, 7, 1); ends_two(world, 7); }),
        ("a copy nobody began",      &|world| {
            let frame = world.frame(0);
            world.send(Event::Filled { request: RequestId(1), frame });
        }),
    ];
    for (why, act) in rows {
        assert!(broken(act), "{why}");
    }
}
