//! The static page: one HTML file that shows records to a colleague.
//!
//! ```text
//!   title, theme switch
//!   what was measured, on what, what came out          words
//!   all runs                                           one table
//!   ways of waiting for I/O: latency | processor       SVG, a table
//!   for each device and workload:                      group
//!     throughput by streams | delay by streams         charts
//!     requests over time, a panel a policy             charts
//!     readahead windows over time, a panel a policy    windows
//!   how to repeat it                                   commit, machine, command, settings
//! ```
//!
//! Tables and words are written here, so the page says everything without its script; the script
//! (`assets/page.js`, with uPlot) draws the charts from data embedded as JSON.
//!
//! # Invariants
//! - The page makes no network request; its content policy forbids that.
//! - All text from records is escaped, in markup and in the data.
//! - The same records give the same page, byte for byte.

mod charts;
mod explained;
mod figures;
mod gains;
mod group;
mod panels;
mod provenance;
mod summary;
mod waits;
mod windows;
mod words;

use crate::html::{escape, script_json};
use crate::quantity::date;
use crate::record::RunRecord;
use crate::shell::{self, Assets, PAGE_CSS};
use charts::Data;
pub use explained::explained;
use forerun_core::readahead::Cause;
pub use gains::gains;
use group::Groups;
use maud::{Markup, PreEscaped, html};

/// The reason for no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// The records hold no run.
    #[error("no runs to show: give at least one record that holds a run")]
    NoRuns,
}

/// The page of `records` under `title`, as the whole text of an HTML file.
///
/// # Errors
/// There is no run in the records.
pub fn render(records: &[RunRecord], title: &str) -> Result<String, PageError> {
    let (content, data) = body(records)?;
    let body = html! { (head(records, title)) (content) };
    Ok(shell::document(title, &body, data, &ASSETS))
}

/// All of the page of `records` but its head, and the data of its charts.
fn body(records: &[RunRecord]) -> Result<(Markup, String), PageError> {
    let mut page = Groups::new(records);
    if page.groups.is_empty() {
        return Err(PageError::NoRuns);
    }
    let waits = page.take_waits();
    let mut charts = Vec::new();
    let content = html! {
        @if !page.groups.is_empty() { (words::opening(&page)) (summary::summary(&page)) }
        (waits::sections(&page, &waits))
        @for (number, group) in page.groups.iter().enumerate() {
            (figures::group_section(&page, group, number, &mut charts))
        }
        (provenance::provenance(records))
    };
    let causes = Cause::ALL.map(Cause::name);
    Ok((content, script_json(&Data { policies: &page.labels, causes, charts })))
}

fn head(records: &[RunRecord], title: &str) -> Markup {
    let mut facts: Vec<String> = Vec::new();
    for record in records {
        let machine = &record.machine;
        let parts = [date(record.date), machine.cpu.clone(), commit_in_words(&record.commit)];
        let fact = fact(&parts).into_string();
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    let more = facts.len().saturating_sub(HEAD_FACTS_MAX);
    facts.truncate(HEAD_FACTS_MAX);
    if more > 0 {
        facts.push(html! { span { "and " (more) " more" } }.into_string());
    }
    head_of(title, &PreEscaped(facts.join(" ")))
}

/// The parts that there are, on one line.
fn fact(parts: &[String]) -> Markup {
    let parts: Vec<String> =
        parts.iter().filter(|part| !part.is_empty()).map(|part| escape(part)).collect();
    html! { span { (PreEscaped(parts.join(" &middot; "))) } }
}

fn head_of(title: &str, facts: &Markup) -> Markup {
    shell::header(title, facts, "The charts need JavaScript. The tables hold the same figures.")
}

fn commit_in_words(commit: &str) -> String {
    let short: String = commit.chars().take(COMMIT_CHARS).collect();
    if short.is_empty() { short } else { format!("commit {short}") }
}

/// Records that the head of the page names.
const HEAD_FACTS_MAX: usize = 3;
/// Of a commit, in the head.
const COMMIT_CHARS: usize = 10;

const ASSETS: Assets = Assets { styles: &[UPLOT_CSS, PAGE_CSS], scripts: &[UPLOT_JS, PAGE_JS] };
const UPLOT_CSS: &str = include_str!("../assets/uPlot.min.css");
const UPLOT_JS: &str = include_str!("../assets/uPlot.iife.min.js");
const PAGE_JS: &str = include_str!("../assets/page.js");

#[cfg(test)]
mod tests;
