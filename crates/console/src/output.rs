//! stdout: text, tables and JSON, each written whole and flushed.
//!
//! # Invariants
//! - A closed stdout is an error of kind `BrokenPipe`, which ends a command quietly.
//! - A file is the whole new one or what was there before; a place that takes none is found out
//!   before anything is run.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use forerun_report::{NewFile, quantity, write_whole};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use rustix::fs::{Access, Mode, OFlags, access, fcntl_setfl, open};
use rustix::io::Errno;
use serde::Serialize;

use crate::failure::{plain, usage};

use crate::interrupt;

/// Writes `text` to stdout.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot write to stdout")
}

/// Writes `value` to stdout as one JSON object.
pub fn json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context("cannot write JSON")?;
    print(&(text + "\n"))
}

/// Writes `bytes` as the whole file `path`, or leaves it as it was. A pipe has to have a reader:
/// none is waited for.
pub fn file(path: &Path, bytes: &[u8]) -> Result<()> {
    let is_pipe = fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo());
    let written = if is_pipe {
        to_pipe(path, bytes)
    } else {
        interrupt::unbroken(|| write_whole(path, bytes))
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn to_pipe(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let pipe = match open(path, flags, Mode::empty()) {
        Err(Errno::NXIO) => return Err(io::Error::other("no process reads that pipe")),
        opened => opened?,
    };
    // A reader that is slow is waited for.
    fcntl_setfl(&pipe, OFlags::empty())?;
    fs::File::from(pipe).write_all(bytes)
}

/// The full path of `path`, wherever this process goes; as it is where there is no working folder.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Refuses a place that takes no file, before the first run.
pub fn require_place(path: &Path) -> Result<()> {
    let name = path.display();
    if path.as_os_str().is_empty() {
        return Err(usage("cannot write to a file without a name: name one"));
    }
    // The check below accepts `a.html/`: its folder is that of `a.html`.
    if path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/") {
        bail!("cannot write {name}: it is a folder; name a file");
    }
    if !folder(path).is_dir() {
        bail!("cannot write {name}: there is no such folder; make it, or name another");
    }
    let writable = if is_written_in_place(path) {
        access(path, Access::WRITE_OK).map_err(io::Error::from)
    } else {
        // A folder's mode does not show all permissions: a file is begun there and dropped.
        interrupt::unbroken(|| NewFile::create(path).map(drop))
    };
    writable.with_context(|| format!("cannot write {name}; name another place"))
}

/// Refuses a descriptor of this process that a program has for its own while it runs.
pub fn require_lasting(path: &Path) -> Result<()> {
    let own = ["/dev/stdin", "/dev/stdout", "/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"];
    let full = absolute(path);
    let is_errors = full.file_name().is_some_and(|number| number == "2");
    if !is_errors && own.iter().any(|own| full.starts_with(own)) {
        let name = path.display();
        return Err(usage(format!("{name} is the program's while it runs: name a file")));
    }
    require_place(path)
}

/// Refuses a name that says something else than a page, such as `report.pdf`.
pub fn require_page_name(path: &Path) -> Result<()> {
    let end = path.extension().and_then(OsStr::to_str);
    if is_written_in_place(path) || matches!(end, None | Some("html" | "htm")) {
        return Ok(());
    }
    let name = path.display();
    Err(usage(format!("{name}: what is written is a page; name a file that ends with .html")))
}

/// Whether `path` is written where it is, such as a pipe or a terminal; a file takes the place of
/// the old one in its folder.
#[must_use]
pub fn is_written_in_place(path: &Path) -> bool {
    path.exists() && !path.is_file()
}

/// The folder of the file at `path`, after its links.
#[must_use]
pub fn folder(path: &Path) -> PathBuf {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    parent(&target).to_owned()
}

/// The folder that `path` names.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Refuses one file for two purposes: an output would overwrite the input or another output.
pub fn require_apart(paths: &[&Path]) -> Result<()> {
    let places: Vec<_> = paths.iter().map(|path| place(path)).collect();
    for (at, place) in places.iter().enumerate() {
        if place.is_some() && places[..at].contains(place) {
            let name = paths[at].display();
            return Err(usage(format!("{name} is named twice: name another file to write to")));
        }
    }
    Ok(())
}

/// The target of `path`, existing or not; none where a second write does no harm.
fn place(path: &Path) -> Option<PathBuf> {
    if let Ok(there) = fs::canonicalize(path) {
        let kind = fs::metadata(&there).ok()?.file_type();
        return (kind.is_file() || kind.is_block_device()).then_some(there);
    }
    let folder = fs::canonicalize(parent(path)).ok()?;
    Some(folder.join(path.file_name()?))
}

