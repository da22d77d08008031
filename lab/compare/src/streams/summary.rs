//! The kernel and forerun side by side: a line a device and pattern.
//!
//! ```text
//!   kernel, each setting --> the best one --+
//!   forerun, the policy that is judged -----+--> ratio >= 0.97? --> line; a miss is bold
//!   forerun, others; virtual ---------------+--> beside
//! ```
//!
//! # Invariants
//! - Each measured pattern has its line, also where a contender is missing.
//! - The kernel counts at its best setting for that very pattern.

use serde_json::Value;

use super::case::Pattern;
use crate::device::Device;

/// All runs of a pattern on a device.
pub(super) struct Group {
    pub(super) device: &'static Device,
    pub(super) pattern: &'static Pattern,
    /// As the table has them, by name.
    pub(super) runs: Vec<Value>,
}

impl Group {
    fn of(&self, name: &str) -> Option<&Value> {
        self.runs.iter().find(|run| run["readahead"] == name)
    }

    /// The kernel's fastest run.
    fn kernel(&self) -> Option<&Value> {
        let is_kernel = |run: &&Value| named(run).starts_with(KERNEL);
        let rate = |run: &Value| float(run, "mb_per_second");
        self.runs.iter().filter(is_kernel).max_by(|a, b| rate(a).total_cmp(&rate(b)))
    }

    /// The line of the policy `ours`.
    fn line(&self, ours: &str) -> String {
        let (kernel, forerun) = (self.kernel(), self.of(&format!("forerun {ours}")));
        let virtually = self.of(&format!("virtual {ours}"));
        let ratio = kernel.zip(forerun).map(|(kernel, forerun)| {
            float(forerun, "mb_per_second") / float(kernel, "mb_per_second")
        });
        let shown = |run: Option<&Value>, show: &dyn Fn(&Value) -> String| {
            run.map_or_else(|| "-".to_owned(), show)
        };
        let setting = |run: &Value| named(run).trim_start_matches(KERNEL).to_owned();
        let bytes =
            |run: &Value| format!("{:.2}", float(run, "bytes_read") / float(run, "bytes_wanted"));
        let online = |run: &Value| {
            let limit = run["limit_mb_per_second"].as_f64();
            limit.map_or_else(|| "-".to_owned(), |limit| format!("{limit:.2}"))
        };
        [
            self.device.name.to_owned(),
            self.pattern.name.to_owned(),
            shown(kernel, &setting),
            shown(kernel, &rate),
            shown(forerun, &rate),
            ratio.map_or_else(|| "-".to_owned(), judged),
            format!("{}, {}", shown(kernel, &requests), shown(forerun, &requests)),
            format!("{}, {}", shown(kernel, &bytes), shown(forerun, &bytes)),
            shown(virtually, &rate),
            shown(virtually, &online),
            self.beside(ours, forerun),
        ]
        .join(" | ")
    }

    /// The other policies' results, and the wait of reads without readahead.
    fn beside(&self, ours: &str, forerun: Option<&Value>) -> String {
        let mut notes = Vec::new();
        for run in &self.runs {
            let Some(policy) = named(run).strip_prefix("forerun ").filter(|it| *it != ours) else {
                continue;
            };
            let wait = |name| forerun.map_or(f64::NAN, |own| float(own, name) / float(run, name));
            notes.push(if policy == "off" {
                format!("p50 {:.2}, p99 {:.2} of `off`", wait("p50_us"), wait("p99_us"))
            } else {
                format!("{policy}: {}, requests {}", rate(run), requests(run))
            });
        }
        notes.join("; ")
    }
}

/// The whole summary, as Markdown; `lines` say how it was measured, `table` has all runs.
pub(super) fn text(lines: &[String], groups: &[Group], ours: &str, table: &str) -> String {
    let rows: Vec<String> =
        groups.iter().map(|group| format!("| {} |", group.line(ours))).collect();
    let missed = rows.iter().filter(|row| row.contains("**")).count();
    let head: Vec<String> = lines.iter().map(|line| format!("- {line}")).collect();
    format!(
        "# The kernel's readahead beside forerun's\n\n{}\n- {missed} of {} below {SHARE} of the \
         kernel's best; MB/s{}\n\n{HEADER}\n{}\n\n## All runs\n\n{table}\n",
        head.join("\n"),
        rows.len(),
        ", median (slowest to fastest) where repeated",
        rows.join("\n"),
    )
}

