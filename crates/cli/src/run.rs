//! `forerun run`: a program as it is, with the kernel's page cache kept ahead of it.
//!
//! # Invariants
//! - The exit status is the program's, as a shell reports it; 127 and 126 where it did not start.
//! - Nothing is written to stdout: that is the program's. Statistics come after its end, on stderr
//!   or in a file.

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::{env, fs};

use anyhow::{Context as _, Result};
use forerun_console::failure::{note, usage};
use forerun_console::{output, specs};
use forerun_core::params::{Bytes, Param as _};
use forerun_report::{plain, quantity, remove_parts};
use forerun_steer::abilities::{Abilities, abilities};
use forerun_steer::learn::{self, LearnSettings, Learning, store};
use forerun_steer::run::{self, Ended, RunError, Settings};
use forerun_steer::{ObserverKind, SessionError, end_as, end_late, shim};

use stats::{Record, lines};
pub(crate) use stats::{given_up, not_observed};

mod stats;

/// The flags.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  forerun run --stats -- gzip -3k backup.tar")]
pub(crate) struct Args {
    /// How far ahead of a reader of a file bytes are fetched, at most
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = bytes)]
    limit: Bytes,
    /// How much is requested at a time, at most
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = bytes)]
    burst: Bytes,
    /// How far ahead of all readers together [default: 256M, less where memory is short]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    budget: Option<Bytes>,
    /// The readahead policy, as NAME:key=value,...
    #[arg(long, value_name = "NAME", default_value = "streams:first=1M,through=4K")]
    readahead: String,
    /// How the program's reads are observed: by /proc, or also by a shim that it loads
    #[arg(long, value_name = "HOW", default_value = "auto")]
    observe: ObserveFlag,
    /// Whether the next files of a tree are fetched ahead of a program that goes from file to file
    #[arg(long, value_name = "HOW", default_value = "on")]
    walks: WalksFlag,
    /// What is learned of the program for its next start: auto, off, or the name of a list; off
    /// where `FORERUN_LEARN` says so [default: auto]
    #[arg(long, value_name = "HOW", value_parser = learning)]
    learn: Option<Learning>,
    /// Use this learned list as well, as `forerun learned export` writes it
    #[arg(long = "learned-file", value_name = "FILE")]
    learned_files: Vec<PathBuf>,
    /// Print statistics on stderr, after the program's end
    #[arg(long)]
    stats: bool,
    /// Write the same to a file, as JSON
    #[arg(long, value_name = "FILE")]
    stats_json: Option<PathBuf>,
    /// Print nothing of forerun's own but errors of what the command line asks for
    #[arg(short, long, conflicts_with = "stats")]
    quiet: bool,
    /// Print what would be observed and fetched ahead, and run nothing
    #[arg(long, conflicts_with_all = ["stats", "stats_json", "quiet"])]
    dry_run: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) words: Vec<OsString>,
}

/// The values of `--walks`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WalksFlag {
    /// They are, where the system shows the calls that the program waits in
    On,
    /// Only what large files and learned lists bring
    Off,
}

/// The values of `--observe`.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum ObserveFlag {
    /// The one that works for every program: proc
    Auto,
    /// By positions of open files, and pages of mapped ones; hardly sees `pread`
    Proc,
    /// Also every read call, by a library that the program loads; see `make install`
    Preload,
}

impl ObserveFlag {
    /// The observers that it stands for.
    pub(crate) fn kind(self) -> Result<ObserverKind> {
        Ok(match self {
            Self::Auto | Self::Proc => ObserverKind::Proc,
            Self::Preload => ObserverKind::Preload(library()?),
        })
    }
}

/// Runs the program, and returns its exit status.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let settings = args.settings()?;
    if args.dry_run {
        return output::print(&plan(&settings, &args.words, abilities())).map(|()| 0);
    }
    // This process leaves its folder to the program.
    let stats_json = args.stats_json.as_deref().map(output::absolute);
    if let Some(path) = &args.stats_json {
        output::require_lasting(path)?;
    }
    let is_reported = args.stats || args.stats_json.is_some();
    let Ended { status, key, stats, is_observed, bug } =
        match run::run(&settings, &args.words, is_reported) {
            Ok(ended) => ended,
            Err(RunError::Session(SessionError::Start(error))) => {
                note(&error.to_string());
                return Ok(error.status());
            }
            Err(error) => return Err(error.into()),
        };
    if is_reported {
        end_late(remove_parts);
    }
    let tell = |text: &str| {
        if !args.quiet {
            note(text);
        }
    };
    if let Some(bug) = bug {
        tell(&bug);
    }
    if is_reported && !is_observed {
        tell(
            "the program was not observed: it ended before that began, or the process for that \
             did not start or was killed",
        );
    }
    if args.stats {
        for line in lines(&stats) {
            note(&line);
        }
    }
    if let Some(path) = &stats_json {
        let text = serde_json::to_string_pretty(&Record::new(status, &stats));
        let text = text.context("cannot write JSON")? + "\n";
        // The exit status is the program's, whatever becomes of its statistics.
        if let Err(error) = output::file(path, text.as_bytes()) {
            note(&format!("{error:#}"));
        }
    }
    Ok(end_as(status, key))
}

