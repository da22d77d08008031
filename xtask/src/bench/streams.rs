//! `cargo xtask bench streams`: the kernel's readahead beside ours, on the same emulated device.
//!
//! ```text
//!   device x pattern:   kernel     large and small folios, each read_ahead_kb   pread, buffered
//!                       forerun    each policy                                  O_DIRECT
//!                       virtual    each policy                                  simulated
//!                --> MB/s, their share of what the device can give --> table, a record a device
//! ```
//! `xtask/testbed/README.md` has the device and what must be so for the comparison to be fair.
//!
//! # Invariants
//! - The kernel and the engine read the same file by the same program in the same order; every
//!   byte is verified.
//! - A run that takes too long is cut and rated on what it delivered; no figure is left out.

mod bed;
mod case;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::{build, read, told, write};
use bed::{Bed, Folios};
use case::{DEVICES, Device, FILE_MIB, PATTERNS, Pattern};

/// What the command line chooses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    devices: Vec<String>,
    patterns: Vec<String>,
    read_ahead_kib: Vec<u32>,
    folios: Vec<Folios>,
    /// Ours; those of [`READAHEADS`] that there are, where none is named.
    readaheads: Vec<String>,
    seconds: u32,
    out: Option<PathBuf>,
    /// The program to measure; otherwise the release build.
    forerun: Option<PathBuf>,
    /// A quarter of the reads: to see that all works.
    quick: bool,
}

impl Options {
    /// Options from `--quick` and `--name value` pairs; a list has commas, but `--readahead` is
    /// repeated, as a policy has commas of its own.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self {
            devices: DEVICES.iter().map(|device| device.name.to_owned()).collect(),
            patterns: PATTERNS.iter().map(|pattern| pattern.name.to_owned()).collect(),
            read_ahead_kib: READ_AHEAD_KIB.to_vec(),
            folios: vec![Folios::Large, Folios::Small],
            readaheads: Vec::new(),
            seconds: SECONDS,
            out: None,
            forerun: None,
            quick: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--quick" {
                options.quick = true;
                continue;
            }
            let value = words.next().with_context(|| format!("{word} without a value"))?;
            let list = || value.split(',').map(str::to_owned).collect::<Vec<_>>();
            match word.as_str() {
                "--device" => options.devices = known(list(), &options.devices)?,
                "--pattern" => options.patterns = known(list(), &options.patterns)?,
                "--ra" => {
                    let sizes = list().iter().map(|size| size.parse()).collect::<Result<_, _>>();
                    options.read_ahead_kib = sizes.context("--ra: expected KiB, such as 128")?;
                }
                "--folios" => {
                    options.folios = match value.as_str() {
                        "large" => vec![Folios::Large],
                        "small" => vec![Folios::Small],
                        other => bail!("--folios {other}: expected large or small"),
                    }
                }
                "--readahead" => options.readaheads.push(value.clone()),
                "--seconds" => options.seconds = value.parse().context("--seconds: no number")?,
                "--out" => options.out = Some(value.into()),
                "--forerun" => options.forerun = Some(value.into()),
                other => bail!("unknown option {other}"),
            }
        }
        ensure!(options.seconds > 0, "--seconds 0 measures nothing");
        Ok(options)
    }
}

fn known(chosen: Vec<String>, all: &[String]) -> Result<Vec<String>> {
    let stranger = chosen.iter().find(|name| !all.contains(name));
    stranger.map_or(Ok(()), |name| bail!("no {name}; there are: {}", all.join(" ")))?;
    Ok(chosen)
}

/// Measures everything and writes the records.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    if let Some(lacking) = bed::lacking() {
        println!("left out: bench streams: this machine lacks {lacking}");
        return Ok(true);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let forerun = if let Some(path) = &options.forerun {
        path.clone()
    } else {
        build(root)?;
        target.join("release/forerun")
    };
    let folder = target.join("bench");
    let out = options.out.clone().map_or_else(|| place(root), Ok)?;
    for folder in [&folder, &out] {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let file_mib = if options.quick { FILE_MIB / 4 } else { FILE_MIB };
    let bed = match Bed::up(root, &target, &forerun, file_mib)? {
        Ok(bed) => bed,
        Err(lacking) => {
            println!("left out: bench streams: this machine lacks {lacking}");
            return Ok(true);
        }
    };
    let mut readaheads = options.readaheads.clone();
    if readaheads.is_empty() {
        readaheads = policies(&forerun)?;
    }
    let scratch = folder.join(format!("streams-{}.json", std::process::id()));
    let mut bench = Bench { forerun, readaheads, scratch, options, bed };
    println!("{HEADER}");
    for device in DEVICES.iter().filter(|device| options.devices.iter().any(|it| it == device.name))
    {
        let record = bench.device(device)?;
        write(&out.join(format!("{}.json", device.name)), &record)?;
    }
    println!("\nrecords: {}", out.display());
    Ok(true)
}

