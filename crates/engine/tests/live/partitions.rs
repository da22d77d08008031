//! Partitions of a live cache: rules, shares that change while threads read and write, counts.

use std::sync::Arc;

use forerun_core::prng::Prng;
use forerun_engine::{
    Access, Cache, Handle, Journal, MoveReason, Partition, PartitionState, Rule, Settings, Sizing,
};
use forerun_io::store::{memory::Memory, pattern::Pattern};
use forerun_io::sync::{AtomicBool, AtomicU64, Ordering, thread};
use forerun_testkit::{Scratch, on_threads, until, within};

use crate::replay::replay;
use crate::rig::{PAGE, WINDOW, check_quiet, fixed, pattern_file, read, settings};

fn client(name: &str) -> Rule {
    Rule::Client(name.to_owned())
}

/// A cache of `frames`, of which each of `partitions` has a part.
fn parted(frames: u32, readahead: &str, partitions: Vec<Partition>) -> Settings {
    Settings { partitions, ..settings(frames, readahead) }
}

/// Name, pages that it may take, pages that it takes.
fn shown(cache: &Cache) -> Vec<(String, u64, u64)> {
    let row = |part: PartitionState| (part.name, part.bytes / PAGE, part.used_bytes / PAGE);
    cache.partitions().into_iter().map(row).collect()
}

fn row(name: &str, share: u64, used: u64) -> (String, u64, u64) {
    (name.to_owned(), share, used)
}

/// Waits for pages that are being read ahead: they take their frames until they have arrived.
fn comes_to(cache: &Cache, expected: &[(String, u64, u64)]) {
    until(|| shown(cache) == expected);
}

#[test]
fn pages_go_where_the_path_the_client_and_the_offset_say() {
    let scratch = Scratch::new("partitions");
    let path = pattern_file(&scratch, 40 * 512);
    let parts = vec![
        Partition::new("head", 4 * PAGE, Rule::Offsets(0..4 * PAGE)),
        Partition::new("mail", 8 * PAGE, client("mail")),
        Partition::new("data", 8 * PAGE, Rule::File("*/dat?".into())),
    ];
    let cache = Cache::new(parted(32, "off", parts)).unwrap();
    let by_path = cache.open(&path).unwrap();
    read(&by_path, 0, 6 * 512).unwrap();
    let expected = [row("rest", 12, 0), row("head", 4, 4), row("mail", 8, 0), row("data", 8, 2)];
    assert_eq!(shown(&cache), expected);
    let by_client = cache.client("mail").open(&path).unwrap();
    let clone = by_client.try_clone().unwrap();
    read(&clone, 5 * PAGE, 3 * 512).unwrap();
    let other = cache.open_store(Arc::new(Pattern::new(40 * PAGE))).unwrap();
    read(&other, 10 * PAGE, 20 * 512).unwrap();
    let expected = [row("rest", 12, 12), row("head", 4, 4), row("mail", 8, 2), row("data", 8, 2)];
    assert_eq!(shown(&cache), expected, "one page of the three was there");
    let counts: Vec<_> = cache.partitions().iter().map(|part| part.stats).collect();
    let hits: Vec<_> = counts.iter().map(|row| (row.hits, row.misses)).collect();
    assert_eq!(hits, [(0, 20), (0, 4), (0, 2), (1, 2)]);
    assert_eq!((counts[0].inserted, counts[0].evicted), (20, 8));
}

