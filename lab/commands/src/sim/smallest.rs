//! The smallest cache of each policy that has so many hits, by a few passes over the trace.
//!
//! ```text
//!   first pass     sizes that double, up to all distinct pages      ..x x o x|o o o
//!   those after    STEPS sizes between the last that has fewer (|)           |xxoooo|
//!                  and the next one, until these are 1 % apart
//! ```
//! Curves of other policies than LRU go up and down (a size `o` that has enough, below one that has
//! not), so what is found holds for all larger sizes that were tried.

use anyhow::{Result, anyhow};
use forerun_console::failure::note;
use forerun_core::params::Share;

use super::Plan;
use super::rows::{KeptRun, Results, RunRow};
use super::source::Source;
use super::untimed;
use crate::kept::Kept;
use crate::specs::Size;

/// What is known of one policy.
struct Search<'a> {
    policy: &'a String,
    /// The largest size that has fewer hits; one below the smallest that is tried where none has.
    below: u32,
    /// The next one that was tried, unless all have fewer.
    found: Option<RunRow>,
    /// The largest of the first pass.
    largest: Option<RunRow>,
}

/// Finds the smallest cache of each policy of the plan for `source` that has so many `hits`.
pub(super) fn run(
    plan: &Plan,
    source: &Source,
    hits: Share,
    kept: &mut Kept<KeptRun>,
    results: &mut Results,
) -> Result<()> {
    let policies: Vec<&String> = plan.policies.iter().collect();
    let key = |policy: &String| plan.key(source, (policy, "smallest", hits));
    let runs = untimed::kept_or_run(kept, &policies, key, |missing| {
        source.tell_guess(&plan.reading)?;
        searched(plan, source, hits, missing)
    })?;
    for (policy, run) in policies.into_iter().zip(runs) {
        if !has(&run.row, hits) && !plan.reading.is_controlled() {
            let (name, ratio) = (source.name(), run.row.hit_ratio * 100.0);
            note(&format!("{name}: {policy} has {ratio:.2} % hits with all pages in the cache"));
        }
        results.add(run);
    }
    Ok(())
}

/// The row of each policy.
fn searched(
    plan: &Plan,
    source: &Source,
    hits: Share,
    policies: &[&String],
) -> Result<Vec<RunRow>> {
    let unique = Size::ALL.pages(untimed::surveyed(plan, source)?.unique);
    // A sample of less than a page is none.
    let least = 1_000_000_u32.div_ceil(plan.sample.ppm).min(unique);
    let mut searches: Vec<Search<'_>> = policies
        .iter()
        .map(|policy| Search { policy, below: least - 1, found: None, largest: None })
        .collect();
    let mut sizes: Vec<Vec<u32>> = vec![doubling(least, unique); searches.len()];
    while sizes.iter().any(|sizes| !sizes.is_empty()) {
        let wanted: Vec<(&String, Size)> = searches
            .iter()
            .zip(&sizes)
            .flat_map(|(search, sizes)| {
                sizes.iter().map(|&pages| (search.policy, Size::Pages(pages)))
            })
            .collect();
        let mut rows = untimed::rows(plan, source, &wanted)?.into_iter();
        for (search, sizes) in searches.iter_mut().zip(&mut sizes) {
            search.narrow(rows.by_ref().take(sizes.len()).collect(), hits);
            *sizes = search.next();
        }
    }
    let rows = searches.into_iter().map(|search| search.found.or(search.largest));
    rows.collect::<Option<_>>().ok_or_else(|| anyhow!("a policy has no row"))
}

impl Search<'_> {
    /// Takes in `rows`, whose sizes grow.
    fn narrow(&mut self, rows: Vec<RunRow>, hits: Share) {
        assert!(rows.is_sorted_by(|a, b| a.cache_pages < b.cache_pages), "sizes grow");
        if self.largest.is_none() {
            self.largest = rows.last().cloned();
        }
        let from = rows.iter().rposition(|row| !has(row, hits)).map_or(0, |last| last + 1);
        if let Some(last) = from.checked_sub(1) {
            self.below = rows[last].cache_pages;
        }
        self.found = rows.into_iter().nth(from).or(self.found.take());
    }

    /// The sizes of the next pass; none where all is found.
    fn next(&self) -> Vec<u32> {
        let Some(found) = &self.found else { return Vec::new() };
        let (below, above) = (self.below, found.cache_pages);
        assert!(below < above, "the one found is larger than the last that has fewer hits");
        if above - below <= (above / APART_ONE_IN).max(1) {
            Vec::new()
        } else {
            between(below, above)
        }
    }
}

