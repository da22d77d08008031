//! The page: one HTML file with every chart, switches for its lines, and its values as a table.
//!
//! ```text
//!   title, what made it
//!   for each trace: facts
//!     a chart alone: as wide as the page, its table open; below it the differences to its baseline
//!     several: two beside each other, their tables folded
//!     beside each: the source's statement, and the result
//! ```
//! Pictures, tables and words are written here; the script (`assets/curves.js`) adds the values at
//! the pointer and the switches. A picture is drawn in several widths, of which the style sheet
//! shows the one that fits.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::plot::{self, Frame};
use super::{Chart, Claim, Section, Series, Sheet, Unit, X, axes, views};
use forerun_report::html::{DASH, Text, figure_heads, script_json, scrolled};
use forerun_report::quantity;
use forerun_report::shell::{self, Assets, PAGE_CSS};

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

/// The script's data of a picture.
#[derive(Serialize)]
struct PictureData {
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

impl PictureData {
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

fn section_markup(section: &Section, titled: bool, data: &mut Vec<PictureData>) -> Markup {
    let alone = section.charts.len() == 1;
    html! {
        section.charts {
            @if titled {
                h2 { (Text(&section.title)) }
                p class="note about" { (Text(&section.facts)) }
            }
            div class=[(!alone).then_some("pair")] {
                @for chart in &section.charts { (figure(chart, alone, data)) }
            }
        }
    }
}

fn figure(chart: &Chart, alone: bool, data: &mut Vec<PictureData>) -> Markup {
    let table = table(chart);
    let difference = views::difference(chart);
    html! {
        figure.curves data-curves {
            figcaption { div { h3 { (Text(&chart.title)) } p { (Text(&chart.note)) } } }
            (best(chart))
            @if chart.series.len() > 1 { (legend(chart)) }
            (pictures(chart, alone, data))
            @if let Some(difference) = &difference {
                div.caption { div {
                    h3 { (Text(&difference.title)) } p { (Text(&difference.note)) }
                } }
                (pictures(difference, alone, data))
            }
            @if !chart.claims.is_empty() { (claims(&chart.claims)) }
            @if alone { (table) } @else { details { summary { "Figures" } (table) } }
            @if let Some(difference) = &difference {
                details { summary { (Text(&difference.title)) ", in figures" }
                    (self::table(difference)) }
            }
        }
    }
}

/// The picture of a chart, in each width.
fn pictures(chart: &Chart, alone: bool, data: &mut Vec<PictureData>) -> Markup {
    let widths = [("wide", Frame::WIDE), ("half", Frame::HALF), ("narrow", Frame::NARROW)];
    html! {
        div.pictures {
            @for (class, frame) in widths.into_iter().skip(usize::from(!alone)) {
                @let frame = frame.with_names(chart);
                svg class=(class) viewBox=(format!("0 0 {:.0} {:.0}", frame.width, frame.height))
                    role="img" tabindex="0" data-picture=(data.len())
                    aria-label=(Text(in_words(chart)))
                {
                    (PreEscaped(plot::plot(chart, frame)))
                }
                @let () = data.push(PictureData::new(chart, frame));
            }
        }
    }
}

/// From which size to which each is the best.
fn best(chart: &Chart) -> Markup {
    let reigns = views::reigns(chart);
    let size = |at: usize| place(&chart.x, at).pop().unwrap_or_default();
    html! {
        @if !reigns.is_empty() {
            p.reigns {
                span { i.ring {} " Best" }
                @for (best, from, to) in &reigns {
                    span {
                        (size(*from)) @if to > from { " to " (size(*to)) } ": "
                        @for (nth, &number) in best.iter().enumerate() {
                            @if nth > 0 { ", " }
                            b { (Text(&chart.series[number].name)) }
                        }
                    }
                }
            }
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
    let sources = claims.iter().any(|claim| claim.source.is_some());
    let heads = html! {
        th scope="col" { @if sources { "Beside the paper" } @else { "In figures" } }
        @if sources { (figure_heads(["Paper"])) }
        (figure_heads(["Here"]))
    };
    let rows = html! {
        @for Claim { what, source, here } in claims {
            tr {
                th scope="row" { (Text(what)) }
                @if sources {
                    td.n data-head="Paper" { (Text(source.as_deref().unwrap_or_default())) }
                }
                td class="n strong" data-head="Here" { (Text(here)) }
            }
        }
    };
    scrolled(Some("claims stacked"), &heads, &rows)
}

/// Places down, series across; where the page is narrow a place is a block.
fn table(chart: &Chart) -> Markup {
    scrolled(Some("runs stacked"), &heads(chart), &rows(chart))
}

fn heads(chart: &Chart) -> Markup {
    html! {
        (figure_heads(place_heads(chart).iter().map(Text)))
        (figure_heads(shown(chart).map(|(_, series)| Text(&series.name))))
    }
}

fn place_heads(chart: &Chart) -> Vec<&str> {
    match &chart.x {
        X::Pages { .. } => vec!["Pages", "Bytes"],
        X::Times { label, .. } | X::Classes { label, .. } | X::Steps { label, .. } => vec![label],
    }
}

/// The series that have a value; the differences of the bound are none.
fn shown(chart: &Chart) -> impl Iterator<Item = (usize, &Series)> {
    let gaps = chart.y.unit == Unit::Points;
    let series = chart.series.iter().enumerate();
    series.filter(move |(_, series)| !gaps || series.points().next().is_some())
}

fn rows(chart: &Chart) -> Markup {
    let (best, heads) = (views::best(chart), place_heads(chart));
    html! {
        @for at in 0..chart.x.len() {
            @let place = place(&chart.x, at);
            tr {
                th scope="row" class="n" data-head=(Text(heads[0])) { (Text(&place[0])) }
                @for bytes in &place[1..] { td.n { (Text(bytes)) } }
                @for (number, series) in shown(chart) {
                    td class=(if best[at].contains(&number) { "n best" } else { "n" })
                        data-head=(Text(&series.name))
                    {
                        @if let Some(y) = series.at(at) { (chart.y.unit.show(y)) } @else { (DASH) }
                    }
                }
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
        X::Times { seconds, .. } => vec![quantity::time(seconds[at])],
        X::Classes { names, .. } | X::Steps { names, .. } => vec![names[at].clone()],
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
