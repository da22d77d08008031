//! Real programs on the slow volume: with today's kernel alone, then under `forerun run`.
//!
//! ```text
//!   gzip       a long file, from one end to the other
//!   columns    three of twelve columns of a table: the demo's own reader, a process as the others
//!   grep       many small files
//! ```
//! # Invariants
//! - Both runs are of the same command line but for the folder, and find nothing in memory. What
//!   `forerun warm` takes counts as forerun's.
//! - A program that is missing, fails or takes too long is left out with the reason.

use std::fs::File;
use std::hash::Hasher as _;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use forerun_report::{Gain, Gains, ProgramRun};

use super::volume::{LOG, NOTES, Shape, TABLE, Volume};
use super::watch;
use crate::specs;

/// A program of the demo.
struct Program {
    what: String,
    file: &'static str,
    /// The command line before the file.
    words: Vec<String>,
    with: With,
}

/// What a person puts before a program to gain.
#[derive(Clone, Copy)]
enum With {
    Run,
    /// For reads that move no position.
    RunPreload,
    /// A folder that is fetched first; on FUSE the walks of `run` do not help.
    Warm,
}

impl With {
    /// The arguments of forerun.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Run => &["run", "--quiet", "--learn", "off", "--"],
            Self::RunPreload => &["run", "--quiet", "--learn", "off", "--observe", "preload", "--"],
            Self::Warm => &["warm"],
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Run => "forerun run",
            Self::RunPreload => "forerun run --observe preload",
            Self::Warm => "forerun warm, then the program",
        }
    }
}

/// Runs every program; `tell` gets a row as each is done.
///
/// # Errors
/// No volume can be mounted.
pub(super) fn run(seconds: u32, tell: &impl Fn(&Gain) -> Result<()>) -> Result<Gains> {
    let shape = shape(seconds);
    let volume = Volume::mount(specs::device(DEVICE, 1)?, shape)?;
    let mut gains = Gains { place: PLACE.to_owned(), ..Gains::default() };
    for program in programs(shape)? {
        match both(&program, &volume) {
            Ok(gain) => {
                tell(&gain)?;
                gains.rows.push(gain);
            }
            Err(error) => gains.left_out.push(format!("{} is left out: {error:#}.", program.what)),
        }
    }
    Ok(gains)
}

/// As much of everything as a demo of so many seconds has time for.
fn shape(seconds: u32) -> Shape {
    let part = u64::from(seconds.clamp(2, WHOLE_SECONDS));
    let of = |whole: u64| whole * part / u64::from(WHOLE_SECONDS);
    let groups = of(GROUPS).max(2);
    Shape {
        log_bytes: of(LOG_BYTES),
        table_bytes: groups * COLUMNS * CHUNK_BYTES,
        notes: u32::try_from(of(NOTE_COUNT)).unwrap_or(1),
    }
}

fn programs(shape: Shape) -> Result<Vec<Program>> {
    let own = std::env::current_exe().context("cannot find forerun's own program")?;
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
    Ok(vec![
        Program {
            what: format!("gzip, a log of {} MiB", shape.log_bytes >> 20),
            file: LOG,
            words: words(&["gzip", "-c", "-1"]),
            with: With::Run,
        },
        Program {
            what: format!(
                "{} of {COLUMNS} columns of a table, by a reader of the demo",
                READ.len()
            ),
            file: TABLE,
            words: words(&[&own.display().to_string(), "demo", "--read-columns"]),
            with: With::RunPreload,
        },
        Program {
            what: format!("grep, {} small files", shape.notes),
            file: NOTES,
            words: words(&["grep", "-r", "-c", "no such line"]),
            with: With::Warm,
        },
    ])
}

