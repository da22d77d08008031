//! A sheet of charts: curves over the size of a cache or over percentiles, bars over classes.
//!
//! ```text
//!   Sheet -> sections (a trace each) -> charts -> series
//!     |
//!     +-- page()      one HTML file: the pictures, legends that switch lines off, values at the
//!     |               pointer, tables
//!     +-- picture()   one SVG file: the same pictures, one below the other, with their legends
//! ```
//!
//! A chart's values stand side by side with its `x`: a policy that was not run with a size has a
//! gap there. A chart with a baseline has a second view: the differences of its series to that one.
//! Beside a chart may stand a paper's statement and the result of the run.
//!
//! # Invariants
//! - A page makes no network request and says everything without its script; a picture has no
//!   script at all. Both follow the reader's choice of light or dark.
//! - The same sheet gives the same page and picture, byte for byte.
//! - No text of a sheet opens a tag.

mod axes;
mod labels;
mod page;
mod picture;
mod plot;
mod views;

use forerun_report::quantity::{bytes, count, figure};
use serde::{Deserialize, Serialize};

/// The contents of one page.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Sheet {
    /// The head.
    pub(crate) title: String,
    /// A sentence or two under it.
    pub(crate) lead: String,
    /// The command line that made it.
    pub(crate) command: String,
    /// A trace each.
    pub(crate) sections: Vec<Section>,
}

/// The charts of one trace.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Section {
    /// The trace.
    pub(crate) title: String,
    /// Its accesses, pages, page size.
    pub(crate) facts: String,
    /// Its charts, in order.
    pub(crate) charts: Vec<Chart>,
}

/// Series over one axis.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Chart {
    /// The title.
    pub(crate) title: String,
    /// A word on how to read it.
    pub(crate) note: String,
    /// The places of the values.
    pub(crate) x: X,
    /// The measure of the values.
    pub(crate) y: Y,
    /// A line or a kind of bar each.
    pub(crate) series: Vec<Series>,
    /// Which value at a place is the best, and marked; none where there is no better and worse.
    pub(crate) better: Option<Better>,
    /// The series that the second view compares all others with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) baseline: Option<usize>,
    /// The statements of its sources.
    pub(crate) claims: Vec<Claim>,
}

/// Which value is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Better {
    /// The largest.
    Higher,
    /// The smallest.
    Lower,
}

/// Where values stand.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum X {
    /// Sizes of a cache, ascending: curves on a log axis.
    Pages {
        /// In pages; none is 0.
        pages: Vec<u32>,
        /// Bytes of one.
        page_bytes: u32,
    },
    /// Moments or durations, ascending: curves without marks.
    Times {
        /// What they are.
        label: String,
        /// In seconds.
        seconds: Vec<f64>,
        /// On a log axis; all are above 0.
        log: bool,
    },
    /// Classes: bars side by side.
    Classes {
        /// The quantity of the classes.
        label: String,
        /// In order.
        names: Vec<String>,
    },
    /// Steps of the same width, such as percentiles: curves.
    Steps {
        /// The quantity of the steps.
        label: String,
        /// In order.
        names: Vec<String>,
    },
}

/// The measure of values.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Y {
    /// In words.
    pub(crate) label: String,
    /// How they are written.
    pub(crate) unit: Unit,
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// As percent.
    Share,
    /// As numbers.
    Count,
    /// Differences of shares, as percentage points with their sign.
    Points,
}

/// One line, or the bars of one colour.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Series {
    /// In the legend.
    pub(crate) name: String,
    /// Whether it is the bound of all series.
    pub(crate) bound: bool,
    /// A value or a gap for each place.
    pub(crate) y: Vec<Option<f64>>,
}

/// A source's statement, and the result.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Claim {
    /// The subject.
    pub(crate) what: String,
    /// As the source has it; none where the result is of other data than the source's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// As it is here.
    pub(crate) here: String,
}

impl Sheet {
    /// As one HTML file.
    pub(crate) fn page(&self) -> String {
        page::page(self)
    }

    /// As one SVG file.
    pub(crate) fn picture(&self) -> String {
        picture::picture(self)
    }
}

impl Section {
    /// A trace without charts yet.
    pub(crate) fn of_trace(
        title: &str,
        accesses: u64,
        unique: Option<u64>,
        page_bytes: u32,
    ) -> Self {
        let page = bytes(page_bytes.into());
        let pages = match unique {
            Some(unique) => {
                let all = bytes(unique * u64::from(page_bytes));
                format!("{} unique pages of {page} ({all})", count(unique))
            }
            None => format!("pages of {page}"),
        };
        let facts = format!("{} accesses to {pages}", count(accesses));
        Self { title: title.to_owned(), facts, charts: Vec::new() }
    }
}

impl X {
    /// How many places there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Pages { pages, .. } => pages.len(),
            Self::Times { seconds, .. } => seconds.len(),
            Self::Classes { names, .. } | Self::Steps { names, .. } => names.len(),
        }
    }
}

