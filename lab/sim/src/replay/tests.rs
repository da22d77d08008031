//! Replays against plain models: counts of misses, samples and their errors.
//!
//! Traces are short, and their counts are checked by hand.
//! Policies run together and alone.

use super::*;

fn cell(policy: &str, pages: u32) -> Cell {
    Cell { policy: policy.into(), pages }
}

const PLAIN: ReplaySettings<'_> = ReplaySettings {
    threads: 1,
    memory: 1 << 30,
    sample: Share::percent(100),
    clock: &|| Nanos(0),
};

/// `keys`, so many at a time.
fn given(keys: &[u64], count: usize) -> impl FnMut(&mut Vec<u64>) -> Result<bool, &'static str> {
    let mut left = keys.chunks(count);
    move |out| {
        let next = left.next();
        out.extend_from_slice(next.unwrap_or_default());
        Ok(next.is_some())
    }
}

fn run(keys: &[u64], cells: &[Cell], threads: usize) -> Vec<(u64, u64)> {
    let settings = ReplaySettings { threads, ..PLAIN };
    let counts = replay(given(keys, 5_000), cells, &settings).expect("known policies");
    counts.iter().map(|count| (count.accesses, count.misses)).collect()
}

#[test]
fn misses_are_those_of_the_policy() {
    #[rustfmt::skip]
    let rows: &[(&str, &str, u32, &[u64], u64)] = &[ // why  policy  pages  keys  misses
        ("all new",                   "lru",  2, &[1, 2, 3],            3),
        ("all fits",                  "lru",  2, &[9, 8, 9, 8],         2),
        ("a use saves a page",        "lru",  2, &[1, 2, 1, 3, 1],      3),
        ("a use saves nothing",       "fifo", 2, &[1, 2, 1, 3, 1],      4),
        ("a loop beyond the cache",   "lru",  2, &[1, 2, 3, 1, 2, 3],   6),
        ("one frame",                 "lru",  1, &[1, 1, 2, 1],         3),
        ("the largest keys",          "fifo", 2, &[u64::MAX, 0, u64::MAX], 2),
        ("nothing",                   "lru",  2, &[],                   0),
        ("the future is known",       "belady", 2, &[1, 2, 3, 1, 2, 3], 4),
    ];
    for (why, policy, pages, keys, misses) in rows {
        let counts = run(keys, &[cell(policy, *pages)], 1);
        assert_eq!(counts, [(keys.len() as u64, *misses)], "{why}");
    }
}

#[test]
fn many_caches_at_once_count_as_each_alone() {
    let keys: Vec<u64> = (0..200_000_u64).map(|i| i * i % 1_009 + i % 7 * 100_000).collect();
    let cells: Vec<Cell> = eviction::NAMES
        .iter()
        .chain(&[belady::NAME])
        .flat_map(|policy| [1, 10, 300].map(|pages| cell(policy, pages)))
        .collect();
    let together = run(&keys, &cells, 3);
    for (cell, counts) in cells.iter().zip(&together) {
        assert_eq!(run(&keys, std::slice::from_ref(cell), 1), [*counts], "{cell:?}");
        assert!(counts.0 == 200_000 && counts.1 >= 1_009, "{cell:?} {counts:?}");
    }
}

#[test]
fn lru_of_many_sizes_counts_as_each_alone() {
    let keys: Vec<u64> = (0..150_000_u64).map(|i| i * i % 2_003 + i % 3 * 5_000).collect();
    let sizes = [1_000, 3, 50, 3, 1, 400, 9_000];
    let cells = sizes.map(|pages| cell("lru", pages));
    let together = run(&keys, &cells, 2);
    for (cell, counts) in cells.iter().zip(&together) {
        assert_eq!(run(&keys, std::slice::from_ref(cell), 1), [*counts], "{cell:?}");
    }
}

#[test]
fn errors_come_back() {
    let mut calls = 0;
    let torn = |keys: &mut Vec<u64>| {
        calls += 1;
        keys.push(1);
        if calls < 3 { Ok(true) } else { Err("torn") }
    };
    let torn = replay(torn, &[cell("lru", 1)], &PLAIN);
    assert_eq!(torn, Err(ReplayError::Accesses("torn")));
    let unknown = replay(given(&[1], 1), &[cell("x", 1)], &PLAIN);
    assert!(matches!(unknown, Err(ReplayError::Policy(_))));
}

#[test]
fn memory_is_bounded() {
    let keys: Vec<u64> = (0..1_000_000).collect();
    #[rustfmt::skip]
    let rows: [(&str, &str, u32, u64, bool); 6] = [ // why  policy  pages  memory  fits
        ("keys and a small cache",     "lru",    10,      32 << 20, true),
        ("keys alone are too many",    "lru",    10,      8 << 20,  false),
        ("the cache alone",            "lru",    1 << 24, 64 << 20, false),
        ("names take memory",          "lirs",   30_000,  50 << 20, false),
        ("more of it",                 "lirs",   30_000,  100 << 20, true),
        ("all accesses are kept",      "belady", 10,      20 << 20, false),
    ];
    for (why, policy, pages, memory, fits) in rows {
        let settings = ReplaySettings { memory, ..PLAIN };
        let found = replay(given(&keys, 4_096), &[cell(policy, pages)], &settings);
        match found {
            Ok(counts) => assert!(fits && counts[0].misses == 1_000_000, "{why}"),
            Err(ReplayError::Memory { bytes, .. }) => assert!(!fits && bytes > memory, "{why}"),
            Err(error) => panic!("{why}: {error:?}"),
        }
    }
}

