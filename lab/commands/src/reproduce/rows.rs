//! The rows of `docs/reproduction.md` that need nothing but this program: each a command, and what
//! of its JSON stands beside which figure of a paper.
//!
//! # Invariants
//! - A command has no word with blanks, and is printed as it is run, but for `--json`.
//! - A figure of a paper is from its text, never read off a picture.
//! # Sources
//! Wu, Xi, Xu 2010, and the patch of 2007 (paper 1); Fukayama et al. (2); Meng et al. 2009 (3);
//! Liao et al. 2022 (4).

use std::collections::BTreeMap;

use crate::comparison::ComparedFigure;
use forerun_report::quantity;
use serde_json::Value;

use crate::specs::PAGE_BYTES;

/// One row.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The words behind `forerun`, but for `--json`.
    pub(super) command: &'static str,
    /// Figures from what it prints.
    pub(super) figures: fn(&Value) -> Vec<ComparedFigure>,
    /// What differs, and why.
    pub(super) note: &'static str,
}

impl Row {
    /// The command as a person types it.
    pub(super) fn shown(&self) -> String {
        format!("forerun {}", self.command)
    }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "fig11-off",
        title: "Paper 1, 4.3, Fig. 11: interleaved streams, drive cache off",
        command: "sim workload:streams,n=1,each=100M workload:streams,n=2,each=100M \
                  workload:streams,n=3,each=100M workload:streams,n=10,each=100M \
                  --device t7k250 --size 2G --readahead linux-2.6.22:max=1M,linux-2.6.24:max=1M",
        figures: |json| {
            let rates = ["24.95", "28.32", "7.05", "28.32", "3.15", "28.32", "0.81", "21.78"];
            streams(json, &[1, 2, 3, 10], &rates)
        },
        note: "Ten streams under demand readahead are a third faster here: see `Where we differ`.",
    },
    Row {
        name: "fig11-on",
        title: "Paper 1, 4.3, Fig. 11: interleaved streams, drive cache on",
        command: "sim workload:streams,n=1,each=100M workload:streams,n=10,each=100M \
                  --device t7k250 --drive-cache on --size 2G \
                  --readahead linux-2.6.22:max=1M,linux-2.6.24:max=1M",
        figures: |json| streams(json, &[1, 10], &["51.38", "51.38", "12.29", "35.30"]),
        note: "",
    },
    Row {
        name: "fig12",
        title: "Paper 1, Fig. 12: I/O delay over the first 100 MB, 32 us a read",
        command: "sim workload:streams,n=1,each=100M workload:streams,n=10,each=100M \
                  --device t7k250 --size 2G --page-cost 32us \
                  --readahead linux-2.6.22:max=1M,linux-2.6.24:max=1M",
        figures: |json| {
            let rows = [
                ("1 stream, legacy, s", "3.36"),
                ("1 stream, demand, s", "2.89"),
                ("10 streams, legacy, s", "122.35"),
                ("10 streams, demand, s", "3.44"),
            ];
            of_runs(json, &rows, "/device/delay_seconds")
        },
        note: "32 us to take a page is derived from the paper's own rates and delays.",
    },
    Row {
        name: "fig9-fig10",
        title: "Paper 1, 4.2, Figs 9 and 10: random reads between sequential ones",
        command: "sim workload:disturb,percent=1 workload:disturb,percent=10 \
                  --device t7k250 --size 2G --readahead linux-2.6.22:max=1M,linux-2.6.24:max=1M",
        figures: |json| {
            let rows = [
                ("1 : 100, legacy, MB/s", "17.18"),
                ("1 : 100, demand, MB/s", "22.15"),
                ("10 : 100, legacy, MB/s", "5.10"),
                ("10 : 100, demand, MB/s", "6.39"),
            ];
            of_runs(json, &rows, "/device/mb_per_second")
        },
        note: "Legacy readahead at 1 : 100 is faster here, so demand readahead gains less.",
    },
    Row {
        name: "thrash",
        title: "The patch of 2007: 200 readers of 100 KB/s in 128 MB",
        command: "sim workload:thrash,streams=200,rate=100K --device t7k250 --drive-cache on \
                  --size 128M --readahead linux-2.6.22:max=1M,linux-2.6.24:max=1M",
        figures: |json| {
            let rows = [("legacy, MB/s", "5 (maximum)"), ("demand, MB/s", "15 (maximum)")];
            of_runs(json, &rows, "/device/mb_per_second")
        },
        note: "The patch gives maxima, these are means.",
    },
    Row {
        name: "table3",
        title: "Paper 2, Table 3: gzip with a prefetching thread, files 64 times smaller",
        command: "sim prefetch --scale 64 --limit 64K,1M",
        figures: |json| {
            let machine = |name: &str, paper: &str| ComparedFigure {
                what: format!("machine {name}: mean gain over 8 files"),
                paper: Some(paper.to_owned()),
                here: gain(json, name).map_or_else(missing, |gain| format!("{gain:.1} %")),
            };
            vec![machine("A", "36.2 %"), machine("B", "35.3 %")]
        },
        note: "The thread as printed, at the best limit, on a system without overlap.",
    },
    Row {
        name: "figs1-5",
        title: "Paper 3, Figs 1, 2, 4 and 5: the mail store and hit ratios, on a model of it",
        command: "sim figures workload:mail",
        figures: claims,
        note: "The traces are not public; the model has the statistics that the paper states.",
    },
    Row {
        name: "fig7",
        title: "Paper 3, Fig. 7: mean response of the mail store on four disks",
        command: "replay workload:mail,model=m1 --device t7k250*4 --warm-up 600s --until 3480s \
                  --policy lru,2q,arc,2q-star --cache 256M,512M,768M,1G,1280M",
        figures: |json| {
            let at_most_one = |size, runs: &[&Value]| ComparedFigure {
                what: format!("{size}: 2Q* to the best of LRU, 2Q and ARC"),
                paper: Some("at most 1, .8 at best".to_owned()),
                here: to_the_best(runs).map_or_else(missing, |it| format!("{it:.2}")),
            };
            by_size(json).into_iter().map(|(size, runs)| at_most_one(size, &runs)).collect()
        },
        note: "LIRS and S3-FIFO are ahead of all four from 768 MB on: see the page.",
    },
    Row {
        name: "fig8",
        title: "Paper 3, Fig. 8: the same under 2Q*, four times as slow, without and with prefetch",
        command: "replay workload:mail,model=m1 --device t7k250*4 --speed 0.25 --warm-up 2400s \
                  --until 13920s --policy 2q-star --readahead off,streams \
                  --cache 256M,512M,768M,1G,1280M",
        figures: |json| {
            let sizes = by_size(json).into_iter();
            sizes.flat_map(|(size, runs)| by_prefetch(&size, &runs)).collect()
        },
        note: "Requests are of 8 KB, and few are in order: windows stay short.",
    },
    Row {
        name: "table5",
        title: "Paper 4, Table 5: reads of 4 to 64 KB, one at a time, by the costs of the paper",
        command: "sim reap --costs paper --sizes 4K,8K,16K,32K,64K",
        figures: |json| {
            let figure = |what: &str, paper: &str, (policy, to, field)| ComparedFigure {
                what: what.to_owned(),
                paper: Some(paper.to_owned()),
                here: reap(json, policy, to, field).map_or_else(missing, |it| format!("{it:.3}")),
            };
            vec![
                figure("latency to interrupt", ".929", ("nio-paper", "interrupt", "mean_us")),
                figure("latency to polling", "1.036", ("nio-paper", "spin", "mean_us")),
                figure(
                    "processor time to polling",
                    "at most .41",
                    ("nio-paper", "spin", "cpu_us_per_io"),
                ),
                figure("ours: latency to interrupt", ".929", ("nio", "interrupt", "mean_us")),
            ]
        },
        note: "By the stated costs polling itself is at .938 of interrupts: .929 cannot be had.",
    },
];