fn both(program: &Program, volume: &Volume) -> Result<Gain> {
    let path = |side: &str| volume.path(side, program.file).display().to_string();
    let on = |side: &str| {
        let mut words = program.words.clone();
        words.push(path(side));
        words
    };
    let kernel = timed(&on("kernel"), &[])?;
    let own = std::env::current_exe().context("cannot find forerun's own program")?;
    let mut front = vec![own.display().to_string()];
    front.extend(program.with.words().iter().map(|&word| word.to_owned()));
    let forerun = match program.with {
        With::Run | With::RunPreload => timed(&on("forerun"), &front)?,
        With::Warm => {
            front.push(path("forerun"));
            after(&timed(&front, &[])?, timed(&on("forerun"), &[])?)
        }
    };
    let short = |word: &String| {
        let name = Path::new(word).file_name().and_then(|name| name.to_str());
        name.filter(|_| word.starts_with('/')).unwrap_or(word).to_owned()
    };
    Ok(Gain {
        what: program.what.clone(),
        program: program.words.iter().chain([&program.file.to_owned()]).map(short).collect(),
        with: program.with.in_words().to_owned(),
        kernel,
        forerun,
    })
}

/// Both runs as one.
fn after(first: &ProgramRun, second: ProgramRun) -> ProgramRun {
    let later = |(from, to): (f64, f64)| (from + first.seconds, to + first.seconds);
    let waits = first.waits.iter().copied().chain(second.waits.into_iter().map(later)).collect();
    ProgramRun { seconds: first.seconds + second.seconds, waits }
}

/// Runs `program` behind `front`, and watches it.
fn timed(program: &[String], front: &[String]) -> Result<ProgramRun> {
    let all: Vec<&String> = front.iter().chain(program).collect();
    let mut command = Command::new(all[0]);
    command.args(&all[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program[0]))?;
    let ended = watch::until_end(&mut child, program, TIME_MAX);
    let Some((run, status)) = ended.as_ref().ok().and_then(Option::as_ref) else {
        let _ = child.kill();
        let _ = child.wait();
        ended?;
        bail!("it took more than {} s", TIME_MAX.as_secs());
    };
    // 1 is grep's "nothing found".
    let is_found = program[0] != "grep" || status.code() != Some(1);
    if !status.success() && is_found {
        let mut said = String::new();
        if let Some(errors) = child.stderr.take() {
            let _ = errors.take(SAID_BYTES).read_to_string(&mut said);
        }
        let said = said.lines().next().unwrap_or_default();
        bail!("it ended with {status} {said}");
    }
    Ok(run.clone())
}

/// Reads some columns of the table at `path`, a chunk after the other in each row group, as a
/// reader of Parquet files does: `forerun demo --read-columns FILE`.
pub(super) fn read_columns(path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let bytes = file.metadata().context("cannot ask for its size")?.len();
    let mut chunk = vec![0; usize::try_from(CHUNK_BYTES).unwrap_or(0)];
    let mut sum = std::hash::DefaultHasher::new();
    for group in 0..bytes / (COLUMNS * CHUNK_BYTES) {
        for column in READ {
            let offset = (group * COLUMNS + column) * CHUNK_BYTES;
            file.read_exact_at(&mut chunk, offset).context("cannot read a column")?;
            sum.write(&chunk);
        }
    }
    anyhow::ensure!(sum.finish() != 0, "the columns have no sum");
    Ok(())
}

const DEVICE: &str = "object";
const PLACE: &str = "Real programs on a slow volume that this demo serves itself: each request \
                     takes 10 to 30 ms, as on an object store or a network file system far away \
                     (FUSE, model `object`). Today's kernel reads ahead by its default of 128 \
                     KiB; forerun is the same command behind `forerun run`, or after `forerun \
                     warm`. Nothing was in memory when it began.";
/// The seconds from which on a demo has all of its data.
const WHOLE_SECONDS: u32 = 12;
const LOG_BYTES: u64 = 16 << 20;
const NOTE_COUNT: u64 = 60;
const GROUPS: u64 = 24;
const COLUMNS: u64 = 12;
const CHUNK_BYTES: u64 = 256 << 10;
/// The columns that are read.
const READ: [u64; 3] = [1, 5, 9];
/// Of what a program said, as the reason for its failure.
const SAID_BYTES: u64 = 4_096;
/// After which a program is left out.
const TIME_MAX: Duration = Duration::from_secs(20);