#[test]
fn shares_move_between_partitions_and_what_cannot_be_changes_nothing() {
    let parts = vec![Partition::new("a", 20 * PAGE, client("a")).readahead(fixed())];
    let cache = Cache::new(parted(40, "off", parts)).unwrap();
    let file = cache.client("a").open_store(Arc::new(Pattern::new(300 * PAGE))).unwrap();
    read(&file, 0, 100 * 512).unwrap();
    comes_to(&cache, &[row("rest", 20, 0), row("a", 20, 20)]);
    cache.resize_partition("a", u64::from(WINDOW) * PAGE + 511).unwrap();
    comes_to(&cache, &[row("rest", 24, 0), row("a", 16, 16)]);
    let (window, all) = (u64::from(WINDOW) * PAGE, 40 * PAGE);
    let refused = [
        (cache.resize_partition("b", 0), "no partition `b`; there are: rest a; the nearest is `a`"),
        (
            cache.resize_partition("a", window - 1),
            "a cache of 15 pages is smaller than one readahead",
        ),
        (cache.resize_partition("a", all), "a cache of 0 pages is smaller than one readahead"),
        (cache.resize_partition("a", all + PAGE), "a partition of 24 pages cannot give 25"),
        (cache.move_share("a", "rest", 17 * PAGE), "a partition of 16 pages cannot give 17"),
        (cache.move_share("a", "a", PAGE), "a partition of 16 pages cannot give 1"),
    ];
    for (result, text) in refused {
        let error = result.expect_err(text).to_string();
        assert!(error.starts_with(text), "{error}");
    }
    comes_to(&cache, &[row("rest", 24, 0), row("a", 16, 16)]);
    cache.resize_partition("a", 0).unwrap();
    read(&file, 200 * PAGE, 10 * 512).unwrap();
    comes_to(&cache, &[row("rest", 40, 10), row("a", 0, 0)]);
    cache.move_share("rest", "a", 39 * PAGE).unwrap();
    read(&file, 0, 100 * 512).unwrap();
    comes_to(&cache, &[row("rest", 1, 1), row("a", 39, 39)]);
    cache.resize(50 * PAGE).expect_err("more than there is");
    cache.resize(39 * PAGE).expect_err("nothing is left of the rest");
    cache.resize(40 * PAGE).unwrap();
    check_quiet(&cache, &parted(40, "off", Vec::new()));
}

#[test]
fn a_pool_is_kept_and_misses_evict_nothing() {
    let pool = (8 * PAGE, 16 * PAGE);
    let settings =
        Settings { pool_bytes_min: pool.0, pool_bytes_max: pool.1, ..settings(64, "off") };
    let cache = Cache::new(settings).unwrap();
    let file = cache.open_store(Arc::new(Pattern::new(300 * PAGE))).unwrap();
    for page in 0..300 {
        read(&file, page * PAGE, 512).unwrap();
        assert!(cache.frames().1 >= 7, "{:?} after {page}", cache.frames());
    }
    let stats = cache.partitions()[0].stats;
    assert_eq!((stats.misses, stats.evicted_by_misses), (300, 0));
    assert!(stats.evicted >= 300 - 64 + 8, "{stats:?}");
}

/// A file that one thread writes and reads, and what it should hold.
struct Own {
    file: Handle,
    model: Vec<u8>,
}

impl Own {
    fn new(cache: &Cache, bytes: usize) -> Self {
        let store = Arc::new(Memory::new(vec![0; bytes], 1 << 24));
        let file = cache.open_store_with(store, Access::ReadWrite).unwrap();
        Self { file, model: vec![0; bytes] }
    }

    /// Reads, writes or flushes, at random.
    fn step(&mut self, random: &mut Prng) {
        let end = self.model.len() as u64;
        let at = usize::try_from(random.below(end - 3_000)).unwrap();
        let bytes = 1 + usize::try_from(random.below(3_000)).unwrap();
        let own = &mut self.model[at..at + bytes];
        match random.below(12) {
            0 => self.file.flush().unwrap(),
            1..5 => {
                let value = u8::try_from(random.below(256)).unwrap();
                own.fill(value);
                self.file.write_at(own, at as u64).unwrap();
            }
            _ => {
                let mut buf = vec![0xee; bytes];
                assert_eq!(self.file.read_at(&mut buf, at as u64), Ok(bytes));
                assert!(buf == own, "{bytes} at {at}");
            }
        }
    }
}

const FRAMES: u32 = 256;
/// Those that change a share; others are refused, or find it as it was to be.
const RESIZES: u64 = 10_000;

/// Moves shares at random, to none at all and to all but a little, each once as many `steps` of
/// readers and writers were made.
fn move_shares(cache: &Cache, steps: &AtomicU64) {
    let (mut moved, mut nth) = (0, 0);
    let mut random = Prng::new(7);
    let names = ["rest", "a", "b", "c"];
    let shares = || -> Vec<u64> { cache.partitions().iter().map(|part| part.bytes).collect() };
    while moved < RESIZES {
        nth += 1;
        while steps.load(Ordering::Relaxed) < nth {
            thread::yield_now();
        }
        let name = |random: &mut Prng| names[usize::try_from(random.below(4)).unwrap()];
        let (from, to) = (name(&mut random), name(&mut random));
        let bytes = random.below(u64::from(FRAMES)) * PAGE;
        let before = shares();
        let done = match random.below(4) {
            0 => cache.resize_partition(to, 0),
            1 => cache.resize_partition(to, bytes / 2),
            _ => cache.move_share(from, to, bytes / 4),
        };
        moved += u64::from(done.is_ok() && shares() != before);
    }
}

