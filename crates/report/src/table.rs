//! Runs as a text table for the terminal.
//!
//! ```text
//! readahead     streams  MB/s  of limit  requests     mean  delay s   p99 ms     read   wanted
//! linux-2.6.24       10  21.8      76 %     2,000  512 KiB     3.44      ...
//! ```
//!
//! [`render`] knows all rows and fits its columns to them. [`header`] and [`row`] print as runs
//! end, with columns wide enough for common figures; a longer one shifts its own row only.
//!
//! # Invariants
//! - Names from records cannot move the cursor: control characters are shown as `?`.
//! - In [`render`], every line has the same columns, text to the left and figures to the right.

use std::iter;

use crate::plain;
use crate::quantity::{bytes, count, figure, percent};
use crate::record::Run;

/// The runs as an aligned table, a line each under a header; empty when there is none.
#[must_use]
pub fn render(runs: &[Run]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let differ = |cell: fn(&Run) -> String| runs.iter().any(|run| cell(run) != cell(first));
    let columns: Vec<_> = COLUMNS.iter().filter(|c| c.width > 0 || differ(c.cell)).collect();
    let titles = columns.iter().map(|column| column.title.to_owned()).collect();
    let cells = |run| columns.iter().map(|column| (column.cell)(run)).collect();
    let lines: Vec<Vec<String>> = iter::once(titles).chain(runs.iter().map(cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns.len()).filter_map(width).collect();
    lines.iter().map(|line| aligned(line.iter().zip(widths.iter().copied()))).collect()
}

/// The header for rows that [`row`] prints one by one.
#[must_use]
pub fn header() -> String {
    aligned(fixed().map(|column| (column.title, column.width)))
}

/// One run as a line under [`header`].
#[must_use]
pub fn row(run: &Run) -> String {
    aligned(fixed().map(|column| ((column.cell)(run), column.width)))
}

/// A column: its title, its width in rows that are printed one by one, and what it shows of a run.
struct Column {
    title: &'static str,
    /// 0 for a name that is shown only in whole tables, where rows differ in it.
    width: usize,
    cell: fn(&Run) -> String,
}

const fn column(title: &'static str, width: usize, cell: fn(&Run) -> String) -> Column {
    Column { title, width, cell }
}

const COLUMNS: [Column; 12] = [
    column("readahead", 16, |run| plain::text(&run.readahead)),
    column("streams", 7, |run| count(run.streams.into())),
    column("MB/s", 8, |run| figure(run.mb_per_second)),
    column("of limit", 8, |run| run.ratio_to_limit.map_or_else(|| "-".to_owned(), percent)),
    column("requests", 9, |run| count(run.device_requests)),
    column("mean", 8, |run| bytes(run.mean_request_bytes)),
    column("delay s", 8, |run| figure(run.delay_seconds)),
    column("p99 ms", 8, |run| figure(run.p99_us / 1_000.0)),
    column("read", 8, |run| bytes(run.bytes_read)),
    column("wanted", 8, |run| bytes(run.bytes_wanted)),
    column("device", 0, device),
    column("workload", 0, |run| plain::text(&run.workload)),
];

/// The columns of every table.
fn fixed() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|column| column.width > 0)
}

fn device(run: &Run) -> String {
    let cache = match run.drive_cache {
        Some(true) => " (cache on)",
        Some(false) => " (cache off)",
        None => "",
    };
    format!("{}{cache}", plain::text(&run.device))
}

/// One line of cells and their widths; names are set to the left, figures to the right.
fn aligned(cells: impl Iterator<Item = (impl AsRef<str>, usize)>) -> String {
    let cells = cells.enumerate().map(|(column, (cell, width))| {
        let cell = cell.as_ref();
        let is_figure = (1..FIGURES_END).contains(&column);
        if is_figure { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    });
    cells.collect::<Vec<String>>().join("  ").trim_end().to_owned() + "\n"
}

/// The columns before this one and after the first hold figures.
const FIGURES_END: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(readahead: &str, streams: u32, mb_per_second: f64) -> Run {
        Run {
            readahead: readahead.to_owned(),
            device: "t7k250".to_owned(),
            streams,
            mb_per_second,
            delay_seconds: 3.44,
            device_requests: 2_000,
            mean_request_bytes: 524_288,
            bytes_read: 1 << 30,
            bytes_wanted: 100 << 20,
            ratio_to_limit: Some(0.764),
            p99_us: 18_300.0,
            ..Run::default()
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_figures_stand_to_the_right() {
        let mut bare = run("off", 1, 0.81);
        bare.ratio_to_limit = None;
        let expected = "\
readahead     streams   MB/s  of limit  requests     mean  delay s  p99 ms   read   wanted
off                 1  0.810         -     2,000  512 KiB     3.44    18.3  1 GiB  100 MiB
linux-2.6.24       10   21.8      76 %     2,000  512 KiB     3.44    18.3  1 GiB  100 MiB
";
        assert_eq!(render(&[bare, run("linux-2.6.24", 10, 21.78)]), expected);
    }

    #[test]
    fn device_and_workload_are_named_only_where_they_differ() {
        let mut other = run("off", 1, 1.0);
        other.drive_cache = Some(true);
        let text = render(&[run("off", 1, 1.0), other.clone()]);
        assert!(text.lines().next().unwrap().ends_with("wanted  device"), "{text}");
        assert!(text.lines().last().unwrap().ends_with("  t7k250 (cache on)"), "{text}");
        other.drive_cache = Some(false);
        other.workload = "mail".to_owned();
        let text = render(&[run("off", 1, 1.0), other]);
        assert!(text.lines().last().unwrap().ends_with("t7k250 (cache off)  mail"), "{text}");
    }

    #[test]
    fn rows_one_by_one_stand_under_their_header() {
        let (head, line) = (header(), row(&run("linux-2.6.24", 10, 21.78)));
        for (title, cell) in [("streams", "10"), ("MB/s", "21.8"), ("wanted", "100 MiB")] {
            let end = |text: &str, part: &str| text.find(part).unwrap() + part.len();
            assert_eq!(end(&head, title), end(&line, cell), "{title}\n{head}{line}");
        }
        assert!(head.ends_with("wanted\n") && line.ends_with("MiB\n"));
    }

    #[test]
    fn names_cannot_move_the_cursor_and_no_runs_are_no_table() {
        let text = render(&[run("a\x1b[2J\nb", 1, 1.0)]);
        assert!(text.contains("a?[2J?b") && text.lines().count() == 2, "{text}");
        assert_eq!(render(&[]), "");
    }

    #[test]
    fn huge_figures_stay_in_their_columns() {
        let mut huge = run("off", u32::MAX, 1e300);
        (huge.device_requests, huge.bytes_read, huge.delay_seconds) = (u64::MAX, u64::MAX, 1e18);
        let text = render(&[huge, run("off", 1, 1.0)]);
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(lengths.iter().all(|&length| length == lengths[0]), "{text}");
    }
}
