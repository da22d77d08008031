//! `forerun-compare programs`: unchanged programs on emulated devices, alone and under
//! `forerun run`.
//!
//! ```text
//!   device x program:   cached    nothing to wait for                  once
//!                       alone     the kernel, read_ahead_kb 128        round by round,
//!                       run       the same under `forerun run`         cold by unmounting
//!        --> seconds, medians --> alone / run, run / max(device, cached), bytes --> summary.md
//! ```
//!
//! `costs` measures programs without a possible gain, on no device; `warm` measures `forerun warm`
//! on trees.
//!
//! # Invariants
//! - A ratio is of figures of the same round, or of the last one before with the program alone; no
//!   figure is left out.
//! - Nothing of the device is cached; programs, their libraries and `forerun` are.
//! - A program's output and exit status are the same under `run`: else the bench fails.

mod cases;
mod costs;
mod floors;
mod row;
mod warm;

use std::env;
use std::fs::{self, File};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
#[expect(clippy::disallowed_types, reason = "programs are timed")]
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use forerun_report::quantity::float;
use serde_json::{Value, json};

use crate::args::{Places, chosen, in_turns, names};
use crate::bed::{self, Bed, Folios};
use crate::device::{DEVICES, Device};
use crate::forerun::{self, folder, output_of, put, read, write};
use cases::{PROGRAMS, Program};
use costs::{COSTS, Cost};
use row::{HEADER, record, row};

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// Devices; `own`, the machine's disk, is for `warm trees` alone [default: all]
    #[arg(long = "device", value_name = "D,...", value_delimiter = ',',
        value_parser = names(&places(), |name| name))]
    devices: Vec<String>,
    /// Programs; `walks` is all that are wanted to gain on a device by walks [default: all]
    #[arg(long = "program", value_name = "P,...", value_delimiter = ',',
        value_parser = names(&every(), |name| name))]
    programs: Vec<String>,
    /// Rounds, in turns
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: NonZeroUsize,
    /// Of these, the first so many run the program alone as well [default: all]
    #[arg(long = "alone", value_name = "N")]
    alone: Option<NonZeroUsize>,
    /// Whether the gain that `explain` predicts is measured too, in one run more
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = ["on", "off"])]
    explain: String,
    /// The size of the files
    #[arg(long = "size", value_name = "MIB", default_value = "128")]
    mib: NonZeroU32,
    /// The kernel's `read_ahead_kb`
    #[arg(long = "ra", value_name = "KIB", default_value = "128")]
    read_ahead_kib: NonZeroU32,
    /// The Python of programs that need one
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
}

impl Args {
    fn is_named(&self, name: &str) -> bool {
        self.programs.iter().any(|it| it == name)
    }

    /// The programs that are run on `device`.
    fn programs(&self, device: &str) -> Vec<&'static Program> {
        let is_chosen = |program: &&Program| {
            let is_walk = || floors::of(device, program.name).is_some();
            self.programs.is_empty()
                || self.is_named(program.name)
                || self.is_named(floors::GROUP) && is_walk()
        };
        PROGRAMS.iter().filter(|it| it.is_for(device)).filter(is_chosen).collect()
    }

    /// Whether `forerun warm` is measured.
    fn is_warm(&self) -> bool {
        self.programs.is_empty() || self.is_named(warm::NAME)
    }

    /// The devices, and whether the machine's own disk is one of them.
    fn places(&self) -> (Vec<&'static Device>, bool) {
        let is_own = self.devices.is_empty() || self.devices.iter().any(|it| it == warm::OWN);
        (chosen(&DEVICES, &self.devices, |device| device.name), is_own)
    }
}

/// The names of all programs, and of groups.
fn every() -> Vec<&'static str> {
    let costs = COSTS.iter().map(|cost| cost.name);
    let programs = PROGRAMS.iter().map(|program| program.name);
    programs.chain(costs).chain([floors::GROUP, warm::NAME]).collect()
}

/// The names of all devices.
fn places() -> Vec<&'static str> {
    DEVICES.iter().map(|device| device.name).chain([warm::OWN]).collect()
}

/// Measures everything and writes the records and the tables.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let (forerun, out) = args.places.open(root, "programs")?;
    let contents = folder(forerun::target(root).join("bench/contents"))?;
    let costs: Vec<&Cost> = chosen(&COSTS, &args.programs, |cost| cost.name);
    if !costs.is_empty() {
        let runs = costs::measured(&costs, &forerun, &contents, args.mib.get())?;
        write_costs(&forerun, &out, args.mib.get(), &runs)?;
    }
    let (devices, _) = args.places();
    if args.is_warm() || devices.iter().any(|device| !args.programs(device.name).is_empty()) {
        on_devices(root, args, forerun, contents, &out)?;
    }
    println!("\nrecords and summaries: {}", out.display());
    Ok(())
}

