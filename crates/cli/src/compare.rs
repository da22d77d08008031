//! `forerun compare`: a program alone and under `run`, cold, in turns, several times.
//!
//! ```text
//!   first run (traced) --> files that are read; a program that writes is refused
//!     |
//!   round 1:  evict, alone    evict, run      evict, learned
//!   round 2:  evict, run      evict, learned  evict, alone        the order rotates
//!     ..                                                      --> statistics --> text | JSON
//! ```
//! # Invariants
//! - The program's changes are those that `--yes` allows; without it none is made.
//! - All runs have the same input, and the same exit status, or there is no comparison.
//! - No list of the user's is read or written.
//! - What stays in memory is said with the figures.

mod first;
mod statistics;
mod text;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, io};

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::{note, usage};
use forerun_console::form::Output;
use forerun_console::{interrupt, output};
use forerun_steer::compare::{Eviction, ReadFile, TimedRun, drop_everything, evict, timed};
use forerun_steer::learn::store::Store;
use rustix::process::geteuid;

use crate::run::ObserveFlag;
use first::FirstRun;

/// The flags.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  forerun compare -- grep -rc needle /srv/texts\n  \
                  forerun compare -n 10 --learn --json -- gzip -3c backup.tar\n\n\
                  Exit status: 0 if there is a comparison, 1 if not; 127 and 126 where the program \
                  does not start.")]
pub(crate) struct Args {
    /// Runs of each way
    #[arg(short = 'n', long, value_name = "N", default_value = "5",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Also compare `run` with a list learned of one run, which is kept apart from the user's lists
    #[arg(long)]
    learn: bool,
    /// How `run` observes the program: by /proc, or also by a shim that it loads
    #[arg(long, value_name = "HOW", default_value = "auto")]
    observe: ObserveFlag,
    /// Run programs that write: each run writes again
    #[arg(short, long)]
    yes: bool,
    /// Empty the page cache of the whole machine before each run, with inodes and directory
    /// entries; needs root, and slows down all other programs
    #[arg(long)]
    drop_caches: bool,
    /// How the first run finds out what is read and written
    #[arg(long, value_name = "HOW", default_value = "calls")]
    find_by: FindBy,
    /// The program's input, from the beginning in each run [default: /dev/null]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Show what the program prints; with --json on stderr
    #[arg(long)]
    show_output: bool,
    #[command(flatten)]
    output: Output,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// The values of `--find-by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FindBy {
    /// Stops the program at each call that opens or changes a file: all is found
    Calls,
    /// As `explain` does, without stopping it: small files and all writes are missed
    Samples,
}

/// A way to run the program.
struct Way {
    name: &'static str,
    words: Vec<OsString>,
    runs: Vec<TimedRun>,
}

/// A comparison that is complete.
struct Comparison {
    first: FirstRun,
    /// Of all evictions, the one that kept the most bytes.
    eviction: Eviction,
    ways: Vec<Way>,
    /// Entries of the learned list.
    learned_entries: Option<u64>,
}

/// Compares, and prints the figures.
pub(crate) fn run(args: &Args) -> Result<u8> {
    args.output.check()?;
    if args.drop_caches && !geteuid().is_root() {
        return Err(usage("--drop-caches needs root: without it the program's files are evicted"));
    }
    if let Some(path) = &args.input {
        args.open_input().with_context(|| format!("cannot read {}", path.display()))?;
    }
    // The shim has to be there before anything runs.
    args.observe.kind()?;
    interrupt::install()?;
    interrupt::gently();
    let first = match first::run(args) {
        Ok(Some(first)) => first,
        Ok(None) => interrupt::leave(),
        Err(first::Failure::Start(error)) => {
            note(&error.to_string());
            return Ok(error.status());
        }
        Err(first::Failure::Explained(status)) => return Ok(status),
        Err(first::Failure::Other(error)) => return Err(error),
    };
    let Some(comparison) = compare(args, first)? else { interrupt::leave() };
    let record = text::record(args, &comparison);
    args.output.print(&record, &["ways"], || text::text(args, &comparison))?;
    Ok(0)
}