/// What all runs share.
struct Bench<'a> {
    forerun: PathBuf,
    readaheads: Vec<String>,
    /// The record of a run, for a moment.
    scratch: PathBuf,
    options: &'a Options,
    bed: Bed,
}

impl Bench<'_> {
    /// All patterns on `device`, as one record.
    fn device(&mut self, device: &Device) -> Result<Value> {
        let mut whole = Value::Null;
        let mut runs = Vec::new();
        let chosen = |pattern: &&Pattern| self.options.patterns.iter().any(|it| it == pattern.name);
        for pattern in PATTERNS.iter().filter(chosen).collect::<Vec<_>>() {
            for (contender, record) in self.pattern(device, pattern)? {
                if whole.is_null() {
                    whole = record.clone();
                }
                for run in record["runs"].as_array().context("a record without runs")? {
                    let run = rated(run.clone(), device, pattern, &contender);
                    println!("{}", row(device, pattern, &run));
                    runs.push(run);
                }
            }
        }
        whole["runs"] = json!(runs);
        whole["device"] = json!(device.name);
        whole["command"] = json!(std::env::args().collect::<Vec<String>>());
        let settings = [
            ("seconds", self.options.seconds.to_string()),
            ("readahead", self.readaheads.join(",")),
            ("cache", CACHE.to_owned()),
            ("request_max", format!("{}K", device.request_kib)),
            ("depth", device.depth.to_string()),
            ("quick", self.options.quick.to_string()),
        ];
        whole["settings"] = settings.into_iter().collect();
        Ok(whole)
    }

    /// Every contender's record of `pattern`, in the order in which they ran.
    fn pattern(&mut self, device: &Device, pattern: &Pattern) -> Result<Vec<(String, Value)>> {
        let mut records = Vec::new();
        for &folios in &self.options.folios {
            let file = self.bed.file(folios)?;
            for &kib in &self.options.read_ahead_kib {
                self.bed.cold(device, kib)?;
                let name = format!("kernel {kib}K, {}", folios.name());
                let Some(mut command) = self.kernel(pattern)? else {
                    println!("left out: {name} of {}: no memory cgroups (v1) here", pattern.name);
                    continue;
                };
                command.args(["--through", "kernel"]);
                records.push((name, self.live(&mut command, &file, pattern)?));
            }
        }
        let file = self.bed.file(self.options.folios[0])?;
        let cache = pattern.memory_mib.map_or(CACHE.to_owned(), |mib| format!("{mib}M"));
        for readahead in &self.readaheads {
            self.bed.cold(device, self.options.read_ahead_kib[0])?;
            let mut command = Command::new(&self.forerun);
            command.args(["bench", "streams", "--readahead", readahead, "--cache", &cache]);
            command.args(["--request-max", &format!("{}K", device.request_kib)]);
            command.args(["--depth", &device.depth.to_string()]);
            let live = self.live(&mut command, &file, pattern)?;
            let workload = live["runs"][0]["workload"].as_str().context("no workload")?.to_owned();
            records.push(("forerun".to_owned(), live));
            let mut command = Command::new(&self.forerun);
            command.args(["sim", &workload, "--device", device.virtually, "--policy", POLICY]);
            command.args(["--readahead", readahead, "--size", &cache]);
            records.push(("virtual".to_owned(), self.record(&mut command)?));
        }
        Ok(records)
    }

    /// The beginning of the kernel's command; none where memory is to be short and cannot be.
    fn kernel(&self, pattern: &Pattern) -> Result<Option<Command>> {
        let Some(mib) = pattern.memory_mib else {
            let mut command = Command::new(&self.forerun);
            command.args(["bench", "streams"]);
            return Ok(Some(command));
        };
        let Some(group) = self.bed.memory(mib + OWN_MIB)? else { return Ok(None) };
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(group).arg(&self.forerun);
        command.args(["bench", "streams"]);
        Ok(Some(command))
    }

    fn live(&self, command: &mut Command, file: &Path, pattern: &Pattern) -> Result<Value> {
        let seconds = self.options.seconds.to_string();
        command.args(pattern.words(self.options.quick)).args(["--seconds", &seconds]);
        self.record(command.arg("--file").arg(file))
    }

    /// The record that `command` writes.
    fn record(&self, command: &mut Command) -> Result<Value> {
        told(command.arg("-o").arg(&self.scratch))?;
        let record = read(&self.scratch);
        let _ = std::fs::remove_file(&self.scratch);
        record
    }
}

