//! `forerun-compare learned`: programs that start on emulated devices, with lists of their last
//! runs, with none, and with the wrong ones.
//!
//! ```text
//!   device x program:  alone                      the kernel, read_ahead_kb 128
//!                      off | first | later        nothing learned | it learns | it has learned
//!                      other | foreign | old      the list of other arguments, of another program,
//!                                                 of versions that are gone
//!                      warm                       all in memory, alone and with its list in turns
//! ```
//!
//! # Invariants
//! - Every run but a warm one is cold by unmounting; a ratio is of figures of the same round.
//! - A program's output and exit status are the same in each way: else the bench fails.

mod cases;
mod row;

use std::fs::{self, File};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
#[expect(clippy::disallowed_types, reason = "programs are timed")]
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::args::{Places, chosen, in_turns, names};
use crate::bed::{self, Bed, Folios};
use crate::device::{DEVICES, Device};
use crate::forerun::{self, folder, output_of, put, read, write};
use cases::{CASES, Case};
use row::{HEADER, Taken, record, row};

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// Devices [default: cloud, object and hdd]
    #[arg(long = "device", value_name = "D,...", value_delimiter = ',',
        value_parser = names(&DEVICES, |device| device.name),
        default_value = "cloud,hdd,object")]
    devices: Vec<String>,
    /// Programs [default: all]
    #[arg(long = "program", value_name = "P,...", value_delimiter = ',',
        value_parser = names(&CASES, |case| case.name))]
    programs: Vec<String>,
    /// Ways beside `alone` [default: all]
    #[arg(long = "way", value_name = "W,...", value_delimiter = ',',
        value_parser = names(&WAYS, |way| way.name()))]
    ways: Vec<String>,
    /// Rounds, in turns
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: NonZeroUsize,
    /// The kernel's `read_ahead_kb`
    #[arg(long = "ra", value_name = "KIB", default_value = "128")]
    read_ahead_kib: NonZeroU32,
    /// The Python of programs that need one
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
}

/// Which list a program has under `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Off,
    First,
    Later,
    Other,
    Foreign,
    Old,
    Warm,
}

const WAYS: [Way; 7] =
    [Way::Off, Way::First, Way::Later, Way::Other, Way::Foreign, Way::Old, Way::Warm];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::First => "first",
            Self::Later => "later",
            Self::Other => "other",
            Self::Foreign => "foreign",
            Self::Old => "old",
            Self::Warm => "warm",
        }
    }
}

/// Measures everything and writes the records and the tables.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let (forerun, out) = args.places.open(root, "learned")?;
    let left_out = |lacking: &str| println!("left out: this machine lacks {lacking}");
    if let Some(lacking) = bed::lacking() {
        left_out(&lacking);
        return Ok(());
    }
    let target = forerun::target(root);
    let (files, kept) = (target.join("bench/starts"), folder(target.join("bench/learned"))?);
    let mut script = Command::new("bash");
    script.arg(root.join("lab/testbed/learned.sh")).arg(&files).arg(&args.python);
    output_of(&mut script)?;
    let bed = match Bed::up(root, &target, &forerun, 1, Some(&files))? {
        Ok(bed) => bed,
        Err(lacking) => {
            left_out(&lacking);
            return Ok(());
        }
    };
    let mut bench = Bench { forerun, bed, args, kept };
    let mut runs = Vec::new();
    println!("{HEADER}");
    for device in chosen(&DEVICES, &args.devices, |device| device.name) {
        for case in chosen(&CASES, &args.programs, |case| case.name) {
            for run in bench.case(device, case)? {
                println!("{}", row(&run));
                runs.push(run);
            }
            // After each, so that a stopped bench leaves its results so far.
            bench.write(&out, &runs)?;
        }
    }
    println!("\nrecords and summaries: {}", out.display());
    Ok(())
}

/// The state of one bench.
struct Bench<'a> {
    forerun: PathBuf,
    bed: Bed,
    args: &'a Args,
    /// Lists, statistics and output.
    kept: PathBuf,
}

