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

use crate::quantity::{bytes, count, figure, percent};
use crate::record::Run;

/// The runs as an aligned table, a line each under a header; empty when there is none.
#[must_use]
pub fn render(runs: &[Run]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let devices = differ(runs, device);
    let workloads = differ(runs, |run| plain(&run.workload));
    let head = with_extras(
        titles(),
        devices.then(|| "device".to_owned()),
        workloads.then(|| "workload".to_owned()),
    );
    let mut lines = vec![head];
    for run in runs {
        lines.push(with_extras(
            cells(run),
            devices.then(|| device(run)),
            workloads.then(|| plain(&run.workload)),
        ));
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..lines[0].len()).filter_map(width).collect();
    lines.iter().map(|line| aligned(line, &widths)).collect()
}

/// The header for rows that [`row`] prints one by one.
#[must_use]
pub fn header() -> String {
    aligned(&titles(), &WIDTHS)
}

/// One run as a line under [`header`].
#[must_use]
pub fn row(run: &Run) -> String {
    aligned(&cells(run), &WIDTHS)
}

fn titles() -> Vec<String> {
    [
        "readahead",
        "streams",
        "MB/s",
        "of limit",
        "requests",
        "mean",
        "delay s",
        "p99 ms",
        "read",
        "wanted",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn cells(run: &Run) -> Vec<String> {
    vec![
        plain(&run.readahead),
        count(u64::from(run.streams)),
        figure(run.mb_per_second),
        run.ratio_to_limit.map_or_else(|| "-".to_owned(), percent),
        count(run.device_requests),
        bytes(run.mean_request_bytes),
        figure(run.delay_seconds),
        figure(run.p99_us / 1_000.0),
        bytes(run.bytes_read),
        bytes(run.bytes_wanted),
    ]
}

/// Columns of names, at the end, shown only where rows differ in them.
fn with_extras(
    mut line: Vec<String>,
    device: Option<String>,
    workload: Option<String>,
) -> Vec<String> {
    line.extend(device);
    line.extend(workload);
    line
}

fn differ(runs: &[Run], of: impl Fn(&Run) -> String) -> bool {
    runs.iter().any(|run| of(run) != of(&runs[0]))
}

fn device(run: &Run) -> String {
    let cache = match run.drive_cache {
        Some(true) => " (cache on)",
        Some(false) => " (cache off)",
        None => "",
    };
    format!("{}{cache}", plain(&run.device))
}

/// One line of cells; names are set to the left, figures to the right.
fn aligned(cells: &[String], widths: &[usize]) -> String {
    assert_eq!(cells.len(), widths.len(), "a width for every cell");
    let mut line = String::new();
    for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        if column > 0 {
            line.push_str("  ");
        }
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        let figure = (1..FIGURES_END).contains(&column);
        let (before, after) = if figure { (padding.as_str(), "") } else { ("", padding.as_str()) };
        line.extend([before, cell, after]);
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// `text` without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The columns before this one and after the first hold figures.
const FIGURES_END: usize = 10;
/// Of [`header`] and [`row`].
const WIDTHS: [usize; FIGURES_END] = [16, 7, 8, 8, 9, 8, 8, 8, 8, 8];

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