/// Whether `row` has so many hits.
fn has(row: &RunRow, hits: Share) -> bool {
    let had = u128::from(row.accesses - row.misses) * 1_000_000;
    had >= u128::from(row.accesses) * u128::from(hits.ppm)
}

/// `most`, its half and so on, down to `least`; from the smallest.
fn doubling(least: u32, most: u32) -> Vec<u32> {
    let halves = std::iter::successors(Some(most), |&pages| Some(pages / 2));
    let mut sizes: Vec<u32> = halves.take_while(|&pages| pages > least).collect();
    sizes.push(least);
    sizes.reverse();
    sizes
}

/// Up to [`STEPS`] sizes between two.
fn between(below: u32, above: u32) -> Vec<u32> {
    let wide = u64::from(above - below);
    let at = |step: u64| below + u32::try_from(wide * step / (STEPS + 1)).expect("below `above`");
    let mut sizes: Vec<u32> = (1..=STEPS).map(at).filter(|&pages| pages > below).collect();
    sizes.dedup();
    sizes
}

/// Sizes of a pass, for each policy.
const STEPS: u64 = 15;
/// What is found is so exact: one part of it in so many.
const APART_ONE_IN: u32 = 100;

#[cfg(test)]
mod tests {
    use forerun_core::units::Nanos;

    use super::*;

    /// The rows of `sizes` of a cache whose hits of a million accesses are `hits`.
    fn rows(sizes: &[u32], hits: impl Fn(u32) -> u64) -> Vec<RunRow> {
        let row = |&pages: &u32| {
            let row = RunRow::new("t", "lru", pages, Nanos(1)).expect("lru is known");
            row.counted(1_000_000, 1_000_000 - hits(pages), hits(pages))
        };
        sizes.iter().map(row).collect()
    }

    /// What a search of at most `most` pages finds, and how many passes it takes.
    fn search(most: u32, wanted: Share, hits: impl Fn(u32) -> u64) -> (Option<u32>, usize) {
        let policy = "lru".to_owned();
        let mut search = Search { policy: &policy, below: 0, found: None, largest: None };
        let (mut sizes, mut passes) = (doubling(1, most), 0);
        while !sizes.is_empty() {
            search.narrow(rows(&sizes, &hits), wanted);
            (sizes, passes) = (search.next(), passes + 1);
        }
        assert_eq!(search.largest.map(|row| row.cache_pages), Some(most));
        (search.found.map(|row| row.cache_pages), passes)
    }

    #[test]
    fn what_is_found_has_the_hits_and_is_as_small_as_it_can_be() {
        let wanted = Share::percent(50);
        for most in [1, 2, 3, 100, 1_000, 1 << 20, 1 << 26] {
            for from in [1, 2, 3, 77, 999, 1_000, 30_011, 1 << 20, 40_000_000] {
                let (found, passes) =
                    search(most, wanted, |pages| if pages >= from { 500_000 } else { 499_999 });
                assert_eq!(found.is_some(), from <= most, "{from} of {most}");
                assert!(passes <= 3, "{passes} passes");
                if let Some(found) = found {
                    let slack = found / APART_ONE_IN;
                    assert!((from..=from + slack).contains(&found), "{found}: {from} of {most}");
                }
            }
        }
    }

    #[test]
    fn a_size_with_fewer_hits_above_it_is_not_found() {
        // Enough at 100 to 300 pages as well.
        let hits = |pages: u32| if (100..300).contains(&pages) || pages >= 600 { 900 } else { 0 };
        let (found, _) = search(10_000, Share { ppm: 900 }, hits);
        assert!(found.is_some_and(|found| (600..=606).contains(&found)), "{found:?}");
    }
}
