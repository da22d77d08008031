//! `forerun-compare streams`: the kernel's readahead beside forerun's, on one emulated device.
//!
//! ```text
//!   device x pattern:   kernel     each folio size and read_ahead_kb   pread, buffered   round by
//!                       forerun    each policy                         O_DIRECT          round
//!                       virtual    each policy, the online limit       simulated         once
//!        --> MB/s, median over rounds --> a record a device, summary.md, page.html
//! ```
//! `lab/testbed/README.md` describes the device and the conditions of a fair comparison.
//!
//! # Invariants
//! - The kernel and the engine read the same file by the same program in the same order; every
//!   byte is verified.
//! - A run that takes too long is cut and rated on its bytes so far; no figure is left out.

mod case;
mod log;
mod summary;

use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use forerun_report::Summary;
use serde_json::{Value, json};

use crate::args::{Places, chosen, in_turns, names};
use crate::bed::{self, Bed, Folios};
use crate::device::{DEVICES, Device, VIRTUALLY};
use crate::forerun::{self, folder, output_of, put, read, write};
use crate::table::{commit, machine};
use case::{FILE_MIB, PATTERNS, Pattern};
use summary::Group;

/// The options of the command line. Patterns, folios and the kernel's sizes are all unless
/// some are named, as none of the kernel's settings is the best one everywhere. A shorter run is
/// cut while much is read ahead, which does not count as delivered: 40 seconds are enough for
/// any pattern that keeps a device busy.
///
/// ```text
///               devices      forerun's policies      seconds   rounds   reads       takes
///   (default)   hdd, cloud   linux-6, streams        40        1        all         an hour
///   --full      all four     those, linux-6:max=8M   60        3        all         half a day
///   --quick     hdd, cloud   linux-6, streams        3         1        a quarter   15 minutes
/// ```
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// A quarter of the reads, seconds of each: to see that all works
    #[arg(long)]
    quick: bool,
    /// Every device, more policies, longer runs, three rounds
    #[arg(long)]
    full: bool,
    /// Devices [default: one of each kind]
    #[arg(long = "device", value_name = "D,...", value_delimiter = ',',
        value_parser = names(&DEVICES, |device| device.name))]
    devices: Vec<String>,
    /// Patterns [default: all]
    #[arg(long = "pattern", value_name = "P,...", value_delimiter = ',',
        value_parser = names(&PATTERNS, |pattern| pattern.name))]
    patterns: Vec<String>,
    /// Policies of forerun; repeated, as a policy has commas of its own
    #[arg(long = "readahead", value_name = "R")]
    readaheads: Vec<String>,
    /// The kernel's `read_ahead_kb`: a device's default, a usual setting, a large one
    #[arg(long = "ra", value_name = "KIB,...", value_delimiter = ',',
        default_values_t = [128, 1_024, 8_192])]
    read_ahead_kib: Vec<u32>,
    /// Units of the kernel's page cache [default: both]
    #[arg(long)]
    folios: Option<Folios>,
    /// Seconds of a run at most
    #[arg(long, value_name = "N", default_value = "40", hide_default_value = true,
        default_value_ifs([("quick", "true", "3"), ("full", "true", "60")]))]
    seconds: NonZeroU32,
    /// Rounds, in turns
    #[arg(long, value_name = "N", default_value = "1", hide_default_value = true,
        default_value_ifs([("quick", "true", "1"), ("full", "true", "3")]))]
    rounds: NonZeroUsize,
    /// Keep the device's requests, and draw them
    #[arg(long)]
    log: bool,
}

impl Args {
    fn devices(&self) -> Vec<&'static Device> {
        // One of each kind, positional and parallel.
        let own = if self.full { Vec::new() } else { ["hdd", "cloud"].map(str::to_owned).into() };
        let named = if self.devices.is_empty() { &own } else { &self.devices };
        chosen(&DEVICES, named, |device| device.name)
    }

    fn readaheads(&self) -> Vec<String> {
        if !self.readaheads.is_empty() {
            return self.readaheads.clone();
        }
        let own = ["linux-6", JUDGED].into_iter().chain(self.full.then_some("linux-6:max=8M"));
        own.map(str::to_owned).collect()
    }

    /// The policy that is judged against the kernel.
    fn judged(&self) -> String {
        let own = self.readaheads();
        let last = own.last().expect("there is one at least").clone();
        own.into_iter().find(|name| name == JUDGED).unwrap_or(last)
    }

    fn folios(&self) -> Vec<Folios> {
        self.folios.map_or_else(|| vec![Folios::Large, Folios::Small], |folios| vec![folios])
    }
}

