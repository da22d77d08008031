//! `--journal` and `forerun replay-journal`, end to end: a run is kept and replayed byte for byte;
//! what differs, is cut, bent or no journal is told in one line and by the status.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_core::cache::Settings;
use forerun_core::event::{Action, Actions, Event};
use forerun_core::units::{FileId, HandleId, Nanos, PartitionId, RequestId};
use forerun_engine::journal::{Bounds, JournalFile};
use forerun_testkit::Scratch;
use serde_json::Value;

/// A folder for one test, empty.
fn folder(test: &str) -> Scratch {
    Scratch::on_disk(&format!("journal-{test}"))
}

struct Ended {
    status: Option<i32>,
    out: String,
    err: String,
}

fn forerun(words: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    let output = command.args(words).stdin(Stdio::null()).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    Ended { status: output.status.code(), out, err }
}

fn bench(words: &str) -> Ended {
    let words: Vec<&str> = words.split_whitespace().collect();
    forerun(&[&["bench", "streams", "--device", "optane", "--each", "64K"], &*words].concat())
}

/// A journal of two runs.
fn recorded(folder: &Path) -> String {
    let path = folder.join("run.journal").to_str().expect("text").to_owned();
    let flags = "--streams 3 --readers 3 --readahead off,linux-6";
    let ended = bench(&format!("{flags} --journal {path} --json"));
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    assert!(ended.err.contains("events of 2 runs in"), "{}", ended.err);
    serde_json::from_str::<Value>(&ended.out).expect("stdout is one JSON object all the same");
    path
}

