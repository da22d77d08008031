//! `forerun learned`: the learned lists of this user.
//!
//! # Invariants
//! - No list of another user is read; a list is changed by `import`, `merge` and `forget` alone.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::usage;
use forerun_console::form::{Form, Output};
use forerun_console::{object, output};
use forerun_core::learned::LearnedEntry;
use forerun_report::quantity::{self, seconds};
use forerun_steer::learn::format::LearnedFile;
use forerun_steer::learn::store::{Store, StoredList};
use forerun_steer::learn::{read_file, rebased};

/// Whether this user's commands neither use nor keep what earlier ones have learnt.
pub(crate) fn is_off() -> bool {
    std::env::var_os("FORERUN_LEARN").is_some_and(|word| word == "off")
}

/// The commands.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  forerun learned export train.py-1f0c9a44e2b7d053 -o train.jsonl"
)]
pub(crate) struct Args {
    #[command(flatten)]
    form: Form,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Name the lists, those that were saved last first
    #[command(after_help = "Example:\n  forerun learned list")]
    List {
        /// Also write this file: .json, .ndjson, .csv or .txt by its name
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print the entries of a list, in the order in which the program uses them; with --json the
    /// list as `export` writes it, a line of JSON an entry
    #[command(after_help = "Example:\n  forerun learned show git-1f0c9a44e2b7d053")]
    Show {
        /// The name of a list
        name: String,
        /// Also write this file: .json, .ndjson, .csv or .txt by its name
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write a list to a file, for another machine
    #[command(
        after_help = "Example:\n  forerun learned export NAME -o app.jsonl --root /=/mnt/image"
    )]
    Export {
        /// The name of a list
        name: String,
        /// The file
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Take the paths below OLD from below NEW
        #[arg(long, value_name = "NEW=OLD", value_parser = root)]
        root: Option<(String, String)>,
    },
    /// Take a file in as a list
    #[command(after_help = "Example:\n  forerun learned import app.jsonl --name app")]
    Import {
        /// The file
        file: PathBuf,
        /// The name of the list [default: the name of the file]
        #[arg(long)]
        name: Option<String>,
    },
    /// Join files of lists
    #[command(after_help = "Example:\n  forerun learned merge all.jsonl one.jsonl other.jsonl")]
    Merge {
        /// The file to write
        out: PathBuf,
        /// The files to join
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Remove a list
    #[command(after_help = "Example:\n  forerun learned forget --all")]
    Forget {
        /// The name of a list
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        name: Option<String>,
        /// All lists
        #[arg(long)]
        all: bool,
    },
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let output = |path: &Option<PathBuf>| -> Result<Output> {
        let output = Output { path: path.clone(), form: args.form };
        output.check().map(|()| output)
    };
    match args.command.as_ref().unwrap_or(&Command::List { output: None }) {
        Command::List { output: path } => list(&Store::of_user()?, &output(path)?),
        Command::Show { name, output: path } => {
            let output = output(path)?;
            show(&named(&Store::of_user()?, name)?, &output)
        }
        Command::Export { name, output, root } => {
            let mut file = named(&Store::of_user()?, name)?;
            if let Some((new, old)) = root {
                file.list = rebased(&file.list, old.as_bytes(), new.as_bytes()).map_err(usage)?;
            }
            write(output, &file)
        }
        Command::Import { file, name } => {
            let stem = file.file_stem().and_then(|stem| stem.to_str());
            let name = name.as_deref().or(stem).context("give the list a --name")?;
            let read = read_file(file)?;
            Store::of_user()?.put(name, PATIENCE, &read)?;
            Ok(())
        }
        Command::Merge { out, files } => {
            let mut all = LearnedFile::default();
            for path in files {
                let file = read_file(path)?;
                all.list.merge_list(&file.list);
                all.program = file.program;
            }
            write(out, &all)
        }
        Command::Forget { name, all: _ } => forget(&Store::of_user()?, name.as_deref()),
    }
}

/// The list of this name.
pub(crate) fn named(store: &Store, name: &str) -> Result<LearnedFile> {
    if let Some(file) = store.load(name)? {
        return Ok(file);
    }
    let known = store.lists()?.into_iter().map(|list| list.name).collect::<Vec<_>>();
    let hint = forerun_console::names::hint(name, &known, "forerun learned");
    bail!("no learned list {name}{hint}")
}

fn list(store: &Store, output: &Output) -> Result<()> {
    let lists = store.lists()?.into_iter();
    let lists: Vec<(StoredList, Option<LearnedFile>)> =
        lists.map(|list| (list.clone(), store.load(&list.name).ok().flatten())).collect();
    let row = |(list, file): &(StoredList, Option<LearnedFile>)| {
        let file = file.as_ref();
        object! {
            name: list.name.clone(),
            bytes: list.bytes,
            saved: list.saved.0,
            runs: file.map(|file| file.list.runs()),
            entries: file.map(|file| file.list.entries().len()),
            executable: file.map(|file| file.program.executable.clone()),
        }
    };
    let all = object! { lists: lists.iter().map(row).collect::<Vec<_>>() };
    output.print(&all, &["lists"], || {
        if lists.is_empty() {
            return "nothing is learned yet: `forerun run -- PROGRAM` learns\n".to_owned();
        }
        let rows: Vec<Vec<String>> = lists.iter().map(list_row).collect();
        output::table(&["name", "runs", "entries", "executable"], &rows, 1)
    })
}

fn list_row((list, file): &(StoredList, Option<LearnedFile>)) -> Vec<String> {
    match file {
        Some(file) => vec![
            list.name.clone(),
            file.list.runs().to_string(),
            file.list.trusted().count().to_string(),
            file.program.executable.clone(),
        ],
        None => vec![list.name.clone(), "-".into(), "-".into(), "cannot be read".into()],
    }
}

fn show(file: &LearnedFile, output: &Output) -> Result<()> {
    let row = |entry: &LearnedEntry| {
        object! {
            path: String::from_utf8_lossy(&entry.path).into_owned(),
            use: entry.kind.name(),
            first_seconds: seconds(entry.first),
            bytes: entry.bytes(),
            next_time: file.list.is_trusted(entry),
        }
    };
    let rows: Vec<_> = file.list.entries().iter().map(row).collect();
    let text = || {
        let rows: Vec<_> = file.list.entries().iter().map(|it| entry_row(file, it)).collect();
        output::table(&["path", "use", "first", "bytes", "next time"], &rows, 1)
    };
    let written = output.write(&rows, &[""], text);
    let shown = if output.form.json {
        // As `export` writes it, with all ranges.
        let mut bytes = Vec::new();
        file.write(&mut bytes)?;
        output::print(&String::from_utf8(bytes).context("a list is text")?)
    } else {
        output.form.print(&rows, &[""], text)
    };
    written.and(shown)
}

fn entry_row(file: &LearnedFile, entry: &LearnedEntry) -> Vec<String> {
    let bytes = entry.bytes();
    vec![
        String::from_utf8_lossy(&entry.path).into_owned(),
        entry.kind.name().to_owned(),
        quantity::time(seconds(entry.first)),
        if bytes == 0 { String::new() } else { quantity::bytes(bytes) },
        if file.list.is_trusted(entry) { "yes".into() } else { "no".into() },
    ]
}

fn write(path: &Path, file: &LearnedFile) -> Result<()> {
    let mut bytes = Vec::new();
    file.write(&mut bytes)?;
    bytes.flush()?;
    output::file(path, &bytes)
}

fn forget(store: &Store, name: Option<&str>) -> Result<()> {
    let Some(name) = name else {
        for list in store.lists()? {
            store.forget(&list.name, PATIENCE)?;
        }
        return Ok(());
    };
    if !store.forget(name, PATIENCE)? {
        named(store, name)?;
    }
    Ok(())
}

/// `NEW=OLD`, both full paths.
pub(crate) fn root(text: &str) -> Result<(String, String), String> {
    let parts =
        text.split_once('=').filter(|(new, old)| new.starts_with('/') && old.starts_with('/'));
    let (new, old) = parts.ok_or("expected NEW=OLD, two full paths")?;
    Ok((new.to_owned(), old.to_owned()))
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
