//! `sim --partition`: all traces together through one partitioned cache.
//!
//! ```text
//!   sizes      pages, bytes, shares of the distinct pages of all traces
//!   rest       what the partitions leave of --size, with --policy
//! ```
//! # Invariants
//! - A trace is a file and a client of its name: its path, or the workload's text.

use anyhow::Result;
use forerun_console::failure::usage;
use forerun_console::{machine, names, output};
use forerun_core::cache::{PartitionSettings, PartitionText, Rule, Settings};
use forerun_core::eviction;
use forerun_sim::partitioned::{PartitionedCache, Turns};
use forerun_sim::replay::Accesses;

use super::Plan;
use super::rows::{KeptRun, Results, RunRow};
use super::source::{Keys, Survey};
use super::untimed;
use crate::kept::Kept;
use crate::specs::{self, Size};

/// A partition as it was given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    settings: PartitionSettings,
    size: Size,
    size_min: Option<Size>,
}

/// The partitions that `texts` describe.
pub(super) fn parse(texts: &[String]) -> Result<Vec<Given>> {
    texts.iter().map(|text| one(text)).collect()
}

fn one(text: &str) -> Result<Given> {
    let refused = |why: String| usage(format!("--partition {text}: {why}"));
    let parts = PartitionText::split(text)
        .ok_or_else(|| refused(format!("expected {}", PartitionText::FORM)))?;
    let PartitionText { name, size, size_min, policy, readahead, rule } = parts;
    let size = specs::size(size).map_err(refused)?;
    let size_min = size_min.map(specs::size).transpose().map_err(refused)?;
    eviction::show(policy)
        .map_err(|error| names::refused("--partition", &error, names::POLICIES))?;
    if readahead.is_some() {
        return Err(refused("replacement is run alone here: leave out the readahead".into()));
    }
    let rule = Rule::parse(rule).ok_or_else(|| refused(format!("expected {}", Rule::FORM)))?;
    Ok(Given {
        settings: PartitionSettings { rule, ..PartitionSettings::new(name, 0, policy) },
        size,
        size_min,
    })
}

/// Runs every policy and size of the rest on all sources together.
pub(super) fn run(plan: &Plan, kept: &mut Kept<KeptRun>, results: &mut Results) -> Result<()> {
    let names: Vec<String> = plan.sources.iter().map(super::Source::name).collect();
    let mut surveys = None;
    for policy in &plan.policies {
        for &size in &plan.sizes {
            let sources: Vec<String> = plan.sources.iter().map(super::Source::identity).collect();
            let case = (&sources, &plan.partitions, (plan.sizing, plan.rest_min), policy, size);
            let key = plan.key(&plan.sources[0], case);
            if let Some(found) = kept.take(&key) {
                results.add(found);
                continue;
            }
            let surveys: &Vec<Survey> = match &surveys {
                Some(known) => known,
                None => surveys.insert(survey(plan)?),
            };
            let row = row(plan, (policy, size), &names, surveys)?;
            let run = KeptRun { row, run: None };
            kept.add(&key, &run)?;
            results.add(run);
        }
    }
    Ok(())
}

fn survey(plan: &Plan) -> Result<Vec<Survey>> {
    let each = plan.sources.iter().map(|source| {
        source.tell_guess(&plan.reading)?;
        untimed::surveyed(plan, source)
    });
    each.collect()
}

fn row(
    plan: &Plan,
    (policy, size): (&String, Size),
    names: &[String],
    surveys: &[Survey],
) -> Result<RunRow> {
    let unique = surveys.iter().map(|survey| survey.unique).sum();
    let settings = settings(plan, policy, size.pages(unique), unique);
    let pages = settings.frames;
    let mut cache = PartitionedCache::new(settings, names)
        .map_err(|error| usage(format!("--partition: {error}")))?;
    let accesses: Vec<u64> = surveys.iter().map(|survey| survey.accesses).collect();
    let bar = plan.reading.shown(output::progress(accesses.iter().sum(), "simulating"));
    let mut traces = plan
        .sources
        .iter()
        .map(|source| {
            let keys = source.keys(&plan.reading, false, &bar)?;
            Ok(Ahead { keys, read: Accesses::default() })
        })
        .collect::<Result<Vec<Ahead>>>()?;
    let begun = machine::now();
    for turn in Turns::new(&accesses) {
        let Some(key) = traces[turn].next()? else { continue };
        cache.access(turn, key);
    }
    let took = machine::now().since(begun);
    bar.finish_and_clear();
    let stats = *cache.stats();
    let name = names.join(" + ");
    Ok(RunRow::new(&name, policy, pages, took)?
        .counted(stats.demanded, stats.misses, stats.hits)
        .partitioned(names, &cache))
}

/// The cache of `pages`; the rest has `policy` and what the partitions leave.
fn settings(plan: &Plan, policy: &str, pages: u32, unique: u64) -> Settings {
    let mut settings = Settings::new(pages, policy, "off");
    settings.sizing = plan.sizing;
    settings.partitions.extend(plan.partitions.iter().map(|given| {
        let frames = given.size.pages(unique);
        let frames_min = given.size_min.map_or(0, |size| size.pages(unique));
        PartitionSettings { frames, frames_min, ..given.settings.clone() }
    }));
    let taken: u64 = settings.partitions[1..].iter().map(|part| u64::from(part.frames)).sum();
    let rest = u64::from(pages).saturating_sub(taken);
    settings.partitions[0].frames = u32::try_from(rest).expect("at most all pages");
    settings.partitions[0].frames_min = plan.rest_min.map_or(0, |size| size.pages(unique));
    settings
}

/// A trace that is read some keys at a time.
struct Ahead {
    keys: Keys,
    /// The next keys, the last one first.
    read: Accesses,
}

impl Ahead {
    fn next(&mut self) -> Result<Option<u64>> {
        while self.read.keys.is_empty() {
            if !self.keys.more(&mut self.read)? {
                return Ok(None);
            }
            self.read.keys.reverse();
        }
        Ok(self.read.keys.pop())
    }
}
