//! What can be asked for: the commands, and which module does each.
//!
//! # Invariants
//! - Every command has an example in its help.
//! - An error of the parser is one line, as every other bad usage is; for an unknown name the
//!   line has the nearest known one.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use forerun_console::{failure, interrupt, machine, names, output};

use crate::{
    compare, doctor, explain, learned, profile, report, run as program, serve, shell, warm,
};

#[derive(Parser)]
#[command(
    name = "forerun",
    about = "Has a program's files in memory before it reads them, and measures what that gains",
    version,
    after_help = "Example:\n  forerun run --stats -- gzip -3k backup.tar",
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program, and read ahead of it
    Run(program::Args),
    /// Run a program, and say what it reads, where it waits, and what reading ahead would gain
    Explain(explain::Args),
    /// Time a program cold, alone and under `run`, in turns
    Compare(compare::Args),
    #[command(flatten)]
    Own(Own),
}

/// The commands that run no program of others: signals end them.
#[derive(Subcommand)]
enum Own {
    /// Bring files into the kernel's page cache before they are wanted
    Warm(warm::Args),
    /// List, show and move what programs used in their last runs, which `run` fetches ahead
    Learned(learned::Args),
    /// Serve files through a cache to programs that speak NBD: qemu, nbdcopy, fio, kernels
    Serve(Box<serve::Args>),
    /// Say what this machine lets forerun do, what it costs to be without, and how to get it
    Doctor(doctor::Args),
    /// Measure what a device can do: how long it takes, how much it delivers, how many at a time
    Profile(profile::Args),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(forerun_lab::Command),
    /// Draw recorded runs on one static page
    Report(report::Args),
    /// Print the completions of a shell
    Completions(shell::CompletionsArgs),
    /// Write a manual page for each command
    Man(shell::ManArgs),
}

impl Own {
    fn run(self) -> Result<()> {
        match self {
            Self::Warm(args) => warm::run(&args),
            Self::Learned(args) => learned::run(&args),
            Self::Serve(args) => serve::run(&args),
            Self::Profile(args) => profile::run(&args),
            #[cfg(feature = "lab")]
            Self::Lab(command) => command.run(),
            Self::Report(args) => report::run(&args),
            Self::Doctor(args) => doctor::run(&args),
            Self::Completions(args) => shell::completions(&args, definitions()),
            Self::Man(args) => shell::man(&args, definitions()),
        }
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os()))
}

/// Runs the command line `words`, the program's name first, and gives the exit status. It takes
/// over the signals that end a process, and is therefore called once in it.
#[must_use]
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    if let Some(bytes) = forerun_steer::small_stack() {
        let (kib, least) = (bytes >> 10, forerun_steer::STACK_BYTES_MIN >> 10);
        failure::note(&format!("a stack of {kib}K (ulimit -s) is too small, {least}K is needed"));
        return failure::FAILED;
    }
    let mut words: Vec<OsString> = words.into_iter().collect();
    let _ = commit();
    if let [_, first, second] = &words[..]
        && [["--version", "--json"], ["--json", "--version"]]
            .contains(&[first, second].map(|it| it.to_str().unwrap_or("")))
    {
        return version().map_or_else(|error| failure::tell(&error), |()| failure::DONE);
    }
    if let Some(args) = run_alone(&mut words) {
        return program::run(&args).unwrap_or_else(|error| failure::tell(&error));
    }
    let parsed = definitions().try_get_matches_from(&words);
    let parsed = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(parsed) => parsed,
        Err(error) => return refused(&error, &words),
    };
    let result = match parsed.command {
        Command::Run(args) => program::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Compare(args) => compare::run(&args),
        #[cfg(feature = "lab")]
        Command::Own(Own::Lab(command)) if command.runs_program() => command.run_program(),
        Command::Own(command) => {
            interrupt::install().and_then(|()| command.run()).map(|()| failure::DONE)
        }
    };
    result.unwrap_or_else(|error| failure::tell(&meant(error, &words)))
}

/// `error`, with what its first word may have meant: commands that take files as well as commands
/// below them take it for a file.
fn meant(error: anyhow::Error, words: &[OsString]) -> anyhow::Error {
    let hint = || {
        let [_, command, word, ..] = words else { return None };
        let (command, word) = (command.to_str()?, word.to_str()?);
        let definitions = definitions();
        let below = definitions.find_subcommand(command)?.get_subcommands();
        let known: Vec<&str> = below.map(clap::Command::get_name).collect();
        let is_given = known.contains(&word) || Path::new(word).exists();
        let is_refused = !is_given && failure::message(&error).contains(word);
        let is_meant = is_refused && names::nearest(word, &known).is_some();
        is_meant.then(|| names::hint(word, &known, &format!("forerun {command} --help")))
    };
    match hint() {
        Some(hint) => failure::usage(format!("{}{hint}", failure::message(&error))),
        None => error,
    }
}

/// The commit that was built; the version where the build names none.
#[must_use]
pub fn commit() -> &'static str {
    if let Some(commit) = option_env!("FORERUN_COMMIT") {
        machine::set_commit(commit);
    }
    machine::commit()
}