/// Runs all ways; nothing where a signal came.
fn compare(args: &Args, first: FirstRun) -> Result<Option<Comparison>> {
    let own = env::current_exe().context("cannot find this program itself")?;
    let mut runner = Runner { args, first: &first, eviction: Eviction::default() };
    let off = ["--learn", "off"].map(OsStr::new);
    let mut ways = vec![
        Way { name: "alone", words: args.words.clone(), runs: Vec::new() },
        Way { name: "run", words: under_run(args, &own, &off), runs: Vec::new() },
    ];
    let folder = if args.learn { Some(Folder::make()?) } else { None };
    let mut learned_entries = None;
    if let Some(folder) = &folder {
        let Some((path, entries)) = learn(args, &own, folder, &mut runner)? else {
            return Ok(None);
        };
        let file = [off[0], off[1], OsStr::new("--learned-file"), path.as_os_str()];
        let words = under_run(args, &own, &file);
        ways.push(Way { name: "run with a list", words, runs: Vec::new() });
        learned_entries = Some(entries);
    }
    let count = u64::from(args.runs) * ways.len() as u64;
    let bar = output::progress(count, "compare: runs");
    bar.tick();
    for round in 0..args.runs as usize {
        for turn in 0..ways.len() {
            let at = (round + turn) % ways.len();
            let way = &mut ways[at];
            let Some(run) = runner.cold(way.name, &way.words, None)? else {
                bar.finish_and_clear();
                return Ok(None);
            };
            way.runs.push(run);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let eviction = runner.eviction;
    assert!(ways.iter().all(|way| way.runs.len() == args.runs as usize), "as many runs of each");
    Ok(Some(Comparison { first, eviction, ways, learned_entries }))
}

/// The words of `run` with `flags`, and the program.
fn under_run(args: &Args, own: &Path, flags: &[&OsStr]) -> Vec<OsString> {
    let observe = match args.observe {
        ObserveFlag::Auto => "auto",
        ObserveFlag::Proc => "proc",
        ObserveFlag::Preload => "preload",
    };
    let mut words = vec![OsString::from(own)];
    words.extend(["run", "--quiet", "--observe", observe].map(OsString::from));
    words.extend(flags.iter().map(OsString::from));
    words.push("--".into());
    words.extend(args.words.iter().cloned());
    words
}

/// Learns a list of one cold run: its path, and how many entries it has.
fn learn(
    args: &Args,
    own: &Path,
    folder: &Folder,
    runner: &mut Runner<'_>,
) -> Result<Option<(PathBuf, u64)>> {
    // A run that reports waits until its list is saved.
    let stats = folder.0.join("stats.json");
    let flags = ["--learn", LIST, "--stats-json"].map(OsStr::new);
    let words = under_run(args, own, &[&flags[..], &[stats.as_os_str()]].concat());
    if runner.cold("the learning run", &words, Some(&folder.0))?.is_none() {
        return Ok(None);
    }
    let store = Store::at(&folder.0.join("forerun/learned"))?;
    let entries = store.load(LIST)?.map_or(0, |file| file.list.trusted().count() as u64);
    if entries == 0 {
        bail!("nothing was learned: run was not seen to use any file; leave out --learn");
    }
    Ok(Some((store.path(LIST), entries)))
}

/// Runs commands cold.
struct Runner<'a> {
    args: &'a Args,
    first: &'a FirstRun,
    eviction: Eviction,
}

impl Runner<'_> {
    /// Runs `words` after an eviction; nothing where a signal came.
    fn cold(
        &mut self,
        way: &str,
        words: &[OsString],
        state: Option<&Path>,
    ) -> Result<Option<TimedRun>> {
        self.evict()?;
        if interrupt::asked() {
            return Ok(None);
        }
        let (name, arguments) = words.split_first().expect("a program is named");
        let mut command = Command::new(name);
        command.args(arguments);
        if let Some(folder) = state {
            command.env("XDG_STATE_HOME", folder);
        }
        self.args.direct(&mut command)?;
        let run = timed(&mut command, interrupt::asked);
        let run = run.with_context(|| format!("cannot run {}", name.display()))?;
        let Some(run) = run else { return Ok(None) };
        let (status, expected) = (run.status, self.first.status);
        if status != expected {
            bail!(
                "{way} ended with status {status}, the first run with {expected}: they cannot be \
                 compared; --show-output shows what the program says"
            );
        }
        Ok(Some(run))
    }

    fn evict(&mut self) -> Result<()> {
        if self.args.drop_caches {
            drop_everything().context("cannot empty the page cache")?;
        }
        let eviction = evict(&self.first.files, interrupt::asked);
        if eviction.bytes_kept >= self.eviction.bytes_kept {
            self.eviction = eviction;
        }
        Ok(())
    }
}

impl Args {
    /// The program's input.
    fn open_input(&self) -> io::Result<Stdio> {
        match &self.input {
            Some(path) => File::open(path).map(Stdio::from),
            None => Ok(Stdio::null()),
        }
    }

    /// Sets the input and the outputs of a command.
    fn direct(&self, command: &mut Command) -> Result<()> {
        let [output, errors] = self.outputs()?;
        command.stdin(self.open_input().context("cannot read the input")?);
        command.stdout(output).stderr(errors);
        Ok(())
    }

    fn outputs(&self) -> Result<[Stdio; 2]> {
        Ok(match (self.show_output, !self.output.form.is_text()) {
            (false, _) => [Stdio::null(), Stdio::null()],
            (true, false) => [Stdio::inherit(), Stdio::inherit()],
            (true, true) => [io::stderr().as_fd().try_clone_to_owned()?.into(), Stdio::inherit()],
        })
    }
}

impl FirstRun {
    /// The sizes of all its files; of these it may have read a part.
    fn file_bytes(&self) -> u64 {
        self.files.iter().map(|ReadFile { bytes, .. }| bytes).sum()
    }
}

/// A folder for a list, which goes at the end.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self> {
        let path = env::temp_dir().join(format!("forerun-compare-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The name of the list that is learned.
const LIST: &str = "compare";
