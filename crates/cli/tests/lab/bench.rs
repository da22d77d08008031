//! `forerun bench`, end to end: what it prints, what it refuses, how it ends.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use forerun_testkit::Scratch;
use serde_json::Value;

use crate::signals::interrupted;

/// A folder for one test, empty.
fn folder(test: &str) -> Scratch {
    Scratch::on_disk(&format!("bench-{test}"))
}

fn bench(words: &str) -> Command {
    bench_of("streams", words)
}

fn bench_of(what: &str, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(["bench", what]).args(words.split_whitespace()).stdin(Stdio::null());
    command
}

fn output(words: &str) -> Output {
    bench(words).output().expect("it starts")
}

fn runs(words: &str) -> Vec<Value> {
    runs_of("streams", words)
}

fn runs_of(what: &str, words: &str) -> Vec<Value> {
    let output = bench_of(what, &format!("{words} --json")).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {errors}");
    let text: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    text["runs"].as_array().expect("there are runs").clone()
}

/// A file of `bytes` that are no pattern of ours.
fn file(folder: &Path, bytes: usize) -> PathBuf {
    let path = folder.join("data");
    let mut word = 1_u32;
    let mut next = || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        word.to_le_bytes()[3]
    };
    fs::write(&path, (0..bytes).map(|_| next()).collect::<Vec<u8>>()).expect("it can be written");
    path
}

#[test]
fn every_pattern_is_read_whole_and_has_all_figures() {
    #[rustfmt::skip]
    let rows = [ // flags                                           streams  wanted
        ("--streams 3",                                                3,    (3 * 64) << 10),
        ("--streams 3 --pattern round-robin --layout adjacent",        3,    (3 * 64) << 10),
        ("--streams 3 --pattern sequential --readers 2",               3,    (3 * 64) << 10),
        ("--streams 3 --start mid --layout irregular",                 3,    (3 * 64) << 10),
        ("--streams 2 --pattern backward --request 5000",              2,    (2 * 64) << 10),
        ("--streams 2 --pattern stride:8K/32K",                        2,    (2 * 64) << 10),
        ("--pattern disturb:50 --request 1K",                          1,    96 << 10),
        ("--pattern parquet:3",                                        3,    (4 * 64) << 10),
        ("--pattern uniform:1M",                                       1,    64 << 10),
        ("--streams 1 --rate 1M",                                      1,    64 << 10),
    ];
    for (flags, streams, wanted) in rows {
        let runs = runs(&format!("--device optane --each 64K --readahead off,linux-6 {flags}"));
        let names: Vec<_> = runs.iter().map(|run| run["readahead"].clone()).collect();
        assert_eq!(names, ["off", "linux-6"], "{flags}");
        for run in runs {
            assert_eq!((&run["streams"], &run["bytes_wanted"]), (&streams.into(), &wanted.into()));
            let figure = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
            let limited = !flags.contains("stride") && !flags.contains("uniform");
            for name in ["limit_mb_per_second", "ratio_to_limit"] {
                assert_eq!(run[name].is_f64(), limited, "{name} of {flags}: {run}");
            }
            for name in ["mb_per_second", "device_requests", "p50_us", "p99_us"] {
                assert!(figure(name) > 0.0, "{name} of {flags}: {run}");
            }
            assert!(figure("delay_seconds") >= 0.0);
            // Where places are drawn, one may be read twice.
            let drawn = flags.contains("disturb") || flags.contains("uniform");
            assert!(figure("bytes_read") >= figure("bytes_wanted") || drawn);
            let mean = figure("bytes_read") / figure("device_requests");
            assert!((figure("mean_request_bytes") - mean).abs() <= 1.0, "{run}");
        }
    }
}

#[test]
fn a_paced_stream_takes_its_time() {
    let run = &runs("--device optane --streams 2 --each 64K --rate 512K --readahead off")[0];
    // 128K at 1M a second, but for the last read's share.
    let seconds = 131_072.0 / 1e6 / run["mb_per_second"].as_f64().expect("a figure");
    assert!(seconds >= 0.11, "{seconds} s: sooner than it was due");
}

