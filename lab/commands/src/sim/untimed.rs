//! Replacement alone: every policy and size in one pass over the trace.
//!
//! A size that is a share of the trace's blocks takes one more pass before, to count them.

use anyhow::{Context as _, Result, anyhow};
use forerun_console::failure::{note, usage};
use forerun_console::{machine, output};
use forerun_core::params::Param as _;
use forerun_sim::replay::{self, Cell, ReplayError, replay_sized};

use super::Plan;
use super::memory::too_large;
use super::rows::{KeptRun, Results, RunRow};
use super::source::{Source, Survey, TooMany};
use crate::kept::Kept;
use crate::specs::Size;

/// The counts of the whole `source`.
pub(super) fn surveyed(plan: &Plan, source: &Source) -> Result<Survey> {
    let bar = plan.reading.shown(output::transfer(0, "counting"));
    let survey = source.survey(&plan.reading, plan.memory, plan.sample, &bar)?;
    bar.finish_and_clear();
    // There are no samples in virtual time.
    let sample = plan.readaheads.is_empty().then_some(plan.sample);
    survey.map_err(|TooMany { bytes, keys }| too_large((bytes, keys), plan.memory, sample, &bar))
}

/// Runs every combination of the plan on `source`.
pub(super) fn run(
    plan: &Plan,
    source: &Source,
    kept: &mut Kept<KeptRun>,
    results: &mut Results,
) -> Result<()> {
    let pairs =
        plan.policies.iter().flat_map(|policy| plan.sizes.iter().map(move |s| (policy, *s)));
    let pairs: Vec<(&String, Size)> = pairs.collect();
    let key = |(policy, size): (&String, Size)| plan.key(source, (policy, size, plan.bytes));
    let runs = kept_or_run(kept, &pairs, key, |missing| {
        source.tell_guess(&plan.reading)?;
        rows(plan, source, missing)
    })?;
    for run in runs {
        results.add(run);
    }
    Ok(())
}

/// The runs of `cases`, in their order: those that are `kept` by their `key`, and those that are
/// missing by `rows`, which are kept from now on.
pub(super) fn kept_or_run<T: Copy>(
    kept: &mut Kept<KeptRun>,
    cases: &[T],
    key: impl Fn(T) -> String,
    rows: impl FnOnce(&[T]) -> Result<Vec<RunRow>>,
) -> Result<Vec<KeptRun>> {
    let mut found: Vec<Option<KeptRun>> = cases.iter().map(|&it| kept.take(&key(it))).collect();
    let missing: Vec<usize> = (0..cases.len()).filter(|&at| found[at].is_none()).collect();
    if !missing.is_empty() {
        let wanted: Vec<T> = missing.iter().map(|&at| cases[at]).collect();
        for (at, row) in missing.into_iter().zip(rows(&wanted)?) {
            let run = KeptRun { row, run: None };
            kept.add(&key(cases[at]), &run)?;
            found[at] = Some(run);
        }
    }
    Ok(found.into_iter().flatten().collect())
}

/// The rows of these policies and sizes.
pub(super) fn rows(
    plan: &Plan,
    source: &Source,
    wanted: &[(&String, Size)],
) -> Result<Vec<RunRow>> {
    let (memory, sample) = (plan.memory, plan.sample);
    let shares = wanted.iter().any(|(_, size)| matches!(size, Size::Share(_)));
    let unique = if shares { surveyed(plan, source)?.unique } else { 0 };
    let cell = |&(policy, size): &(&String, Size)| Cell {
        policy: policy.clone(),
        pages: size.pages(unique),
    };
    let cells: Vec<Cell> = wanted.iter().map(cell).collect();
    let bar = plan.reading.shown(output::transfer(0, "simulating"));
    let mut keys = source.keys(&plan.reading, plan.bytes, &bar)?;
    let settings =
        replay::ReplaySettings { threads: plan.threads, memory, sample, clock: &machine::now };
    let counts = replay_sized(|out| keys.more(out), &cells, &settings);
    bar.finish_and_clear();
    let counts = counts.map_err(|error| match error {
        ReplayError::Accesses(error) => error.into(),
        ReplayError::Policy(error) => anyhow!("{error}"),
        ReplayError::Memory { bytes, keys } => too_large((bytes, keys), memory, Some(sample), &bar),
        ReplayError::Sample { pages } => usage(format!(
            "--sample {} leaves nothing of a cache of {pages} pages: a larger rate, or a larger \
             --size",
            sample.show()
        )),
    })?;
    let name = source.name();
    let is_told = !plan.reading.is_controlled();
    if is_told && plan.bytes && counts.iter().any(|counts| counts.accesses > 0 && counts.bytes == 0)
    {
        note(&format!("{name}: its accesses have no sizes: misses are not counted by bytes"));
    }
    let rows = cells.iter().zip(counts).map(|(cell, counts)| {
        let hits = counts.accesses - counts.misses;
        RunRow::new(&name, &cell.policy, cell.pages, counts.busy)
            .map(|row| row.counted(counts.accesses, counts.misses, hits))
            .map(|row| row.estimated(counts.sampled, sample).sized(counts.bytes, counts.miss_bytes))
    });
    rows.collect::<Result<_>>().context("cannot tell the parameters")
}
