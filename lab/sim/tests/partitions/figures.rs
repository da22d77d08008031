//! The figures of the paper on 2Q* through one partitioned cache: the counts are the lab's.
//!
//! ```text
//!   mail trace --+-- client lru     --> partition of the size, lru
//!                +-- client 2q      --> partition of the size, 2q       six at once, in turns
//!                +-- client 2q-star --> ...
//! ```
//! The mail workloads are cut to a few thousand requests, and the sizes of the figures (32 MB to
//! 2 GB for 2.58 million requests) by the same factor. Whole they are run at all sizes of the
//! figures.
//!
//! # Invariants
//! - Misses of each partition are those of a replay, exactly: Figs 2a and 4.
//! - Of 2Q and 2Q* hits are those of A1in and Am together, and misses those of the pages named in
//!   A1out and all others: Figs 2b and 5. Which queue a hit was in is the policy's own.
//! # Sources
//! Meng et al. 2009, sections 2 and 3.

use std::convert::Infallible;

use forerun_core::cache::{PartitionSettings, Rule, Settings};
use forerun_core::eviction::two_q::{TwoQ, TwoQParams};
use forerun_core::eviction::two_q_star::{TwoQStar, TwoQStarParams};
use forerun_core::params::Share;
use forerun_core::units::Nanos;
use forerun_sim::partitioned::{PartitionedCache, Turns};
use forerun_sim::queues;
use forerun_sim::replay::{self, Cell, replay};

use crate::is_whole;

const POLICIES: [&str; 6] = ["lru", "lfu", "arc", "lirs", "2q", "2q-star"];

/// The policy of this name as the figures have it: of 2Q, A1in is a tenth of the cache, and A1out
/// has as many names as the cache has pages.
fn spec(policy: &str) -> &str {
    if policy == "2q" { "2q:kin=0.1,kout=1" } else { policy }
}

/// The same for the counts of its queues.
fn two_q() -> TwoQParams {
    TwoQParams { kin: Share::percent(10), kout: Share::percent(100) }
}

/// 32 MB, 256 MB, 1 GB and 2 GB, cut as the requests are.
const SIZES: [u32; 4] = [32, 254, 1_016, 2_032];
/// The sizes of the figures, in MB.
const SIZES_OF_FIGURES: [u32; 11] = [32, 64, 128, 256, 512, 768, 1_024, 1_280, 1_536, 1_792, 2_048];

/// The sizes of the caches, in pages.
fn sizes() -> Vec<u32> {
    let pages = |megabytes: u32| megabytes << 8;
    if is_whole() { SIZES_OF_FIGURES.map(pages).to_vec() } else { SIZES.to_vec() }
}

/// The pages of a mail workload, in their order.
fn mail(model: &str) -> Vec<u64> {
    crate::mail(&format!("model={model}{}", if is_whole() { "" } else { ",requests=10000" }))
}

/// Misses of each partition of `pages`, of all policies at once.
fn partitioned(keys: &[u64], pages: u32) -> Vec<u64> {
    let count = u32::try_from(POLICIES.len()).expect("few");
    let mut settings = Settings::new(count * pages + 1, "fifo", "off");
    settings.partitions[0].frames = 1;
    settings.partitions.extend(POLICIES.map(|policy| {
        let rule = Rule::Client(policy.into());
        PartitionSettings { rule, ..PartitionSettings::new(policy, pages, spec(policy)) }
    }));
    let names = POLICIES.map(str::to_owned);
    let mut cache = PartitionedCache::new(settings, &names).expect("good settings");
    let mut at = [0; POLICIES.len()];
    for turn in Turns::new(&[keys.len() as u64; POLICIES.len()]) {
        cache.access(turn, keys[at[turn]]);
        at[turn] += 1;
    }
    cache.partitions().skip(1).map(|part| part.stats.misses).collect()
}

/// Misses of each policy with `pages`, replayed alone.
fn replayed(keys: &[u64], pages: u32) -> Vec<u64> {
    let cells = POLICIES.map(|policy| Cell { policy: spec(policy).to_owned(), pages });
    let sample = Share::percent(100);
    let settings =
        replay::ReplaySettings { threads: 1, memory: 1 << 30, sample, clock: &|| Nanos(0) };
    let mut given = Some(keys.to_vec());
    let more = |out: &mut Vec<u64>| -> Result<bool, Infallible> {
        Ok(given.take().map(|keys| *out = keys).is_some())
    };
    let counts = replay(more, &cells, &settings).expect("known policies");
    counts.iter().map(|count| count.misses).collect()
}

/// `keys` numbered by their first use.
fn numbered(keys: &[u64]) -> Vec<u32> {
    let mut known = std::collections::BTreeMap::new();
    let mut number = |key: u64| {
        let next = u32::try_from(known.len()).expect("few");
        *known.entry(key).or_insert(next)
    };
    keys.iter().map(|&key| number(key)).collect()
}

/// Runs every policy and size on `model`, through one cache and alone.
fn compare(model: &str) {
    let keys = mail(model);
    let numbers = numbered(&keys);
    let mut ratios = Vec::new();
    for pages in sizes() {
        let misses = partitioned(&keys, pages);
        assert_eq!(misses, replayed(&keys, pages), "{model}, {pages} pages: {POLICIES:?}");
        let queues = [
            queues::count::<TwoQ>(pages, two_q(), &numbers),
            queues::count::<TwoQStar>(pages, TwoQStarParams::default(), &numbers),
        ];
        for (counts, misses) in queues.iter().zip(&misses[4..]) {
            assert_eq!(counts.a1out + counts.unknown, *misses, "{model}, {pages}");
            assert_eq!(counts.a1in + counts.am, keys.len() as u64 - misses);
        }
        println!("{model}, {pages} pages: of {} {POLICIES:?} miss {misses:?}", keys.len());
        ratios.push(misses);
    }
    let falls = |at: usize| ratios.windows(2).all(|two| two[0][at] > two[1][at]);
    assert!((0..POLICIES.len()).all(falls), "{model}: a larger cache hits more: {ratios:?}");
}

#[test]
fn figures_of_m1_are_the_labs_through_partitions() {
    compare("m1");
}

#[test]
fn figures_of_m2_are_the_labs_through_partitions() {
    compare("m2");
}

#[test]
fn figures_of_m3_are_the_labs_through_partitions() {
    compare("m3");
}
