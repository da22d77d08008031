//! Lists of policies, formats, workloads and devices, each with its parameters or a line.
//!
//! The name lookups use the same lists, so no name is missing here. The name is the first word of
//! a line.

use anyhow::{Result, anyhow};
use forerun_console::output;
use forerun_core::{device, eviction, planner::pace, readahead};
use forerun_sim::oracle::belady;
use forerun_sim::prefetch::Prefetch;
use forerun_sim::{trace, workload};

use super::Args;
use crate::specs::PAGE_BYTES;

/// Prints the list of the flag.
pub(super) fn print(args: &Args) -> Result<()> {
    let rows = if args.list_policies {
        policies()?
    } else if args.list_formats {
        rows(trace::FORMATS.iter().copied())
    } else if args.list_workloads {
        rows(workload::NAMES.iter().copied())
    } else {
        rows(device::NAMES.iter().copied().zip(device::SUMMARIES.iter().copied()))
    };
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, what): &(String, String)| format!("{name:width$}  {what}\n");
    output::print(&rows.iter().map(line).collect::<String>())
}

fn rows<'a>(names: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    names.map(|(name, what)| (name.to_owned(), what.to_owned())).collect()
}

fn policies() -> Result<Vec<(String, String)>> {
    let mut rows = Vec::new();
    for name in eviction::NAMES {
        let params = eviction::show(name).map_err(|error| anyhow!("{error}"))?;
        rows.push(((*name).to_owned(), format!("replacement {}", shown(&params))));
    }
    let bound = "replacement that knows the future; without --readahead and --device";
    rows.push((belady::NAME.to_owned(), bound.to_owned()));
    for name in readahead::NAMES {
        let made = readahead::make(name, PAGE_BYTES).map_err(|error| anyhow!("{error}"))?;
        rows.push(((*name).to_owned(), format!("readahead   {}", shown(&made.params))));
    }
    for name in pace::NAMES {
        let thread = Prefetch::make(name).map_err(|error| anyhow!("{error}"))?;
        rows.push(((*name).to_owned(), format!("prefetch    {}", shown(&thread.params()))));
    }
    Ok(rows.into_iter().map(|(name, what)| (name, what.trim_end().to_owned())).collect())
}

fn shown(params: &[(&'static str, String)]) -> String {
    let pairs: Vec<String> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}
