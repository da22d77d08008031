//! Shares that sizing finds, beside every fixed division and one LRU over all.
//!
//! ```text
//!   mail --+-- rest                  a scan has no hit anywhere; the third trace is a loop,
//!   scan --+-- partition `scan`      whole it is OLTP: `arc_OLTP.lis` among the sample traces
//!   OLTP --+-- partition `oltp`
//! ```
//!
//! # Invariants
//! - `auto` has at least the hits of one LRU over all, and no trace has more than a point less than
//!   there.
//! - Whole, it has at least the hits of each of the 21 divisions in eighths as well; cut, at most a
//!   point less than the best one, which a user finds in hindsight.

use std::fs::File;

use forerun_core::cache::{PartitionSettings, Rule, Settings, Sizing};
use forerun_sim::partitioned::{PartitionedCache, Turns};
use forerun_sim::trace::{Request, Trace};
use forerun_testkit::{skip, traces_dir};

use crate::{is_whole, mail};

const NAMES: [&str; 3] = ["mail", "scan", "oltp"];
/// A trace may have so much less than of one LRU, and a cut mix than the best division.
const POINT: f64 = 1.0;

/// Traces, and the caches that they are run through.
struct Mix {
    traces: [Vec<u64>; 3],
    sizes: &'static [u32],
    policies: &'static [&'static str],
}

impl Mix {
    fn cut() -> Self {
        let third = (0..60_000).map(|access| access % 800).collect();
        let traces = [mail("requests=30000"), scan(30_000), third];
        Self { traces, sizes: &[2_400], policies: &["lru"] }
    }

    /// That of the record; none without the sample traces.
    fn whole() -> Option<Self> {
        let path = traces_dir()?.join("arc_OLTP.lis.zst");
        let file = File::open(&path).expect("a sample trace");
        let mut trace = Trace::new("arc_OLTP.lis.zst", file, "auto", 0).expect("a known format");
        let (mut oltp, mut batch) = (Vec::new(), Vec::new());
        while trace.next_batch(&mut batch).expect("a whole trace") {
            oltp.extend(batch.iter().flat_map(Request::pages));
        }
        let traces = [mail("requests=300000"), scan(300_000), oltp];
        Some(Self { traces, sizes: &[6_000, 24_000, 60_000], policies: &["lru", "2q-star"] })
    }

    /// Hit ratios in percent through a cache of `settings`: of all, then of each trace.
    fn ratios(&self, settings: Settings) -> [f64; 4] {
        let names = NAMES.map(str::to_owned);
        let mut cache = PartitionedCache::new(settings, &names).expect("good settings");
        let accesses = [0, 1, 2].map(|at| self.traces[at].len() as u64);
        let mut done = [0; 3];
        for turn in Turns::new(&accesses) {
            cache.access(turn, self.traces[turn][done[turn]]);
            done[turn] += 1;
        }
        let each = [0, 1, 2].map(|at| (accesses[at], cache.counts()[at].misses));
        let all = (accesses.iter().sum(), each.iter().map(|row| row.1).sum());
        [all, each[0], each[1], each[2]].map(|(of, misses)| percent(of - misses, of))
    }

    /// Those of a cache that is divided in this proportion at first.
    fn divided(&self, pages: u32, policy: &str, shares: [u32; 3], sizing: Sizing) -> [f64; 4] {
        let mut settings = Settings { sizing, ..Settings::new(pages, policy, "off") };
        let of = shares.iter().sum::<u32>();
        for (name, share) in NAMES.into_iter().zip(shares).skip(1) {
            let part = PartitionSettings::new(name, pages * share / of, policy);
            settings.partitions[0].frames -= part.frames;
            settings.partitions.push(PartitionSettings { rule: Rule::Client(name.into()), ..part });
        }
        self.ratios(settings)
    }
}

fn scan(pages: u64) -> Vec<u64> {
    (0..pages).chain(0..pages).collect()
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of as f64
}

/// Every division of a cache in eighths that gives each of three something.
fn divisions() -> impl Iterator<Item = [u32; 3]> {
    (1..7).flat_map(|first| (1..8 - first).map(move |second| [first, second, 8 - first - second]))
}

/// Runs one size and policy; returns the points that `auto` has more than the best division.
fn run(mix: &Mix, pages: u32, policy: &str) -> f64 {
    let one_lru = mix.ratios(Settings::new(pages, "lru", "off"));
    let one = mix.ratios(Settings::new(pages, policy, "off"));
    let fixed = divisions().map(|shares| {
        (mix.divided(pages, policy, shares, Sizing::Manual), shares) //
    });
    let (best, shares) = fixed.max_by(|a, b| a.0[0].total_cmp(&b.0[0])).expect("21 divisions");
    let auto = mix.divided(pages, policy, [1, 1, 1], Sizing::Auto);
    let row = format!(
        "{pages} pages, {policy}: one LRU {one_lru:.2?}, one cache {:.2}, best {:.2} {shares:?}, \
         auto {auto:.2?}",
        one[0], best[0]
    );
    println!("{row}");
    assert!(auto[0] >= one_lru[0], "all have fewer hits than of one LRU: {row}");
    let none_loses = auto[1..].iter().zip(&one_lru[1..]).all(|(own, lru)| *own >= lru - POINT);
    assert!(none_loses, "a trace has more than a point less than of one LRU: {row}");
    auto[0] - best[0]
}

#[test]
fn sizing_has_the_hits_of_the_best_division_and_of_one_lru() {
    assert_eq!(divisions().count(), 21);
    let mix = if is_whole() { Mix::whole() } else { Some(Mix::cut()) };
    let Some(mix) = mix else {
        let name = "sizing::sizing_has_the_hits_of_the_best_division_and_of_one_lru";
        return skip(name, "no sample traces beside the repository");
    };
    let behind_max = if is_whole() { 0.0 } else { POINT };
    for &pages in mix.sizes {
        for policy in mix.policies {
            let ahead = run(&mix, pages, policy);
            assert!(ahead >= -behind_max, "{ahead} points beside the best division");
        }
    }
}
