//! `forerun replay-journal`: a journal's events sent to a fresh core, whose actions have to be the
//! same bytes.
//!
//! # Invariants
//! - Exit status 0: the journal held actions to compare, and all were equal.
//! - The first differing event of each run is printed.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::{note, plain};
use forerun_console::form::Output;
use forerun_console::{object, output};
use forerun_core::units::Nanos;
use forerun_engine::journal::{Replayed, Run, replay};
use forerun_report::quantity;
use serde::Serialize;

/// What `replay-journal` takes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
        forerun bench streams --device ssd --journal run.journal\n  \
        forerun replay-journal run.journal")]
pub struct Args {
    /// A journal, written with --journal
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Replays a journal and prints the result.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.output.check()?;
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot open {name}"))?;
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let progress = output::progress(bytes, "bytes");
    // A core that panics is an error with its event; the hook would print it a second time.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let replayed = replay(BufReader::new(file), |at| progress.set_position(at));
    std::panic::set_hook(hook);
    progress.finish_and_clear();
    let replayed = replayed.with_context(|| name.to_string())?;
    if replayed.cut_bytes > 0 {
        let cut = replayed.cut_bytes;
        note(&format!("{name} was cut: its last {cut} bytes are no whole block"));
    }
    let events: u64 = replayed.runs.iter().map(|run| run.events).sum();
    if events == 0 {
        bail!("{name} holds no event: there is nothing to replay");
    }
    args.output.print(&json(&replayed), &["runs"], || text(&replayed))?;
    let differ = replayed.runs.iter().filter(|run| run.difference.is_some()).count();
    if differ > 0 {
        bail!("{name}: {differ} of {} runs differ; the first event is above", replayed.runs.len());
    }
    Ok(())
}

fn json(replayed: &Replayed) -> impl Serialize {
    let runs: Vec<_> = replayed.runs.iter().map(json_run).collect();
    object! { byte_equal: replayed.byte_equal(), cut_bytes: replayed.cut_bytes, runs: runs }
}

fn json_run(run: &Run) -> impl Serialize {
    let (settings, stats) = (&run.settings, &run.stats);
    object! {
        byte_equal: run.difference.is_none(),
        readahead: &settings.readahead,
        policies: policies(run),
        cache_pages: settings.frames,
        page_bytes: settings.page_bytes,
        events: run.events,
        actions: run.actions,
        seconds: quantity::seconds(span(run)),
        demanded: stats.demanded,
        hits: stats.hits,
        late_hits: stats.late_hits,
        misses: stats.misses,
        difference: run.difference.as_ref().map(|difference| object! {
            event: difference.event,
            at_ns: difference.now.0,
            what: &difference.what,
            action: difference.action,
            recorded: &difference.recorded,
            came: &difference.came,
        }),
    }
}

fn policies(run: &Run) -> Vec<&str> {
    run.settings.partitions.iter().map(|partition| partition.policy.as_str()).collect()
}

fn span(run: &Run) -> Nanos {
    run.last.since(run.first)
}

/// A block of lines a run.
fn text(replayed: &Replayed) -> String {
    let mut lines = Vec::new();
    for (number, run) in (1..).zip(&replayed.runs) {
        let (settings, stats) = (&run.settings, &run.stats);
        let (policies, pages) = (policies(run).join(" + "), settings.frames);
        lines.push(format!("run {number}: {}, {policies}, {pages} pages", settings.readahead));
        let (events, actions) = (run.events, run.actions);
        let time = quantity::time(quantity::seconds(span(run)));
        lines.push(format!("  {events} events, {actions} actions in {time}"));
        lines.push(format!(
            "  {} pages demanded: {} hits, {} late hits, {} misses",
            stats.demanded, stats.hits, stats.late_hits, stats.misses
        ));
        let Some(differs) = &run.difference else {
            lines.push("  byte-equal".to_owned());
            continue;
        };
        let seconds = quantity::seconds(differs.now);
        lines.push(format!(
            "  differs at event {}, {seconds:.9} s: {}",
            differs.event, differs.what
        ));
        lines.push(format!("    action {} recorded: {}", differs.action, differs.recorded));
        lines.push(format!("    action {} came:     {}", differs.action, differs.came));
    }
    lines.iter().map(|line| plain(line) + "\n").collect()
}