/// Measures everything and writes the records.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if let Some(lacking) = bed::lacking() {
        println!("left out: bench streams: this machine lacks {lacking}");
        return Ok(());
    }
    let (forerun, out) = args.places.open(root, "streams")?;
    let target = forerun::target(root);
    let file_mib = if args.quick { FILE_MIB / 4 } else { FILE_MIB };
    let bed = match Bed::up(root, &target, &forerun, file_mib, None)? {
        Ok(bed) => bed,
        Err(lacking) => {
            println!("left out: bench streams: this machine lacks {lacking}");
            return Ok(());
        }
    };
    let scratch =
        folder(target.join("bench"))?.join(format!("streams-{}.json", std::process::id()));
    let mut bench = Bench { forerun, scratch, args, bed };
    println!("{} runs of {} s at most", bench.runs(), args.seconds);
    println!("{HEADER}");
    let (mut groups, mut records) = (Vec::new(), Vec::new());
    for device in args.devices() {
        let (record, own) = bench.device(device)?;
        let path = out.join(format!("{}.json", device.name));
        write(&path, &record)?;
        records.push(path);
        groups.extend(own);
        // After each device, so that a stopped bench leaves its results so far.
        let text = bench.summary(&record, &groups);
        put(&out.join("summary.md"), &text)?;
    }
    if args.log {
        let page = out.join("page.html");
        output_of(Command::new(&bench.forerun).arg("report").args(&records).arg("-o").arg(&page))?;
    }
    println!("\nrecords and summary: {}", out.display());
    Ok(())
}

/// The state of one bench.
struct Bench<'a> {
    forerun: PathBuf,
    /// The path of a run's record.
    scratch: PathBuf,
    args: &'a Args,
    bed: Bed,
}

/// The readers of a pattern in real time.
enum Contender {
    Kernel { folios: Folios, read_ahead_kib: u32 },
    Forerun { readahead: String },
}

impl Contender {
    fn name(&self) -> String {
        match self {
            Self::Kernel { folios, read_ahead_kib } => {
                format!("kernel {read_ahead_kib}K, {}", folios.name())
            }
            Self::Forerun { readahead } => format!("forerun {readahead}"),
        }
    }
}