/// The rate of each run: of a number of streams, under legacy readahead and under demand readahead.
fn streams(json: &Value, counts: &[u32], rates: &[&str]) -> Vec<ComparedFigure> {
    let policies = ["legacy", "demand"];
    let names = counts.iter().flat_map(|count| {
        let streams = if *count == 1 { "stream" } else { "streams" };
        policies.iter().map(move |policy| format!("{count} {streams}, {policy}, MB/s"))
    });
    let names: Vec<String> = names.collect();
    let rows: Vec<(&str, &str)> =
        names.iter().map(String::as_str).zip(rates.iter().copied()).collect();
    of_runs(json, &rows, "/device/mb_per_second")
}

/// Run after run, what lies at `place`.
fn of_runs(json: &Value, rows: &[(&str, &str)], place: &str) -> Vec<ComparedFigure> {
    let row = |(at, &(what, paper)): (usize, &(&str, &str))| {
        let here = json["runs"].get(at).and_then(|run| run.pointer(place)?.as_f64());
        ComparedFigure {
            what: what.to_owned(),
            paper: Some(paper.to_owned()),
            here: here.map_or_else(missing, |here| format!("{here:.2}")),
        }
    };
    rows.iter().enumerate().map(row).collect()
}

/// The statements that `sim figures` compares by itself.
fn claims(json: &Value) -> Vec<ComparedFigure> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut figures = Vec::new();
    for section in list(json, "sections") {
        for chart in list(&section, "charts") {
            let title = chart["title"].as_str().unwrap_or_default();
            let figure = title.split(':').next().unwrap_or_default().to_owned();
            figures.extend(list(&chart, "claims").iter().map(|claim| ComparedFigure {
                what: format!("{figure}: {}", claim["what"].as_str().unwrap_or_default()),
                paper: claim["source"].as_str().map(str::to_owned),
                here: claim["here"].as_str().unwrap_or_default().to_owned(),
            }));
        }
    }
    figures
}