#[test]
fn a_file_is_read_and_checked_and_has_no_limit() {
    let folder = folder("file");
    let path = file(&folder, 300_000);
    let record = folder.join("run.json");
    let words = format!("--file {} --streams 3 -o {}", path.display(), record.display());
    for run in runs(&format!("{words} --readahead off,linux-2.6.22,linux-6")) {
        assert!(run["limit_mb_per_second"].is_null() && run["ratio_to_limit"].is_null());
        // The largest whole requests whose streams, twice as far apart, fit the file.
        assert_eq!(run["bytes_wanted"], 3 * 12 * 4096);
    }
    let page = folder.join("page.html");
    let report = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .args(["report", record.to_str().unwrap(), "-o", page.to_str().unwrap()])
        .status();
    assert!(report.expect("it starts").success());
    let html = fs::read_to_string(page).expect("there is a page");
    assert!(html.contains("real device") && html.contains("Device requests over time, 3 streams"));
}

#[test]
fn a_record_of_a_device_says_why_requests_were_made() {
    let folder = folder("record");
    let path = folder.join("run.json");
    let words = "--device ssd --streams 2 --each 256K --readahead linux-2.6.24";
    let output = output(&format!("{words} -o {}", path.display()));
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).expect("text");
    assert_eq!(table.lines().count(), 2, "a header and a row: {table}");
    let record: Value = serde_json::from_slice(&fs::read(path).unwrap()).expect("JSON");
    let run = &record["runs"][0];
    let requests = run["requests"].as_array().expect("requests were kept");
    assert_eq!(run["device_requests"], requests.len());
    assert_eq!(run["workload"], "workload:streams,n=2,each=256K,layout=spread");
    for kind in ["demand", "readahead"] {
        assert!(requests.iter().any(|request| request["kind"] == kind), "{kind}");
    }
    let bytes: u64 = requests.iter().filter_map(|request| request["bytes"].as_u64()).sum();
    assert_eq!(run["bytes_read"], bytes);
    assert_eq!(record["settings"]["cache"], "64M");
}

#[test]
fn explained_windows_of_a_live_run_are_in_the_record_and_on_the_page() {
    let folder = folder("explain");
    let (path, page) = (folder.join("run.json"), folder.join("page.html"));
    let words = "--device ssd --streams 2 --each 256K --readahead linux-2.6.24,off";
    let words = format!("{words} --explain-readahead -o {}", path.display());
    assert!(output(&words).status.success());
    let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).expect("JSON");
    let run = &record["runs"][0];
    let windows = run["windows"].as_array().expect("windows were kept");
    for cause in ["sync", "async"] {
        assert!(windows.iter().any(|window| window["cause"] == cause), "{cause}: {windows:?}");
    }
    let sum = |name| windows.iter().filter_map(|window: &Value| window[name].as_u64()).sum::<u64>();
    assert!(sum("used_bytes") + sum("late_bytes") > 256 << 10, "{windows:?}");
    for window in windows {
        let [at, last, fresh, bytes] = ["at_us", "last_use_us", "fresh_bytes", "bytes"]
            .map(|name| window[name].as_u64().unwrap_or(0));
        assert!(at <= last && fresh <= bytes, "{window}");
    }
    let off = record["runs"][1]["windows"].as_array().expect("windows were kept");
    assert!(off.iter().all(|window| window["cause"] == "random"), "{off:?}");
    let report = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .args(["report", path.to_str().unwrap(), "-o", page.to_str().unwrap()])
        .status();
    assert!(report.expect("it starts").success());
    let html = fs::read_to_string(page).expect("there is a page");
    assert!(html.contains("Readahead windows over time, 2 streams"));
}

#[test]
fn a_path_that_is_no_text_is_read_and_recorded() {
    let folder = folder("bytes");
    let path = folder.join(OsStr::from_bytes(b"f\xff"));
    fs::rename(file(&folder, 100_000), &path).unwrap();
    let (words, record) = ("--streams 1 --each 32K -o", folder.join("run.json"));
    let output = bench(words).arg(&record).arg("--file").arg(&path).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    let told = |word: &Value| word.as_str().is_some_and(|word| word.ends_with("f\u{fffd}"));
    assert!(record["command"].as_array().unwrap().iter().any(told), "{}", record["command"]);
}

