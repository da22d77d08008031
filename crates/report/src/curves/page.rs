//! The page: one HTML file with every chart, switches for its lines, and its values as a table.
//!
//! ```text
//!   title, what made it
//!   for each trace: facts
//!     a chart alone: as wide as the page, its table open
//!     several: two beside each other, their tables folded
//!     beside each: what the source says, and what was found
//! ```
//! Pictures, tables and words are written here; the script (`assets/curves.js`) adds the values at
//! the pointer and the switches.

use std::fmt::Write;

use serde::Serialize;

use super::plot::{self, Frame};
use super::{Chart, Claim, Section, Sheet, X, axes};
use crate::html::{escape, script_json};
use crate::shell::{self, Assets, PAGE_CSS};

/// See the module.
pub(super) fn page(sheet: &Sheet) -> String {
    // What is told of an only trace stands under the title.
    let (lead, titled) = match sheet.sections.as_slice() {
        [only] => (format!("{} {}", sheet.lead, only.facts), false),
        _ => (sheet.lead.clone(), true),
    };
    let facts = format!("<span>{}</span>", escape(lead.trim()));
    let note = "Without JavaScript the lines cannot be switched off. The tables hold every value.";
    let mut body = shell::header(&sheet.title, &facts, note);
    let mut data = Vec::new();
    for section in &sheet.sections {
        body += &section_markup(section, titled, &mut data);
    }
    if !sheet.command.is_empty() {
        let _ = write!(
            body,
            "<section>\n<h2>How to repeat it</h2>\n<p><code>{}</code></p>\n</section>\n",
            escape(&sheet.command)
        );
    }
    shell::document(&sheet.title, &body, &script_json(&data), &ASSETS)
}

/// What the script needs of a chart.
#[derive(Serialize)]
struct Told {
    /// Of each place: from the left edge, in the picture's units.
    places: Vec<f64>,
    /// What the tip says of each place.
    titles: Vec<String>,
    names: Vec<String>,
    /// Of each series: its values, to order them by, and as they are told.
    values: Vec<Vec<Option<(f64, String)>>>,
    /// The picture's extent, and that of the plot in it.
    width: f64,
    top: f64,
    bottom: f64,
}

impl Told {
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

fn section_markup(section: &Section, titled: bool, data: &mut Vec<Told>) -> String {
    let mut text = String::from("<section class=\"charts\">\n");
    if titled {
        let (title, facts) = (escape(&section.title), escape(&section.facts));
        let _ = writeln!(text, "<h2>{title}</h2>\n<p class=\"note about\">{facts}</p>");
    }
    let alone = section.charts.len() == 1;
    text += if alone { "<div>\n" } else { "<div class=\"pair\">\n" };
    for chart in &section.charts {
        text += &figure(chart, alone, data.len());
        data.push(Told::new(chart, frame(alone)));
    }
    text + "</div>\n</section>\n"
}

fn frame(alone: bool) -> Frame {
    if alone { Frame::WIDE } else { Frame::HALF }
}

fn figure(chart: &Chart, alone: bool, number: usize) -> String {
    let frame = frame(alone);
    let (before, after) = if alone {
        ("<div class=\"scroll\" tabindex=\"0\">", "</div>")
    } else {
        (
            "<details><summary>Figures</summary><div class=\"scroll\" tabindex=\"0\">",
            "</div></details>",
        )
    };
    format!(
        "<figure class=\"curves\" data-curves=\"{number}\">\n\
         <figcaption><div><h3>{}</h3><p>{}</p></div></figcaption>\n{}\
         <div class=\"scroll\"><svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" tabindex=\"0\" \
         aria-label=\"{}\">\n{}</svg></div>\n{}{before}{}{after}\n</figure>\n",
        escape(&chart.title),
        escape(&chart.note),
        legend(chart),
        frame.width,
        frame.height,
        escape(&in_words(chart)),
        plot::plot(chart, frame),
        claims(&chart.claims),
        table(chart),
    )
}

/// A switch a series, where there are several.
fn legend(chart: &Chart) -> String {
    if chart.series.len() < 2 {
        return String::new();
    }
    let mut text = String::from("<ul class=\"switches\">");
    for (number, series) in chart.series.iter().enumerate() {
        let _ = write!(
            text,
            "<li><button type=\"button\" data-switch=\"{number}\" aria-pressed=\"true\" \
             class=\"{}\"><svg viewBox=\"0 -7 26 14\" width=\"26\" height=\"14\" \
             aria-hidden=\"true\">{}</svg><span>{}</span></button></li>",
            plot::class(number, series),
            plot::key(chart, number, series),
            escape(&series.name),
        );
    }
    text + "</ul>\n"
}

fn claims(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<div class=\"scroll\"><table class=\"claims\"><thead><tr><th scope=\"col\">Beside the \
         paper</th><th scope=\"col\" class=\"n\">Paper</th><th scope=\"col\" class=\"n\">Here</th>\
         </tr></thead><tbody>",
    );
    for Claim { what, source, here } in claims {
        let _ = write!(
            text,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td>\
             <td class=\"n strong\">{}</td></tr>",
            escape(what),
            escape(source),
            escape(here),
        );
    }
    text + "</tbody></table></div>\n"
}

/// Places down, series across.
fn table(chart: &Chart) -> String {
    let mut text = String::from("<table class=\"runs\"><thead><tr>");
    let heads: &[&str] = match &chart.x {
        X::Pages { .. } => &["Pages", "Bytes"],
        X::Classes { label, .. } => &[label],
    };
    for head in heads {
        let _ = write!(text, "<th scope=\"col\" class=\"n\">{}</th>", escape(head));
    }
    for series in &chart.series {
        let _ = write!(text, "<th scope=\"col\" class=\"n\">{}</th>", escape(&series.name));
    }
    text += "</tr></thead><tbody>";
    for at in 0..chart.x.len() {
        text += "<tr>";
        for (column, cell) in place(&chart.x, at).iter().enumerate() {
            let (tag, scope) = if column == 0 { ("th", " scope=\"row\"") } else { ("td", "") };
            let _ = write!(text, "<{tag}{scope} class=\"n\">{}</{tag}>", escape(cell));
        }
        for series in &chart.series {
            let value = series.points().find(|&(place, _)| place == at);
            let value = value.map_or("&ndash;".to_owned(), |(_, y)| chart.y.unit.show(y));
            let _ = write!(text, "<td class=\"n\">{value}</td>");
        }
        text += "</tr>";
    }
    text + "</tbody></table>"
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

/// The chart for those who cannot see it: of each series its ends.
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
