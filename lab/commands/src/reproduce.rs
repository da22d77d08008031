//! `forerun reproduce`: the figures of the papers, made again by the commands of
//! `docs/reproduction.md`, beside what the papers say.
//!
//! ```text
//!   row --its command, --json--> this program, anew --JSON--> figures --> table, page
//! ```
//! # Invariants
//! - A row is run by the very command that is shown beside it; rows with one command run it once.
//! - Nothing needs a device, root, a network or a file: all is virtual time.
//! - A row that fails is shown with its error, the others still are; the status is 1 then.

mod rows;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::comparison::{ComparedFigure, ComparedRow, Comparison};
use anyhow::{Context as _, Result, bail};
use forerun_console::failure::{self, usage};
use forerun_console::form::{Form, Output};
use forerun_console::{interrupt, machine, object, output};
use forerun_report::quantity;
use serde_json::Value;

use rows::{ROWS, Row};

use crate::kept::{self, Kept};

/// What `reproduce` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  forerun reproduce --list\n  \
                        forerun reproduce fig11 fig12\n  \
                        forerun reproduce -o reproduction.html")]
pub struct Args {
    /// Rows by their names, or the beginnings of these, such as fig7 [default: all]
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// List the rows with their commands
    #[arg(long)]
    list: bool,
    /// Also write this file: .json, .ndjson, .csv or .txt by its name; .html is a page
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

/// Runs the rows and prints the table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = chosen(&args.rows)?;
    if args.list {
        let files = Output { path: args.output.clone(), form: args.form };
        files.check()?;
        return list(&chosen, &files);
    }
    let page = args.output.as_deref().filter(|path| path.extension() == Some("html".as_ref()));
    let path = args.output.clone().filter(|_| page.is_none());
    let files = Output { path, form: args.form };
    files.check()?;
    page.map_or(Ok(()), output::require_place)?;
    let progress = output::progress(chosen.len() as u64, "rows");
    let mut kept = Kept::open(args.output.as_deref())?;
    let (mut made, mut failed) = (BTreeMap::new(), Vec::new());
    let mut rows = Vec::new();
    for row in &chosen {
        let result = made.entry(row.command).or_insert_with(|| {
            let key = format!("{} {}", kept::build(), row.command);
            kept.or_make(&key, || output_of(row.command)).map_err(|error| format!("{error:#}"))
        });
        rows.push(compared(row, result));
        failed.extend(result.as_ref().err().map(|error| (row.name.to_owned(), error.clone())));
        progress.inc(1);
    }
    progress.finish_and_clear();
    let lead = "Figures of the papers beside those of this build, in virtual time.".to_owned();
    let comparison = Comparison { title: "What the papers say, made again".into(), lead, rows };
    let text = || text(&comparison.rows);
    let drawn = page.map_or(Ok(()), |path| output::file(path, comparison.page().as_bytes()));
    files.print(&object! { rows: &comparison.rows }, &["rows"], text).and(drawn)?;
    let failed = failed.into_iter().map(|(row, error)| (row, anyhow::anyhow!(error))).collect();
    failure::all_done(failed, chosen.len())?;
    kept.end()
}

/// The rows whose names begin with one of `names`, in their order; all without a name.
fn chosen(names: &[String]) -> Result<Vec<&'static Row>> {
    let begins = |row: &Row, name: &String| row.name == name || row.name.starts_with(name.as_str());
    if let Some(unknown) = names.iter().find(|name| !ROWS.iter().any(|row| begins(row, name))) {
        let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        let nearest = forerun_core::params::nearest(unknown, &known);
        let nearest = nearest.map(|name| format!("; the nearest is `{name}`")).unwrap_or_default();
        return Err(usage(format!(
            "{unknown}: there is no such row{nearest}; forerun reproduce --list shows them"
        )));
    }
    let is_chosen = |row: &&Row| names.is_empty() || names.iter().any(|name| begins(row, name));
    Ok(ROWS.iter().filter(is_chosen).collect())
}

fn list(rows: &[&Row], files: &Output) -> Result<()> {
    let listed = |row: &&Row| object! { row: row.name, title: row.title, command: row.shown() };
    let all: Vec<_> = rows.iter().map(listed).collect();
    let line = |row: &&Row| format!("{}  {}\n    {}\n", row.name, row.title, row.shown());
    files.print(&object! { rows: all }, &["rows"], || rows.iter().map(line).collect())
}

/// What a command printed, and how long it took.
type CommandOutput = (Value, f64);

fn output_of(command: &str) -> Result<CommandOutput> {
    if interrupt::asked() {
        bail!("interrupted");
    }
    let begun = machine::now();
    let run = || -> Result<Value> {
        let own = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(own);
        child.args(command.split_whitespace()).arg("--json").stdin(Stdio::null());
        let done = child.output().context("cannot start this program again")?;
        if !done.status.success() {
            let errors = String::from_utf8_lossy(&done.stderr);
            bail!("{}", errors.lines().last().unwrap_or("it failed"));
        }
        serde_json::from_slice(&done.stdout).context("it prints no JSON")
    };
    let value = run()?;
    Ok((value, quantity::seconds(machine::now().since(begun))))
}

fn compared(row: &Row, output: &Result<CommandOutput, String>) -> ComparedRow {
    let (figures, seconds, failed) = match output {
        Ok((value, seconds)) => ((row.figures)(value), Some(*seconds), None),
        Err(error) => (Vec::new(), None, Some(error.clone())),
    };
    ComparedRow {
        row: row.name.to_owned(),
        title: row.title.to_owned(),
        command: row.shown(),
        seconds,
        failed,
        note: row.note.to_owned(),
        figures,
    }
}

fn text(rows: &[ComparedRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let _ = writeln!(text, "{}: {}\n  {}", row.row, row.title, row.command);
        if let Some(failed) = &row.failed {
            let _ = writeln!(text, "  failed: {failed}");
        }
        let cells = |figure: &ComparedFigure| {
            let paper = figure.paper.clone().unwrap_or_default();
            vec![figure.what.clone(), paper, figure.here.clone()]
        };
        let cells: Vec<_> = row.figures.iter().map(cells).collect();
        if !cells.is_empty() {
            text += &output::table(&["figure", "paper", "here"], &cells, 1);
        }
        text.push('\n');
    }
    text
}
