//! `forerun sim check`: seeds, on all processors.
//!
//! # Invariants
//! - The output does not depend on the number of threads: differences are in order of seeds.

use std::panic;

use anyhow::{Result, bail};
use forerun_console::failure::{note, usage};
use forerun_console::form::Output;
use forerun_console::{machine, output};
use forerun_sim::check::{self, CheckOutcome, Difference};
use parking_lot::Mutex;
use serde_json::json;

use crate::parallel;

/// What `sim check` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  forerun sim check --seeds 1000\n  forerun sim check --seed 17"
)]
pub(super) struct Args {
    /// How many seeds [default: 200; 1 with --seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed [default: 0]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The commit that found the seed: a note says if this is another one
    #[arg(long, value_name = "C")]
    commit: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Checks the seeds: a difference and the command that repeats it for each that fails.
pub(super) fn run(args: &Args) -> Result<()> {
    args.output.check()?;
    if let Some(other) = args.commit.as_ref().filter(|commit| *commit != machine::commit()) {
        note(&format!("this is {}, the seed was found by {other}", machine::commit()));
    }
    let first = args.seed.unwrap_or(0);
    let count = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { SEEDS });
    let Some(end) = first.checked_add(count).filter(|&end| end <= SEED_END_MAX) else {
        return Err(usage(format!("--seed and --seeds go past {SEED_END_MAX}")));
    };
    let found = all(first, end);
    let failed = found.differences.len() as u64;
    let unreached = if count >= SEEDS { found.reached.unreached() } else { Vec::new() };
    let texts: Vec<String> = found.differences.iter().map(ToString::to_string).collect();
    let json = json!({ "passed": count - failed, "failed": failed, "differences": texts,
        "unreached": unreached });
    args.output.print(&json, &[""], || {
        let repeat = |it: &Difference| {
            let (seed, commit) = (it.seed, machine::commit());
            format!("{it}\nforerun sim check --seed {seed} --commit {commit}\n")
        };
        let lines: String = found.differences.iter().map(repeat).collect();
        format!("{lines}{} passed, {failed} failed\n", count - failed)
    })?;
    if failed > 0 {
        bail!("{failed} of {count} seeds failed: the commands that repeat them are above");
    }
    if !unreached.is_empty() {
        bail!(
            "{count} seeds never reached: {}; a check of nothing proves nothing",
            unreached.join(", ")
        );
    }
    Ok(())
}

/// The results of all seeds.
#[derive(Default)]
struct Found {
    differences: Vec<Difference>,
    reached: CheckOutcome,
}

fn all(first: u64, end: u64) -> Found {
    let progress = output::progress(end - first, "seeds");
    // A broken assertion is a difference, printed with its seed; the hook would print it again.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let found = Mutex::new(Found::default());
    parallel::for_each(first..end, |seed| {
        let result = check::check(seed);
        let mut found = found.lock();
        match result {
            Ok(outcome) => found.reached.add(&outcome),
            Err(difference) => found.differences.push(difference),
        }
        progress.inc(1);
    });
    panic::set_hook(hook);
    progress.finish_and_clear();
    let mut found = found.into_inner();
    found.differences.sort_by_key(|difference| difference.seed);
    found
}

/// Below 2^64, so that each thread may count on by one.
const SEED_END_MAX: u64 = 1 << 63;
/// Enough seeds to reach every event.
const SEEDS: u64 = 200;