/// Rows under a header, in columns: the first `left` set to the left, the others to the right.
#[must_use]
pub fn table(header: &[&str], rows: &[Vec<String>], left: usize) -> String {
    let header: Vec<String> = header.iter().map(|&title| title.to_owned()).collect();
    let lines = || std::iter::once(&header).chain(rows);
    let width = |column: usize| {
        lines().map(|line| line[column].chars().count()).max().expect("the header is a line")
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let aligned = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            let cell = plain(cell);
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<String>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines().map(aligned).collect()
}

/// A column of a table: its title, and what it shows of a row.
pub type Column<T> = (&'static str, fn(&T) -> String);

/// `rows` in `columns`, as [`table`].
pub fn columns<T>(rows: &[T], columns: &[Column<T>], left: usize) -> String {
    let header: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let cells = |row: &T| columns.iter().map(|(_, cell)| cell(row)).collect();
    table(&header, &rows.iter().map(cells).collect::<Vec<_>>(), left)
}

/// Progress over `count` things on stderr; nothing where that is no terminal.
#[must_use]
pub fn progress(count: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let style = ProgressStyle::with_template("{msg} {pos}/{len} {elapsed}");
    bar.set_style(style.expect("the template is well formed"));
    bar.set_message(what.to_owned());
    bar
}

/// Progress of a task that cannot be counted, on stderr as [`progress`].
#[must_use]
pub fn waiting(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Progress over bytes that are moved, with the rate and the time that is left, at the rate since
/// the beginning: that of the last moments says minutes of a second that waits for a slow file.
#[must_use]
pub fn transfer(bytes: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style = ProgressStyle::with_template("{msg} {bar:24} {done} of {all} {rate} {left}");
    let style = style
        .expect("the template is well formed")
        .with_key("done", |state: &ProgressState, text: &mut dyn fmt::Write| {
            let _ = write!(text, "{}", quantity::bytes(state.pos()));
        })
        .with_key("all", |state: &ProgressState, text: &mut dyn fmt::Write| {
            let _ = write!(text, "{}", quantity::bytes(state.len().unwrap_or(0)));
        })
        .with_key("rate", |state: &ProgressState, text: &mut dyn fmt::Write| {
            let _ = write!(text, "{}", rate(state.pos(), state.elapsed()));
        })
        .with_key("left", |state: &ProgressState, text: &mut dyn fmt::Write| {
            let all = state.len().unwrap_or(0);
            let _ = write!(text, "{}", left(state.pos(), all, state.elapsed()));
        });
    bar.set_style(style);
    bar.set_message(what.to_owned());
    bar
}

/// Bytes a second; nothing where none came yet.
fn rate(bytes: u64, elapsed: Duration) -> String {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    match u128::from(bytes) * 1_000 / u128::from(millis.max(1)) {
        0 => String::new(),
        rate => quantity::bytes(u64::try_from(rate).unwrap_or(u64::MAX)) + "/s",
    }
}

/// The time that is left at the rate so far; nothing before there is one.
fn left(bytes: u64, all: u64, elapsed: Duration) -> String {
    if bytes == 0 || elapsed < RATE_KNOWN_FROM {
        return String::new();
    }
    let rest = u128::from(all.saturating_sub(bytes));
    let millis = elapsed.as_millis() * rest / u128::from(bytes);
    let seconds = u64::try_from(millis.div_ceil(1_000)).unwrap_or(u64::MAX);
    quantity::whole_seconds(seconds) + " left"
}

const RATE_KNOWN_FROM: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_at_the_rate_so_far() {
        #[rustfmt::skip]
        let rows = [ // bytes  of     millis     left                rate
            (0,         100,   10_000,    "",                 ""),
            (50,        100,   100,       "",                 "500 B/s"),
            (50,        100,   1_000,     "1 s left",         "50 B/s"),
            (100,       100,   1_000,     "0 s left",         "100 B/s"),
            (200,       100,   1_000,     "0 s left",         "200 B/s"),
            (10,        1_000, 1_000,     "1 min 39 s left",  "10 B/s"),
            (1,         7_300, 1_000,     "2 h 1 min left",   "1 B/s"),
        ];
        for (bytes, all, millis, told, speed) in rows {
            let elapsed = Duration::from_millis(millis);
            assert_eq!(left(bytes, all, elapsed), told, "{bytes} of {all}");
            assert_eq!(rate(bytes, elapsed), speed, "{bytes} of {all}");
        }
    }

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = table(&["a", "b", "n"], &[row(["long", "x", "1"]), row(["y", "\x1b", "23"])], 2);
        assert_eq!(text, "a     b   n\nlong  x   1\ny     ?  23\n");
    }
}