#[test]
fn the_kernel_reads_the_same_bytes_as_the_engine() {
    let folder = folder("kernel");
    let (path, record) = (folder.join("pattern"), folder.join("run.json"));
    runs_of("file", &format!("{} --make 2M", path.display()));
    let words = format!("--file {} --streams 4 --each 256K --seconds 60", path.display());
    for flags in ["", "--handles each", "--readers 4 --handles each", "--pattern backward"] {
        let ours = &runs(&format!("{words} {flags}"))[0];
        let output = format!("-o {}", record.display());
        let theirs = &runs(&format!("{words} {flags} --through kernel {output}"))[0];
        assert_eq!(
            (&ours["readahead"], &theirs["readahead"]),
            (&"streams".into(), &"kernel".into())
        );
        assert_eq!(theirs["bytes_wanted"], 4 * (256 << 10), "{flags}");
        assert_eq!(ours["bytes_wanted"], theirs["bytes_wanted"], "{flags}");
        assert!(theirs["p50_us"].as_f64() > Some(0.0), "{theirs}");
        let record: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        assert_eq!(record["runs"][0]["readahead"], "kernel");
    }
    // Other bytes than the pattern's, behind its back: at a place that is read and not looked at.
    let mut bytes = fs::read(&path).unwrap();
    bytes[5_000] ^= 1;
    fs::write(&path, bytes).unwrap();
    for through in ["engine", "kernel"] {
        let output = output(&format!("{words} --layout adjacent --through {through}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("a wrong byte at 5000"), "{through}: {errors}");
    }
}

#[test]
fn a_run_that_is_cut_is_rated_on_what_was_read() {
    let folder = folder("cut");
    let path = folder.join("pattern");
    runs_of("file", &format!("{} --make 1M", path.display()));
    let words = format!("--file {} --streams 1 --each 512K --rate 100K", path.display());
    for through in ["engine", "kernel"] {
        let run = &runs(&format!("{words} --seconds 0.5 --through {through}"))[0];
        let wanted = run["bytes_wanted"].as_u64().expect("a number");
        // Due within half a second were 50K; the end is looked for twenty times a second.
        assert!((1..512 << 10).contains(&wanted), "{through}: {wanted}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_in_one_line() {
    let folder = folder("refused");
    let empty = folder.join("empty");
    fs::write(&empty, b"").unwrap();
    let small = file(&folder, 10_000);
    let (empty, small, dir) = (empty.display(), small.display(), folder.display());
    #[rustfmt::skip]
    let rows = [ // words                                              status  says
        (String::new(),                                                     2, "--device MODEL"),
        (format!("--file {dir}/missing"),                                   1, "No such file"),
        (format!("--file {dir}"),                                           1, "a directory"),
        ("--file /dev/null".into(),                                         1, "character device"),
        (format!("--file {empty}"),                                         2, "is empty"),
        (format!("--file {small}"),                                         2, "fewer --streams"),
        (format!("--file {small} --each 1M"),                               2, "smaller --each"),
        (format!("--file {small} --device ssd"),                            2, "cannot be used"),
        (format!("--file {small} --drive-cache on"),                        2, "--drive-cache"),
        ("--device cloud:max=1".into(),                                     2, "less than a page"),
        ("--device floppy".into(),                                          2, "floppy"),
        ("--device t7k250:rpm=0".into(),                                    2, "rpm"),
        ("--device t7k250:capacity=1M --each 1M".into(),                    2, "there are 1048576"),
        ("--device ssd --drive-cache on".into(),                            2, "cache"),
        ("--device ssd --readahead linux-9".into(),                         2, "linux-9"),
        ("--device ssd --readahead off:max=1M".into(),                      2, "max"),
        ("--device ssd --cache 512K --readahead linux-6".into(),            2, "one window"),
        ("--device ssd --profile no/where.toml".into(),                     2, "no such file"),
        ("--device ssd --cache 0".into(),                                   2, "--cache"),
        ("--device ssd --cache 512T".into(),                                2, "--cache"),
        ("--device ssd --pattern zigzag".into(),                            2, "parquet:COLUMNS"),
        ("--device ssd --pattern disturb:1 --streams 2".into(),             2, "--streams"),
        ("--device ssd --streams 0".into(),                                 2, "--streams 0"),
        ("--device ssd --streams 2 --readers 3".into(),                     2, "--readers 3"),
        ("--device ssd --readers 0".into(),                                 2, "--readers"),
        ("--device ssd --request 0".into(),                                 2, "--request"),
        ("--device ssd --request 1G".into(),                                2, "--request"),
        ("--device ssd --each 0".into(),                                    2, "--each 0"),
        ("--device ssd --each 1.5X".into(),                                 2, "1.5X"),
        ("--device ssd --rate 5".into(),                                    2, "--rate 5"),
        ("--device ssd --io uring".into(),                                  2, "--io"),
        ("--device ssd --pattern disturb:1 --handles each".into(),          2, "--handles"),
        ("--device ssd --pattern backward --start mid".into(),              2, "--start"),
        ("--device ssd --through kernel".into(),                            2, "give --file"),
        (format!("--file {small} --through kernel --readahead off"),        2, "--readahead"),
        (format!("--file {small} --seconds 1"),                             2, "--make SIZE"),
        ("--device ssd --request-max 1K".into(),                            2, "less than a page"),
        ("--device ssd --depth 0".into(),                                   2, "--depth"),
        (format!("--device ssd --journal {dir}/no/where"),                  1, "no such folder"),
        (format!("--device ssd --journal {dir}"),                           1, "is a folder"),
        ("--device ssd --journal-max 1M".into(),                            2, "--journal"),
        (format!("--device ssd --journal {dir}/j --journal-max 1.5X"),      2, "1.5X"),
        (format!("--device ssd --each 8K -o {dir}/no/where"),               1, "no such folder"),
    ];
    for (words, status, says) in rows {
        let output = output(&words);
        let errors = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(status), "{words}: {errors}");
        assert!(errors.starts_with("forerun: ") && errors.contains(says), "{words}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{words}: {errors}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing new was written");
}

/// A run that would take minutes, once it has printed its header.
fn long(words: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = bench(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut header = String::new();
    stdout.read_line(&mut header).expect("it prints its header");
    assert!(header.starts_with("readahead"), "{header}");
    (child, stdout)
}

fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    text
}

#[test]
fn sigint_ends_it_and_leaves_nothing() {
    let folder = folder("sigint");
    let record = folder.join("run.json");
    let words = format!("--device t7k250 --readahead off -o {}", record.display());
    let (mut child, _stdout) = long(&words);
    assert_eq!(interrupted(&mut child).code(), Some(130));
    assert!(fs::read_dir(&folder).unwrap().next().is_none(), "no record, no part of one");
}

#[test]
fn a_file_that_shrinks_or_changes_is_an_error_and_no_figure() {
    type Change = fn(&Path);
    let rows: [(&str, Change, &str); 2] = [
        (
            "shrinks",
            |path| fs::File::options().write(true).open(path).unwrap().set_len(4096).unwrap(),
            "shrank",
        ),
        (
            "changes",
            // In place: a file that is written anew shrinks first.
            |path| {
                let mut file = fs::File::options().write(true).open(path).unwrap();
                file.write_all("7".repeat(400_000).as_bytes()).unwrap();
            },
            "changed",
        ),
    ];
    for (name, change, says) in rows {
        let folder = folder(name);
        let path = file(&folder, 400_000);
        let rate = if name == "shrinks" { "16K" } else { "128K" };
        let words = format!("--file {} --streams 1 --each 128K --rate {rate}", path.display());
        let (mut child, mut stdout) = long(&words);
        change(&path);
        let status = child.wait().expect("it ends");
        let errors = errors(&mut child);
        assert_eq!(status.code(), Some(1), "{errors}");
        assert!(errors.contains(says) && errors.contains("data"), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("text");
        assert!(rest.is_empty(), "{rest}");
    }
}

#[test]
fn hits_have_every_way_and_thread_number_and_leave_no_file() {
    let folder = folder("hit");
    let record = folder.join("hit.json");
    let words = "--size 1M,2M --threads 1,3 --seconds 0.4 --repeats 5 --json";
    let mut command = bench_of("hit", words);
    let output = command.env("TMPDIR", &folder).arg("-o").arg(&record).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let runs = json["runs"].as_array().expect("there are runs");
    for path in ["pread", "copy", "pin"] {
        for (threads, bytes) in [(1, 1 << 20), (3, 1 << 20), (1, 2 << 20), (3, 2 << 20)] {
            let is_it = |run: &&Value| {
                (&run["path"], &run["threads"], &run["bytes"])
                    == (&path.into(), &threads.into(), &bytes.into())
            };
            let run = runs.iter().find(is_it).unwrap_or_else(|| panic!("{path} {threads}"));
            let figure = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
            let (ns, min, max) = (figure("ns_per_hit"), figure("min_ns"), figure("max_ns"));
            assert!(0.0 < min && min <= ns && ns <= max, "{run}");
            assert!(figure("cpu_ns_per_hit") > 0.0 && figure("ratio_to_pread") > 0.0, "{run}");
            assert_eq!(run["samples_ns"].as_array().map(Vec::len), Some(5), "{run}");
        }
    }
    let record: Value = serde_json::from_slice(&fs::read(&record).unwrap()).expect("JSON");
    assert_eq!(record["runs"].as_array().map(Vec::len), Some(runs.len()));
    assert_eq!((&record["repeats"], &record["settings"]["size"]), (&5.into(), &"1M,2M".into()));
    let samples = record["settings"]["samples_ns.copy.2M.3"].as_str().expect("the samples");
    assert_eq!(samples.split(',').count(), 5);
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["hit.json"], "the file that was read is gone");
}

#[test]
fn hits_of_a_file_are_of_its_first_bytes() {
    let folder = folder("hit-file");
    let path = file(&folder, 100_000);
    for (size, bytes) in [("64K", "64K"), ("1M", "96K")] {
        let record = folder.join("hit.json");
        let flags = format!("--file {} -o {}", path.display(), record.display());
        runs_of("hit", &format!("{flags} --size {size} --threads 1 --seconds 0.05 --repeats 1"));
        let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).expect("JSON");
        assert_eq!(record["settings"]["size"], bytes);
    }
}

#[test]
fn a_made_file_and_any_other_are_read_whole_in_order() {
    let folder = folder("file-seq");
    let (made, other) = (folder.join("made"), file(&folder, 700_001));
    for threads in [1, 3] {
        for (path, flags, bytes) in [(&made, "--make 3000001", 3_000_001), (&other, "", 700_001)] {
            let words = format!("{} {flags} --size 100K --threads {threads}", path.display());
            let run = &runs_of("file", &words)[0];
            assert_eq!(run["bytes_wanted"], bytes, "{run}");
            assert!(run["bytes_read"].as_u64() >= Some(bytes), "{run}");
            let figure = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
            let times = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"].map(figure);
            assert!(times[0] > 0.0 && times.is_sorted(), "{run}");
            assert!(figure("mb_per_second") > 0.0 && figure("mean_us") <= times[4], "{run}");
        }
    }
}

#[test]
fn random_reads_go_on_until_the_time_is_over_and_are_checked() {
    let folder = folder("file-rand");
    let (made, other) = (folder.join("made"), file(&folder, 700_001));
    for (path, flags) in [(&made, "--make 1M"), (&other, "")] {
        let record = folder.join("run.json");
        let words = format!("{} {flags} --pattern rand --threads 4", path.display());
        let words = format!("{words} --readahead off --seconds 0.1 -o {}", record.display());
        let run = &runs_of("file", &words)[0];
        let (reads, bytes) = (run["reads"].as_u64(), run["bytes_wanted"].as_u64());
        assert!(reads >= Some(1) && bytes == reads.map(|reads| reads * 4096), "{run}");
        let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).expect("JSON");
        assert_eq!(record["runs"][0]["workload"], "file,pattern=rand,size=4K,threads=4");
        assert_eq!(record["runs"][0]["readahead"], "off");
    }
}

#[test]
fn whole_files_are_read_and_written_by_policies_and_the_kernel_and_checked() {
    let folder = folder("overhead");
    let (one, two) = (folder.join("one"), folder.join("two"));
    let files = format!("{} {} --make 4M", one.display(), two.display());
    let rows = [
        "--op read --request 4K --cache 1M",
        "--op write --request 12K --cache 1M",
        "--op write --request 1M --kernel",
        "--op read --request 64K --kernel",
        "--op read --request 1M --cache 2M --policy arc",
    ];
    for words in rows {
        let run = &runs_of("overhead", &format!("{files} {words}"))[0];
        assert_eq!(run["bytes"], 8 << 20, "{words}");
        assert!(run["mb_per_second"].as_f64() > Some(0.0), "{run}");
        assert!(run["cpu_seconds_per_gb"].as_f64() > Some(0.0), "{run}");
    }
    // Twice written since it was made.
    let page = fs::read(&two).unwrap()[9 * 4096..].to_vec();
    assert_eq!(page[..8], ((9 * 4096_u64) ^ 3).to_le_bytes());
    let mut bytes = fs::read(&one).unwrap();
    bytes[5 * 4096 + 3] ^= 1;
    fs::write(&one, bytes).unwrap();
    for words in ["", "--kernel"] {
        let failed = bench_of("overhead", &format!("{files} {words}")).output().unwrap();
        let says = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && says.contains("page at 20480"), "{words}: {says}");
    }
}

#[test]
fn hits_and_files_that_cannot_be_measured_are_refused_in_one_line() {
    let folder = folder("refused-files");
    let small = file(&folder, 1_000);
    let (small, dir) = (small.display(), folder.display());
    #[rustfmt::skip]
    let rows = [ // what   words                                        status  says
        ("file", String::new(),                                             2, "<FILE>"),
        ("file", format!("{dir}/missing"),                                  1, "No such file"),
        ("file", format!("{dir}/none --make 0"),                            2, "a byte at least"),
        ("file", format!("{dir}"),                                          1, "a directory"),
        ("file", "/dev/null".into(),                                        1, "character device"),
        ("file", format!("{small} --make 1000"),                            2, "something else"),
        ("file", format!("{dir}/no/where --make 1M"),                       1, "No such file"),
        ("file", format!("{dir} --make 1M"),                                2, "something else"),
        ("overhead", format!("{small}"),                                    2, "--make another"),
        ("overhead", format!("{small} --make 8K"),                          2, "8K"),
        ("overhead", format!("{dir}/none --make 100"),                      2, "whole pages"),
        ("overhead", format!("{small} --request 100"),                      2, "whole pages"),
        ("overhead", format!("{small} --kernel --policy arc"),              2, "cannot be used"),
        ("file", format!("{small} --size 0"),                               2, "--size 0"),
        ("file", format!("{small} --size 1G"),                              2, "--size 1G"),
        ("file", format!("{small} --threads 0"),                            2, "--threads"),
        ("file", format!("{small} --seconds 0"),                            2, "--seconds"),
        ("file", format!("{small} --cache 64K --readahead linux-6"),        2, "one window"),
        ("file", format!("{small} --profile {dir}/no.toml"),                2, "no such file"),
        ("file", format!("{small} --readahead linux-9"),                    2, "linux-9"),
        ("file", format!("{small} --pattern zigzag"),                       2, "zigzag"),
        ("file", format!("{small} -o {dir}/no/where"),                      1, "no such folder"),
        ("file", format!("{small} --journal {small}"),                      2, "named twice"),
        ("file", format!("{small} -o {dir}/./data"),         2, "named twice"),
        ("hit",  format!("-o {dir}/new --journal {dir}/new"),               2, "named twice"),
        ("hit",  "--threads 0".into(),                                      2, "--threads"),
        ("hit",  "--threads 1,x".into(),                                    2, "--threads"),
        ("hit",  "--repeats 0".into(),                                      2, "--repeats"),
        ("hit",  "--seconds nan".into(),                                    2, "--seconds"),
        ("hit",  "--size 1K".into(),                                        2, "--size 1K"),
        ("hit",  format!("--file {small}"),                                 2, "no whole page"),
        ("hit",  format!("--file {dir}"),                                   1, "a directory"),
        ("hit",  format!("--file {dir}/missing"),                           1, "No such file"),
        ("hit",  format!("-o {dir}/no/where"),                              1, "no such folder"),
    ];
    for (what, words, status, says) in rows {
        let output = bench_of(what, &words).output().expect("it starts");
        let errors = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(status), "{what} {words}: {errors}");
        assert!(errors.starts_with("forerun: ") && errors.contains(says), "{words}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{what} {words}: {errors}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing new was written");
}