impl Bench<'_> {
    fn patterns(&self) -> Vec<&'static Pattern> {
        chosen(&PATTERNS, &self.args.patterns, |pattern| pattern.name)
    }

    /// How many runs there are in real time.
    fn runs(&self) -> usize {
        let patterns = self.patterns();
        let runs: usize = patterns.iter().map(|pattern| self.contenders(pattern).len()).sum();
        runs * self.args.devices().len() * self.args.rounds.get()
    }

    fn contenders(&self, pattern: &Pattern) -> Vec<Contender> {
        let mut contenders = Vec::new();
        for folios in self.args.folios() {
            for &read_ahead_kib in &self.args.read_ahead_kib {
                contenders.push(Contender::Kernel { folios, read_ahead_kib });
            }
        }
        let ours = self.readaheads(pattern).into_iter();
        contenders.extend(ours.map(|readahead| Contender::Forerun { readahead }));
        contenders
    }

    fn readaheads(&self, pattern: &Pattern) -> Vec<String> {
        let mut readaheads = self.args.readaheads();
        for &name in pattern.beside {
            if !readaheads.iter().any(|it| it == name) {
                readaheads.push(name.to_owned());
            }
        }
        readaheads
    }

    /// All patterns on `device`, as one record, and side by side.
    fn device(&mut self, device: &'static Device) -> Result<(Value, Vec<Group>)> {
        let (mut whole, mut all, mut groups) = (Value::Null, Vec::new(), Vec::new());
        for pattern in self.patterns() {
            let mut runs = Vec::new();
            for record in self.pattern(device, pattern)? {
                runs.push(record["runs"][0].clone());
                whole = record;
            }
            for run in &runs {
                println!("{}", row(device, pattern, run));
            }
            all.extend(runs.iter().cloned());
            for run in &mut runs {
                // The record has them.
                run.as_object_mut().expect("a run is an object").remove("requests");
            }
            groups.push(Group { device, pattern, runs });
        }
        whole["runs"] = json!(all);
        whole["device"] = json!(device.name);
        whole["repeats"] = json!(self.args.rounds);
        whole["command"] = json!(std::env::args().collect::<Vec<String>>());
        let settings = [
            ("seconds", self.args.seconds.to_string()),
            ("readahead", self.args.readaheads().join(",")),
            ("cache", CACHE.to_owned()),
            (
                "patterns",
                self.patterns().iter().map(|pattern| pattern.name).collect::<Vec<_>>().join(","),
            ),
            ("request_max", format!("{}K", device.request_kib)),
            ("depth", device.depth.to_string()),
            ("quick", self.args.quick.to_string()),
        ];
        whole["settings"] = settings.into_iter().collect();
        Ok((whole, groups))
    }

    /// Every contender's record of `pattern`, its run the median of all rounds.
    fn pattern(&mut self, device: &Device, pattern: &Pattern) -> Result<Vec<Value>> {
        let contenders = self.contenders(pattern);
        let samples = in_turns(self.args.rounds, contenders.len(), |_, at| {
            self.measured(&contenders[at], device, pattern)
        })?;
        let mut records = Vec::new();
        let mut workload = None;
        for (contender, records_of) in contenders.iter().zip(samples) {
            let Some(record) = middle(records_of.into_iter().flatten().collect()) else {
                let name = contender.name();
                println!("left out: {name} of {}: no memory cgroups (v1) here", pattern.name);
                continue;
            };
            workload = record["runs"][0]["workload"].as_str().map(str::to_owned);
            records.push(rated(record, device, pattern, &contender.name()));
        }
        let workload = workload.context("a run without a workload")?;
        for readahead in self.readaheads(pattern) {
            let record = self.virtually(device, pattern, &workload, &readahead)?;
            records.push(rated(record, device, pattern, &format!("virtual {readahead}")));
        }
        Ok(records)
    }

    /// One run; none where memory is to be short and cannot be.
    fn measured(
        &mut self,
        contender: &Contender,
        device: &Device,
        pattern: &Pattern,
    ) -> Result<Option<Value>> {
        let (folios, read_ahead_kib) = match *contender {
            Contender::Kernel { folios, read_ahead_kib } => (folios, read_ahead_kib),
            Contender::Forerun { .. } => (self.args.folios()[0], self.args.read_ahead_kib[0]),
        };
        let file = self.bed.file(folios)?;
        self.bed.cold(device, read_ahead_kib)?;
        let mut command = match contender {
            Contender::Kernel { .. } => match self.kernel(pattern)? {
                Some(command) => command,
                None => return Ok(None),
            },
            Contender::Forerun { readahead } => {
                let mut command = Command::new(&self.forerun);
                command.args(["bench", "streams", "--readahead", readahead]);
                command.args(["--cache", &cache(pattern)]);
                command.args(["--request-max", &format!("{}K", device.request_kib)]);
                command.args(["--depth", &device.depth.to_string()]);
                command
            }
        };
        let seconds = self.args.seconds.to_string();
        command.args(pattern.words(self.args.quick)).args(["--seconds", &seconds]);
        command.arg("--file").arg(file);
        let log = self.scratch.with_extension("log");
        if self.args.log {
            self.bed.log(Some(&log))?;
        }
        let mut record = self.record(&mut command)?;
        let run = &mut record["runs"][0];
        if let (Contender::Kernel { .. }, Some(seen)) =
            (contender, run["params"]["read_ahead_kb"].as_str())
        {
            ensure!(seen == read_ahead_kib.to_string(), "the kernel's read_ahead_kb is {seen}");
        }
        if self.args.log {
            self.bed.log(None)?;
            let text = fs::read_to_string(&log).with_context(|| log.display().to_string())?;
            let (requests, left_out) = log::requests(&text, LOG_MAX)?;
            (run["requests"], run["requests_left_out"]) = (json!(requests), json!(left_out));
            fs::remove_file(&log).with_context(|| log.display().to_string())?;
        }
        Ok(Some(record))
    }

    /// The beginning of the kernel's command; none where memory is to be short and cannot be.
    fn kernel(&self, pattern: &Pattern) -> Result<Option<Command>> {
        let words = ["bench", "streams", "--through", "kernel"];
        let Some(mib) = pattern.memory_mib else {
            let mut command = Command::new(&self.forerun);
            command.args(words);
            return Ok(Some(command));
        };
        let Some(group) = self.bed.memory(mib + OWN_MIB)? else { return Ok(None) };
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(group).arg(&self.forerun);
        command.args(words);
        Ok(Some(command))
    }

    /// The same reads in virtual time, and the online limit.
    fn virtually(
        &self,
        device: &Device,
        pattern: &Pattern,
        workload: &str,
        readahead: &str,
    ) -> Result<Value> {
        let mut command = Command::new(&self.forerun);
        command.args(["sim", workload, "--device", device.virtually, "--online-limit"]);
        command.args(VIRTUALLY).args(["--readahead", readahead, "--size", &cache(pattern)]);
        self.record(&mut command)
    }

    /// The record that `command` writes, without its requests.
    fn record(&self, command: &mut Command) -> Result<Value> {
        output_of(command.arg("-o").arg(&self.scratch))?;
        let record = read(&self.scratch);
        let _ = fs::remove_file(&self.scratch);
        let mut record = record?;
        let run = &mut record["runs"][0];
        run.as_object_mut().context("a record without runs")?.remove("requests_left_out");
        run["requests"] = json!([]);
        Ok(record)
    }

    fn summary(&self, record: &Value, groups: &[Group]) -> String {
        let lines = [
            commit(record),
            machine(record),
            format!(
                "`forerun-compare streams`: {} s a run at most, {} rounds{}",
                self.args.seconds,
                self.args.rounds,
                if self.args.quick { ", a quarter of the reads: no figures to keep" } else { "" }
            ),
        ];
        let rows = groups
            .iter()
            .flat_map(|group| group.runs.iter().map(|run| row(group.device, group.pattern, run)));
        let table: Vec<String> = rows.collect();
        let table = format!("{HEADER}\n{}", table.join("\n"));
        summary::text(&lines, groups, &self.args.judged(), &table)
    }
}

