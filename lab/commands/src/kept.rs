//! The results of a run that may be cut: kept beside the file that it writes until that is whole.
//!
//! ```text
//!   forerun sim ... -o sweep.csv
//!      a result  --> sweep.csv.partial     a line of JSON each, as it is there
//!      the end   --> sweep.csv             and the partial file is removed
//!
//!   the same again, after a kill           results that the partial file has are not run again
//! ```
//! A result is found again by its key: all that it depends on, the build and the trace's time of
//! change included. So another command with the same file takes over what is the same in both.
//!
//! # Invariants
//! - A line that was cut is dropped, and written over.
//! - Two runs never write one partial file.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::note;
use forerun_console::{interrupt, machine, output};
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// See the module. Without a file it keeps nothing.
pub(crate) struct Kept<T> {
    path: Option<PathBuf>,
    file: Option<File>,
    /// Those of an earlier run.
    found: BTreeMap<String, T>,
    /// Results in the file.
    count: Arc<AtomicUsize>,
}

#[derive(Serialize, Deserialize)]
struct Line<K, T> {
    key: K,
    result: T,
}

impl<T: Serialize + DeserializeOwned> Kept<T> {
    /// The results that are kept for `output`, a file that is written at the end.
    pub(crate) fn open(output: Option<&Path>) -> Result<Self> {
        let path = output.filter(|path| !output::is_written_in_place(path)).map(partial);
        let mut kept = Self { path, file: None, found: BTreeMap::new(), count: Arc::default() };
        if let Some(path) = kept.path.clone().filter(|path| path.exists()) {
            let name = path.display();
            kept.read(&path).with_context(|| format!("cannot go on with {name}"))?;
            note(&format!("{name}: {} results are there already", kept.found.len()));
        }
        Ok(kept)
    }

    /// The file holds so many more results.
    fn holds(&mut self, more: usize) {
        if self.count.fetch_add(more, Ordering::Relaxed) == 0 && more > 0 {
            let count = Arc::clone(&self.count);
            interrupt::tells(move || {
                let count = count.load(Ordering::Relaxed);
                format!("{count} results are kept: the same command goes on")
            });
        }
    }

    fn read(&mut self, path: &Path) -> Result<()> {
        let mut file = locked(path)?;
        let (mut reader, mut whole) = (BufReader::new(&mut file), 0);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            let Ok(Line { key, result }) = serde_json::from_slice::<Line<String, T>>(&line) else {
                bail!("a line of it is no result of this command: remove it, or name another file");
            };
            self.found.insert(key, result);
            whole += line.len() as u64;
            line.clear();
        }
        file.set_len(whole)?;
        file.seek(SeekFrom::Start(whole))?;
        self.holds(self.found.len());
        self.file = Some(file);
        Ok(())
    }

    /// The result of an earlier run with this key.
    pub(crate) fn take(&mut self, key: &str) -> Option<T> {
        self.found.remove(key)
    }

    /// Keeps a result.
    pub(crate) fn add(&mut self, key: &str, result: &T) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let name = path.display();
        if self.file.is_none() {
            self.file = Some(locked(path).with_context(|| format!("cannot write {name}"))?);
        }
        let file = self.file.as_mut().expect("opened above");
        let line = serde_json::to_string(&Line { key, result })? + "\n";
        let written = interrupt::unbroken(|| file.write_all(line.as_bytes()));
        written.with_context(|| format!("cannot write {name}"))?;
        self.holds(1);
        Ok(())
    }

    /// The result with this key: that of an earlier run, or that of `make`, kept from now on. One
    /// that cannot be kept is returned all the same.
    pub(crate) fn or_make(&mut self, key: &str, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(found) = self.take(key) {
            return Ok(found);
        }
        let result = make()?;
        if let Err(error) = self.add(key, &result) {
            note(&format!("{error:#}"));
        }
        Ok(result)
    }

    /// Removes what was kept: the file is whole.
    pub(crate) fn end(self) -> Result<()> {
        let (Some(path), Some(_)) = (&self.path, &self.file) else { return Ok(()) };
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
    }
}

/// The build that makes results: its commit, and the program's own file, which is another after a
/// change that has no commit yet.
pub(crate) fn build() -> String {
    let own = std::env::current_exe().and_then(fs::metadata);
    let own = own.map(|it| (it.len(), it.mtime(), it.mtime_nsec())).ok();
    format!("{} {own:?}", machine::commit())
}

/// Where the results for `output` are kept.
fn partial(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// The file, of this process alone.
fn locked(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("another run writes it");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_testkit::Scratch;

    #[test]
    fn results_are_found_again_and_a_cut_line_is_not() {
        let folder = Scratch::new("kept");
        let output = folder.join("a.csv");
        let mut kept = Kept::open(Some(&output)).unwrap();
        kept.add("a", &1_u32).unwrap();
        kept.add("b", &2).unwrap();
        assert!(Kept::<u32>::open(Some(&output)).is_err(), "it is written by another");
        drop(kept);
        let path = partial(&output);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + "{\"key\":\"c\",\"resu").unwrap();
        let mut kept = Kept::open(Some(&output)).unwrap();
        assert_eq!([kept.take("a"), kept.take("c"), kept.take("a")], [Some(1), None, None]);
        kept.add("c", &3).unwrap();
        drop(kept);
        let mut kept = Kept::<u32>::open(Some(&output)).unwrap();
        assert_eq!((kept.take("b"), kept.take("c")), (Some(2), Some(3)));
        assert_eq!(kept.or_make("d", || Ok(4)).unwrap(), 4);
        drop(kept);
        let mut kept = Kept::<u32>::open(Some(&output)).unwrap();
        assert_eq!(kept.or_make("d", || unreachable!("it is kept")).unwrap(), 4);
        kept.end().unwrap();
        assert!(!path.exists());
        fs::write(&path, "some text of another's\n").unwrap();
        assert!(Kept::<u32>::open(Some(&output)).is_err());
        let mut none = Kept::open(None).unwrap();
        none.add("a", &1).unwrap();
        assert_eq!(none.take("a"), None);
    }
}