#[test]
fn a_sample_estimates_within_its_error() {
    let mut prng = forerun_core::prng::Prng::new(7);
    let draw = |prng: &mut forerun_core::prng::Prng| {
        let most = 1 + prng.below(200_000);
        prng.below(most)
    };
    let keys: Vec<u64> = (0..600_000).map(|_| draw(&mut prng)).collect();
    let cells: Vec<Cell> = ["lru", "2q", "arc", "lirs", "s3-fifo"]
        .iter()
        .flat_map(|policy| [2_000, 20_000, 60_000].map(|pages| cell(policy, pages)))
        .collect();
    let whole = replay(given(&keys, 4_096), &cells, &PLAIN).expect("known policies");
    let sample = Share::percent(10);
    let settings = ReplaySettings { sample, ..PLAIN };
    let part = replay(given(&keys, 4_096), &cells, &settings).expect("known policies");
    for ((cell, whole), part) in cells.iter().zip(&whole).zip(&part) {
        let sampled = part.sampled.expect("it is a sample");
        assert!(whole.sampled.is_none() && part.accesses == whole.accesses);
        assert!((30_000..90_000).contains(&sampled.accesses), "{cell:?} {sampled:?}");
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let off = part.misses.abs_diff(whole.misses) as f64;
        let error = sampled.error(sample).expect("no oracle");
        assert!(off <= 4.0 * error && error < 6_000.0, "{cell:?}: {off} of {error}");
    }
    let none = replay(given(&keys, 9), &[cell("lru", 4)], &settings);
    assert_eq!(none, Err(ReplayError::Sample { pages: 4 }));
}

/// Accesses with sizes, so many at a time.
fn sized(
    all: &[(u64, u64)],
    count: usize,
) -> impl FnMut(&mut Accesses) -> Result<bool, &'static str> {
    let mut left = all.chunks(count);
    move |out| {
        let next = left.next();
        for &(key, bytes) in next.unwrap_or_default() {
            out.keys.push(key);
            out.bytes.push(bytes);
        }
        Ok(next.is_some())
    }
}

#[test]
fn misses_weigh_what_was_requested() {
    // In 2 frames the third access and the last hit.
    let accesses = [(1, 10), (2, 200), (1, 3_000), (3, 40_000), (1, 500_000)];
    for policy in ["lru", "lfu", "belady"] {
        let cells: Vec<Cell> = [2, 3, 4, 5].map(|pages| cell(policy, pages)).to_vec();
        for cells in [&cells[..1], &cells[..]] {
            let counts = replay_sized(sized(&accesses, 2), cells, &PLAIN).expect("known");
            let Counts { misses, bytes, miss_bytes, .. } = counts[0];
            assert_eq!((misses, bytes, miss_bytes), (3, 543_210, 40_210), "{policy}");
        }
    }
    let plain = replay(given(&[1, 2, 1], 2), &[cell("lru", 2)], &PLAIN).expect("known");
    assert_eq!((plain[0].bytes, plain[0].miss_bytes), (0, 0));
}

#[test]
fn bytes_of_a_sample_stand_for_all() {
    let mut prng = forerun_core::prng::Prng::new(11);
    let mut draw = || {
        let most = 1 + prng.below(100_000);
        (prng.below(most), 1 + prng.below(8_192))
    };
    let accesses: Vec<(u64, u64)> = (0..300_000).map(|_| draw()).collect();
    let cells = ["lru", "arc", "belady"].map(|policy| cell(policy, 20_000));
    let whole = replay_sized(sized(&accesses, 4_096), &cells, &PLAIN).expect("known");
    let settings = ReplaySettings { sample: Share::percent(10), ..PLAIN };
    let part = replay_sized(sized(&accesses, 4_096), &cells, &settings).expect("known");
    for (whole, part) in whole.iter().zip(&part) {
        assert_eq!(whole.bytes, part.bytes, "all bytes are counted");
        let off = whole.miss_bytes.abs_diff(part.miss_bytes);
        assert!(off < whole.bytes / 20, "{whole:?} {part:?}");
        assert!(whole.miss_bytes > whole.bytes / 20 && whole.miss_bytes < whole.bytes);
    }
}

#[test]
fn time_is_the_clocks() {
    let ticks = std::sync::atomic::AtomicU64::new(0);
    let clock = || Nanos(ticks.fetch_add(5, std::sync::atomic::Ordering::Relaxed));
    let settings = ReplaySettings { clock: &clock, ..PLAIN };
    let counts = replay(given(&[7; 3], 9), &[cell("lru", 1)], &settings).expect("known");
    assert_eq!(
        counts,
        [Counts { accesses: 3, misses: 1, busy: Nanos(10), ..Counts::default() }],
        "one turn for the chunk, one for the end"
    );
}