impl Bench<'_> {
    /// A program in each way: an object for each of those.
    fn case(&mut self, device: &Device, case: &Case) -> Result<Vec<Value>> {
        let words = self.words(case.words)?;
        if !self.is_there(case, &words)? {
            println!("left out: {}: this machine lacks it", case.name);
            return Ok(Vec::new());
        }
        let ways = chosen(&WAYS, &self.args.ways, |way| way.name());
        let is_cold = |way: &&&Way| **way != &Way::Warm;
        let cold: Vec<Way> = ways.iter().filter(is_cold).map(|way| **way).collect();
        let mut lists = Vec::new();
        for way in &cold {
            lists.push(self.list(device, case, *way)?);
        }
        let taken = in_turns(self.args.rounds, 1 + cold.len(), |_, at| {
            let Some(at) = at.checked_sub(1) else { return self.cold(device, &words, None) };
            let way = cold[at];
            // A list that learns is kept from round to round.
            if way != Way::Later || fs::metadata(self.list_path(way)).is_err() {
                self.put_list(way, lists[at].as_deref())?;
            }
            self.cold(device, &words, Some(way))
        })?;
        let (alone, others) = taken.split_first().expect("it ran alone");
        let mut runs = vec![record([device.name, case.name, "alone"], alone, alone)];
        for (way, taken) in cold.iter().zip(others) {
            ensure_same(case, alone, taken)?;
            runs.push(record([device.name, case.name, way.name()], alone, taken));
        }
        if ways.contains(&&Way::Warm) {
            runs.push(self.warm(device, case, &words)?);
        }
        let _ = fs::remove_dir_all(self.state(Way::Later));
        Ok(runs)
    }

    /// A program whose files are all in memory.
    fn warm(&mut self, device: &Device, case: &Case, words: &[String]) -> Result<Value> {
        let list = self.list(device, case, Way::Warm)?;
        self.put_list(Way::Warm, list.as_deref())?;
        for _ in 0..2 {
            self.once(words, None)?;
        }
        let turns = WARM_TURNS.try_into().expect("not none");
        let taken = in_turns(turns, 2, |_, at| self.once(words, (at == 1).then_some(Way::Warm)))?;
        ensure_same(case, &taken[0], &taken[1])?;
        Ok(record([device.name, case.name, Way::Warm.name()], &taken[0], &taken[1]))
    }

    /// The list that the runs of `way` begin with.
    fn list(&mut self, device: &Device, case: &Case, way: Way) -> Result<Option<Vec<u8>>> {
        let at = CASES.iter().position(|it| it.name == case.name).expect("it is one of them");
        let words = match way {
            Way::Off | Way::First => return Ok(None),
            Way::Later | Way::Old | Way::Warm => case.words,
            Way::Other => case.other,
            Way::Foreign => CASES[(at + 1) % CASES.len()].words,
        };
        let words = self.words(words)?;
        self.put_list(way, None)?;
        self.cold(device, &words, Some(way))?;
        let list = fs::read(self.list_path(way)).context("nothing was learned")?;
        Ok(Some(if way == Way::Old { as_before(&list)? } else { list }))
    }

    fn cold(&mut self, device: &Device, words: &[String], way: Option<Way>) -> Result<Taken> {
        self.bed.fresh(Folios::Large)?;
        self.bed.on(device, self.args.read_ahead_kib.get())?;
        self.once(words, way)
    }

    #[expect(clippy::disallowed_types, reason = "programs are timed")]
    fn once(&self, words: &[String], way: Option<Way>) -> Result<Taken> {
        let (stats, printed) = (self.kept.join("stats.json"), self.kept.join("printed"));
        let mut command = Command::new(way.map_or(words[0].as_ref(), |_| self.forerun.as_os_str()));
        if let Some(way) = way {
            let learned = if way == Way::Off { "off" } else { NAME };
            command.args(["run", "--learn", learned, "--stats-json"]).arg(&stats).arg("--");
            command.arg(&words[0]).env("XDG_STATE_HOME", self.state(way));
        }
        command.args(&words[1..]).stdin(Stdio::null()).stdout(File::create(&printed)?);
        // No settings of this user, which may lie on another device.
        command.stderr(Stdio::null()).env("HOME", &self.kept).env("PYTHONDONTWRITEBYTECODE", "1");
        let before = [self.bed.bytes()?, self.bed.requests()?];
        let begun = Instant::now();
        let ended = command.status().with_context(|| words[0].clone())?;
        let seconds = begun.elapsed().as_secs_f64();
        let bytes = self.bed.bytes()? - before[0];
        let requests = self.bed.requests()? - before[1];
        let stats = if way.is_some() { read(&stats)? } else { Value::Null };
        let printed = fs::read(&printed)?;
        ensure!(ended.success(), "{} failed: {ended}", words.join(" "));
        Ok(Taken { seconds, bytes, requests, printed, stats })
    }

    /// The command, with its folders put in; the device is mounted.
    fn words(&mut self, words: &[&str]) -> Result<Vec<String>> {
        let files = self.bed.fresh(Folios::Large)?.display().to_string();
        let put =
            |word: &&str| word.replace("{files}", &files).replace("{python}", &self.args.python);
        Ok(words.iter().map(put).collect())
    }

    fn is_there(&mut self, case: &Case, words: &[String]) -> Result<bool> {
        let files = self.bed.fresh(Folios::Large)?;
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", &words[0]]).output();
        let is_found = found.is_ok_and(|found| found.status.success());
        Ok(is_found && files.join(case.needs).exists())
    }

    fn state(&self, way: Way) -> PathBuf {
        self.kept.join(format!("state-{}", way.name()))
    }

    fn list_path(&self, way: Way) -> PathBuf {
        self.state(way).join(format!("forerun/learned/{NAME}.jsonl"))
    }

    /// Leaves the runs of `way` with `list` alone.
    fn put_list(&self, way: Way, list: Option<&[u8]>) -> Result<()> {
        let _ = fs::remove_dir_all(self.state(way));
        let Some(list) = list else { return Ok(()) };
        let (path, file) = (self.list_path(way), self.kept.join("list.jsonl"));
        fs::write(&file, list).with_context(|| file.display().to_string())?;
        let mut command = Command::new(&self.forerun);
        command.args(["learned", "import"]).arg(&file).args(["--name", NAME]);
        output_of(command.env("XDG_STATE_HOME", self.state(way)))?;
        ensure!(path.exists(), "{} is missing", path.display());
        Ok(())
    }

    /// The record and the table of all `runs` so far.
    fn write(&self, out: &Path, runs: &[Value]) -> Result<()> {
        let [version, machine] = forerun::machine(&self.forerun)?;
        let &Args { rounds, read_ahead_kib, .. } = self.args;
        let record = json!({
            "forerun": version, "machine": machine, "rounds": rounds,
            "read_ahead_kib": read_ahead_kib, "runs": runs,
        });
        write(&out.join("learned.json"), &record)?;
        let rows: Vec<String> = runs.iter().map(row).collect();
        let text = format!(
            "# Programs that start on emulated devices, with and without a learned list\n\n\
             - {version}\n- {machine}\n\
             - read_ahead_kb {read_ahead_kib}, {rounds} rounds in turns, {WARM_TURNS} of warm \
             ones: medians (least to most)\n\n{HEADER}\n{}\n",
            rows.join("\n")
        );
        put(&out.join("summary.md"), &text)
    }
}

fn ensure_same(case: &Case, alone: &[Taken], ours: &[Taken]) -> Result<()> {
    let same = alone.iter().zip(ours).all(|(a, b)| a.printed == b.printed);
    ensure!(same, "{} printed something else under run", case.name);
    Ok(())
}

/// `list` as if it was learned of other versions of all of its files.
fn as_before(list: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for line in String::from_utf8_lossy(list).lines() {
        let mut line: Value = serde_json::from_str(line).context("a list is JSON lines")?;
        if let Some(modified) = line.get_mut("modified") {
            *modified = json!(modified.as_i64().unwrap_or_default() - 1);
        }
        out.extend(format!("{line}\n").bytes());
    }
    Ok(out)
}

/// The list of all runs.
const NAME: &str = "bench";
const WARM_TURNS: usize = 11;
