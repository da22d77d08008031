//! What tests of learned lists share: a folder of lists of its own, files, and a reader of them.
//!
//! # Invariants
//! - A reader has each file open until it was observed.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use forerun_testkit::{Scratch, drop_from_cache};
use serde_json::Value;

/// A folder of files that a program reads one after the other, and one of lists. The lists are in
/// memory: what a busy disk does not save in time is lost.
pub(crate) struct Home(pub(crate) Scratch, Scratch);

/// Reads the files that it is given, and has each open until an observer has it open, too: for two
/// looks on end, and not as a worker, which has a handle (`O_PATH`) of what it opens to fetch it.
const READER: &str = "
import glob, os, sys, time
def flags(link):
    with open(link.replace('/fd/', '/fdinfo/')) as info:
        return int(info.read().split('flags:')[1].split()[0], 8)
def is_seen(path):
    others = []
    for link in glob.glob('/proc/[0-9]*/fd/*'):
        try:
            if os.readlink(link) == path and link.split('/')[2] != str(os.getpid()):
                others.append(flags(link))
        except OSError: pass
    return others and not any(how & os.O_PATH for how in others)
for path in sys.argv[1:]:
    with open(path, 'rb') as file:
        while not (is_seen(path) and is_seen(path)):
            file.seek(0)
            while file.read(65536): pass
            time.sleep(.005)
";

/// Observers follow readers of files that are no smaller.
pub(crate) const BYTES: usize = 300_000;

impl Home {
    pub(crate) fn new(test: &str, files: usize) -> Self {
        let memory = Scratch::in_memory(&format!("lists-{test}"));
        let home = Self(Scratch::on_disk(&format!("learned-{test}")), memory);
        fs::create_dir(home.0.join("files")).unwrap();
        for at in 0..files {
            fs::write(home.file(at), vec![1; BYTES]).unwrap();
        }
        fs::write(home.0.join("reader.py"), READER).unwrap();
        home
    }

    pub(crate) fn file(&self, at: usize) -> PathBuf {
        self.0.join(format!("files/{at:03}"))
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.1.join("state")
    }

    pub(crate) fn forerun(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
        command.args(words).env("XDG_STATE_HOME", self.state()).env_remove("FORERUN_LEARN");
        command.current_dir(self.0.join("files")).stdin(Stdio::null());
        command
    }

    /// Runs the reader of `files` under `run` with `flags`, all of them cold: the statistics.
    pub(crate) fn read(&self, flags: &[&str], files: &[PathBuf]) -> Value {
        for file in fs::read_dir(self.0.join("files")).unwrap() {
            drop_from_cache(&File::open(file.unwrap().path()).unwrap());
        }
        let record = self.0.join("stats.json");
        let record_text = record.to_str().unwrap();
        let mut command = self.forerun(&[&["run", "--stats-json", record_text], flags].concat());
        let output = command.args(["--", "python3"]).arg(self.0.join("reader.py")).args(files);
        succeeded(&output.output().unwrap());
        let stats: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
        stats["learned"].clone()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let output = self.forerun(&["learned", "--json"]).output().unwrap();
        let lists: Value = serde_json::from_str(&succeeded(&output)).unwrap();
        let lists = lists["lists"].as_array().unwrap().iter();
        lists.map(|list| list["name"].as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