impl Unit {
    /// `value` as text.
    fn show(self, value: f64) -> String {
        match self {
            Self::Share => format!("{:.2} %", value * 100.0),
            Self::Count => figure(value),
            Self::Points => format!("{:+.2}", value * 100.0),
        }
    }
}

impl Series {
    /// The finite values with the numbers of their places.
    fn points(&self) -> impl Iterator<Item = (usize, f64)> {
        let finite = |&(at, y): &(usize, &Option<f64>)| Some((at, y.filter(|y| y.is_finite())?));
        self.y.iter().enumerate().filter_map(move |it| finite(&it))
    }

    /// The finite value of a place.
    fn at(&self, place: usize) -> Option<f64> {
        self.y.get(place).copied().flatten().filter(|y| y.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn sheet() -> Sheet {
        let series = |name: &str, bound, y: &[f64]| Series {
            name: name.into(),
            bound,
            y: y.iter().map(|&y| Some(y).filter(|y| *y >= 0.0)).collect(),
        };
        let curves = Chart {
            title: "Hit ratio".into(),
            note: "Higher is better.".into(),
            x: X::Pages { pages: vec![1, 64, 4_096], page_bytes: 4_096 },
            y: Y { label: "hit ratio".into(), unit: Unit::Share },
            series: vec![
                series("lru", false, &[0.25, 0.5, 0.75]),
                series("2q & <co>", false, &[0.3, -1.0, 0.7]),
                series("belady", true, &[0.4, 0.6, 0.8]),
            ],
            better: Some(Better::Higher),
            baseline: None,
            claims: vec![Claim {
                what: "2Q on LRU".into(),
                source: Some("+10".into()),
                here: "+11.1".into(),
            }],
        };
        let names = ["1", "2", "> 2"].map(str::to_owned).to_vec();
        let bars = Chart {
            title: "Uses".into(),
            x: X::Classes { label: "uses of a page".into(), names },
            y: Y { label: "pages".into(), unit: Unit::Count },
            series: vec![series("here", false, &[1_000.0, 20.0, 0.0])],
            claims: Vec::new(),
            ..curves.clone()
        };
        let section =
            |charts| Section { charts, ..Section::of_trace("mail \"m1\"", 5, Some(2), 4_096) };
        Sheet {
            title: "A <sheet>".into(),
            lead: "What it is.".into(),
            command: "forerun sim".into(),
            sections: vec![section(vec![curves.clone()]), section(vec![curves, bars])],
        }
    }

    /// Every tag is closed in order, and no `<` or bare `&` stands in text.
    fn well_formed(markup: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = markup;
        while let Some(at) = rest.find('<') {
            let (text, tag) = rest.split_at(at);
            assert!(!text.contains('>'), "{text}");
            for entity in text.split('&').skip(1) {
                assert!(entity.split_once(';').is_some_and(|(name, _)| name.len() < 8), "{text}");
            }
            let end = tag.find('>').expect("a tag ends");
            let inside = &tag[1..end];
            assert_eq!(inside.matches('"').count() % 2, 0, "{inside}");
            if let Some(name) = inside.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{inside}");
            } else if !inside.ends_with('/') && !inside.starts_with('?') {
                open.push(inside.split_whitespace().next().expect("a name"));
            }
            rest = &tag[end + 1..];
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
    }

    /// Lines of plots; those of legends lie within 26 units.
    fn lines(markup: &str) -> usize {
        let legend = markup.matches("points=\"0.0,0.0 26.0,0.0\"").count();
        markup.matches("<polyline class=\"line\"").count() - legend
    }

    /// The places of the names at the ends of the curves of an SVG element: (x, y, name).
    fn names(svg: &str) -> Vec<(f64, f64, &str)> {
        let name = |part: &str| {
            let number = |key: &str| {
                let from = part.find(key).expect(key) + key.len();
                part[from..].split('"').next()?.parse::<f64>().ok()
            };
            number(" x=\"").zip(number(" y=\""))
        };
        let ends = svg.split("data-name=").skip(1);
        ends.map(|end| {
            let text = &end[end.find("<text").expect("a name")..];
            let shown = text.split(['<', '>']).nth(2).expect("its text");
            let (x, y) = name(text).expect("its place");
            (x, y, shown)
        })
        .collect()
    }

    #[test]
    fn a_dozen_curves_have_names_that_do_not_overlap_within_every_width() {
        let mut dozen = sheet();
        dozen.sections.truncate(1);
        let chart = &mut dozen.sections[0].charts[0];
        chart.series = (0..12)
            .map(|n: u32| Series {
                name: format!("policy-{n}"),
                bound: n == 11,
                y: vec![Some(f64::from(n % 5) / 10.0), Some(f64::from(n % 3) / 9.0), Some(0.75)],
            })
            .collect();
        chart.baseline = Some(1);
        let page = dozen.page();
        let pictures: Vec<&str> = page
            .split("<svg class=\"")
            .skip(1)
            .filter(|svg| svg.contains("viewBox=\"0 0"))
            .collect();
        assert_eq!(pictures.len(), 2 * 3, "the ratios and the differences, in three widths");
        for (svg, count) in pictures.iter().zip([12, 12, 12, 11, 11, 11]) {
            let svg = &svg[..svg.find("</svg>").expect("it ends")];
            let size = svg.split("viewBox=\"0 0 ").nth(1).and_then(|size| size.split('"').next());
            let (width, height) = size.and_then(|size| size.split_once(' ')).expect("a size");
            let (width, height): (f64, f64) = (width.parse().unwrap(), height.parse().unwrap());
            let names = names(svg);
            assert_eq!(names.len(), count);
            for pair in names.windows(2) {
                assert!(pair[1].1 - pair[0].1 >= 14.9, "{pair:?}");
            }
            for (x, y, name) in names {
                let text = width_of(name);
                assert!(x + text <= width && (0.0..height).contains(&y), "{name} at {x}, {y}");
                assert!(!name.contains('\u{2026}'), "{name} is whole");
            }
        }
        assert!(page.contains("Difference to policy-1") && page.contains("class=\"best\""));
        well_formed(&dozen.picture());
    }

    /// The width of a name, at 13 pixels a wide letter.
    fn width_of(name: &str) -> f64 {
        name.chars().map(|_| 8.0).sum()
    }

    #[test]
    fn the_best_of_each_size_is_ringed_bold_and_told() {
        let page = sheet().page();
        let told = &page[page.find("class=\"reigns\"").expect("it is told")..];
        let told = &told[..told.find("</p>").expect("it ends")];
        assert!(told.contains("4 KiB: <b>2q &amp; &lt;co&gt;</b>"), "{told}");
        assert!(told.contains("16 MiB: <b>lru</b>"), "{told}");
        assert_eq!(page.matches("class=\"n best\"").count(), 2 * 3 - 2, "64 pages have one value");
    }

    #[test]
    fn a_picture_is_well_formed_and_has_every_line() {
        let picture = sheet().picture();
        well_formed(&picture);
        assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        assert_eq!(lines(&picture), 2 * 3, "a line a series");
        assert_eq!(picture.matches("class=\"bar\"").count(), 3);
        for text in ["A &lt;sheet&gt;", "2q &amp; &lt;co&gt;", "mail &quot;m1&quot;", "16 MiB"] {
            assert!(picture.contains(text), "{text}");
        }
        assert!(!picture.contains("<script") && !picture.contains("href"));
    }

    #[test]
    fn a_page_has_every_curve_in_each_width_a_switch_for_it_and_its_values() {
        let page = sheet().page();
        assert_eq!(lines(&page), 3 * 3 + 2 * 3, "a chart alone has three widths, a pair two");
        assert_eq!(page.matches("data-switch=").count(), 2 * 3, "one series needs none");
        for text in [
            "5 accesses to 2 unique pages of 4 KiB (8 KiB)",
            "25.00 %",
            "80.00 %",
            "&ndash;",
            "+11.1",
            "<h1>A &lt;sheet&gt;</h1>",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("<co>"), "no text opens a tag");
        for loader in ["src=", "href=", "@import", "url(", "fetch("] {
            assert!(!page.contains(loader), "{loader}");
        }
        let body = &page[page.find("<main>").unwrap()..page.find("</main>").unwrap() + 7];
        well_formed(&body.replace("<br>", ""));
        assert_eq!(page, sheet().page());
    }

    #[test]
    fn percentiles_are_curves_and_have_their_names() {
        let mut sheet = sheet();
        let chart = &mut sheet.sections[0].charts[0];
        let names = ["P10", "P50", "P90"].map(str::to_owned).to_vec();
        chart.x = X::Steps { label: "percentile of traces".into(), names };
        chart.series[0].y = vec![Some(-0.1), Some(0.0), Some(0.2)];
        let picture = sheet.picture();
        well_formed(&picture);
        assert_eq!(lines(&picture), 2 * 3);
        let page = sheet.page();
        for text in ["percentile of traces", ">P10<", "-10.00 %"] {
            assert!(picture.contains(text) || page.contains(text), "{text}");
        }
        let text = serde_json::to_string(&sheet).expect("JSON");
        let again: Sheet = serde_json::from_str(&text).expect("its own JSON");
        assert_eq!(again.page(), page);
    }

    #[test]
    fn odd_values_are_gaps_and_nothing_is_drawn_of_nothing() {
        let mut odd = sheet();
        for chart in odd.sections.iter_mut().flat_map(|section| &mut section.charts) {
            chart.series[0].y = vec![Some(f64::NAN), Some(f64::INFINITY), None];
        }
        odd.sections[0].charts[0].x = X::Pages { pages: vec![7], page_bytes: 4_096 };
        odd.sections[0].charts[0].series.iter_mut().for_each(|series| series.y.truncate(1));
        for text in [odd.picture(), odd.page(), Sheet::default().picture(), Sheet::default().page()]
        {
            assert!(!text.contains("NaN") && !text.contains("inf\""), "{text}");
        }
        well_formed(&odd.picture());
    }
}