/// The arguments of `run`, where `words` are such, by its definition alone: its program waits for
/// it. What is refused here the definitions of all commands have to name. The program's own
/// arguments, of which there may be very many, are moved out of `words` unread.
fn run_alone(words: &mut Vec<OsString>) -> Option<program::Args> {
    words.get(1).filter(|name| *name == "run")?;
    let at = words.iter().position(|word| word == "--");
    let own = at.map_or(words.len(), |at| (at + 2).min(words.len()));
    let definition = program::Args::augment_args(clap::Command::new("run"));
    let matches = definition.try_get_matches_from(&words[1..own]).ok()?;
    let mut args = program::Args::from_arg_matches(&matches).ok()?;
    args.words.extend(words.drain(own..));
    Some(args)
}

/// The version as one JSON object.
fn version() -> Result<()> {
    output::json(&serde_json::json!({
        "name": "forerun",
        "version": env!("CARGO_PKG_VERSION"),
        "commit": machine::commit(),
        "lab": cfg!(feature = "lab"),
        "system": std::env::consts::OS,
        "processor": std::env::consts::ARCH,
    }))
}

/// The commands, with a help that groups them, the product first.
fn definitions() -> clap::Command {
    // `learned` takes them before and after the words that follow it.
    let forms = ["json", "ndjson", "csv"];
    let global = |arg: clap::Arg| {
        let is_form = forms.contains(&arg.get_id().as_str());
        if is_form { arg.global(true) } else { arg }
    };
    let command = Cli::command().mut_subcommand("learned", |learned| learned.mut_args(global));
    let mut groups = PRODUCT.map(|(title, _)| (title, String::new())).to_vec();
    let mut seen: Vec<_> = command.get_subcommands().filter(|one| !one.is_hide_set()).collect();
    // In the order of its group; those of none in that of their definition.
    seen.sort_by_key(|one| {
        let mut names = PRODUCT.iter().flat_map(|(_, names)| names.iter());
        names.position(|name| *name == one.get_name())
    });
    for one in seen {
        let place = PRODUCT.iter().position(|(_, names)| names.contains(&one.get_name()));
        let about = one.get_about().map(ToString::to_string).unwrap_or_default();
        let line = format!("  {:NAME_WIDTH$}{about}\n", one.get_name());
        groups[place.unwrap_or(LAB)].1.push_str(&line);
    }
    groups.retain(|(_, lines)| !lines.is_empty());
    let groups: Vec<_> = groups.iter().map(|(title, lines)| format!("{title}:\n{lines}")).collect();
    let groups = groups.join("\n");
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// Help and the version go where they were asked to; all else is bad usage, in one line.
fn refused(error: &clap::Error, words: &[OsString]) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = error.print().context("cannot write to stdout");
            printed.map_or_else(|error| failure::tell(&error), |()| 0)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            failure::USAGE
        }
        _ => {
            let text = error.render().to_string();
            let what: Vec<&str> =
                text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let what = what.join(" ");
            let what = what.strip_prefix("error: ").unwrap_or(&what);
            // The parser of a value may have given a hint of its own.
            let see = if what.ends_with(" lists them") { "" } else { ": see --help" };
            let hint = nearest(error, words).unwrap_or_else(|| see.to_owned());
            let line = failure::plain(&format!("forerun: {what}{hint}"));
            let _ = writeln!(std::io::stderr(), "{line}");
            failure::USAGE
        }
    }
}

/// The name that comes nearest to the one that `error` refuses, and the help that lists them all.
fn nearest(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let (mut command, mut lister) = (definitions(), "forerun".to_owned());
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(below) = command.find_subcommand(word) {
            lister = format!("{lister} {word}");
            command = below.clone();
        }
    }
    let lister = lister + " --help";
    let (name, known): (_, Vec<String>) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let seen = command.get_subcommands().filter(|one| !one.is_hide_set());
            (text(ContextKind::InvalidSubcommand)?, seen.map(|one| one.get_name().into()).collect())
        }
        ErrorKind::UnknownArgument => {
            let flags = command.get_arguments().filter_map(clap::Arg::get_long);
            let flags = flags.chain(["help"]).map(|flag| format!("--{flag}"));
            (text(ContextKind::InvalidArg).filter(|arg| arg.starts_with("--"))?, flags.collect())
        }
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue)? {
            ContextValue::Strings(values) => (text(ContextKind::InvalidValue)?, values.clone()),
            _ => return None,
        },
        _ => return None,
    };
    Some(names::hint(name, &known, &lister))
}

/// The groups of the help. What is in none is the lab's.
const PRODUCT: [(&str, &[&str]); 3] = [
    ("For programs that read slow storage", &PRODUCT_NAMES),
    ("The laboratory", &[]),
    ("Results and help", &["report", "completions", "man", "help"]),
];
const PRODUCT_NAMES: [&str; 8] =
    ["run", "explain", "compare", "warm", "learned", "profile", "serve", "doctor"];
const LAB: usize = 1;
const NAME_WIDTH: usize = 16;

#[cfg(test)]
mod tests;
