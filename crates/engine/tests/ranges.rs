//! The cache of byte ranges against the expected bytes: the test simulates threads one step at a
//! time, so that it can choose and repeat every order of arrivals.
//!
//! # Invariants
//! - Every read ends with its own bytes, or fails where a fetch of its bytes failed.

use forerun_core::prng::Prng;
use forerun_engine::ranges::{
    FetchId, RangeFetch, Ranges, RangesSettings, ReadEnd, ReadId, ReadStart, Store,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn bytes(start: u64, end: u64) -> Vec<u8> {
    (start..end).map(byte).collect()
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

fn small() -> RangesSettings {
    RangesSettings { memory_bytes: MIB, request_bytes_max: 64 << 10, ..RangesSettings::default() }
}

/// A lone reader that fetches at once.
struct Alone {
    ranges: Ranges,
    fetched: Vec<(u64, u64)>,
}

impl Alone {
    fn new(settings: &RangesSettings, file: u64) -> Self {
        Self { ranges: Ranges::new(settings, file).unwrap(), fetched: Vec::new() }
    }

    fn fetch(&mut self, job: RangeFetch) {
        self.fetched.push((job.start, job.end));
        self.ranges.arrived(job.id, &bytes(job.start, job.end));
    }

    fn wait(&mut self, read: ReadId, start: u64, end: u64) -> Vec<u8> {
        let mut own = (0, 0);
        loop {
            match self.ranges.take(read) {
                Some(ReadEnd::Bytes(bytes)) => break bytes,
                Some(ReadEnd::Fetched) => {
                    assert!(own.0 <= start && end <= own.1, "{own:?} for {start}..{end}");
                    break bytes(start, end);
                }
                Some(other) => panic!("{start}..{end}: {other:?}"),
                None => {
                    let job = self.ranges.claim_for(read).expect("no other thread fetches");
                    own = (job.start, job.end);
                    self.fetch(job);
                }
            }
        }
    }

    fn read(&mut self, start: u64, end: u64) -> Vec<u8> {
        let got = match self.ranges.read(start, end) {
            ReadStart::Ready => {
                let mut out = vec![0; size(end - start)];
                self.ranges.copy_ready(&mut out);
                assert!(self.ranges.ready().is_none_or(|bytes| bytes == out));
                out
            }
            ReadStart::Waits(read) => self.wait(read, start, end),
        };
        while let Some(job) = self.ranges.claim() {
            self.fetch(job);
        }
        got
    }
}

#[test]
fn lone_reads_fetch_what_they_want_and_no_more() {
    let mut reader = Alone::new(&RangesSettings::default(), 64 * MIB + 1234);
    #[rustfmt::skip]
    let rows = [
        ("within a page", 9 * MIB + 100, 9 * MIB + 200),
        ("over a page's edge", 20 * MIB - 50, 20 * MIB + 50),
        ("pages and parts of two", 31 * MIB + 1, 31 * MIB + 40_000),
        ("the end", 64 * MIB + 1200, 64 * MIB + 1234),
    ];
    for (why, start, end) in rows {
        assert_eq!(reader.read(start, end), bytes(start, end), "{why}");
        assert_eq!(reader.fetched.pop(), Some((start, end)), "{why}");
        assert_eq!(reader.read(start, end), bytes(start, end), "{why}: again");
        assert_eq!(reader.fetched, [], "{why}: again");
    }
    let (start, end) = (9 * MIB, 9 * MIB + 150);
    assert_eq!(reader.read(start, end), bytes(start, end));
    assert_eq!(reader.fetched.len(), 1, "a page of which another part is there is fetched again");
}

#[test]
fn interleaved_readers_fetch_each_byte_once_in_large_pieces() {
    let (cursors, each) = (10, 8 * MIB);
    let (memory_bytes, connections) = (24 * MIB, 4);
    let settings = RangesSettings { memory_bytes, connections, ..RangesSettings::default() };
    let mut reader = Alone::new(&settings, cursors * each);
    for at in (0..each).step_by(64 << 10) {
        for cursor in 0..cursors {
            let start = cursor * each + at;
            assert_eq!(reader.read(start, start + (64 << 10)), bytes(start, start + (64 << 10)));
        }
    }
    let stats = reader.ranges.stats();
    let wanted = cursors * each;
    assert!(stats.bytes_fetched * 5 <= wanted * 6, "{stats:?}");
    assert!(stats.fetches < wanted / (512 * KIB), "{stats:?}");
    assert!(stats.core.balanced() && stats.streams >= cursors, "{stats:?}");
}

#[test]
fn readers_whose_reads_share_pages_fetch_none_twice() {
    // So many readers alternate that used pages are evicted between two reads of one.
    let (cursors, each) = (64, 4 * MIB);
    for step in [100_001, 70_000, 96 << 10] {
        let settings = RangesSettings { memory_bytes: 32 * MIB, ..RangesSettings::default() };
        let mut reader = Alone::new(&settings, cursors * each);
        for at in (0..each - step).step_by(size(step)) {
            for cursor in 0..cursors {
                let start = cursor * each + at;
                assert!(reader.read(start, start + step) == bytes(start, start + step), "{start}");
            }
        }
        let stats = reader.ranges.stats();
        assert!(stats.bytes_fetched * 4 <= stats.bytes_wanted * 5, "{step}: {stats:?}");
        assert!(stats.fetches < cursors * each / (128 * KIB) + 4 * cursors, "{step}: {stats:?}");
    }
}

#[test]
fn chunks_of_columns_are_prefetched_though_their_strides_are_no_whole_pages() {
    // Columns of a table: a chunk of each in every group of rows, read whole.
    let (chunk, columns, groups) = (1_250_264, 20, 8);
    let wanted_columns = [[7, 7, 7, 7], [1, 4, 11, 13], [2, 7, 12, 17]];
    for wanted in wanted_columns {
        let mut reader = Alone::new(&RangesSettings::default(), columns * groups * chunk + 1000);
        let mut seen = Vec::new();
        for (group, column) in (0..groups).flat_map(|group| wanted.map(|column| (group, column))) {
            let start = 4 + (group * columns + column) * chunk;
            if !seen.contains(&start) {
                assert!(reader.read(start, start + chunk) == bytes(start, start + chunk));
                seen.push(start);
            }
        }
        let stats = reader.ranges.stats();
        assert!(stats.bytes_fetched * 50 <= stats.bytes_wanted * 51, "{wanted:?}: {stats:?}");
        let (reads, stalls) = (stats.reads, stats.stalls);
        assert!(stalls <= 3 + reads / 4, "{wanted:?}: {stalls} of {reads} waited");
        assert!(stats.streams > 0, "{wanted:?}");
    }
}

#[test]
fn what_a_fetch_must_give_is_given_or_the_read_fails() {
    for wrong in [0, 99, 101] {
        let mut ranges = Ranges::new(&small(), MIB).unwrap();
        let ReadStart::Waits(read) = ranges.read(500_000, 500_100) else {
            panic!("it has no bytes")
        };
        let job = ranges.claim_for(read).unwrap();
        assert_eq!((job.start, job.end, job.demand), (500_000, 500_100, true));
        assert_eq!(ranges.take(read), None, "nothing came yet");
        ranges.arrived(job.id, &vec![7; wrong]);
        assert_eq!(ranges.woken(), [read], "{wrong} bytes");
        assert_eq!(ranges.take(read), Some(ReadEnd::Failed), "{wrong} bytes");
        assert_eq!(ranges.take(read), None, "it ends once");
        assert_eq!(ranges.stats().failures, 1);
    }
}

#[test]
fn a_read_that_waits_for_failed_readahead_gets_a_demand_of_its_own() {
    let settings = RangesSettings { memory_bytes: 16 * MIB, ..small() };
    let mut ranges = Ranges::new(&settings, 64 * MIB).unwrap();
    let ReadStart::Waits(first) = ranges.read(0, 4096) else { panic!("it has no bytes") };
    let job = ranges.claim_for(first).unwrap();
    ranges.arrived(job.id, &bytes(job.start, job.end));
    assert!(job.start == 0 && job.end >= 4096, "{job:?}");
    assert_eq!(ranges.take(first), Some(ReadEnd::Fetched));
    let ahead = ranges.claim().expect("the first window is longer than a request");
    assert!(!ahead.demand, "{ahead:?}");
    let (start, end) = (ahead.start, ahead.start + 100);
    let ReadStart::Waits(late) = ranges.read(start, end) else { panic!("it is in flight") };
    assert_eq!(ranges.claim_for(late).map(|job| job.start), None, "another thread fetches it");
    ranges.failed(ahead.id);
    assert_eq!(ranges.take(late), None, "its own try comes first");
    let own = ranges.claim_for(late).expect("a demand of its own");
    assert!(own.demand && own.start <= start && own.end >= end, "{own:?}");
    ranges.failed(own.id);
    assert_eq!(ranges.take(late), Some(ReadEnd::Failed));
}

#[test]
fn a_read_that_shares_a_fetch_with_too_few_bytes_reads_again() {
    let mut ranges = Ranges::new(&small(), MIB).unwrap();
    let ReadStart::Waits(one) = ranges.read(400_000, 400_100) else { panic!("it has no bytes") };
    let ReadStart::Waits(two) = ranges.read(400_050, 400_150) else { panic!("it has no bytes") };
    let job = ranges.claim().unwrap();
    ranges.arrived(job.id, &bytes(job.start, job.end));
    assert_eq!(ranges.take(one), Some(ReadEnd::Bytes(bytes(400_000, 400_100))));
    assert_eq!(ranges.take(two), Some(ReadEnd::Again));
    let ReadStart::Waits(two) = ranges.again(400_050, 400_150) else { panic!("it lacks bytes") };
    let job = ranges.claim_for(two).unwrap();
    let page = 400_050 / 8192 * 8192;
    assert_eq!((job.start, job.end), (page, page + 8192), "the second read fetches the whole page");
    ranges.arrived(job.id, &bytes(job.start, job.end));
    assert_eq!(ranges.take(two), Some(ReadEnd::Fetched));
    let stats = ranges.stats();
    assert_eq!((stats.reads, stats.stalls, stats.bytes_wanted), (2, 2, 200), "it is one read");
}

#[test]
fn small_reads_within_a_page_fetch_it_once_more_and_no_further() {
    // Two alternating readers: the core sees no stream in a read of 100 bytes.
    let mut reader = Alone::new(&RangesSettings::default(), 64 * MIB);
    for at in (0..8_000).step_by(100) {
        for start in [20 * MIB + at, 40 * MIB + at] {
            assert_eq!(reader.read(start, start + 100), bytes(start, start + 100));
        }
    }
    assert!(reader.fetched.len() <= 4, "{:?}", reader.fetched);
}

#[test]
fn a_read_that_waits_for_frames_claims_a_fetch_that_has_them() {
    let mut ranges = Ranges::new(&small(), 64 * MIB).unwrap();
    let each = ranges.read_bytes_max();
    let mut reads = Vec::new();
    // As many as have frames, and one more; their fetches stay unclaimed.
    while u64::from(ranges.waiting()) * 64 * KIB < MIB {
        let start = reads.len() as u64 * 8 * MIB;
        let ReadStart::Waits(read) = ranges.read(start, start + each) else { panic!("it is new") };
        reads.push((read, start));
    }
    let start = 60 * MIB;
    let ReadStart::Waits(last) = ranges.read(start, start + each) else { panic!("it is new") };
    for _ in 0..1_000 {
        if let Some(ended) = ranges.take(last) {
            assert_eq!(ended, ReadEnd::Bytes(bytes(start, start + each)));
            return;
        }
        let job = ranges.claim_for(last).expect("no other thread does");
        ranges.arrived(job.id, &bytes(job.start, job.end));
        for (read, start) in &reads {
            if let Some(ended) = ranges.take(*read) {
                assert_eq!(ended, ReadEnd::Bytes(bytes(*start, start + each)));
            }
        }
    }
    panic!("it waits for ever");
}

/// Waiting reads, their expected bytes, and the last fetch that each claimed.
type Open = Vec<(ReadId, u64, u64, Option<RangeFetch>)>;

/// Checks the results of woken reads; `good` are the fetches with the right bytes. Returns the
/// fetches that the reads claim.
fn settle(ranges: &mut Ranges, open: &mut Open, good: &[FetchId], why: &str) -> Vec<RangeFetch> {
    let mut claimed = Vec::new();
    for read in ranges.woken() {
        // One that is woken twice may have ended at the first time.
        let Some(at) = open.iter().position(|row| row.0 == read) else { continue };
        let (_, start, end, own) = open[at];
        match ranges.take(read) {
            Some(ReadEnd::Bytes(got)) => assert!(got == bytes(start, end), "{why}: {start}..{end}"),
            Some(ReadEnd::Fetched) => {
                let own = own.expect("it claimed one");
                assert!(own.start <= start && end <= own.end, "{why}: {own:?}, {start}..{end}");
                assert!(good.contains(&own.id), "{why}: {own:?} gave nothing");
            }
            Some(ReadEnd::Failed) => assert!(why.contains("failing"), "{why}: {start}..{end}"),
            Some(ReadEnd::Again) => {}
            None => {
                open[at].3 = ranges.claim_for(read).or(own);
                claimed.extend(open[at].3.filter(|&job| Some(job) != own));
                continue;
            }
        }
        open.swap_remove(at);
    }
    claimed
}

#[test]
fn any_order_of_reads_and_arrivals_gives_the_right_bytes() {
    for seed in 0..300 {
        let mut chance = Prng::new(seed);
        let file = 1 + chance.below(3 * MIB);
        let mut ranges = Ranges::new(&small(), file).unwrap();
        let failing = seed % 3 == 0;
        let why = format!("seed {seed}{}", if failing { ", failing" } else { "" });
        let (mut open, mut jobs, mut good) = (Open::new(), Vec::<RangeFetch>::new(), Vec::new());
        let mut cursor = 0;
        for _ in 0..400 {
            match chance.below(8) {
                0..=2 => {
                    let is_next = chance.below(3) > 0 && cursor < file;
                    let start = if is_next { cursor } else { chance.below(file) };
                    let most = ranges.read_bytes_max().min(file - start).min(40_000);
                    let end = start + 1 + chance.below(most);
                    cursor = end;
                    match ranges.read(start, end) {
                        ReadStart::Ready => {
                            let mut out = vec![0; size(end - start)];
                            ranges.copy_ready(&mut out);
                            assert!(ranges.ready().is_none_or(|bytes| bytes == out), "{why}");
                            assert!(out == bytes(start, end), "{why}: {start}..{end}");
                        }
                        ReadStart::Waits(read) => {
                            let own = ranges.claim_for(read);
                            open.push((read, start, end, own));
                            jobs.extend(own);
                        }
                    }
                }
                3..=4 => jobs.extend(ranges.claim()),
                5..=6 if !jobs.is_empty() => {
                    let at = size(chance.below(jobs.len() as u64));
                    let job = jobs.swap_remove(at);
                    match chance.below(10) {
                        0 if failing => ranges.failed(job.id),
                        1 if failing => ranges.arrived(job.id, &[]),
                        _ => {
                            good.push(job.id);
                            ranges.arrived(job.id, &bytes(job.start, job.end));
                        }
                    }
                }
                _ if !open.is_empty() && chance.below(8) == 0 => {
                    let at = size(chance.below(open.len() as u64));
                    ranges.cancel(open.swap_remove(at).0);
                }
                _ => {}
            }
            jobs.extend(settle(&mut ranges, &mut open, &good, &why));
        }
        while let Some(job) = jobs.pop().or_else(|| ranges.claim()) {
            good.push(job.id);
            ranges.arrived(job.id, &bytes(job.start, job.end));
            jobs.extend(settle(&mut ranges, &mut open, &good, &why));
        }
        assert!(open.is_empty(), "{why}: {open:?} wait in vain");
        assert!(ranges.stats().core.balanced());
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let default = RangesSettings::default;
    #[rustfmt::skip]
    let rows = [
        ("no memory", RangesSettings { memory_bytes: 0, ..default() }, "a cache of 0 bytes"),
        ("small request", RangesSettings { request_bytes_max: 1, ..default() }, "requests of"),
        ("no thread", RangesSettings { connections: 0, ..default() }, "connections is 0"),
        ("policy", RangesSettings { policy: "none".into(), ..default() }, "no `none`; there are"),
    ];
    for (why, settings, text) in rows {
        let error = Ranges::new(&settings, MIB).err().expect(why).to_string();
        assert!(error.starts_with(text) && !error.contains('\n'), "{why}: {error}");
    }
    assert!(Ranges::new(&default(), 0).is_ok(), "an empty file has nothing to read");
}

/// Reads of one page each, far apart, and what became of their fetches.
fn lone_reads(ranges: &mut Ranges, mut ended: impl FnMut(&mut Ranges, RangeFetch)) {
    for nth in 1..12 {
        let start = nth * 5 * MIB;
        let ReadStart::Waits(read) = ranges.read(start, start + 4096) else { panic!("cold") };
        let job = ranges.claim_for(read).expect("its own");
        ended(ranges, job);
        assert!(ranges.take(read).is_some());
    }
}

fn arrives(ranges: &mut Ranges, job: RangeFetch) {
    ranges.arrived(job.id, &bytes(job.start, job.end));
}

fn of_store(store: &Store) -> Ranges {
    let settings = RangesSettings { readahead: "off".into(), ..small() };
    Ranges::of_store(&settings, 100 * MIB, store).unwrap()
}

#[test]
fn a_fetch_that_is_made_again_tells_nothing_of_its_store() {
    let store = Store::new(None);
    lone_reads(&mut of_store(&store), |ranges, job| {
        ranges.retried(job.id);
        arrives(ranges, job);
    });
    assert_eq!(store.record(), None);
    let mut again = of_store(&store);
    let ReadStart::Waits(read) = again.read(0, 4096) else { panic!("cold") };
    let job = again.claim_for(read).expect("its own");
    again.retried(job.id);
    lone_reads(&mut of_store(&store), arrives);
    assert_eq!(store.record(), None, "it is in flight: none of the others was alone");
    arrives(&mut again, job);
    lone_reads(&mut of_store(&store), arrives);
    assert!(store.record().is_some(), "those that arrive at once tell how fast it is");
}

#[test]
fn a_fetch_that_a_closed_file_has_left_is_in_flight_until_it_ends() {
    let store = Store::new(None);
    let mut left = of_store(&store);
    let ReadStart::Waits(read) = left.read(0, 4096) else { panic!("cold") };
    let job = left.claim_for(read).expect("its own");
    let mut in_flight = left.take_in_flight();
    drop(left);
    lone_reads(&mut of_store(&store), arrives);
    assert_eq!(store.record(), None, "none of them was alone at the store");
    in_flight.ended(job.id, true);
    lone_reads(&mut of_store(&store), arrives);
    assert!(store.record().is_some());
}