fn judged(ratio: f64) -> String {
    if ratio >= SHARE { format!("{ratio:.3}") } else { format!("**{ratio:.3}**") }
}

fn rate(run: &Value) -> String {
    let median = float(run, "mb_per_second");
    match (run["spread"]["min"].as_f64(), run["spread"]["max"].as_f64()) {
        (Some(min), Some(max)) => format!("{median:.2} ({min:.2} to {max:.2})"),
        _ => format!("{median:.2}"),
    }
}

/// For each 100 MB that were delivered, as a run may have been cut.
fn requests(run: &Value) -> String {
    format!("{:.0}", float(run, "device_requests") / float(run, "bytes_wanted") * 1e8)
}

fn named(run: &Value) -> &str {
    run["readahead"].as_str().unwrap_or("?")
}

fn float(run: &Value, name: &str) -> f64 {
    run[name].as_f64().unwrap_or(f64::NAN)
}

const KERNEL: &str = "kernel ";
/// The share of the kernel's best that forerun must reach.
const SHARE: f64 = 0.97;
const HEADER: &str = "\
| device | pattern | kernel's best | MB/s | forerun | ratio | requests a 100 MB | read / wanted \
| virtual | online limit | beside |
|---|---|---|---|---|---|---|---|---|---|---|";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::case::PATTERNS;
    use super::*;
    use crate::device::DEVICES;

    fn run(name: &str, mb_per_second: f64) -> Value {
        json!({ "readahead": name, "mb_per_second": mb_per_second, "device_requests": 50,
            "bytes_read": 150_000_000, "bytes_wanted": 100_000_000, "p50_us": 2.0, "p99_us": 4.0 })
    }

    fn group(runs: Vec<Value>) -> Group {
        Group { device: &DEVICES[1], pattern: &PATTERNS[0], runs }
    }

    #[test]
    fn the_kernel_counts_at_its_best_and_a_miss_is_bold() {
        let kernels =
            [run("kernel 128K, large folios", 90.0), run("kernel 1024K, small folios", 100.0)];
        #[rustfmt::skip]
        let rows = [ // ours   ratio
            (97.0,            "0.970"),
            (96.9,            "**0.969**"),
        ];
        for (rate, ratio) in rows {
            let mut runs = kernels.to_vec();
            runs.extend([run("forerun streams", rate), run("forerun linux-6", 50.0)]);
            let line = group(runs).line("streams");
            let start =
                format!("hdd | stream-100M | 1024K, small folios | 100.00 | {rate:.2} | {ratio}");
            assert!(line.starts_with(&start), "{line}");
            assert!(line.ends_with("| 50, 50 | 1.50, 1.50 | - | - | linux-6: 50.00, requests 50"));
        }
    }

    #[test]
    fn no_pattern_is_left_out_and_random_reads_stand_beside_off() {
        let mut spread = run("forerun streams", 10.0);
        spread["spread"] = json!({ "min": 9.0, "max": 11.0 });
        let mut virtually = run("virtual streams", 12.0);
        virtually["limit_mb_per_second"] = json!(13.0);
        let mut off = run("forerun off", 10.0);
        off["p99_us"] = json!(2.0);
        let line = group(vec![spread, off, virtually]).line("streams");
        let text = "hdd | stream-100M | - | - | 10.00 (9.00 to 11.00) | - | -, 50 | -, 1.50 | \
                    12.00 | 13.00 | p50 1.00, p99 2.00 of `off`";
        assert_eq!(line, text);
        let kernel = [run("kernel 128K", 10.0), run("forerun streams", 1.0)];
        let text = super::text(&[], &[group(vec![]), group(kernel.to_vec())], "streams", "");
        assert!(text.contains("1 of 2 below 0.97") && text.contains("| - |"), "{text}");
    }
}