/// The record and the table of the cost of `run` without a possible gain.
fn write_costs(forerun: &Path, out: &Path, mib: u32, runs: &[Value]) -> Result<()> {
    let [version, machine] = forerun::machine(forerun)?;
    let record = json!({ "forerun": version, "machine": machine, "file_mib": mib, "runs": runs });
    write(&out.join("costs.json"), &record)?;
    let rows: Vec<String> = runs.iter().map(costs::row).collect();
    let table = format!("{}\n{}\n", costs::HEADER, rows.join("\n"));
    println!("{table}");
    let text = format!(
        "# What `forerun run` costs where there is nothing to gain\n\n- {version}\n- {machine}\n\
         - a file of {mib} MiB, in memory; medians (least to most) of turns\n\n{table}"
    );
    put(&out.join("costs.md"), &text)
}

/// Programs on emulated devices.
fn on_devices(
    root: &Path,
    args: &Args,
    forerun: PathBuf,
    contents: PathBuf,
    out: &Path,
) -> Result<()> {
    let left_out = |lacking: &str| println!("left out: devices: this machine lacks {lacking}");
    if let Some(lacking) = bed::lacking() {
        left_out(&lacking);
        return Ok(());
    }
    let sources = root.join("lab/testbed");
    let mut script = Command::new("bash");
    script.arg(sources.join("contents.sh")).args([&sources.join("programs"), &contents]);
    output_of(script.args([&args.mib.to_string(), &args.python]))?;
    let (devices, is_own) = args.places();
    let programs = devices.iter().flat_map(|device| args.programs(device.name));
    let large = programs.clone().any(|it| it.memory_mib.is_some());
    let data_mib = if large { LARGE_MIB } else { 1 };
    let files = contents.join("files");
    let bed = Bed::up(root, &forerun::target(root), &forerun, data_mib, Some(&files))?;
    let bed = match bed {
        Ok(bed) => bed,
        Err(lacking) => {
            left_out(&lacking);
            return Ok(());
        }
    };
    let python = args.python.clone();
    let tensors = sources.join("programs/tensors.py").display().to_string();
    let mut bench = Bench { forerun, bed, args, contents, python, tensors };
    if programs.count() > 0 {
        bench.programs(&devices, out)?;
    }
    if args.is_warm() {
        bench.warm(&devices, is_own, out)?;
    }
    Ok(())
}

/// The state of one bench.
struct Bench<'a> {
    forerun: PathBuf,
    bed: Bed,
    args: &'a Args,
    contents: PathBuf,
    python: String,
    tensors: String,
}

/// One run of a program.
struct ProgramRun {
    seconds: f64,
    bytes_read: u64,
    /// Of the device.
    requests: u64,
    printed: Vec<u8>,
    status: Option<i32>,
    /// The statistics of `forerun run`.
    stats: Value,
}