#[test]
fn what_bench_recorded_is_replayed_byte_for_byte() {
    let folder = folder("equal");
    let path = recorded(&folder);
    let Ended { status, out, err } = forerun(&["replay-journal", &path]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert_eq!(out.lines().filter(|line| *line == "  byte-equal").count(), 2, "{out}");
    let ended = forerun(&["replay-journal", &path, "--json"]);
    let value: Value = serde_json::from_str(&ended.out).expect("stdout is one JSON object");
    assert_eq!((&value["byte_equal"], &value["cut_bytes"]), (&true.into(), &0.into()));
    let runs = value["runs"].as_array().expect("a list");
    let names: Vec<_> = runs.iter().map(|run| run["readahead"].as_str().unwrap()).collect();
    assert_eq!(names, ["off", "linux-6"]);
    for run in runs {
        let count = |key: &str| run[key].as_u64().unwrap_or_else(|| panic!("{key}: {run}"));
        assert_eq!(count("demanded"), 3 * 16);
        assert_eq!(count("demanded"), count("hits") + count("late_hits") + count("misses"));
        assert!(count("events") > 16 && count("actions") > 16, "uses come in batches: {run}");
        assert!(run["seconds"].as_f64().unwrap() > 0.0 && run["difference"].is_null());
    }
}

#[test]
fn a_journal_that_was_cut_is_replayed_up_to_there_and_a_bent_one_is_refused() {
    let folder = folder("cut");
    let path = recorded(&folder);
    let bytes = fs::read(&path).expect("it is there");
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("it can be cut");
    let Ended { status, out, err } = forerun(&["replay-journal", &path]);
    assert_eq!((status, err.lines().count()), (Some(0), 1), "{err}");
    assert!(err.contains("was cut: its last") && out.contains("byte-equal"), "{out}{err}");
    let mut bent = bytes;
    let middle = bent.len() / 2;
    bent[middle] ^= 1;
    fs::write(&path, &bent).expect("it can be written");
    let Ended { status, out, err } = forerun(&["replay-journal", &path]);
    assert_eq!((status, out.as_str(), err.lines().count()), (Some(1), "", 1), "{err}");
    assert!(err.starts_with("forerun: ") && err.contains("corrupt from byte "), "{err}");
}

#[test]
fn what_is_no_journal_is_refused_in_one_line() {
    let folder = folder("foreign");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("it can be written");
        path.to_str().expect("text").to_owned()
    };
    #[rustfmt::skip]
    let rows = [
        (file("text", b"hello"),                              "no journal of forerun"),
        (file("empty", b""),                                  "holds no event"),
        (file("later", b"forerun-journal format=00007 \n.."), "was cut"),
        (file("long", &[b"forerun-journal format=00007 \n".as_slice(), &[b'.'; 99]].concat()),
                                                              "format 7, and this program reads"),
        (folder.join("missing").display().to_string(),        "No such file"),
        (folder.display().to_string(),                        "directory"),
    ];
    for (path, says) in rows {
        let Ended { status, out, err } = forerun(&["replay-journal", &path]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{path}: {err}");
        assert!(err.starts_with("forerun: ") && err.contains(says), "{path}: {err}");
    }
}

#[test]
fn the_first_difference_is_shown_and_a_journal_of_another_core_is_an_error() {
    let folder = folder("differs");
    let (handle, file, partition) = (HandleId(0), FileId(0), PartitionId(0));
    let open = Event::Open { handle, file, partition, file_pages: 9 };
    let journal = |name: &str, events: &[Event<'_>]| {
        let path = folder.join(name);
        let journal = JournalFile::create(&path, Bounds::default()).expect("it can be made");
        let mut recorder = journal.record(&Settings::new(64, "lru", "off"));
        let request = RequestId(5);
        let actions = Actions { list: vec![Action::Done { request }], ..Actions::new() };
        for event in events {
            recorder.sent(Nanos(1_500_000_000), event);
            recorder.came_back(&actions);
        }
        assert_eq!(journal.finish().dropped, 0);
        path.to_str().expect("text").to_owned()
    };
    let differs = journal("differs", &[open, Event::Tick]);
    let Ended { status, out, err } = forerun(&["replay-journal", &differs]);
    assert_eq!((status, err.lines().count()), (Some(1), 1), "{err}");
    let open = "Open { handle: HandleId(0), file: FileId(0), partition: PartitionId(0), ";
    let shown = format!(
        "  differs at event 1, 1.500000000 s: {open}file_pages: 9 }}\n    \
         action 1 recorded: Done request=5\n    action 1 came:     nothing\n"
    );
    assert!(out.ends_with(&shown), "{out}");
    let ended = forerun(&["replay-journal", &differs, "--json"]);
    let value: Value = serde_json::from_str(&ended.out).expect("stdout is one JSON object");
    assert_eq!(ended.status, Some(1));
    assert_eq!(value["runs"][0]["difference"]["event"], 1);
    assert_eq!(value["runs"][0]["difference"]["recorded"], "Done request=5");

    let broken = journal("broken", &[Event::Settled, Event::Close { handle }]);
    let Ended { status, err, .. } = forerun(&["replay-journal", &broken]);
    assert_eq!(status, Some(1), "{err}");
    let foreign = journal("foreign", &[Event::Close { handle }]);
    let Ended { status, out, err } = forerun(&["replay-journal", &foreign]);
    assert_eq!((status, out.as_str(), err.lines().count()), (Some(1), "", 1), "{err}");
    assert!(err.contains("not of this core: event 1 at 1.500000000 s, Close"), "{err}");
}

#[test]
fn a_journal_that_is_full_ends_and_the_run_goes_on() {
    let folder = folder("full");
    let small = folder.join("small.journal");
    let path = small.to_str().expect("text");
    for (words, says) in [
        ("--journal /dev/full".to_owned(), "No space left"),
        (format!("--journal {path} --journal-max 1K"), "may take 1024 bytes"),
    ] {
        let Ended { status, out, err } = bench(&format!("--streams 3 {words}"));
        assert_eq!((status, err.lines().count()), (Some(0), 1), "{err}");
        assert!(err.contains("are missing: ") && err.contains(says), "{err}");
        assert_eq!(out.lines().count(), 2, "a header and a row: {out}");
    }
    assert!(fs::metadata(&small).expect("it was made").len() <= 1024);
    let Ended { status, out, err } = forerun(&["replay-journal", path]);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("byte-equal"), "{out}");
}