impl Args {
    /// Which lists are used and learned. A file that is named has to be a list.
    fn learn(&self) -> Result<LearnSettings> {
        for path in &self.learned_files {
            // It is read here, and again by the process that uses it: a pipe has its bytes once.
            if fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo()) {
                return Err(usage(format!("--learned-file {}: a pipe", path.display())));
            }
            learn::read_file(path)?;
        }
        let learning = match (&self.learn, env::var("FORERUN_LEARN")) {
            (Some(learning), _) => learning.clone(),
            (None, Ok(text)) if !text.is_empty() => {
                learning(&text).map_err(|error| usage(format!("FORERUN_LEARN: {error}")))?
            }
            (None, _) => Learning::Auto,
        };
        Ok(LearnSettings { learning, files: self.learned_files.clone() })
    }

    fn settings(&self) -> Result<Settings> {
        let spec = specs::readaheads(&self.readahead)?;
        let [readahead] = &spec[..] else {
            return Err(usage(format!("--readahead {}: name one policy", self.readahead)));
        };
        let default = Settings::default();
        Ok(Settings {
            limit_bytes: self.limit.0,
            burst_bytes: self.burst.0,
            budget_bytes: self.budget.map_or(default.budget_bytes, |bytes| bytes.0),
            readahead: readahead.clone(),
            observe: self.observe.kind()?,
            walks: self.walks == WalksFlag::On,
            learn: self.learn()?,
        })
    }
}

/// What `--learn` stands for.
fn learning(text: &str) -> Result<Learning, String> {
    match text {
        "off" => Ok(Learning::Off),
        "auto" => Ok(Learning::Auto),
        word if NO_NAMES.contains(&word) => Err("auto, off, or the name of a list".to_owned()),
        name => {
            let named = Learning::Named(name.to_owned());
            store::check_name(name).map(|()| named).map_err(|error| error.to_string())
        }
    }
}

/// What is meant for `auto` or `off`, and would make a list of that name.
const NO_NAMES: [&str; 8] = ["on", "of", "no", "none", "yes", "true", "false", "aut"];

/// The path of the shim.
fn library() -> Result<PathBuf> {
    let chosen = env::var_os("FORERUN_PRELOAD").map(PathBuf::from);
    let own = env::current_exe().context("cannot find this program's own folder")?;
    shim::library(chosen.as_deref(), &own).context("--observe preload")
}

/// What a run would observe and fetch ahead, as lines of text.
fn plan(settings: &Settings, words: &[OsString], can: Abilities) -> String {
    let mut observed = vec!["positions of open files"];
    observed.push(if can.scans_pages { "pages of mappings" } else { "pages of mappings, slowly" });
    if can.sees_calls {
        observed.push("blocked calls");
    }
    if matches!(settings.observe, ObserverKind::Preload(_)) {
        observed.push("every read call, by the shim");
    }
    let show = |bytes| Bytes(bytes).show();
    let walks = if !settings.walks {
        "off"
    } else if can.sees_calls {
        "entries of directories ahead of a program that walks them"
    } else {
        "none: blocked calls are not seen; `forerun doctor` says how to get them"
    };
    let lists = learn::planned(&settings.learn, words);
    let learned = match &lists {
        _ if settings.learn.is_off() => "off".to_owned(),
        lists if !lists.trouble.is_empty() => lists.trouble.clone(),
        lists if lists.name.is_empty() && lists.entries == 0 => {
            "nothing: there is no such program".to_owned()
        }
        lists if lists.entries == 0 => format!("nothing yet; this run as {}", lists.name),
        lists => {
            let paths = quantity::counted(lists.entries, "path", "paths");
            format!("{paths} with {}, of {}", quantity::bytes(lists.bytes), lists.name)
        }
    };
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!(
        "program   {}\nobserved  {}\nstreams   {}: at most {} ahead of a reader, {} at a time, {} \
         in all\nwalks     {walks}\nlearned   {learned}\n",
        plain::text(&plain::command(&words)),
        observed.join(", "),
        settings.readahead,
        show(settings.limit_bytes),
        show(settings.burst_bytes),
        show(settings.budget_bytes),
    )
}

fn bytes(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text)
        .filter(|bytes| bytes.0 > 0)
        .ok_or_else(|| format!("expected {}, and more than 0", Bytes::FORM))
}
