//! `forerun trace` as a user meets it, and what recorded traces hold.
//!
//! # Invariants
//! - A conversion that failed leaves no file, and the one that was there as it was.

use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use forerun_testkit::Scratch;

fn forerun(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(args).stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> (Option<i32>, Vec<u8>, String) {
    let Output { status, stdout, stderr } = forerun(args).output().expect("the command runs");
    (status.code(), stdout, String::from_utf8(stderr).expect("text"))
}

fn done(args: &[&str]) -> Vec<u8> {
    let (status, out, err) = output(args);
    assert_eq!(status, Some(0), "{args:?}: {err}");
    out
}

fn info(args: &[&str]) -> Value {
    let args = [&["trace", "info", "--json"], args].concat();
    serde_json::from_slice(&done(&args)).expect("one JSON object")
}

/// A folder of one test, whose paths are text.
struct Folder(Scratch);

impl Folder {
    fn new(test: &str) -> Self {
        Self(Scratch::new(&format!("trace-{test}")))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("temporary names are text").to_owned()
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), bytes).expect("the folder takes a file");
        self.path(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder is there");
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.expect("an entry").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }
}

const SPC: &str = "0,8,4096,R,0.5\n0,16,4096,R,1.0\n1,0,512,W,2.5\n0,8,8192,R,4.5\n";

