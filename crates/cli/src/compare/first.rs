//! The first run of a comparison: which files the program reads, and whether it writes.
//!
//! # Invariants
//! - Without `--yes` nothing is changed, and a program of which that cannot be known is not run.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::note;
use forerun_console::{interrupt, output};
use forerun_core::units::Nanos;
use forerun_report::quantity::seconds;
use forerun_steer::StartError;
use forerun_steer::compare::{
    Changes, ReadFile, TraceError, Traced, inherited_for_writing, timed, trace,
};
use serde_json::Value;

use super::text::{Unit, files, together};
use super::{Args, FindBy, Folder};

/// What the first run told.
pub(super) struct FirstRun {
    pub(super) status: u8,
    pub(super) time: Nanos,
    pub(super) files: Vec<ReadFile>,
    pub(super) files_left_out: u64,
    /// What it changed first, where that is allowed.
    pub(super) change: Option<String>,
    pub(super) found_by: FindBy,
}

/// Why there is no first run.
pub(super) enum Failure {
    Start(StartError),
    /// It did not start under `explain`, which ended with this status.
    Explained(u8),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Makes the first run, and says what it told; nothing where a signal came.
pub(super) fn run(args: &Args) -> Result<Option<FirstRun>, Failure> {
    let name = args.words[0].display();
    let bar = output::waiting(&format!("first run of {name}: which files does it read?"));
    let first = find(args);
    bar.finish_and_clear();
    let Some(mut first) = first? else { return Ok(None) };
    // It was open before the program, which opens it nowhere.
    let input = args.input.as_deref().map(output::absolute);
    let input = input.as_deref().and_then(ReadFile::at);
    first.files.extend(input.filter(|it| first.files.iter().all(|file| file.inode != it.inode)));
    first.tell(args);
    Ok(Some(first))
}

fn find(args: &Args) -> Result<Option<FirstRun>, Failure> {
    if args.find_by == FindBy::Samples {
        require_yes(args, "samples do not show what a program writes")?;
        return sampled(args);
    }
    if let Some(number) = inherited_for_writing() {
        require_yes(args, &format!("it inherits descriptor {number}, open for writing a file"))?;
    }
    let changes = if args.yes { Changes::Allowed } else { Changes::Refused };
    let (input, [output, errors]) =
        (args.open_input().context("cannot read the input")?, args.outputs()?);
    let prepare = |command: &mut Command| {
        command.stdin(input).stdout(output).stderr(errors);
    };
    match trace(&args.words, prepare, changes, interrupt::asked) {
        Ok(None) => Ok(None),
        Ok(Some(traced)) => Ok(Some(FirstRun::of(args, traced)?)),
        Err(TraceError::Start(error)) => Err(Failure::Start(error)),
        Err(error) => {
            require_yes(args, &error.to_string())?;
            note(&format!("{error}: the files are found by samples instead"));
            sampled(args)
        }
    }
}

fn require_yes(args: &Args, why: &str) -> Result<()> {
    if args.yes {
        return Ok(());
    }
    bail!("it cannot be known whether the program writes: {why}; give --yes if that does no harm")
}

/// The first run as `explain` sees it.
fn sampled(args: &Args) -> Result<Option<FirstRun>, Failure> {
    let folder = Folder::make()?;
    let path = folder.0.join("explained.json");
    let own = std::env::current_exe().context("cannot find this program itself")?;
    let mut command = Command::new(own);
    command.args(["explain", "--json", "--"]).args(&args.words);
    args.direct(&mut command)?;
    command.stdout(File::create(&path).context("cannot write a temporary file")?);
    command.stderr(Stdio::null());
    let run = timed(&mut command, interrupt::asked).context("cannot run explain")?;
    let Some(run) = run else { return Ok(None) };
    let text = fs::read(&path).context("cannot read a temporary file")?;
    if text.is_empty() {
        note(&format!("cannot run {}", args.words[0].display()));
        return Err(Failure::Explained(run.status));
    }
    let explained: Value = serde_json::from_slice(&text).context("explain printed no JSON")?;
    let files = explained["files"].as_array().into_iter().flatten();
    let files = files.filter_map(|file| ReadFile::at(Path::new(file["path"].as_str()?)));
    Ok(Some(FirstRun {
        status: run.status,
        time: run.time,
        files: files.collect(),
        files_left_out: explained["files_left_out"].as_u64().unwrap_or(0),
        change: None,
        found_by: FindBy::Samples,
    }))
}

impl FirstRun {
    fn of(args: &Args, traced: Traced) -> Result<Self> {
        let name = args.words[0].display();

        if let Some(change) = &traced.change
            && !args.yes
        {
            bail!(
                "{name} {change}, and was ended before that: every run would do it; give --yes if \
                 that does no harm"
            );
        }
        if traced.leaves_processes {
            require_yes(args, "what it starts runs on after its end")?;
        }
        if traced.is_foreign {
            require_yes(args, "it makes calls that cannot be examined")?;
        }
        let Traced { status, time, files, files_left_out, change, .. } = traced;
        Ok(Self { status, time, files, files_left_out, change, found_by: FindBy::Calls })
    }

    /// Says what was found out.
    fn tell(&self, args: &Args) {
        let name = args.words[0].display();
        let opened = together(self.files.len() as u64, self.file_bytes());
        let time = seconds(self.time);
        let time = Unit::of(time).show(time);
        note(&format!("first run, {time}, not counted: {name} opens {opened}"));
        if self.files_left_out > 0 {
            note(&format!("{} more are not evicted: too many", files(self.files_left_out)));
        }
        if let Some(change) = &self.change {
            note(&format!("{name} {change}; each run does it again"));
        }
        if self.status != 0 {
            let status = self.status;
            note(&format!("{name} ends with status {status}; --show-output shows what it says"));
        }
    }
}
