//! The page of `forerun demo`: what a person gains, then the paper's experiment in a fold.
//!
//! ```text
//!   what it shows, on what                        words
//!   program          kernel   forerun   times     table
//!   kernel   |##~~~~##~~~~~~##~~~~~~~|            one time axis for all: computing | waiting
//!   forerun  |##~#####|
//!   [>] interleaved streams, as in the paper      the page of the records
//! ```
//! # Invariants
//! - Every figure of the timeline stands in the table, too.
//! - What is left out is said.

use maud::{Markup, html};

use super::summary::seconds;
use super::{ASSETS, PageError, body, head};
use crate::gain::{Gain, Gains, ProgramRun};
use crate::html::{Text, figure_heads, prose, scrolled};
use crate::plain;
use crate::quantity::{figure, percent, time};
use crate::record::RunRecord;
use crate::shell;

/// The page of what programs gain, and of the `records` of an experiment that `fold` names.
///
/// # Errors
/// There is no run in the records.
pub fn gains(
    gains: &Gains,
    records: &[RunRecord],
    title: &str,
    fold: &str,
) -> Result<String, PageError> {
    let (experiment, data) = body(records)?;
    let page = html! {
        (head(records, title))
        (programs(gains))
        details.part.experiment {
            summary { (Text(fold)) }
            (experiment)
        }
    };
    Ok(shell::document(title, &page, data, &ASSETS))
}

fn programs(gains: &Gains) -> Markup {
    html! {
        p.lead { (prose(&gains.place)) }
        @if let Some(best) = gains.rows.iter().max_by(|a, b| a.times().total_cmp(&b.times())) {
            p.outcome {
                (Text(&best.what)) ": " strong { (seconds(best.forerun.seconds)) }
                " with forerun, " (seconds(best.kernel.seconds)) " without: "
                (comparison(best)) "."
            }
        }
        @if !gains.rows.is_empty() {
            section.charts {
                h2 { "When each program computes, and when it waits" }
                (timeline(&gains.rows))
                (table(&gains.rows))
            }
        }
        @for sentence in &gains.left_out { p.note { (prose(sentence)) } }
    }
}

/// In words, true also where nothing was gained.
fn comparison(gain: &Gain) -> Markup {
    let times = gain.times();
    html! {
        @if times >= 1.05 { (figure(times)) " times as fast" }
        @else if times > 0.95 { "no gain" }
        @else { (figure(1.0 / times)) " times as slow" }
    }
}

fn timeline(rows: &[Gain]) -> Markup {
    let runs = rows.iter().flat_map(|row| [&row.kernel, &row.forerun]);
    let scale = runs.map(|run| run.seconds).fold(f64::MIN_POSITIVE, f64::max);
    html! {
        figure.timeline {
            ul.legend {
                li { i.kind.read {} "computing" }
                li { i.kind.demand {} "waiting for storage" }
            }
            @for row in rows {
                h3 { (Text(&row.what)) " " span.soft { (comparison(row)) } }
                (bar("today's kernel", &row.kernel, scale))
                (bar(&row.with, &row.forerun, scale))
            }
        }
    }
}

/// One run on the time axis of all.
fn bar(name: &str, run: &ProgramRun, scale: f64) -> Markup {
    let label = html! { (Text(name)) ", " (seconds(run.seconds)) };
    let x = |time: f64| format!("{:.2}", time / scale * SCALE);
    html! {
        div.run-bar {
            p.note { (label) }
            svg viewBox=(format!("0 0 {SCALE} 16")) preserveAspectRatio="none" role="img"
                aria-label={
                    (Text(name)) ": " (time(run.seconds)) ", of which "
                    (time(run.waited_seconds())) " waiting"
                }
            {
                rect.computes x="0" y="0" width=(x(run.seconds)) height="16" {}
                @for &(from, to) in &run.waits {
                    rect.waits x=(x(from)) y="0" width=(x(to - from)) height="16" {}
                }
            }
        }
    }
}

fn table(rows: &[Gain]) -> Markup {
    const HEADS: [&str; 5] = ["Today's kernel", "Waiting", "With forerun", "Waiting", "Gain"];
    let waiting =
        |run: &ProgramRun| percent(run.waited_seconds() / run.seconds.max(f64::MIN_POSITIVE));
    let heads = html! { th scope="col" { "Program" } (figure_heads(HEADS)) };
    let body = html! {
        @for row in rows {
            tr {
                th scope="row" {
                    (Text(&row.what))
                    @if !row.program.is_empty() {
                        br; code.soft { (Text(plain::command(&row.program))) }
                    }
                }
                td.n data-head=(HEADS[0]) { (seconds(row.kernel.seconds)) }
                td.n data-head=(HEADS[1]) { (waiting(&row.kernel)) }
                td class="n strong" data-head=(HEADS[2]) { (seconds(row.forerun.seconds)) }
                td.n data-head=(HEADS[3]) { (waiting(&row.forerun)) }
                td class="n strong" data-head=(HEADS[4]) { (comparison(row)) }
            }
        }
    };
    scrolled(Some("runs stacked"), &heads, &body)
}

/// Units of the time axis.
const SCALE: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Run;

    fn gain(kernel: f64, forerun: f64) -> Gain {
        let run = |seconds: f64| ProgramRun { seconds, waits: vec![(0.0, seconds / 2.0)] };
        Gain {
            what: "unpack <a log>".to_owned(),
            program: vec!["gzip".to_owned(), "<x>".to_owned()],
            with: "forerun run".to_owned(),
            kernel: run(kernel),
            forerun: run(forerun),
        }
    }

    #[test]
    fn every_run_has_a_bar_on_one_axis_and_the_experiment_is_folded() {
        let all = Gains {
            place: "A `volume`.".to_owned(),
            rows: vec![gain(4.0, 1.0), gain(2.0, 2.0), gain(1.0, 2.0)],
            left_out: vec!["No `gzip`.".to_owned()],
        };
        let record = RunRecord { runs: vec![Run::default()], ..RunRecord::default() };
        let page = gains(&all, &[record], "Demo", "As in the paper").expect("there is a run");
        assert_eq!(page.matches("class=\"run-bar\"").count(), 6);
        assert_eq!(page.matches("class=\"waits\"").count(), 6);
        for text in [
            "width=\"1000.00\"",
            "width=\"250.00\"",
            "4.00 times as fast",
            "no gain",
            "2.00 times as slow",
            "A <code>volume</code>.",
            "No <code>gzip</code>.",
            "unpack &lt;a log&gt;",
            "4.00 s, of which 2.00 s waiting",
        ] {
            assert!(page.contains(text), "{text}");
        }
        let fold = page.find("<details class=\"part experiment\">").expect("a fold");
        assert!(page.find("class=\"run-bar\"").expect("a bar") < fold);
        assert!(fold < page.find("Table of runs").expect("the runs"), "the experiment comes last");
        assert_eq!(gains(&all, &[], "Demo", "").err(), Some(PageError::NoRuns));
    }
}