/// A run under the name of its contender, beside what the device can give.
fn rated(mut run: Value, device: &Device, pattern: &Pattern, contender: &str) -> Value {
    let policy = run["readahead"].as_str().unwrap_or("?");
    let name =
        if policy == "kernel" { contender.to_owned() } else { format!("{contender} {policy}") };
    run["readahead"] = json!(name);
    run["device"] = json!(device.name);
    run["emulated"] = json!(true);
    run["params"]["pattern"] = json!(pattern.name);
    if let Some(mib) = pattern.memory_mib {
        run["params"]["memory"] = json!(format!("{mib}M"));
    }
    let limit = device.limit_mb_per_second;
    run["limit_mb_per_second"] = json!(limit);
    run["ratio_to_limit"] = json!(run["mb_per_second"].as_f64().unwrap_or(0.0) / limit);
    let fields = run.as_object_mut().expect("a run is an object");
    fields.remove("requests");
    fields.remove("requests_left_out");
    run
}

/// A line of the table.
fn row(device: &Device, pattern: &Pattern, run: &Value) -> String {
    let float = |name: &str| run[name].as_f64().unwrap_or(f64::NAN);
    format!(
        "| {} | {} | {} | {:.2} | {:.3} | {} | {:.0} | {:.2} |",
        device.name,
        pattern.name,
        run["readahead"].as_str().unwrap_or("?"),
        float("mb_per_second"),
        float("ratio_to_limit"),
        run["device_requests"],
        float("mean_request_bytes") / 1024.0,
        float("bytes_read") / float("bytes_wanted")
    )
}

/// Our policies that are compared unless others are named.
fn policies(forerun: &Path) -> Result<Vec<String>> {
    let listed = told(Command::new(forerun).args(["sim", "--list-policies"]))?;
    let is_listed = |name: &&str| listed.split_whitespace().any(|word| word == *name);
    let found = READAHEADS.into_iter().filter(is_listed).map(str::to_owned);
    let found: Vec<String> = found.collect();
    ensure!(!found.is_empty(), "none of {} is listed", READAHEADS.join(" "));
    Ok(found)
}

/// Where records go unless a folder is named.
fn place(root: &Path) -> Result<PathBuf> {
    let word = |program: &str, words: &[&str]| {
        told(Command::new(program).args(words).current_dir(root)).map(|text| text.trim().to_owned())
    };
    let (day, machine) = (word("date", &["-u", "+%F"])?, word("uname", &["-n"])?);
    let commit = word("git", &["rev-parse", "--short", "HEAD"])?;
    Ok(root.join("bench/runs").join(format!("{day}-{machine}-{commit}")))
}

const HEADER: &str = "\
| device | pattern | by | MB/s | of the limit | requests | mean KiB | read / wanted |
|---|---|---|---|---|---|---|---|";
/// The default of most devices, a usual setting of administrators, and a large one.
const READ_AHEAD_KIB: [u32; 3] = [128, 1_024, 8_192];
const READAHEADS: [&str; 2] = ["linux-6", "streams"];
/// The engine's replacement policy, in virtual time too.
const POLICY: &str = "2q-star";
const CACHE: &str = "1G";
const SECONDS: u32 = 60;
/// What a program of 200 readers needs for itself: stacks, buffers, checks. It counts as the
/// cgroup's too, and is given on top, in the kernel's favour.
const OWN_MIB: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_defaults_and_refuse_nonsense() {
        let parsed = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words)
        };
        let plain = parsed("").expect("nothing is needed");
        assert_eq!((plain.devices.len(), plain.patterns.len(), plain.seconds), (4, 14, 60));
        let some = parsed("--device hdd,object --pattern backward --ra 128,0 --folios small");
        let expected = Options {
            devices: vec!["hdd".to_owned(), "object".to_owned()],
            patterns: vec!["backward".to_owned()],
            read_ahead_kib: vec![128, 0],
            folios: vec![Folios::Small],
            ..parsed("").expect("nothing is needed")
        };
        assert_eq!(some.expect("all are known"), expected);
        for nonsense in
            ["--device", "--device floppy", "--pattern x", "--ra x", "--seconds 0", "--folios no"]
        {
            assert!(parsed(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_run_is_rated_against_its_device_and_named_after_its_contender() {
        let run = json!({ "readahead": "linux-6", "mb_per_second": 14.25, "params": {},
            "device_requests": 3, "mean_request_bytes": 2048, "bytes_read": 6144,
            "bytes_wanted": 4096, "requests": [1, 2] });
        let (device, pattern) = (&DEVICES[0], &PATTERNS[1]);
        let ours = rated(run.clone(), device, pattern, "forerun");
        assert_eq!(ours["requests"], Value::Null);
        let text = "| t7k250 | streams-10 | forerun linux-6 | 14.25 | 0.500 | 3 | 2 | 1.50 |";
        assert_eq!(row(device, pattern, &ours), text);
        let kernel = json!({ "readahead": "kernel", "mb_per_second": 1.0, "params": {} });
        assert_eq!(rated(kernel, device, pattern, "kernel 128K")["readahead"], "kernel 128K");
    }
}
