//! `forerun sim --plot`: hit ratios over the size of the cache, as a page or as a picture.
//!
//! ```text
//!   FILE.html   one page: values at the pointer, lines that can be switched off, a table
//!   FILE.svg    the same curves, for a text or a slide
//! ```
//! A trace has a chart of its own; what else differs between runs is a line in it. Where LRU is one
//! of several, the differences to it are a second view.
//!
//! # Invariants
//! - A name that cannot be written is refused before the first run.
//! - The file is the whole new one, or what was there before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::curves::{Better, Chart, Section, Series, Sheet, Unit, X, Y};
use anyhow::Result;
use forerun_console::failure::usage;
use forerun_console::{machine, output};
use forerun_sim::oracle::belady;

use super::Plan;
use super::rows::RunRow;
use super::untimed;
use crate::specs;
use crate::specs::PAGE_BYTES;

/// The default sizes: shares of the trace's pages that double.
pub(super) const SIZES: &str = "0.05%,0.1%,0.2%,0.4%,0.8%,1.6%,3.2%,6.25%,12.5%,25%,50%,100%";

/// A file to draw.
pub(super) struct Plot {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Page,
    Picture,
}

impl Plot {
    /// The plot that `path` names, by its suffix; errors name `flag`.
    pub(super) fn new(flag: &str, path: &Path) -> Result<Self> {
        let kind = match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("html") => Kind::Page,
            Some("svg") => Kind::Picture,
            _ => {
                return Err(usage(format!(
                    "{flag} {}: name a file that ends with .html or .svg",
                    path.display()
                )));
            }
        };
        Ok(Self { path: path.to_owned(), kind })
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Draws the hit ratios of `rows`.
    pub(super) fn write(&self, plan: &Plan, rows: &[RunRow]) -> Result<()> {
        // A trace that failed has no row.
        let was_run = |name: &str| rows.iter().any(|run| run.trace == name);
        let sources = plan.sources.iter().filter(|source| was_run(&source.name()));
        let sections: Vec<Section> =
            sources.map(|source| section(plan, source, rows)).collect::<Result<_>>()?;
        let title = match sections.as_slice() {
            [only] => format!("Hit ratios of {}", only.title),
            all => format!("Hit ratios of {} traces", all.len()),
        };
        let command = machine::command().join(" ");
        self.draw(&Sheet { title, lead: String::new(), command, sections })
    }

    /// Draws what `sheet` holds.
    pub(super) fn draw(&self, sheet: &Sheet) -> Result<()> {
        let text = match self.kind {
            Kind::Page => sheet.page(),
            Kind::Picture => sheet.picture(),
        };
        output::file(&self.path, text.as_bytes())
    }
}

/// Adds the bound of all policies to `--policy all`.
pub(super) fn add_bound(asked: &str, policies: &mut Vec<String>) {
    let all = specs::split(asked).iter().any(|spec| spec == "all");
    if all && !policies.iter().any(|policy| policy == belady::NAME) {
        policies.push(belady::NAME.to_owned());
    }
}

fn section(plan: &Plan, source: &super::Source, rows: &[RunRow]) -> Result<Section> {
    let name = source.name();
    let runs: Vec<&RunRow> = rows.iter().filter(|run| run.trace == name).collect();
    let again = source.can_be_read_again();
    let survey = again.then(|| untimed::surveyed(plan, source)).transpose()?;
    let accesses = runs.first().map_or(0, |run| run.accesses);
    let title = source.title();
    let unique = survey.map(|survey| survey.unique);
    let mut section = Section::of_trace(&title, accesses, unique, PAGE_BYTES);
    section.charts.push(chart(&title, &runs));
    Ok(section)
}

/// A line for everything that was run with several sizes of a cache for `trace`.
fn chart(trace: &str, runs: &[&RunRow]) -> Chart {
    let mut pages: Vec<u32> = runs.iter().map(|run| run.cache_pages).collect();
    pages.sort_unstable();
    pages.dedup();
    // In the order of the command line; by their full titles.
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut ratios: BTreeMap<(String, u32), f64> = BTreeMap::new();
    // By bytes where all runs are counted so.
    let by_bytes: Option<Vec<f64>> = runs.iter().map(|run| run.byte_hit_ratio()).collect();
    let ratio_of = if by_bytes.is_some() { "byte hit ratio" } else { "hit ratio" };
    let shown = by_bytes.unwrap_or_else(|| runs.iter().map(|run| run.hit_ratio).collect());
    for (run, ratio) in runs.iter().zip(shown) {
        let (short, full) = run.titles();
        ratios.insert((full.clone(), run.cache_pages), ratio);
        if !lines.iter().any(|line| line.1 == full) {
            lines.push((short, full));
        }
    }
    let series = |(short, full): &(String, String)| {
        let alone = lines.iter().filter(|line| line.0 == *short).count() == 1;
        let ratio = |&size: &u32| ratios.get(&(full.clone(), size)).copied();
        Series {
            name: if alone { short.clone() } else { full.clone() },
            bound: short == belady::NAME,
            y: pages.iter().map(ratio).collect(),
        }
    };
    let note = if lines.iter().any(|(short, _)| short == belady::NAME) {
        // The fewest misses are not always the fewest bytes.
        if ratio_of == "hit ratio" {
            "Higher is better. Belady knows the future: nothing can be better."
        } else {
            "Higher is better. Belady knows the future: no policy has fewer misses."
        }
    } else {
        "Higher is better."
    };
    Chart {
        title: format!("{trace}: {ratio_of} by cache size"),
        note: note.to_owned(),
        series: lines.iter().map(series).collect(),
        better: Some(Better::Higher),
        baseline: lines.iter().position(|(short, _)| short == BASELINE),
        x: X::Pages { pages, page_bytes: PAGE_BYTES },
        y: Y { label: ratio_of.to_owned(), unit: Unit::Share },
        claims: Vec::new(),
    }
}

/// The policy that others are compared with.
const BASELINE: &str = "lru";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_tells_what_is_drawn() {
        for (name, is_page) in [("a.html", Some(true)), ("a.b.svg", Some(false)), ("a", None)] {
            let plot = Plot::new("--plot", Path::new(name));
            let kind = plot.ok().map(|plot| matches!(plot.kind, Kind::Page));
            assert_eq!(kind, is_page, "{name}");
        }
    }

    #[test]
    fn all_policies_have_their_bound() {
        #[rustfmt::skip]
        let rows = [
            ("all",        &["lru"][..],           &["lru", "belady"][..]),
            ("lru",        &["lru"],               &["lru"]),
            ("all,belady", &["lru", "belady"],     &["lru", "belady"]),
        ];
        for (asked, before, after) in rows {
            let mut policies: Vec<String> = before.iter().map(|&name| name.to_owned()).collect();
            add_bound(asked, &mut policies);
            assert_eq!(policies, after, "{asked}");
        }
    }

    #[test]
    fn default_sizes_double_up_to_all_pages() {
        let sizes = specs::sizes("--size", SIZES).expect("they parse");
        let pages: Vec<u32> = sizes.iter().map(|size| size.pages(1_000_000)).collect();
        assert_eq!((pages.len(), pages[0], pages[11]), (12, 500, 1_000_000));
        assert!(pages.windows(2).all(|two| (19..=21).contains(&(10 * two[1] / two[0]))));
    }
}
