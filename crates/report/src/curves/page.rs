//! The page: one HTML file with every chart, switches for its lines, and its values as a table.
//!
//! ```text
//!   title, what made it
//!   for each trace: facts
//!     a chart alone: as wide as the page, its table open
//!     several: two beside each other, their tables folded
//!     beside each: the source's statement, and the result
//! ```
//! Pictures, tables and words are written here; the script (`assets/curves.js`) adds the values at
//! the pointer and the switches.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::plot::{self, Frame};
use super::{Chart, Claim, Section, Series, Sheet, X, axes};
use crate::html::{DASH, Text, figure_heads, figures, script_json, scrolled};
use crate::shell::{self, Assets, PAGE_CSS};

/// See the module.
pub(super) fn page(sheet: &Sheet) -> String {
    // The facts of an only trace stand under the title.
    let (lead, titled) = match sheet.sections.as_slice() {
        [only] => (format!("{} {}", sheet.lead, only.facts), false),
        _ => (sheet.lead.clone(), true),
    };
    let note = "Without JavaScript the lines cannot be switched off. The tables hold every value.";
    let mut data = Vec::new();
    let body = html! {
        (shell::header(&sheet.title, &html! { span { (Text(lead.trim())) } }, note))
        @for section in &sheet.sections { (section_markup(section, titled, &mut data)) }
        @if !sheet.command.is_empty() {
            section { h2 { "How to repeat it" } p { code { (Text(&sheet.command)) } } }
        }
    };
    shell::document(&sheet.title, &body, script_json(&data), &ASSETS)
}

/// The script's data of a chart.
#[derive(Serialize)]
struct ChartData {
    /// Of each place: from the left edge, in the picture's units.
    places: Vec<f64>,
    /// The tip's text of each place.
    titles: Vec<String>,
    names: Vec<String>,
    /// Of each series: its values, to order them by, and as text.
    values: Vec<Vec<Option<(f64, String)>>>,
    /// The picture's extent, and that of the plot in it.
    width: f64,
    top: f64,
    bottom: f64,
}

impl ChartData {
    fn new(chart: &Chart, frame: Frame) -> Self {
        let values = chart.series.iter().map(|series| {
            let mut values = vec![None; chart.x.len()];
            for (at, y) in series.points() {
                values[at] = Some((y, chart.y.unit.show(y)));
            }
            values
        });
        Self {
            places: plot::places(chart, frame),
            titles: (0..chart.x.len()).map(|at| place(&chart.x, at).join(" = ")).collect(),
            names: chart.series.iter().map(|series| series.name.clone()).collect(),
            values: values.collect(),
            width: frame.width,
            top: Frame::TOP,
            bottom: frame.bottom(),
        }
    }
}

fn section_markup(section: &Section, titled: bool, data: &mut Vec<ChartData>) -> Markup {
    let alone = section.charts.len() == 1;
    html! {
        section.charts {
            @if titled {
                h2 { (Text(&section.title)) }
                p class="note about" { (Text(&section.facts)) }
            }
            div class=[(!alone).then_some("pair")] {
                @for chart in &section.charts {
                    (figure(chart, alone, data.len()))
                    @let () = data.push(ChartData::new(chart, frame(alone)));
                }
            }
        }
    }
}

fn frame(alone: bool) -> Frame {
    if alone { Frame::WIDE } else { Frame::HALF }
}

fn figure(chart: &Chart, alone: bool, number: usize) -> Markup {
    let frame = frame(alone);
    let (heads, rows) = (heads(chart), rows(chart));
    let table = scrolled(Some("runs"), &heads, &rows);
    html! {
        figure.curves data-curves=(number) {
            figcaption { div { h3 { (Text(&chart.title)) } p { (Text(&chart.note)) } } }
            @if chart.series.len() > 1 { (legend(chart)) }
            div.scroll {
                svg viewBox=(format!("0 0 {:.0} {:.0}", frame.width, frame.height)) role="img"
                    tabindex="0" aria-label=(Text(in_words(chart)))
                {
                    (PreEscaped(plot::plot(chart, frame)))
                }
            }
            @if !chart.claims.is_empty() { (claims(&chart.claims)) }
            @if alone { (table) } @else { details { summary { "Figures" } (table) } }
        }
    }
}

/// A switch a series.
fn legend(chart: &Chart) -> Markup {
    html! {
        ul.switches {
            @for (number, series) in chart.series.iter().enumerate() {
                li {
                    button type="button" data-switch=(number) aria-pressed="true"
                        class=(plot::class(number, series))
                    {
                        svg viewBox="0 -7 26 14" width="26" height="14" aria-hidden="true" {
                            (PreEscaped(plot::key(chart, number, series)))
                        }
                        span { (Text(&series.name)) }
                    }
                }
            }
        }
    }
}

fn claims(claims: &[Claim]) -> Markup {
    let heads = html! {
        th scope="col" { "Beside the paper" }
        (figure_heads(["Paper", "Here"]))
    };
    let rows = html! {
        @for Claim { what, source, here } in claims {
            tr {
                th scope="row" { (Text(what)) }
                td.n { (Text(source)) }
                td class="n strong" { (Text(here)) }
            }
        }
    };
    scrolled(Some("claims"), &heads, &rows)
}

/// Places down, series across.
fn heads(chart: &Chart) -> Markup {
    let places: &[&str] = match &chart.x {
        X::Pages { .. } => &["Pages", "Bytes"],
        X::Classes { label, .. } => &[label],
    };
    html! {
        (figure_heads(places.iter().map(Text)))
        (figure_heads(chart.series.iter().map(|series| Text(&series.name))))
    }
}

fn rows(chart: &Chart) -> Markup {
    let value = |series: &Series, at| {
        let value = series.points().find(|&(place, _)| place == at);
        html! { @if let Some((_, y)) = value { (chart.y.unit.show(y)) } @else { (DASH) } }
    };
    html! {
        @for at in 0..chart.x.len() {
            @let place = place(&chart.x, at);
            tr {
                th scope="row" class="n" { (Text(&place[0])) }
                (figures(place[1..].iter().map(Text)))
                (figures(chart.series.iter().map(|series| value(series, at))))
            }
        }
    }
}

/// A place in words: pages and bytes, or a class.
fn place(x: &X, at: usize) -> Vec<String> {
    match x {
        X::Pages { pages, page_bytes } => {
            let (count, bytes) = axes::size_labels(pages[at].into(), *page_bytes);
            vec![count, bytes]
        }
        X::Classes { names, .. } => vec![names[at].clone()],
    }
}

/// The chart for readers without sight: of each series its ends.
fn in_words(chart: &Chart) -> String {
    let mut text = format!("{}.", chart.title);
    for series in &chart.series {
        let ends = series.points().next().zip(series.points().last());
        let Some(((first, from), (last, to))) = ends else { continue };
        let name = |at| place(&chart.x, at).join(" = ");
        let _ = write!(
            text,
            " {}: {} at {}, {} at {}.",
            series.name,
            chart.y.unit.show(from),
            name(first),
            chart.y.unit.show(to),
            name(last),
        );
    }
    text
}

const ASSETS: Assets =
    Assets { styles: &[PAGE_CSS, CURVES_CSS], scripts: &[include_str!("../../assets/curves.js")] };
const CURVES_CSS: &str = include_str!("../../assets/curves.css");
