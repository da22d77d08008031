//! Figures of papers beside those of runs, as one HTML page.
//!
//! ```text
//!   title, lead
//!   for each row: what it is, a table of figures (paper, here), the command that makes it
//! ```
//! # Invariants
//! - The page makes no network request, and says everything without its script.

use maud::{Markup, html};
use serde::Serialize;

use forerun_report::html::{DASH, Text, figure_heads, prose, scrolled};
use forerun_report::shell::{self, Assets, PAGE_CSS};

/// The contents of one page.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Comparison {
    /// The head.
    pub(crate) title: String,
    /// A sentence or two under it.
    pub(crate) lead: String,
    /// In order.
    pub(crate) rows: Vec<ComparedRow>,
}

/// What one command makes.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ComparedRow {
    /// The name on the command line.
    pub(crate) row: String,
    /// What it is of.
    pub(crate) title: String,
    /// The command.
    pub(crate) command: String,
    /// How long it took; none where it failed.
    pub(crate) seconds: Option<f64>,
    /// Why there is no figure, where it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    /// What differs from the source, and why.
    pub(crate) note: String,
    /// In order.
    pub(crate) figures: Vec<ComparedFigure>,
}

/// One figure of a paper, and of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ComparedFigure {
    /// The subject.
    pub(crate) what: String,
    /// As the paper has it; none where it has no such figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paper: Option<String>,
    /// As it is here.
    pub(crate) here: String,
}

impl Comparison {
    /// As one HTML file.
    pub(crate) fn page(&self) -> String {
        let note = "The switch of the theme needs JavaScript; nothing else does.";
        let body = html! {
            (shell::header(&self.title, &html! { span { (Text(&self.lead)) } }, note))
            @for row in &self.rows { (section(row)) }
        };
        shell::document(&self.title, &body, "null".to_owned(), &ASSETS)
    }
}

fn section(row: &ComparedRow) -> Markup {
    let heads = html! { th scope="col" { "Figure" } (figure_heads(["Paper", "Here"])) };
    let rows = html! {
        @for ComparedFigure { what, paper, here } in &row.figures {
            tr {
                th scope="row" { (Text(what)) }
                td.n data-head="Paper" {
                    @if let Some(paper) = paper { (Text(paper)) } @else { (DASH) }
                }
                td class="n strong" data-head="Here" { (Text(here)) }
            }
        }
    };
    html! {
        section {
            h2 { (Text(&row.title)) }
            @if let Some(failed) = &row.failed { p.note { (Text(failed)) } }
            @if !row.figures.is_empty() { (scrolled(Some("claims stacked"), &heads, &rows)) }
            @if !row.note.is_empty() { p.note { (prose(&row.note)) } }
            p.note { code { (Text(&row.command)) } }
        }
    }
}

const ASSETS: Assets =
    Assets { styles: &[PAGE_CSS, include_str!("../assets/curves.css")], scripts: &[] };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_every_figure_and_no_text_opens_a_tag() {
        let figure = |what: &str, paper: Option<&str>| ComparedFigure {
            what: what.into(),
            paper: paper.map(str::to_owned),
            here: "29.03".into(),
        };
        let row = ComparedRow {
            row: "p1".into(),
            title: "Streams <10>".into(),
            command: "forerun sim a && b".into(),
            note: "With `--drive-cache on`.".into(),
            figures: vec![figure("MB/s & more", Some("21.78")), figure("other", None)],
            ..ComparedRow::default()
        };
        let failed = ComparedRow { failed: Some("<no>".into()), ..ComparedRow::default() };
        let page =
            Comparison { title: "T".into(), lead: "L".into(), rows: vec![row, failed] }.page();
        for text in [
            "Streams &lt;10&gt;",
            "MB/s &amp; more",
            "21.78",
            "&ndash;",
            "forerun sim a &amp;&amp; b",
            "<code>--drive-cache on</code>",
            "&lt;no&gt;",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert_eq!(page.matches(">29.03<").count(), 2);
        for loader in ["src=", "href=", "@import", "url(", "fetch("] {
            assert!(!page.contains(loader), "{loader}");
        }
    }
}
