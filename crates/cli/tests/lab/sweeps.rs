//! Sweeps of `forerun sim`, as a user runs them: forms of the results, ranges, runs that were cut.
//!
//! # Invariants
//! - Whatever becomes of a run, the results that it had are kept or printed.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_testkit::{Scratch, until};

fn forerun(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(line.split(' ')).current_dir(folder).stdin(Stdio::null());
    command
}

/// The exit status, stdout, stderr.
fn run(folder: &Path, line: &str) -> (i32, String, String) {
    let output = forerun(folder, line).output().expect("the command runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let status = output.status.code().expect("no signal");
    (status, text(output.stdout), text(output.stderr))
}

fn done(folder: &Path, line: &str) -> String {
    let (status, out, err) = run(folder, line);
    assert_eq!(status, 0, "{line}: {err}");
    out
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// The column `name` of CSV.
fn column(csv: &str, name: &str) -> Vec<String> {
    let mut lines = csv.lines();
    let heading = cells(lines.next().expect("a heading"));
    let at = heading.iter().position(|own| own == name).unwrap_or_else(|| panic!("{csv}"));
    lines.map(|line| cells(line).swap_remove(at)).collect()
}

fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut is_quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            other => cells.last_mut().expect("there is one").push(other),
        }
    }
    cells
}

/// A folder with traces of keys in `a.txt` and `sub/a.txt`, and one that breaks off, `bad.txt`.
fn folder(test: &str) -> Scratch {
    let folder = Scratch::new(&format!("sweeps-{test}"));
    fs::create_dir(folder.join("sub")).expect("it is new");
    folder.file("a.txt", "1\n2\n3\n1\n2\n3\n4\n1\n");
    folder.file("sub/a.txt", "7\n8\n7\n8\n9\n");
    folder.file("bad.txt", "1\n2\nthis is no key at all\n3\n");
    folder
}

#[test]
fn rows_are_printed_and_written_in_every_form() {
    let folder = folder("forms");
    let line = "sim a.txt sub/a.txt --format keys --policy lru,2q:kin=0.5 --size 2";
    let all = json(&done(&folder, &format!("{line} --json")));
    let csv = done(&folder, &format!("{line} --csv -o rows.ndjson"));
    assert_eq!(column(&csv, "trace"), ["a.txt", "a.txt", "sub/a.txt", "sub/a.txt"]);
    assert_eq!(column(&csv, "params.kin"), ["", "0.5", "", "0.5"]);
    let runs = all["runs"].as_array().expect("rows");
    let misses: Vec<String> = runs.iter().map(|run| run["misses"].to_string()).collect();
    assert_eq!(column(&csv, "misses"), misses);
    let written = fs::read_to_string(folder.join("rows.ndjson")).expect("it was written");
    let rows: Vec<Value> = written.lines().map(json).collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().zip(runs).all(|(row, run)| row["misses"] == run["misses"]));
    let table = done(&folder, &format!("{line} -o rows.json"));
    let names: Vec<&str> =
        table.lines().skip(1).map(|line| line.split(' ').next().expect("a name")).collect();
    assert_eq!(names, ["a.txt", "a.txt", "sub/a.txt", "sub/a.txt"]);
    let written = json(&fs::read_to_string(folder.join("rows.json")).expect("it was written"));
    assert_eq!(written["runs"].as_array().map(Vec::len), Some(4));
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".partial")), "{left:?}");
    let (status, _, err) = run(&folder, &format!("{line} -o rows.pdf"));
    assert!(status == 2 && err.contains(".csv"), "{status}: {err}");
    assert_eq!(run(&folder, &format!("{line} --csv --json")).0, 2);
}