/// Memory for pages.
fn cache(pattern: &Pattern) -> String {
    pattern.memory_mib.map_or(CACHE.to_owned(), |mib| format!("{mib}M"))
}

/// The record of the median run, with the spread of all; none without a record.
fn middle(mut records: Vec<Value>) -> Option<Value> {
    let rate = |record: &Value| record["runs"][0]["mb_per_second"].as_f64().unwrap_or(0.0);
    records.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    let rates: Vec<f64> = records.iter().map(rate).collect();
    let count = records.len();
    let mut record = records.into_iter().nth(count.saturating_sub(1) / 2)?;
    if count > 1 {
        // The figures are of one run, so of an even number of rounds the slower of the middle two.
        let Summary { min, max, .. } = Summary::of(rates);
        record["runs"][0]["spread"] = json!({ "min": min, "max": max });
    }
    Some(record)
}

/// The record's run under the names of its contender and its pattern, so that a page shows equal
/// reads side by side.
fn rated(mut record: Value, device: &Device, pattern: &Pattern, name: &str) -> Value {
    let run = &mut record["runs"][0];
    run["readahead"] = json!(name);
    run["device"] = json!(device.name);
    run["emulated"] = json!(true);
    run["workload"] = json!(pattern.name);
    // The name has the differing settings; the record's settings have the others.
    run["params"] = json!({});
    let fields = run.as_object_mut().expect("a run is an object");
    fields.remove("drive_cache");
    if !name.starts_with("virtual ") {
        let limit = limit(device, pattern);
        run["limit_mb_per_second"] = json!(limit);
        run["ratio_to_limit"] = json!(run["mb_per_second"].as_f64().unwrap_or(0.0) / limit);
    }
    record
}

/// The device's throughput, or the readers' pace. A virtual run has the online limit.
fn limit(device: &Device, pattern: &Pattern) -> f64 {
    device.limit_mb_per_second.min(pattern.pace_mb_per_second.unwrap_or(f64::INFINITY))
}

/// A line of the table.
fn row(device: &Device, pattern: &Pattern, run: &Value) -> String {
    let float = |name: &str| run[name].as_f64().unwrap_or(f64::NAN);
    format!(
        "| {} | {} | {} | {:.2} | {:.3} | {} | {:.0} | {:.2} | {:.0} | {:.0} |",
        device.name,
        pattern.name,
        run["readahead"].as_str().unwrap_or("?"),
        float("mb_per_second"),
        float("mb_per_second") / limit(device, pattern),
        run["device_requests"],
        float("mean_request_bytes") / 1024.0,
        float("bytes_read") / float("bytes_wanted"),
        float("p50_us"),
        float("p99_us"),
    )
}

