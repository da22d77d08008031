//! The picture: one SVG file with every chart, one below the other, each under its legend.
//!
//! ```text
//!   title, lead, facts
//!   for each chart: its title, its legend in as many rows as it takes, the plot
//! ```
//! Text is laid out by an estimate of its width, as nothing here can measure it.
//!
//! # Invariants
//! - It stands alone: its style is in it, light or dark as the viewer prefers.

use std::fmt::Write;

use super::plot::{self, Frame};
use super::{Chart, Sheet, views};
use forerun_report::html::escape;
use forerun_report::quantity::float;

/// See the module.
pub(super) fn picture(sheet: &Sheet) -> String {
    let mut canvas = Canvas { text: String::new(), y: 34.0 };
    canvas.line("title", &sheet.title, 30.0);
    for section in &sheet.sections {
        if sheet.sections.len() > 1 {
            canvas.y += 14.0;
            canvas.line("heading", &section.title, 22.0);
        }
        canvas.line("soft", &section.facts, 22.0);
        for chart in &section.charts {
            canvas.chart(chart);
            if let Some(difference) = views::difference(chart) {
                canvas.chart(&difference);
            }
        }
    }
    let (width, height) = (Frame::WIDE.width + 2.0 * MARGIN, canvas.y);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n{}</svg>\n",
        escape(&sheet.title),
        canvas.text,
    )
}

/// The markup so far, and its height.
struct Canvas {
    text: String,
    y: f64,
}

impl Canvas {
    fn line(&mut self, class: &str, text: &str, height: f64) {
        if text.is_empty() {
            return;
        }
        let _ = writeln!(
            self.text,
            "<text class=\"{class}\" x=\"{MARGIN}\" y=\"{:.1}\">{}</text>",
            self.y,
            escape(text),
        );
        self.y += height;
    }

    fn chart(&mut self, chart: &Chart) {
        self.y += 12.0;
        self.line("heading", &chart.title, 22.0);
        self.line("soft", &chart.note, 22.0);
        self.legend(chart);
        let _ = writeln!(
            self.text,
            "<g transform=\"translate({MARGIN} {:.1})\">\n{}</g>",
            self.y,
            plot::plot(chart, Frame::WIDE.with_names(chart)),
        );
        self.y += Frame::WIDE.height + 12.0;
    }

    fn legend(&mut self, chart: &Chart) {
        if chart.series.len() < 2 {
            return;
        }
        let mut x = MARGIN;
        for (number, series) in chart.series.iter().enumerate() {
            if series.points().next().is_none() {
                continue;
            }
            let width = 32.0 + float(series.name.chars().count() as u64) * CHARACTER + 22.0;
            if x > MARGIN && x + width > MARGIN + Frame::WIDE.width {
                (x, self.y) = (MARGIN, self.y + 20.0);
            }
            let _ = writeln!(
                self.text,
                "<g class=\"{}\" transform=\"translate({x:.1} {:.1})\">{}</g>\
                 <text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                plot::class(number, series),
                self.y - 4.5,
                plot::key(chart, number, series),
                x + 32.0,
                self.y,
                escape(&series.name),
            );
            x += width;
        }
        self.y += 14.0;
    }
}

/// The colours are those of `assets/page.css`; a viewer that knows no variables gets them here.
const STYLE: &str = "
text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans','DejaVu Sans',\
sans-serif;fill:#1a1c1f}
.title{font-size:22px;font-weight:650}.heading{font-size:15px;font-weight:600}
.soft,.label{fill:#5a5f67}.label{font-size:12px}
.paper{fill:#fff}.grid{stroke:#ecedef}.zero{stroke:#8a8f98}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.mark,.bar,.ended text{fill:currentColor}
.best,.leader{fill:none;stroke:currentColor;stroke-width:1.5}.leader{stroke-width:1;opacity:.5}
.bound{color:#6b7078}
.s0{color:#2a6fc9}.s1{color:#c67c00}.s2{color:#0f9268}.s3{color:#b8418a}
.s4{color:#5540b8}.s5{color:#7a5a3a}.s6{color:#5c7a10}.s7{color:#0d7f92}
.s8{color:#c8372d}.s9{color:#4a6078}.s10{color:#9a3fd0}.s11{color:#1f6b3a}
@media(prefers-color-scheme:dark){
text{fill:#e9eaec}.soft,.label{fill:#a3a8b0}.paper{fill:#1b1d20}.grid{stroke:#272a2e}
.bound{color:#989da5}
.s0{color:#5a9df0}.s1{color:#e0a030}.s2{color:#35bf90}.s3{color:#e57fb8}
.s4{color:#a594f5}.s5{color:#c09a72}.s6{color:#a3c24a}.s7{color:#4fc3d6}
.s8{color:#ff8a7a}.s9{color:#9fb6cc}.s10{color:#d08cff}.s11{color:#7fc48f}
}
";
/// Around everything.
const MARGIN: f64 = 24.0;
/// The width of a character of a legend, about.
const CHARACTER: f64 = 7.4;
