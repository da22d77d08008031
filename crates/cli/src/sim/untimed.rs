//! Replacement alone: every policy and size in one pass over the trace.
//!
//! A size that is a share of the trace's blocks takes one more pass before, to count them.

use anyhow::{Context as _, Result, anyhow};
use forerun_sim::replay::{Cell, ReplayError, replay};

use super::Plan;
use super::figures::Figures;
use super::source::Source;
use crate::machine;
use crate::specs::Size;

/// Runs every combination of the plan on `source`.
pub(super) fn run(plan: &Plan, source: &Source) -> Result<Vec<Figures>> {
    source.tell_guess(&plan.reading)?;
    let shares = plan.sizes.iter().any(|size| matches!(size, Size::Share(_)));
    let unique = if shares { source.survey(&plan.reading)?.unique } else { 0 };
    let cells: Vec<Cell> = plan
        .policies
        .iter()
        .flat_map(|policy| {
            let cell = |size: &Size| Cell { policy: policy.clone(), pages: size.pages(unique) };
            plan.sizes.iter().map(cell)
        })
        .collect();
    let keys = source.keys(&plan.reading)?;
    let counts =
        replay(keys, &cells, plan.threads, &machine::now).map_err(|error| match error {
            ReplayError::Accesses(error) => error.into(),
            ReplayError::Policy(error) => anyhow!("{error}"),
            ReplayError::Future { accesses_max } => anyhow!(
                "--policy belady keeps every access, and there are more than {accesses_max}: leave \
                 it out, or give --limit"
            ),
        })?;
    let name = source.name();
    let figures = cells.iter().zip(counts).map(|(cell, counts)| {
        let hits = counts.accesses - counts.misses;
        Figures::new(&name, &cell.policy, cell.pages, counts.busy)
            .map(|figures| figures.counted(counts.accesses, counts.misses, hits))
    });
    figures.collect::<Result<_>>().context("cannot tell the parameters")
}