const HEADER: &str = "\
| device | pattern | by | MB/s | of the limit | requests | mean KiB | read / wanted | p50 us \
| p99 us |
|---|---|---|---|---|---|---|---|---|---|";
const JUDGED: &str = "streams";
const CACHE: &str = "1G";
/// The memory of a program of 200 readers: stacks, buffers, checks. It also counts for the cgroup,
/// and is added to it, in the kernel's favour.
const OWN_MIB: u32 = 24;
/// Requests that a record keeps of each run, where they are kept.
const LOG_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    #[test]
    fn what_is_named_wins_over_full_and_quick() {
        #[rustfmt::skip]
        let rows = [ // options                       folios ours seconds rounds  judged
            ("",                                      2,     2,   40,     1,      "streams"),
            ("--full",                                2,     3,   60,     3,      "streams"),
            ("--quick",                               2,     2,   3,      1,      "streams"),
            ("--rounds 2 --full --seconds 5",         2,     3,   5,      2,      "streams"),
            ("--folios small --readahead off",        1,     1,   40,     1,      "off"),
        ];
        for (line, folios, ours, seconds, rounds, judged) in rows {
            let options = parsed::<Args>(line).expect(line);
            assert_eq!(
                (options.folios().len(), options.readaheads().len()),
                (folios, ours),
                "{line}"
            );
            assert_eq!((options.seconds.get(), options.rounds.get()), (seconds, rounds), "{line}");
            assert_eq!(options.judged(), judged, "{line}");
        }
        let devices = |line: &str| parsed::<Args>(line).expect(line).devices().len();
        assert_eq!((devices(""), devices("--full"), devices("--quick --device object")), (2, 4, 1));
        let some =
            parsed::<Args>("--device hdd,object --pattern backward --ra 128,0").expect("known");
        assert_eq!((some.devices().len(), some.patterns.len()), (2, 1));
        assert_eq!(some.read_ahead_kib, [128, 0]);
        for nonsense in ["--device floppy", "--pattern x", "--ra x", "--seconds 0", "--folios no"] {
            assert!(parsed::<Args>(nonsense).is_none(), "{nonsense}");
        }
    }

    #[test]
    fn a_run_is_rated_against_its_device_and_named_after_its_contender() {
        let record = json!({ "runs": [{ "readahead": "linux-6", "mb_per_second": 14.25,
            "params": {}, "device_requests": 3, "mean_request_bytes": 2048, "bytes_read": 6144,
            "bytes_wanted": 4096, "p50_us": 1.5, "p99_us": 9.0 }] });
        let (device, pattern) = (&DEVICES[0], &PATTERNS[1]);
        let ours = rated(record.clone(), device, pattern, "forerun linux-6");
        let text = "| t7k250 | streams-10-100M | forerun linux-6 | 14.25 | 0.500 | 3 | 2 | 1.50 \
                    | 2 | 9 |";
        assert_eq!(row(device, pattern, &ours["runs"][0]), text);
        let is_paced = |pattern: &&Pattern| pattern.memory_mib == Some(32);
        let slow = PATTERNS.iter().find(is_paced).expect("there is one");
        let paced = rated(record, device, slow, "kernel 128K");
        assert_eq!(paced["runs"][0]["limit_mb_per_second"], 10.0);
        let mut simulated = json!({ "runs": [{ "limit_mb_per_second": 20.0 }] });
        simulated = rated(simulated, device, slow, "virtual streams");
        assert_eq!(simulated["runs"][0]["limit_mb_per_second"], 20.0, "the online limit");
    }

    #[test]
    fn of_several_rounds_the_median_run_counts() {
        let record = |rate: f64| json!({ "runs": [{ "mb_per_second": rate }] });
        let rates = |all: &[f64]| {
            let found = middle(all.iter().copied().map(record).collect())?;
            let (run, end) =
                (&found["runs"][0], |name: &str| found["runs"][0]["spread"][name].clone());
            Some((run["mb_per_second"].as_f64()?, end("min").as_f64(), end("max").as_f64()))
        };
        assert_eq!(rates(&[]), None);
        assert_eq!(rates(&[5.0]), Some((5.0, None, None)));
        assert_eq!(rates(&[9.0, 1.0, 2.0]), Some((2.0, Some(1.0), Some(9.0))));
        assert_eq!(rates(&[9.0, 1.0]), Some((1.0, Some(1.0), Some(9.0))));
    }
}
