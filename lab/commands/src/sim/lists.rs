//! Lists of policies, formats, workloads and devices, each with its parameters or a line.
//!
//! The name lookups use the same lists, so no name is missing here. The name is the first word of
//! a line.

use anyhow::{Result, anyhow};
use forerun_console::form::Output;
use forerun_console::object;
use forerun_core::{device, eviction, planner::pace, readahead};
use forerun_sim::oracle::belady;
use forerun_sim::prefetch::Prefetch;
use forerun_sim::{trace, workload};

use super::Args;
use crate::specs::PAGE_BYTES;

/// A name, and what stands behind it.
type Rows = Vec<(&'static str, String)>;

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
    let named = rows.iter().map(|(name, what)| object! { name: *name, what: what.trim_end() });
    let all = object! { names: named.collect::<Vec<_>>() };
    let files = Output { path: args.output.clone(), form: args.form };
    files.check()?;
    files.print(&all, &["names"], || text(&rows))
}

fn text(rows: &Rows) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, what): &(&str, String)| format!("{name:width$}  {}\n", what.trim_end());
    rows.iter().map(line).collect()
}

fn rows(names: impl Iterator<Item = (&'static str, &'static str)>) -> Rows {
    names.map(|(name, what)| (name, what.to_owned())).collect()
}

fn policies() -> Result<Rows> {
    let mut rows = Vec::new();
    for name in eviction::NAMES {
        let params = eviction::show(name).map_err(|error| anyhow!("{error}"))?;
        rows.push((*name, format!("replacement {}", shown(&params))));
    }
    let bound = "replacement that knows the future; without --readahead and --device";
    rows.push((belady::NAME, bound.to_owned()));
    for name in readahead::NAMES {
        let made = readahead::make(name, PAGE_BYTES).map_err(|error| anyhow!("{error}"))?;
        rows.push((*name, format!("readahead   {}", shown(&made.params))));
    }
    for name in pace::NAMES {
        let thread = Prefetch::make(name).map_err(|error| anyhow!("{error}"))?;
        rows.push((*name, format!("prefetch    {}", shown(&thread.params()))));
    }
    Ok(rows)
}

fn shown(params: &[(&'static str, String)]) -> String {
    let pairs: Vec<String> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}