impl Bench<'_> {
    /// All programs on `devices`.
    fn programs(&mut self, devices: &[&Device], out: &Path) -> Result<()> {
        let mut runs = Vec::new();
        println!("{HEADER}");
        for device in devices {
            let programs = self.args.programs(device.name);
            if self.is_explained() && !programs.is_empty() {
                self.profile(device)?;
            }
            for program in programs {
                for run in self.program(device, program)? {
                    println!("{}", row(&run));
                    runs.push(run);
                }
                // After each, so that a stopped bench leaves its results so far.
                self.write(out, &runs)?;
            }
        }
        Ok(())
    }

    /// `forerun warm` on `devices`, and on the machine's own disk where it `is_own`.
    fn warm(&mut self, devices: &[&Device], is_own: bool, out: &Path) -> Result<()> {
        println!("\n{}", warm::HEADER);
        let [version, machine] = forerun::machine(&self.forerun)?;
        let (mut runs, mut rows) = (Vec::new(), String::new());
        let places = devices.iter().map(|&device| Some(device));
        for place in places.chain(is_own.then_some(None)) {
            let run = warm::measured(self, place)?;
            let line = warm::row(&run);
            println!("{line}");
            rows.push_str(&line);
            rows.push('\n');
            runs.push(run);
            let record = json!({ "forerun": version, "machine": machine, "runs": runs });
            write(&out.join("warm.json"), &record)?;
            let text = format!(
                "# `forerun warm` on trees\n\n- {version}\n- {machine}\n- {} rounds in turns, \
                 cold: medians (fastest to slowest)\n\n{}\n{rows}",
                self.args.rounds,
                warm::HEADER
            );
            put(&out.join("warm.md"), &text)?;
        }
        Ok(())
    }

    fn is_explained(&self) -> bool {
        self.args.explain == "on"
    }

    /// A program alone and in each way under `run`: an object for each of those.
    fn program(&mut self, device: &Device, program: &Program) -> Result<Vec<Value>> {
        let folder = self.bed.fresh(Folios::Large)?;
        let words = self.words(program, &folder);
        if let Some(lacking) = lacking(program, &words, &folder) {
            println!("left out: {}: this machine lacks {lacking}", program.name);
            return Ok(Vec::new());
        }
        let cached = self.cached(program, &words)?;
        let ways = 1 + program.ways.len();
        let rounds_alone = self.args.alone.unwrap_or(self.args.rounds).get();
        let taken = in_turns(self.args.rounds, ways, |round, way| {
            if way == 0 && round >= rounds_alone {
                return Ok(None);
            }
            self.bed.fresh(Folios::Large)?;
            self.bed.on(device, self.args.read_ahead_kib.get())?;
            let flags = way.checked_sub(1).map(|way| program.ways[way]);
            self.once(program, &words, flags).map(Some)
        })?;
        let taken = taken.into_iter().map(|runs| runs.into_iter().flatten().collect());
        let taken: Vec<Vec<ProgramRun>> = taken.collect();
        let wanted = float(size(&folder.join(program.reads))?) * program.share;
        let limit = (wanted / (device.limit_mb_per_second * 1e6)).max(cached);
        let (alone, ours) = taken.split_first().expect("it ran alone");
        let rows = program.ways.iter().zip(ours).map(|(way, ours)| {
            let (printed, status) = (&alone[0].printed, alone[0].status);
            let same = |it: &ProgramRun| it.printed == *printed && it.status == status;
            let all = alone.iter().chain(ours).all(same);
            ensure!(all, "{} ended otherwise in some run", program.name);
            let mut run = record(device, program, way, [alone, ours], [cached, limit, wanted]);
            run["explained"] = self.explained(device, program, way, &words)?;
            Ok(run)
        });
        rows.collect()
    }

    /// Measures the profile of `device`, for `explain`.
    fn profile(&mut self, device: &Device) -> Result<()> {
        let folder = self.bed.fresh(Folios::Large)?;
        self.bed.on(device, self.args.read_ahead_kib.get())?;
        let _ = fs::remove_file(self.contents.join(PROFILE));
        let mut command = Command::new(&self.forerun);
        command.arg("profile").arg(folder.join("data.tar")).arg("--output");
        output_of(command.arg(self.contents.join(PROFILE)))?;
        Ok(())
    }

    /// The gain that `forerun explain` predicts.
    fn explained(
        &mut self,
        device: &Device,
        program: &Program,
        flags: &[&str],
        words: &[String],
    ) -> Result<Value> {
        // explain takes no limits.
        let is_limited = program.memory_mib.is_some() || flags.contains(&"--limit");
        if is_limited || !self.is_explained() {
            return Ok(Value::Null);
        }
        self.bed.fresh(Folios::Large)?;
        self.bed.on(device, self.args.read_ahead_kib.get())?;
        let mut command = Command::new(&self.forerun);
        command.args(["explain", "--json", "--profile"]).arg(self.contents.join(PROFILE));
        command.args(flags).arg("--").args(words).stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().context("forerun explain")?;
        let told: Value = serde_json::from_slice(&output.stdout).context("explain is no JSON")?;
        Ok(told["prediction"].clone())
    }

    /// Seconds with all of its files in memory: the second run, as the first one loads them.
    fn cached(&self, program: &Program, words: &[String]) -> Result<f64> {
        if program.memory_mib.is_some() {
            return Ok(0.0);
        }
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(self.once(program, words, None)?.seconds);
        }
        Ok(taken[1].min(taken[2]))
    }

    #[expect(clippy::disallowed_types, reason = "programs are timed")]
    fn once(
        &self,
        program: &Program,
        words: &[String],
        flags: Option<&[&str]>,
    ) -> Result<ProgramRun> {
        let stats = self.contents.join("stats.json");
        let printed = self.contents.join("printed");
        let mut command = Command::new("sh");
        match program.memory_mib {
            Some(mib) => {
                let group = self.bed.memory(mib)?.context("no memory cgroups (v1) here")?;
                command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(group);
            }
            None => {
                command.args(["-c", "exec \"$@\"", "sh"]);
            }
        }
        if let Some(flags) = flags {
            command.arg(&self.forerun).arg("run").args(flags).arg("--stats-json").arg(&stats);
            command.arg("--");
        }
        if env::var_os(LEARN).is_none() {
            command.env(LEARN, "off");
        }
        command.args(words).stdin(Stdio::null()).stdout(File::create(&printed)?);
        let before = [self.bed.bytes()?, self.bed.requests()?];
        let begun = Instant::now();
        let ended = command.status().context("sh")?;
        let seconds = begun.elapsed().as_secs_f64();
        let bytes_read = self.bed.bytes()? - before[0];
        let requests = self.bed.requests()? - before[1];
        let stats = if flags.is_some() { read(&stats)? } else { Value::Null };
        let printed = fs::read(&printed)?;
        Ok(ProgramRun { seconds, bytes_read, requests, printed, status: ended.code(), stats })
    }

    /// The command, with its folders put in.
    fn words(&self, program: &Program, folder: &Path) -> Vec<String> {
        let (files, bin) = (folder.display().to_string(), self.contents.join("bin"));
        let bin = bin.display().to_string();
        let tenth = u64::from(self.args.mib.get()) * (1 << 20) / 10;
        let put = |word: &&str| {
            word.replace("{files}", &files)
                .replace("{bin}", &bin)
                .replace("{python}", &self.python)
                .replace("{tensors}", &self.tensors)
                .replace("{tenth}", &tenth.to_string())
        };
        program.words.iter().map(put).collect()
    }

    /// The record and the table of all `runs` so far.
    fn write(&self, out: &Path, runs: &[Value]) -> Result<()> {
        let [version, machine] = forerun::machine(&self.forerun)?;
        let &Args { rounds, mib, read_ahead_kib, .. } = self.args;
        let record = json!({
            "forerun": version, "machine": machine, "rounds": rounds, "file_mib": mib,
            "read_ahead_kib": read_ahead_kib, "runs": runs,
        });
        write(&out.join("programs.json"), &record)?;
        let rows: Vec<String> = runs.iter().map(row).collect();
        let text = format!(
            "# Programs on emulated devices, alone and under `forerun run`\n\n- {version}\n\
             - {machine}\n\
             - files of {mib} MiB, read_ahead_kb {read_ahead_kib}, {rounds} rounds in turns: \
             medians (fastest to slowest)\n\n{HEADER}\n{}\n",
            rows.join("\n")
        );
        put(&out.join("summary.md"), &text)
    }
}

