//! `forerun compare`, end to end: runs are cold, in turns and equal; a program that writes is ended
//! before it does; nothing is left behind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use forerun_testkit::{Sandbox, Scratch, forerun_path, installed, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A folder on a disk, where commands run that leave their temporary files in it.
struct Place(Scratch);

impl Place {
    fn new(test: &str) -> Self {
        let place = Self(Scratch::on_disk(&format!("compare-{test}")));
        fs::create_dir(place.0.join("tmp")).unwrap();
        fs::create_dir(place.0.join("here")).unwrap();
        place
    }

    fn compare(&self, words: &[&str]) -> Command {
        let mut command = Command::new(forerun_path());
        command.arg("compare").args(words).current_dir(self.0.join("here"));
        command.env("TMPDIR", self.0.join("tmp")).env("XDG_STATE_HOME", self.0.join("state"));
        command.stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.compare(words).output().unwrap()
    }

    /// What it prints with `--json`.
    fn json(&self, words: &[&str]) -> Value {
        let output = self.output(&[&["--json"], words].concat());
        assert!(output.status.success(), "{}", errors(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn file(&self, name: &str, bytes: usize) {
        fs::write(self.0.join("here").join(name), vec![b'x'; bytes]).unwrap();
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(folder)).unwrap();
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const MIB: usize = 1 << 20;

#[test]
fn each_run_reads_the_device_and_each_way_has_as_many() {
    let place = Place::new("cold");
    place.file("large", 8 * MIB);
    let record = place.json(&["-n", "3", "--", "cat", "large"]);
    assert_eq!((&record["status"], &record["runs"]), (&0.into(), &3.into()), "{record}");
    assert_eq!(record["first"]["found_by"], "calls", "{record}");
    // Of files that belong to another user, what is in memory is not known to all.
    let is_known = record["cold"]["files_unknown"] == 0;
    assert_eq!(record["cold"]["is_cold"], Value::from(is_known.then_some(true)), "{record}");
    let kept = record["cold"]["kept"].as_array().unwrap();
    assert!(kept.iter().all(|it| !it["path"].as_str().unwrap().ends_with("large")), "{record}");
    let ways = record["ways"].as_array().unwrap();
    let names: Vec<_> = ways.iter().map(|way| way["way"].as_str().unwrap()).collect();
    assert_eq!(names, ["alone", "run"]);
    for way in ways {
        let seconds: Vec<f64> = serde_json::from_value(way["seconds"].clone()).unwrap();
        assert_eq!(seconds.len(), 3, "{way}");
        let names = ["min_seconds", "median_seconds", "max_seconds"];
        let mut sorted = seconds;
        sorted.sort_by(f64::total_cmp);
        assert_eq!(names.map(|name| way[name].as_f64().unwrap()).to_vec(), sorted, "{way}");
    }
    assert!(ways[0]["device_bytes"].as_f64() >= Some(8.0 * 1_048_576.0), "{record}");
    let seconds = |way: usize| ways[way]["seconds"].as_array().unwrap().iter();
    let pairs = seconds(0).zip(seconds(1));
    let ratio = |(alone, run): (&Value, &Value)| alone.as_f64().unwrap() / run.as_f64().unwrap();
    let mut ratios: Vec<f64> = pairs.map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let names = ["times_as_fast_min", "times_as_fast", "times_as_fast_max"];
    let printed = names.map(|name| record["ratios"][0][name].as_f64().unwrap());
    assert!(printed.iter().zip(&ratios).all(|(a, b)| (a - b).abs() < 1e-9), "{record}");
}

#[test]
fn the_text_has_each_way_and_says_how_cold_it_was() {
    let place = Place::new("text");
    place.file("small", 20_000);
    let output = place.output(&["-n", "2", "--", "cat", "small"]);
    assert!(output.status.success(), "{}", errors(&output));
    let text = printed(&output);
    for part in [
        "cat small\n2 runs of each way, in turns: median (min to max)\n\nalone   ",
        "\nrun     ",
        " ms   user ",
        " read from devices\n",
        "\n\nrun is ",
        " times as fast as alone",
        " together, evicted before each run\n",
        "inodes and directory entries stay cached",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    assert!(!text.contains("xxxx"), "the program's output is dropped:\n{text}");
    assert!(errors(&output).contains(" not counted: cat opens "), "{}", errors(&output));
    let single = printed(&place.output(&["-n", "1", "--", "cat", "small"]));
    assert!(single.contains("one run tells no spread"), "{single}");
}

#[test]
fn a_program_that_writes_is_ended_before_it_does() {
    let place = Place::new("writes");
    place.file("there", 10_000);
    fs::create_dir(place.0.join("here/folder")).unwrap();
    symlink(place.0.join("here/nowhere"), place.0.join("here/dangling")).unwrap();
    let before = place.names("here");
    #[rustfmt::skip]
    let rows = [ // program                               what it would do
        (&["sh", "-c", "echo x > made"][..],              "makes "),
        (&["sh", "-c", "echo x >> there"],                "opens for writing "),
        (&["sh", "-c", "(echo x | cat > made) & wait"],   "makes "),
        (&["touch", "there"],                             "opens for writing "),
        (&["touch", "-a", "-c", "there"],                 "changes "),
        (&["rm", "there"],                                "changes "),
        (&["setsid", "--fork", "rm", "there"],            "changes "),
        (&["rmdir", "folder"],                            "changes "),
        (&["mkdir", "new"],                               "makes "),
        (&["mv", "there", "moved"],                       "changes "),
        (&["ln", "there", "linked"],                      "makes "),
        (&["ln", "-s", "there", "linked"],                "makes "),
        (&["chmod", "600", "there"],                      "changes "),
        (&["truncate", "-s", "5", "there"],               "opens for writing "),
        (&["cp", "there", "copy"],                        "makes "),
        (&["sh", "-c", "echo x > /proc/self/cwd/made"],   "makes "),
        (&["sh", "-c", "echo x > /dev/shm/../..$PWD/made"], "makes "),
        (&["sh", "-c", "echo x > dangling"],              "makes "),
        (&["sh", "-c", "exec 3< there; echo x > /dev/fd/3"], "opens for writing "),
    ];
    for (program, what) in rows {
        let output = place.output(&[&["-n", "1", "--"], program].concat());
        let told = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{program:?}: {told}");
        assert!(told.contains(&format!("{} {what}/", program[0])), "{program:?}: {told}");
        assert!(told.contains("--yes") && output.stdout.is_empty(), "{program:?}: {told}");
        assert_eq!(place.names("here"), before, "{program:?}");
        assert_eq!(fs::metadata(place.0.join("here/there")).unwrap().len(), 10_000, "{program:?}");
    }
}

#[test]
fn a_program_that_writes_where_the_way_is_longer_than_a_path_is_ended_before_it_does() {
    let place = Place::new("deep");
    let name = "d".repeat(250);
    let mut down = Vec::new();
    for _ in 0..20 {
        let mut make = Command::new("env");
        make.args(&down).args(["mkdir", &name]).current_dir(place.0.join("here"));
        assert!(make.status().unwrap().success());
        down.extend(["env", "-C", &name]);
    }
    let there = || {
        let mut shell = Command::new("env");
        shell.args(&down).args(["sh", "-c", "ls; cat there"]).current_dir(place.0.join("here"));
        printed(&shell.output().unwrap())
    };
    let mut make = Command::new("env");
    make.args(&down).args(["sh", "-c", "echo kept > there"]).current_dir(place.0.join("here"));
    assert!(make.status().unwrap().success());
    for script in ["rm there", "echo x > there", "echo x > new", "mv there new", "mkdir new"] {
        let program = [&down[..], &["sh", "-c", script]].concat();
        let output = place.output(&[&["-n", "1", "--"], &program[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{script}: {}", errors(&output));
        assert_eq!(there(), "there\nkept\n", "{script}");
    }
    let output = place.output(&["-n", "1", "--", "rm", "-rf", &name]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert_eq!(there(), "there\nkept\n");
    let script = "cat there; rm -f absent; echo x > /dev/null";
    let program = [&down[..], &["sh", "-c", script]].concat();
    let output = place.output(&[&["-n", "1", "--"], &program[..]].concat());
    assert!(output.status.success(), "nothing is changed: {}", errors(&output));
}

#[test]
fn what_changes_nothing_is_no_writing() {
    let place = Place::new("harmless");
    place.file("there", 10_000);
    for program in [
        &["sh", "-c", "echo x > /dev/null; cat there | wc -c"][..],
        &["mkdir", "-p", "."],
        &["rm", "-f", "absent"],
        &["find", "."],
        &["sh", "-c", "echo x > /dev/stdout; echo x > /dev/fd/2"],
        &["sh", "-c", "echo x > /proc/self/comm; echo x | cat > /dev/null"],
        &["sh", "-c", "echo x > /dev/shm/compare-$$ && rm /dev/shm/compare-$$"],
    ] {
        // A file, which is not the program's output.
        let to = fs::File::create(place.0.join("printed")).unwrap();
        let mut command = place.compare(&[&["-n", "1", "--"], program].concat());
        let output = command.stdout(to).output().unwrap();
        assert!(output.status.success(), "{program:?}: {}", errors(&output));
    }
}

#[test]
fn what_writes_is_run_again_and_again_with_yes() {
    let place = Place::new("yes");
    let output = place.output(&["--yes", "-n", "2", "--", "sh", "-c", "echo x >> log"]);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(errors(&output).contains("each run does it again"), "{}", errors(&output));
    // The first run, and two of each way.
    assert_eq!(fs::read(place.0.join("here/log")).unwrap(), b"x\nx\nx\nx\nx\n");
}

#[test]
fn a_file_that_is_inherited_for_writing_is_told_before_anything_runs() {
    let place = Place::new("inherited");
    place.file("kept", 10);
    #[rustfmt::skip]
    let rows = [ // redirections    flags   status  what is said
        ("7<>kept",                 "",     1,      "descriptor 7, open for writing"),
        ("9>>kept",                 "",     1,      "descriptor 9, open for writing"),
        ("7<>kept",                 "-y",   0,      ""),
        ("7<kept 8>/dev/null",      "",     0,      ""),
    ];
    for (redirections, flags, status, said) in rows {
        let line = format!("exec \"$@\" -n 1 {flags} -- cat kept {redirections}");
        let command = place.compare(&[]);
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let mut shell = Command::new("sh");
        shell.args(["-c", &line, "sh"]).args(words).stdin(Stdio::null());
        shell.current_dir(command.get_current_dir().expect("it is set"));
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = shell.output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{redirections}: {}", errors(&output));
        assert!(errors(&output).contains(said), "{redirections}: {}", errors(&output));
    }
}

#[test]
fn exit_statuses_that_differ_are_an_error_and_equal_ones_are_told() {
    let place = Place::new("status");
    let turns = "test -e mark && exit 3; touch mark";
    let output = place.output(&["--yes", "-n", "2", "--", "sh", "-c", turns]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let told = "alone ended with status 3, the first run with 0";
    assert!(errors(&output).contains(told), "{}", errors(&output));
    assert!(output.stdout.is_empty());
    for (program, status) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let words = ["--json", "-n", "1", "--", "sh", "-c", program];
        let output = place.output(&words);
        assert!(output.status.success(), "{}", errors(&output));
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(record["status"], status, "{record}");
        assert!(errors(&output).contains(&format!("ends with status {status}")), "{program}");
        let text = printed(&place.output(&words[1..]));
        assert!(text.contains(&format!("\nstatus   {status} in every run")), "{text}");
    }
}

#[test]
fn wrong_input_is_told_before_anything_runs() {
    let place = Place::new("wrong");
    place.file("plain", 10);
    #[rustfmt::skip]
    let rows = [ // words                                        status  what is said
        (&["--", "no-such-program-at-all"][..],                  127, "no such program in PATH"),
        (&["--", "./plain"],                                     126, "cannot run ./plain"),
        (&[],                                                    2,   "PROGRAM"),
        (&["-n", "0", "--", "true"],                             2,   "--runs"),
        (&["-n", "x", "--", "true"],                             2,   "--runs"),
        (&["--lern", "--", "true"],                              2,   "the nearest is `--learn`"),
        (&["--find-by", "cals", "--", "true"],                   2,   "the nearest is `calls`"),
        (&["--input", "absent", "--", "true"],                   1,   "cannot read absent"),
        (&["--find-by", "samples", "--", "true"],                1,   "give --yes"),
        (&["--find-by", "samples", "-y", "--", "no-such-one"],   127, "cannot run no-such-one"),
        (&["-n", "1", "--", "sh", "-c", "tail -f /dev/null &"],  1,   "runs on after its end"),
        (&["--learn", "-n", "1", "--", "true"],                  1,   "leave out --learn"),
    ];
    for (words, status, said) in rows {
        let output = place.output(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", errors(&output));
        assert!(errors(&output).contains(said), "{words:?}: {}", errors(&output));
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn the_input_is_the_same_in_each_run_and_the_output_is_shown_where_asked() {
    let place = Place::new("input");
    fs::write(place.0.join("here/words"), "hello\n").unwrap();
    let asks = "test \"$(cat)\" = hello && echo answered";
    let words = ["--input", "words", "--show-output", "-n", "2", "--", "sh", "-c", asks];
    let output = place.output(&words);
    assert!(output.status.success(), "{}", errors(&output));
    let answers = |text: &str| text.lines().filter(|line| *line == "answered").count();
    assert_eq!(answers(&printed(&output)), 5, "{}", printed(&output));
    let output = place.output(&[&["--json"], &words[..]].concat());
    let record: Value = serde_json::from_slice(&output.stdout).expect("one object on stdout");
    assert_eq!((&record["status"], answers(&errors(&output))), (&0.into(), 5));
}

/// Reads a file, and under `run` has it open until the observer has it open, too.
const READER: &str = "
import glob, os, sys
def is_seen(path):
    for link in glob.glob('/proc/[0-9]*/fd/*'):
        try:
            if os.readlink(link) == path and link.split('/')[2] != str(os.getpid()): return True
        except OSError: pass
path = os.path.abspath(sys.argv[1])
parent = open(f'/proc/{os.getppid()}/cmdline').read().split(chr(0))
with open(path, 'rb') as file:
    while True:
        file.seek(0)
        while file.read(65536): pass
        if parent[1] != 'run' or is_seen(path): break
";

#[test]
fn a_list_is_learned_apart_from_the_users() {
    let test = "a_list_is_learned_apart_from_the_users";
    if !installed(test, "python3") {
        return;
    }
    let place = Place::new("learn");
    place.file("large", MIB);
    fs::write(place.0.join("here/reader.py"), READER).unwrap();
    let record = place.json(&["--learn", "-n", "2", "--", "python3", "-B", "reader.py", "large"]);
    let ways = record["ways"].as_array().unwrap();
    assert_eq!((ways.len(), &ways[2]["way"]), (3, &"run with a list".into()), "{record}");
    assert_eq!(record["ratios"].as_array().unwrap().len(), 2);
    assert!(record["learned_entries"].as_u64() >= Some(1), "{record}");
    assert!(!place.0.join("state").exists(), "a list of the user's was written");
    assert_eq!(place.names("tmp"), [""; 0], "the list is left");
}

#[test]
fn what_another_program_has_mapped_stays_and_is_said() {
    let test = "what_another_program_has_mapped_stays_and_is_said";
    if !installed(test, "python3") {
        return;
    }
    let place = Place::new("mapped");
    place.file("large", 8 * MIB);
    let map = "import mmap, sys
file = open(sys.argv[1], 'rb')
m = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(m[at] for at in range(0, len(m), 4096))
print('mapped', flush=True)
sys.stdin.read()";
    let mut other = Command::new("python3");
    other.args(["-c", map]).arg(place.0.join("here/large"));
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "mapped\n");
    let record = place.json(&["-n", "1", "--", "cat", "large"]);
    let told = printed(&place.output(&["-n", "1", "--", "cat", "large"]));
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    let kept = record["cold"]["kept"].as_array().unwrap();
    let large = kept.iter().find(|it| it["path"].as_str().unwrap().ends_with("/large"));
    assert_eq!(large.expect("it is kept")["why"], "mapped by running programs", "{record}");
    assert_eq!(record["cold"]["is_cold"], false, "{record}");
    assert!(told.contains("these runs were not cold"), "{told}");
}

#[test]
fn a_sampled_first_run_says_what_it_misses() {
    let place = Place::new("samples");
    place.file("small", 1000);
    let words = ["--find-by", "samples", "--yes", "-n", "1", "--", "cat", "small"];
    let output = place.output(&words);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(printed(&output).contains("small ones were not evicted"), "{}", printed(&output));
    assert_eq!(place.json(&words)["first"]["found_by"], "samples");
    assert_eq!(place.names("tmp"), [""; 0]);
}

#[test]
fn where_tracing_is_refused_samples_stand_in_if_writing_is_allowed() {
    let test = "where_tracing_is_refused_samples_stand_in_if_writing_is_allowed";
    let place = Place::new("untraced");
    let Some(sandbox) = Sandbox::new(test) else { return };
    let compare = |flags: &[&str]| {
        let mut command = sandbox.without(libc::SYS_ptrace);
        command.arg(forerun_path()).args(["compare", "--json", "-n", "1"]).args(flags);
        command.args(["--", "echo", "x"]).env("TMPDIR", place.0.join("tmp"));
        command.output().unwrap()
    };
    let refused = compare(&[]);
    assert_eq!(refused.status.code(), Some(1), "{}", errors(&refused));
    assert!(errors(&refused).contains("does not let programs be traced"), "{}", errors(&refused));
    assert!(errors(&refused).contains("give --yes"), "{}", errors(&refused));
    let sampled = compare(&["--yes"]);
    assert!(sampled.status.success(), "{}", errors(&sampled));
    let record: Value = serde_json::from_slice(&sampled.stdout).unwrap();
    assert_eq!(record["first"]["found_by"], "samples", "{record}");
    assert!(errors(&sampled).contains("by samples instead"), "{}", errors(&sampled));
}

/// The processes that have `word` as their last argument.
fn processes(word: &str) -> Vec<u32> {
    let has_word = |process: &Path| {
        let words = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        words.split_terminator('\0').next_back() == Some(word)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        has_word(&entry.path()).then_some(number)
    });
    numbers.collect()
}

#[test]
fn an_input_is_as_cold_as_what_the_program_opens() {
    let place = Place::new("input");
    place.file("large", 8 * MIB);
    let record = place.json(&["-n", "2", "--input", "large", "--", "cat"]);
    let (first, cold) = (&record["first"]["file_bytes"], &record["cold"]["bytes"]);
    assert!(first.as_u64() >= Some(8 << 20) && cold.as_u64() >= Some(8 << 20), "{record}");
    // It is there once, where the program opens it as well.
    let twice = place.json(&["-n", "2", "--input", "large", "--", "cat", "-", "large"]);
    assert_eq!(twice["first"]["files"], record["first"]["files"], "{twice}");
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let place = Place::new("interrupt");
    // The runs are: the first, the one that is learned, which is not over before it is observed,
    // alone, under run.
    for hangs_at in 1..=4 {
        let word = format!("{}.{}", 70_000 + hangs_at, std::process::id());
        let hangs = format!(
            "exec 3< large; cat <&3; echo x >> log; n=$(cat log | wc -l); \
             test $n -eq 2 && sleep 0.5; test $n -ge {hangs_at} && exec tail -f /dev/null {word}"
        );
        place.file("large", 2 * MIB);
        fs::write(place.0.join("here/log"), "").unwrap();
        fs::write(place.0.join("here").join(&word), "").unwrap();
        let script = ["--yes", "--learn", "-n", "1", "--", "sh", "-c", &hangs];
        let mut child = place.compare(&script).stderr(Stdio::piped()).spawn().unwrap();
        until(|| child.try_wait().unwrap().is_some() || !processes(&word).is_empty());
        if processes(&word).is_empty() {
            let output = child.wait_with_output().unwrap();
            panic!("it ended before run {hangs_at}: {}: {}", output.status, errors(&output));
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "at run {hangs_at}");
        until(|| processes(&word).is_empty());
        assert_eq!(place.names("tmp"), [""; 0], "at run {hangs_at}");
    }
}