#[test]
fn every_command_with_a_table_prints_its_rows() {
    let folder = folder("commands");
    #[rustfmt::skip]
    let rows = [ // command                                          a column, its first value
        ("sim workload:streams,n=1,each=64K --device ssd",            "device.name", "ssd"),
        ("sim reap --count 20 --sizes 4K --policy spin",              "policy",      "spin"),
        ("sim check --seeds 3",                                       "passed",      "3"),
        ("trace info a.txt --format keys",                            "table",       "reuse.uses"),
        ("bench streams --device ssd --streams 1 --each 64K",         "readahead",   "streams"),
        ("doctor", "what", "blocked calls"),
        ("sim --list-devices",                                        "name",        "t7k250"),
        ("sim --list-policies",                                       "name",        "fifo"),
        ("reproduce --list fig11-off",                                "row",         "fig11-off"),
    ];
    for (line, name, value) in rows {
        let csv = done(&folder, &format!("{line} --csv"));
        assert_eq!(column(&csv, name)[0], value, "{line}: {csv}");
        let lines = done(&folder, &format!("{line} --ndjson"));
        assert_eq!(lines.lines().map(json).count() + 1, csv.lines().count(), "{line}: {lines}");
    }
    done(&folder, "trace info a.txt --format keys -o info.csv");
    done(&folder, "warm a.txt -o warm.json");
    done(&folder, "doctor -o doctor.txt");
    done(&folder, "sim --list-formats -o formats.ndjson");
    let formats = fs::read_to_string(folder.join("formats.ndjson")).expect("written");
    assert!(formats.lines().map(json).any(|row| row["name"] == "lis"), "{formats}");
    assert_eq!(json(&fs::read_to_string(folder.join("warm.json")).expect("written"))["files"], 1);
    let mut learned = forerun(&folder, "learned list --csv");
    let output = learned.env("XDG_STATE_HOME", folder.join("s")).output().expect("it runs");
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_range_is_a_run_for_each_value() {
    let folder = folder("ranges");
    let csv =
        done(&folder, "sim a.txt --format keys --policy 2q:kin=0.1..0.5/5 --size 2..4/3 --csv");
    assert_eq!(column(&csv, "params.kin").len(), 15);
    let mut kin = column(&csv, "params.kin");
    kin.dedup();
    assert_eq!(kin, ["0.1", "0.2", "0.3", "0.4", "0.5"]);
    assert_eq!(column(&csv, "cache_pages")[..4], ["2", "3", "4", "2"]);
    let csv = done(&folder, "sim a.txt --format keys --policy lru --size 64M..1G/5 --csv");
    assert_eq!(column(&csv, "cache_pages"), ["16384", "77824", "139264", "200704", "262144"]);
    let csv = done(
        &folder,
        "sim workload:streams,n=1..3/3,each=64K --device ssd \
        --readahead linux-6:max=64K..128K/2 --csv"
            .replace("        ", "")
            .as_str(),
    );
    assert_eq!(column(&csv, "readahead.params.max"), ["64K", "128K", "64K", "128K", "64K", "128K"]);
    for (line, said) in [
        ("sim a.txt --policy 2q:kin=0.1..0.5", "a range such as"),
        ("sim a.txt --policy x", "w-tinylfu belady"),
        ("sim a.txt --policy 2q:kin=0.1,kin=0.2", "`kin` is given twice"),
        ("sim workload:streams,n=1,n=2", "`n` is given twice"),
        ("sim workload:streams,n=1 --device ssd:rate=1G,rate=2G", "`rate` is given twice"),
        ("sim a.txt --format csv:key=1,key=2", "`key` is given twice"),
    ] {
        let (status, _, err) = run(&folder, line);
        assert!(status == 2 && err.contains(said), "{line}: {status} {err}");
    }
}

#[test]
fn a_bad_trace_among_many_is_told_at_the_end_and_the_others_are_kept() {
    let folder = folder("bad");
    let line = "sim a.txt bad.txt missing.txt sub/a.txt --format keys --size 2 --csv -o rows.csv";
    let (status, out, err) = run(&folder, line);
    assert_eq!(status, 1, "{err}");
    assert_eq!(column(&out, "trace"), ["a.txt", "sub/a.txt"]);
    assert!(err.contains("bad.txt") && err.contains("missing.txt"), "{err}");
    assert!(
        err.trim_end()
            .ends_with("2 of 4 failed: their errors are above, the others' results are kept"),
        "{err}"
    );
    let written = fs::read_to_string(folder.join("rows.csv")).expect("it was written");
    assert_eq!(written, out);
    // The same command runs what failed alone, and then leaves nothing beside its file.
    folder.file("bad.txt", "1\n2\n");
    folder.file("missing.txt", "5\n");
    let (status, out, err) = run(&folder, line);
    assert!(status == 0 && err.contains("2 results are there already"), "{status}: {err}");
    assert_eq!(column(&out, "trace"), ["a.txt", "bad.txt", "missing.txt", "sub/a.txt"]);
    assert!(!folder.join("rows.csv.partial").exists());
    let (status, out, err) = run(&folder, "sim missing.csv");
    assert!(status == 1 && out.is_empty() && !err.contains("1 of 1"), "{status} {out} {err}");
}

#[test]
fn figures_of_a_bad_trace_leave_those_of_the_others() {
    let folder = folder("figures");
    let line = "sim figures a.txt bad.txt sub/a.txt --format keys --size 2 -o all.svg";
    let (status, out, err) = run(&folder, line);
    assert_eq!(status, 1, "{err}");
    assert!(err.contains("bad.txt") && err.contains("1 of 3 failed"), "{err}");
    assert!(out.matches("a.txt").count() >= 2 && !out.contains("bad.txt"), "{out}");
    assert!(fs::read_to_string(folder.join("all.svg")).is_ok_and(|text| text.contains("<svg")));
    let (status, out, err) = run(&folder, "sim figures bad.txt --format keys --size 2");
    assert!(status == 1 && out.is_empty() && !err.contains("1 of 1"), "{status} {out} {err}");
    // A plot, too, is of those that were read.
    let line = "sim a.txt bad.txt --format keys --size 2,3 --plot plot.svg";
    let (status, _, err) = run(&folder, line);
    assert!(status == 1 && err.contains("1 of 2 failed"), "{status}: {err}");
    assert!(fs::read_to_string(folder.join("plot.svg")).is_ok_and(|text| text.contains("<svg")));
}

#[test]
fn misses_are_counted_by_bytes_where_there_are_sizes() {
    let folder = folder("bytes");
    // Objects of 100, 2,000 and 30,000 bytes; in 2 frames the third access and the last hit.
    folder.file("sizes.csv", "key,size\n1,100\n2,2000\n1,100\n3,30000\n1,100\n");
    // Half a page, then two whole ones of three; the last touches a page that is there.
    folder.file("blocks.csv", "offset,size\n0,2048\n2048,8192\n4096,1024\n");
    let line = "sim sizes.csv blocks.csv --size 2 --policy lru,belady";
    let all = json(&done(&folder, &format!("{line} --bytes --json")));
    let runs = all["runs"].as_array().expect("rows");
    let counts = |at: usize| {
        let bytes = &runs[at]["bytes"];
        ["requested", "missed"].map(|key| bytes[key].as_u64().expect("a count"))
    };
    assert_eq!([counts(0), counts(1)], [[32_300, 32_100]; 2], "{all}");
    assert_eq!([counts(2), counts(3)], [[11_264, 8_192]; 2], "{all}");
    let ratio = runs[0]["bytes"]["hit_ratio"].as_f64().expect("a share");
    assert!((ratio - 200.0 / 32_300.0).abs() < 1e-9, "{all}");
    let table = done(&folder, &format!("{line} --bytes"));
    assert!(table.contains("by bytes") && table.contains("0.62 %"), "{table}");
    let csv = done(&folder, &format!("{line} --bytes --csv"));
    assert_eq!(column(&csv, "bytes.missed")[0], "32100");
    assert!(!done(&folder, &format!("{line} --json")).contains("bytes"));
    let (status, out, err) = run(&folder, "sim a.txt --format keys --size 2 --bytes --csv");
    assert!(status == 0 && err.contains("no sizes") && !out.contains("bytes"), "{err} {out}");
    let (status, ..) = run(&folder, "sim workload:streams,n=1 --device ssd --bytes");
    assert_eq!(status, 2);
}

#[test]
fn devices_are_a_list_with_ranges() {
    let folder = folder("devices");
    let line = "sim workload:streams,n=1,each=64K --device hdd,ssd:connections=1..3/3";
    let csv = done(&folder, &format!("{line} --csv -o rows.csv"));
    assert_eq!(column(&csv, "device.name"), ["hdd", "ssd", "ssd", "ssd"]);
    assert_eq!(column(&csv, "device.params.connections"), ["", "1", "2", "3"]);
    let table = done(&folder, line);
    assert!(table.contains("ssd:connections=2") && table.contains("hdd"), "{table}");
    done(&folder, &format!("{line} -o record.json"));
    let record = json(&fs::read_to_string(folder.join("record.json")).expect("written"));
    assert_eq!(record["runs"][2]["params"]["device.connections"], "2", "{record}");
    for (line, said) in [
        ("sim workload:streams,n=1 --device ssd:connections=1..3", "a range such as"),
        ("sim workload:streams,n=1 --device hdd,sdd", "no `sdd`"),
        ("sim workload:streams,n=1 --device t7k250:cache=on --drive-cache off", "given twice"),
    ] {
        let (status, _, err) = run(&folder, line);
        assert!(status == 2 && err.contains(said), "{line}: {status} {err}");
    }
}

#[test]
fn a_run_that_was_killed_goes_on_where_it_stopped() {
    let folder = folder("resumed");
    // The last trace is a pipe with no writer: the run waits in it, with the others done.
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
    let line = "sim a.txt sub/a.txt pipe --format keys --policy lru,fifo --size 2 -o rows.csv";
    let mut child = forerun(&folder, line).stdout(Stdio::null()).spawn().expect("it starts");
    let partial = folder.join("rows.csv.partial");
    until(|| fs::read_to_string(&partial).is_ok_and(|text| text.lines().count() == 4));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(!folder.join("rows.csv").exists());
    // What was done is not run again: a wrong count that the partial file has stays.
    let text = fs::read_to_string(&partial).expect("kept");
    let changed = text.replacen("\"misses\":", "\"misses\":77", 1);
    fs::write(&partial, changed + "{\"key\":\"cut").expect("writable");
    fs::remove_file(&pipe).expect("it is there");
    folder.file("pipe", "1\n1\n");
    let (status, _, err) = run(&folder, line);
    assert!(status == 0 && err.contains("4 results are there already"), "{status}: {err}");
    let csv = fs::read_to_string(folder.join("rows.csv")).expect("written");
    let misses = column(&csv, "misses");
    assert!(misses[0].starts_with("77") && misses.len() == 6, "{misses:?}");
    assert!(!partial.exists());
    // A trace that has changed is another one.
    fs::write(&partial, text).expect("writable");
    folder.file("a.txt", "1\n2\n3\n4\n5\n");
    let (status, _, err) = run(&folder, line);
    assert_eq!(status, 0, "{err}");
    let csv = fs::read_to_string(folder.join("rows.csv")).expect("written");
    assert_eq!(column(&csv, "misses")[0], "5");
    // A file of another kind is left as it is.
    fs::write(&partial, "notes of mine\n").expect("writable");
    let (status, _, err) = run(&folder, line);
    assert!(status == 1 && err.contains("remove it, or name another"), "{status}: {err}");
}

#[test]
fn a_record_of_a_run_that_was_cut_is_whole_in_the_end() {
    let folder = folder("record");
    let pipe = folder.join("last");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
    let line =
        "sim workload:streams,n=1,each=64K last --format keys --device ssd --size 1M -o r.json";
    // A pipe needs its length first: the run fails in it, and the other's run is kept.
    let whole = "sim workload:streams,n=1,each=64K --format keys --device ssd --size 1M -o w.json";
    done(&folder, whole);
    fs::remove_file(&pipe).expect("it is there");
    let (status, _, err) = run(&folder, line);
    assert_eq!(status, 1, "{err}");
    folder.file("last", "1\n2\n");
    let (status, _, err) = run(&folder, line);
    assert!(status == 0 && err.contains("1 results are there already"), "{status}: {err}");
    let runs = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).expect("written");
        json(&text)["runs"].as_array().expect("runs").clone()
    };
    let (cut, whole) = (runs("r.json"), runs("w.json"));
    assert_eq!((cut.len(), &cut[0]), (2, &whole[0]));
}