/// The requirement of a program that this machine lacks.
fn lacking(program: &Program, words: &[String], folder: &Path) -> Option<String> {
    for called in [words[0].as_str()].into_iter().chain(program.calls) {
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", called]).output();
        if !found.is_ok_and(|found| found.status.success()) {
            return Some(called.to_owned());
        }
    }
    let is_there = folder.join(program.reads).exists();
    (!is_there).then(|| format!("what makes {}", program.reads))
}

/// Bytes of a file, or of the files of a folder and of those in it.
fn size(path: &Path) -> Result<u64> {
    let data = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
    if !data.is_dir() {
        return Ok(data.len());
    }
    let mut sum = 0;
    for entry in fs::read_dir(path)? {
        sum += size(&entry?.path())?;
    }
    Ok(sum)
}

/// The device's profile, as `forerun profile` measured it.
const PROFILE: &str = "profile.toml";
/// What sets whether lists are used: not here unless the caller has set it, as one run would learn
/// for the next.
const LEARN: &str = "FORERUN_LEARN";
/// The size of the file that a small cgroup reads.
const LARGE_MIB: u32 = 2_048;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    #[test]
    fn options_name_devices_and_programs() {
        let parsed = |line: &str| parsed::<Args>(line);
        let all = parsed("").expect("defaults");
        assert_eq!((all.places().0.len(), all.places().1), (DEVICES.len(), true));
        assert_eq!(all.programs("cloud").len(), PROGRAMS.len());
        let walks = parsed("--device hdd,own --program walks,sort --alone 1").expect("a group");
        let chosen: Vec<&str> = walks.programs("hdd").iter().map(|it| it.name).collect();
        assert!(chosen.contains(&"tar repo") && chosen.contains(&"sort"), "{chosen:?}");
        assert!(!chosen.contains(&"tar headers") && !walks.is_warm(), "{chosen:?}");
        assert_eq!((walks.places().0.len(), walks.places().1), (1, true));
        let some =
            parsed("--device hdd,object --program gzip --rounds 5 --ra 1024").expect("known");
        assert_eq!(parsed("--program start").expect("a cost").programs, ["start"]);
        assert_eq!(
            (some.devices.len(), some.programs, some.rounds.get()),
            (2, vec!["gzip".into()], 5)
        );
        for nonsense in
            ["--device floppy", "--program vi", "--rounds 0", "--size x", "--quick", "--explain x"]
        {
            assert!(parsed(nonsense).is_none(), "{nonsense}");
        }
    }
}