/// The runs of each size of a cache, and the size in words.
fn by_size(json: &Value) -> Vec<(String, Vec<&Value>)> {
    let mut sizes: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for run in json["runs"].as_array().into_iter().flatten() {
        sizes.entry(run["cache_pages"].as_u64().unwrap_or(0)).or_default().push(run);
    }
    let words = |pages: u64| quantity::bytes(pages * u64::from(PAGE_BYTES));
    sizes.into_iter().map(|(pages, runs)| (words(pages), runs)).collect()
}

/// The mean response under 2Q* to that under the best other policy.
fn to_the_best(runs: &[&Value]) -> Option<f64> {
    let is_ours = |run: &&&Value| run["policy"] == "2q-star";
    let ours = runs.iter().find(is_ours)?["mean_response_us"].as_f64()?;
    let others = runs.iter().filter(|run| !is_ours(run));
    let best = others.filter_map(|run| run["mean_response_us"].as_f64()).reduce(f64::min)?;
    Some(ours / best)
}

/// What prefetch changes at one size, and the windows by which.
fn by_prefetch(size: &str, runs: &[&Value]) -> [ComparedFigure; 2] {
    let of = |readahead: &str, field: &str| {
        runs.iter().find(|run| run["readahead"] == readahead)?[field].as_f64()
    };
    let mean = |readahead| of(readahead, "mean_response_us");
    let change = mean("streams").zip(mean("off")).map(|(with, without)| with / without - 1.0);
    let window = of("streams", "mean_window_bytes");
    let figure = |what: &str, paper: &str, here: Option<String>| ComparedFigure {
        what: format!("{size}: {what}"),
        paper: Some(paper.to_owned()),
        here: here.unwrap_or_else(missing),
    };
    [
        figure("by prefetch", "about -5 %", change.map(|it| format!("{:.1} %", it * 100.0))),
        figure("mean window, KiB", "32 to 64", window.map(|it| format!("{:.0}", it / 1024.0))),
    ]
}

/// The mean gain of a machine's files by the thread as it is printed, each at its best limit.
fn gain(json: &Value, machine: &str) -> Option<f64> {
    let runs: Vec<&Value> = json["runs"].as_array()?.iter().collect();
    let of = |file: u64, prefetch: &str| {
        let times = runs.iter().filter(|run| {
            run["machine"] == machine
                && run["kernel"] == "no overlap"
                && run["file"] == file
                && run["prefetch"] == prefetch
        });
        times.filter_map(|run| run["seconds"].as_f64()).reduce(f64::min)
    };
    let gains = (1..=8).map(|file| Some((of(file, "none")? / of(file, "printed")? - 1.0) * 100.0));
    let gains: Vec<f64> = gains.collect::<Option<_>>()?;
    Some(forerun_report::mean(&gains))
}

/// The mean over sizes of the ratio of a policy's `field` to another's.
fn reap(json: &Value, policy: &str, to: &str, field: &str) -> Option<f64> {
    let runs = json["runs"].as_array()?;
    let of = |policy: &str, size: &Value| {
        let run = runs.iter().find(|run| run["policy"] == policy && run["size"] == *size)?;
        run[field].as_f64()
    };
    let sizes = runs.iter().filter(|run| run["policy"] == policy).map(|run| &run["size"]);
    let ratios: Vec<f64> =
        sizes.map(|size| Some(of(policy, size)? / of(to, size)?)).collect::<Option<_>>()?;
    let count = quantity::float(ratios.len() as u64);
    (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / count)
}

fn missing() -> String {
    "not printed".to_owned()
}

#[cfg(test)]
mod tests;
