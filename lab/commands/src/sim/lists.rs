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
use serde::Serialize;

use super::Args;
use crate::specs::PAGE_BYTES;

/// A name, and what stands behind it.
#[derive(Serialize)]
struct Named {
    name: &'static str,
    /// Of a policy, what it decides.
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'static str,
    what: String,
}

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
    let files = Output { path: args.output.clone(), form: args.form };
    files.check()?;
    files.print(&object! { names: &rows }, &["names"], || text(&rows))
}

fn text(rows: &[Named]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let kinds = rows.iter().map(|row| row.kind.len()).max().unwrap_or(0);
    let line = |Named { name, kind, what }: &Named| {
        let kind = if kinds == 0 { String::new() } else { format!("{kind:kinds$} ") };
        format!("{name:width$}  {kind}{what}").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn rows(names: impl Iterator<Item = (&'static str, &'static str)>) -> Vec<Named> {
    names.map(|(name, what)| Named { name, kind: "", what: what.to_owned() }).collect()
}

fn policies() -> Result<Vec<Named>> {
    let mut rows = Vec::new();
    for name in eviction::NAMES {
        let params = eviction::show(name).map_err(|error| anyhow!("{error}"))?;
        rows.push(Named { name, kind: "replacement", what: shown(&params) });
    }
    let bound = "that knows the future; without --readahead and --device";
    rows.push(Named { name: belady::NAME, kind: "replacement", what: bound.to_owned() });
    for name in readahead::NAMES {
        let made = readahead::make(name, PAGE_BYTES).map_err(|error| anyhow!("{error}"))?;
        rows.push(Named { name, kind: "readahead", what: shown(&made.params) });
    }
    for name in pace::NAMES {
        let thread = Prefetch::make(name).map_err(|error| anyhow!("{error}"))?;
        rows.push(Named { name, kind: "prefetch", what: shown(&thread.params()) });
    }
    Ok(rows)
}

fn shown(params: &[(&'static str, String)]) -> String {
    let pairs: Vec<String> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}