#[test]
fn a_trace_is_told_in_figures() {
    let folder = Folder::new("info");
    let path = folder.file("a.spc", SPC);
    let found = info(&[&path]);
    assert_eq!(found["format"], "spc");
    assert_eq!(found["addresses"], "blocks");
    #[rustfmt::skip]
    let rows = [
        ("requests", 4.0), ("accesses", 5.0), ("unique", 3.0), ("footprint_bytes", 12_288.0),
        ("devices", 2.0), ("read_share", 0.75), ("seconds", 4.0), ("sequential_share", 0.25),
        ("skipped", 0.0), ("sample", 1.0),
    ];
    for (key, value) in rows {
        assert_eq!(found[key].as_f64(), Some(value), "{key}");
    }
    assert_eq!(found["request_bytes"]["mean"], 4_224.0);
    let uses = found["reuse"]["uses"].as_array().expect("rows");
    let shares: Vec<f64> = uses.iter().map(|row| row["share"].as_f64().unwrap()).collect();
    assert_eq!(shares, [1.0 / 3.0, 2.0 / 3.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(found["reuse"]["gap_by_use"][0]["mean"], 3.0);
    let text = String::from_utf8(done(&["trace", "info", &path])).expect("text");
    assert!(text.contains("read as") || text.starts_with("trace "), "{text}");
    assert!(text.contains("reads           75.00 %"), "{text}");
}

#[test]
fn what_a_trace_does_not_say_is_left_out() {
    let folder = Folder::new("left-out");
    let found = info(&[&folder.file("keys.txt", "5\n6\n5\n")]);
    for key in ["footprint_bytes", "devices", "read_share", "seconds", "request_bytes"] {
        assert!(found[key].is_null(), "{key}: {}", found[key]);
    }
    assert_eq!((&found["unique"], &found["addresses"]), (&Value::from(2), &Value::from("keys")));
}

#[test]
fn broken_records_are_told_with_their_place_or_passed_over() {
    let folder = Folder::new("broken");
    let path = folder.file("a.spc", format!("{SPC}0,x,1,R,9\n{SPC}"));
    let (status, _, err) = output(&["trace", "info", &path]);
    let place = format!("forerun: {path}: record 5 at byte 60 is broken: ");
    assert!(
        status == Some(1) && err.lines().last().is_some_and(|l| l.starts_with(&place)),
        "{err}"
    );
    let found = info(&["--skip-bad", "1", &path]);
    assert_eq!((&found["requests"], &found["skipped"]), (&Value::from(8), &Value::from(1)));
}

#[test]
fn memory_is_bounded_and_a_sample_is_the_way_out() {
    let folder = Folder::new("memory");
    let keys: String = (0..30_000).map(|key| key.to_string() + "\n").collect();
    let path = folder.file("keys.txt", keys);
    let (status, _, err) = output(&["trace", "info", "--memory", "1M", &path]);
    assert!(status == Some(1) && err.contains("--sample"), "{err}");
    let unique = info(&["--memory", "1M", "--sample", "0.2", &path])["unique"].as_u64().unwrap();
    assert!(unique.abs_diff(30_000) < 1_500, "{unique}");
}

#[test]
fn a_conversion_is_read_as_the_same_pages() {
    let folder = Folder::new("convert");
    let path = folder.file("a.spc", SPC.replace("1,0,512,W", "0,0,512,W"));
    let key = |found: &Value| ["accesses", "unique"].map(|key| found[key].as_u64());
    let expected = key(&info(&[&path]));
    #[rustfmt::skip]
    let rows = [("keys", "keys"), ("csv", "csv"), ("lis:unit=512", "lis:unit=512"), ("fio", "fio"),
                ("fio:version=2", "fio"), ("oracleGeneral", "oracleGeneral")];
    for (to, from) in rows {
        let new = folder.path("new");
        done(&["trace", "convert", &path, &new, "--to", to]);
        assert_eq!(key(&info(&["--format", from, &new])), expected, "{to}");
        let streamed = done(&["trace", "convert", &path, "-", "--to", to]);
        assert_eq!(streamed, fs::read(&new).expect("it was written"), "{to}");
    }
    assert_eq!(folder.names(), ["a.spc", "new"]);
    assert_eq!(info(&[&folder.path("new")])["format"], "oracleGeneral", "its content tells");
}

#[test]
fn next_uses_are_those_of_the_pages() {
    let folder = Folder::new("next");
    let path = folder.file("keys.txt", "7\n8\n7\n7\n9\n");
    let bytes = done(&["trace", "convert", &path, "-", "--to", "oracleGeneral"]);
    let next = |record: &[u8]| i64::from_le_bytes(record[16..].try_into().unwrap());
    assert_eq!(bytes.chunks(24).map(next).collect::<Vec<_>>(), [2, -1, 3, -1, -1]);
}

#[test]
fn a_failed_conversion_leaves_no_file() {
    let folder = Folder::new("failed");
    let broken = folder.file("broken.spc", format!("{SPC}nonsense\n"));
    let keys = folder.file("keys.txt", "1\n2\n");
    let old = folder.file("old", "as it was");
    let missing = folder.path("missing");
    let place = folder.path("none/out");
    #[rustfmt::skip]
    let rows: [(&[&str], i32, &str); 7] = [
        (&[&broken, &old, "--to", "csv"],           1, "record 5"),
        (&[&broken, &missing, "--to", "csv"],       1, "record 5"),
        (&[&keys, &missing, "--to", "lis"],         1, "keys of objects"),
        (&[&broken, &missing, "--to", "srt"],       2, "there are: keys csv lis fio oracleGeneral"),
        (&[&keys, &place, "--to", "csv"],           1, "no such folder"),
        (&[&keys, &keys, "--to", "csv"],            2, "is named twice"),
        (&[&missing, &old, "--to", "csv"],          1, "cannot open"),
    ];
    for (args, status, says) in rows {
        let (found, _, err) = output(&[&["trace", "convert"], args].concat());
        assert!(found == Some(status) && err.contains(says), "{args:?}: {found:?} {err}");
    }
    assert_eq!(folder.names(), ["broken.spc", "keys.txt", "old"]);
    assert_eq!(fs::read(&old).expect("it is there"), b"as it was");
}

#[test]
fn a_closed_stdout_ends_a_conversion_quietly() {
    let mut child =
        forerun(&["trace", "convert", "workload:mail,requests=100000", "-", "--to", "csv"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
    let mut first = [0; 10];
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut first).expect("it writes");
    drop(stdout);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
}

#[test]
fn stdin_is_read_and_packed_files_too() {
    let folder = Folder::new("stdin");
    let mut gzip = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .args(["trace", "info", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command runs");
    let packed = zstd::encode_all(SPC.as_bytes(), 3).expect("in memory");
    gzip.stdin.take().expect("a pipe").write_all(&packed).expect("it reads");
    let out = gzip.wait_with_output().expect("it ends").stdout;
    let found: Value = serde_json::from_slice(&out).expect("one JSON object");
    assert_eq!(found["requests"], 4);
    assert!(folder.names().is_empty());
}

#[test]
fn formats_are_listed() {
    let list = String::from_utf8(done(&["sim", "--list-formats"])).expect("text");
    let names: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    for name in ["keys", "vscsi", "lis", "disksim", "blkparse", "fiu", "srt", "spc", "msr"] {
        assert!(names.contains(&name), "{list}");
    }
}

/// A trace, the format it is read as, its requests, accesses and distinct pages, and how many of a
/// hundred requests read.
type Recorded = (&'static str, &'static str, u64, u64, u64, Option<f64>);

#[rustfmt::skip]
const RECORDED: &[Recorded] = &[
    ("cloudphysics_io.vscsi", "vscsi", 113_872, 1_141_869, 269_210, Some(41.3)),
    ("hp_ajw_1992week.srt", "srt", 44_519, 73_519, 7_992, Some(29.3)),
    ("arc_OLTP.lis", "lis:unit=4K", 914_145, 914_145, 186_880, None),
    ("arc_P3.lis", "lis:unit=512", 238_578, 611_918, 102_348, None),
    ("arc_P6.lis", "lis:unit=512", 519_711, 2_021_684, 101_903, None),
    ("ms_DTRS_100M.disksim", "disksim", 127_043, 1_759_180, 1_272_267, Some(89.0)),
    ("mqsim_wsrch_small.disksim", "disksim", 24_783, 93_312, 93_029, Some(100.0)),
    ("llm_opt7b_512tok.disksim", "disksim", 36_873, 1_362_010, 1_361_958, Some(86.4)),
    ("disksim_postmark_aligned2.disksim", "disksim", 62_257, 3_460_260, 1_533_388, Some(83.2)),
    // One more of them asks for nothing.
    ("sandrain_postmark.txt", "sandrain", 47_763, 1_541_412, 766_603, Some(53.0)),
    ("disksim_iozone_100K.disksim", "disksim", 100_000, 8_997_978, 271_320, Some(0.0)),
    ("fiu_mail_cheetah_10k.blkparse", "fiu", 9_997, 9_997, 9_201, Some(89.0)),
    ("fiu_mail_01_1k.blkparse", "fiu", 1_025, 1_025, 507, Some(97.0)),
    ("ycsb_rocksdb_ext4.blkparse.txt", "blkparse:event=C", 9_887, 317_278, 317_163, Some(91.0)),
    ("apress_book_sample.blkparse.txt", "blkparse:event=Q", 15_524, 33_404, 17_901, Some(0.5)),
    ("evelii_sample.blkparse.txt", "blkparse:event=Q", 1_695, 48_379, 48_379, Some(100.0)),
    ("ssdsim_example.disksim", "disksim", 10_000, 22_511, 7_322, Some(41.0)),
    ("cloudphysics_w106.u32le", "u32le", 5_292_456, 5_292_456, 275_171, None),
    ("adaptsize_request.txt", ADAPTSIZE, 66_987, 66_987, 36_815, None),
];

const ADAPTSIZE: &str = "csv:delimiter=blanks,time=1,key=2,size=3";

#[test]
fn recorded_traces_hold_what_others_found_in_them() {
    let test = "recorded_traces_hold_what_others_found_in_them";
    let Some(traces) = forerun_testkit::traces_dir() else {
        return forerun_testkit::skip(test, "no folder of traces");
    };
    for &(name, format, requests, accesses, unique, reads) in RECORDED {
        let path = traces.join(format!("{name}.zst"));
        let found = info(&[Path::to_str(&path).expect("text")]);
        assert_eq!(found["format"], format, "{name}");
        let counts = ["requests", "accesses", "unique"].map(|key| found[key].as_u64().unwrap());
        assert_eq!(counts, [requests, accesses, unique], "{name}");
        let share = found["read_share"].as_f64().map(|share| share * 100.0);
        assert_eq!(share.is_some(), reads.is_some(), "{name}");
        let near = share.zip(reads).is_none_or(|(share, reads)| (share - reads).abs() < 0.55);
        assert!(near, "{name}: {share:?} reads of a hundred, not {reads:?}");
    }
}