#[test]
fn a_replay_goes_on_after_the_last_row_that_was_whole() {
    let folder = folder("replayed");
    let line = "replay workload:streams,n=1,each=64K --device ssd --depth 1 -o r.csv \
                --partition log=8M:lru:file=1 --cache"
        .replace("                ", "");
    // The partition is larger than the second cache: that row fails.
    let (status, _, err) = run(&folder, &format!("{line} 16M,4M"));
    assert_eq!(status, 2, "{err}");
    let partial = folder.join("r.csv.partial");
    let text = fs::read_to_string(&partial).expect("the first is kept");
    let changed = text.replacen("\"device_requests\":", "\"device_requests\":77", 1);
    fs::write(&partial, &changed).expect("writable");
    let (status, _, err) = run(&folder, &format!("{line} 16M,32M"));
    assert!(status == 0 && err.contains("1 results are there already"), "{status}: {err}");
    let csv = fs::read_to_string(folder.join("r.csv")).expect("written");
    let requests = column(&csv, "device_requests");
    assert!(requests[0].starts_with("77") && requests.len() == 2, "{csv}");
    assert!(!partial.exists());
    // One request at a time, and requests at their times with as many slots, are two things.
    fs::write(&partial, changed.replace("Closed", "Open { speed_ppm: 1000000 }")).unwrap();
    done(&folder, &format!("{line} 16M"));
    let csv = fs::read_to_string(folder.join("r.csv")).expect("written");
    assert!(!column(&csv, "device_requests")[0].starts_with("77"), "{csv}");
}