#[test]
fn ten_thousand_resizes_under_eight_threads_lose_nothing_and_replay() {
    within(|| {
        let parts = ["a", "b", "c"].map(|name| Partition::new(name, 32 * PAGE, client(name)));
        let parts = parts.into_iter().zip(["lru", "2q", "s3-fifo"]);
        let parts = parts.map(|(part, policy)| part.policy(policy)).collect();
        let settings = Settings {
            pool_bytes_min: 2 * PAGE,
            pool_bytes_max: 6 * PAGE,
            sizing: Sizing::Auto,
            ..parted(FRAMES, &fixed(), parts)
        };
        let journal = Journal::new(1 << 30);
        let cache = Cache::recorded(settings.clone(), Box::new(journal.clone())).unwrap();
        let (ended, steps) = (AtomicBool::new(false), AtomicU64::new(0));
        on_threads(9, |thread| {
            if thread == 8 {
                move_shares(&cache, &steps);
                ended.store(true, Ordering::SeqCst);
                return;
            }
            let name = ["", "a", "b", "c"][usize::try_from(thread % 4).unwrap()];
            let mut own = Own::new(&cache.client(name), 60_000);
            let mut random = Prng::new(thread);
            while !ended.load(Ordering::SeqCst) {
                own.step(&mut random);
                steps.fetch_add(1, Ordering::Relaxed);
            }
            own.file.flush().unwrap();
        });
        let stats = cache.stats().core;
        assert!(stats.demanded > 0 && stats.written > 0, "the threads did both: {stats:?}");
        let parts = cache.partitions();
        assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), u64::from(FRAMES) * PAGE);
        assert_eq!(parts.iter().map(|part| part.stats.hits).sum::<u64>(), stats.hits);
        assert_eq!(cache.frames(), (FRAMES, FRAMES), "every frame came back");
        drop(cache);
        let record = journal.take();
        let (actions, _) = replay(&settings, &record);
        assert_eq!(record.dropped, 0);
        assert!(actions == record.actions, "the replay differs");
    });
}

#[test]
fn sizing_gives_frames_to_the_client_that_reads_again_and_replays() {
    let parts = vec![Partition::new("scan", 32 * PAGE, client("scan")).bytes_min(8 * PAGE)];
    let parted = parted(64, "off", parts);
    let settings = Settings { sizing: Sizing::Auto, rest_bytes_min: 9 * PAGE, ..parted };
    let journal = Journal::new(1 << 30);
    let cache = Cache::recorded(settings.clone(), Box::new(journal.clone())).unwrap();
    let again = cache.open_store(Arc::new(Pattern::new(4_000 * PAGE))).unwrap();
    let once = cache.client("scan").open_store(Arc::new(Pattern::new(4_000 * PAGE))).unwrap();
    let round = |scanned: u64| {
        for nth in 0..48 {
            read(&again, nth * PAGE, 512).unwrap();
            read(&once, (scanned + nth) * PAGE, 512).unwrap();
        }
    };
    (0..40).for_each(|nth| round(nth * 48));
    let parts = cache.partitions();
    assert!(parts[0].bytes >= 50 * PAGE, "{parts:?}");
    assert_eq!(parts[0].bytes + parts[1].bytes, 64 * PAGE);
    assert!(parts[1].bytes >= 8 * PAGE && parts[1].bytes_min >= 8 * PAGE, "{parts:?}");
    assert_eq!(parts[0].bytes_min, 9 * PAGE);
    let moves = cache.moves();
    let bytes: u64 = moves.iter().map(|one| one.bytes).sum();
    assert_eq!((bytes, bytes), (parts[0].got_bytes, parts[1].gave_bytes), "{moves:?}");
    let (last, known) = (moves.last().unwrap(), (MoveReason::Gain, "scan", "rest"));
    assert_eq!((last.reason, last.from.as_str(), last.to.as_str()), known);
    assert!(last.hits_after > last.hits_before && last.demanded <= cache.stats().core.demanded);
    drop((again, once, cache));
    let record = journal.take();
    let (actions, _) = replay(&settings, &record);
    assert!(record.dropped == 0 && actions == record.actions, "the replay differs");
}
