//! `forerun profile`, end to end: what it finds of a model and writes of a file, what it refuses,
//! how it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use forerun_testkit::Scratch;
use toml::{Table, Value};

/// A folder for one test, empty.
fn folder(test: &str) -> Scratch {
    Scratch::on_disk(&format!("profile-{test}"))
}

fn profile(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.arg("profile").args(words.split_whitespace()).stdin(Stdio::null());
    // No test changes the profiles of its user.
    command.env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn output(words: &str) -> Output {
    profile(words).output().expect("it starts")
}

fn stdout(words: &str) -> String {
    let output = output(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The profiles in `text`, by their names.
fn profiles(text: &str) -> Vec<(String, Table)> {
    let all: Table = text.parse().unwrap_or_else(|error| panic!("{error}: {text}"));
    let table = |value: Value| value.as_table().expect("a table each").clone();
    all.into_iter().map(|(name, value)| (name, table(value))).collect()
}

fn number(table: &Table, key: &str) -> f64 {
    let value = &table[key];
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let whole = value.as_integer().map(|whole| whole as f64);
    value.as_float().or(whole).unwrap_or_else(|| panic!("{key}: {value}"))
}

/// A file of `bytes`.
fn file(folder: &Path, bytes: usize) -> PathBuf {
    let path = folder.join("data");
    fs::write(&path, vec![7; bytes]).expect("it can be written");
    path
}

#[test]
fn a_model_shows_what_it_is() {
    // Machines are late and never early: the bounds have room on one side.
    #[rustfmt::skip]
    let rows = [ // device  kind          access, at least, most  MB/s at most  depth at most
        ("t7k250",          "positional", 5_000.0,  60_000.0,     70.0,         1.0),
        ("object",          "parallel",   30_000.0, 120_000.0,    900.0,        64.0),
    ];
    for (device, kind, access_min, access_max, rate_max, depth_max) in rows {
        let text = stdout(&format!("--device {device} --time 3s"));
        assert!(text.starts_with("# fact "), "{text}");
        let [(name, found)] = &profiles(&text)[..] else { panic!("one device: {text}") };
        assert!(name.starts_with(&format!("model {device}, linux ")), "{name}");
        assert_eq!(found["kind"].as_str(), Some(kind), "{text}");
        let assumed = found["assumed"].as_array().expect("a list");
        assert!(!assumed.contains(&"kind".into()) && !assumed.contains(&"access".into()), "{text}");
        assert!((access_min..access_max).contains(&number(found, "access_us")), "{text}");
        let rate = number(found, "mb_per_second");
        assert!(rate > 0.0 && rate <= rate_max, "{text}");
        assert!((1.0..=depth_max).contains(&number(found, "depth")), "{text}");
        assert!(text.contains(&format!("# latencies are left out: model `{device}`")), "{text}");
        assert!(!found.contains_key("latency"), "{text}");
        let classes = found["classes"].as_array().expect("a list");
        assert_eq!(classes.len(), 15, "{text}");
        for class in classes {
            let class = class.as_table().expect("a table each");
            assert!(number(class, "requests") >= number(class, "depth"), "{class}");
            assert!(number(class, "latency_mean_us") > 0.0, "{class}");
            assert!(number(class, "latency_stdev_us") >= 0.0, "{class}");
        }
    }
}

#[test]
fn a_file_is_profiled_into_a_file_beside_other_devices() {
    let folder = folder("file");
    let (path, profile) = (file(&folder, 20 << 20), folder.join("devices.toml"));
    let words = format!("{} --time 200ms --table -o {}", path.display(), profile.display());
    let text = stdout(&words);
    assert!(text.starts_with("fact ") && !text.contains("mb_per_second"), "{text}");
    let read = || fs::read_to_string(&profile).expect("it is written");
    let is_said = ["latencies are not saved: ", "latencies are left out: "];
    let is_said = is_said.iter().any(|said| text.contains(said));
    let is_there = profiles(&read())[0].1.contains_key("latency");
    assert!(is_there != is_said, "they are written, or it is said why not: {text}{}", read());
    let [(name, found)] = &profiles(&read())[..] else { panic!("one device: {}", read()) };
    let device = found["device"].as_str().expect("text");
    assert!(name.starts_with(device) && device.contains(':'), "{name}");
    assert!(name.ends_with(found["kernel"].as_str().expect("text")), "{name}");

    stdout(&format!("--device optane --time 100ms -o {}", profile.display()));
    let both = profiles(&read());
    assert_eq!(both.len(), 2, "{}", read());
    assert!(both.iter().any(|(other, table)| (other, table) == (name, found)), "it is kept");

    let again = stdout(&words);
    let kind = again.lines().find(|line| line.starts_with("kind ")).expect("a row");
    let before = kind.split_whitespace().last().expect("a column");
    assert_eq!(before, found["kind"].as_str().expect("text"), "{again}");
    assert_eq!(profiles(&read()).len(), 2, "the same device has one table");
    assert_eq!(fs::read(&path).expect("it is there"), vec![7; 20 << 20], "it was only read");
}

#[test]
fn a_profile_is_kept_where_commands_look_for_it() {
    let folder = folder("usual");
    let path = file(&folder, 20 << 20);
    let config = folder.join("none/yet");
    let mut command = profile(&format!("{} --time 200ms", path.display()));
    let output = command.env("XDG_CONFIG_HOME", &config).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("text");
    let toml = config.join("forerun/devices.toml");
    let labels: Vec<_> = text.lines().map(|line| line.split(' ').next().unwrap_or("")).collect();
    assert_eq!(labels, ["device", "kind", "access", "MB/s", "saved"], "{text}");
    let next = format!("saved   {}; `forerun explain -- PROGRAM`", toml.display());
    assert!(text.lines().any(|line| line.starts_with(&next)), "{text}");
    let kept = profiles(&fs::read_to_string(&toml).expect("it is written"));
    assert!(text.contains(&format!("device  {}\n", kept[0].0)), "{text}");

    let mut command = profile(&format!("{} --time 200ms --json", path.display()));
    let output = command.env("XDG_CONFIG_HOME", &config).output().expect("it starts");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let kept = profiles(&fs::read_to_string(&toml).expect("it is written"));
    assert_eq!(kept.len(), 1, "the same device has one table");
    assert_eq!(told["device"].as_str(), Some(&*kept[0].0));
    assert_eq!(told["profile"]["depth"].as_i64(), kept[0].1["depth"].as_integer());
    // Each line has a key of its name.
    for label in labels {
        let key = label.replace("MB/s", "mb_per_second");
        let names = [&told, &told["profile"]].map(|it| it.as_object().expect("keys").keys());
        let mut names = names.into_iter().flatten();
        assert!(names.any(|name| name.starts_with(&key)), "{label}: {told}");
    }

    // All that was measured, by the name of its file; the profile is where it was.
    let csv = folder.join("classes.csv");
    let mut command = profile(&format!("{} --time 200ms -o {}", path.display(), csv.display()));
    let output = command.env("XDG_CONFIG_HOME", &config).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.lines().any(|line| line.starts_with(&next)), "{text}");
    let rows = fs::read_to_string(&csv).expect("it is written");
    assert!(rows.lines().next().is_some_and(|line| line.contains("latency_mean_us")), "{rows}");
    assert_eq!(rows.lines().count(), 1 + kept[0].1["classes"].as_array().expect("a list").len());

    let mut command = profile(&format!("{} --time 200ms", path.display()));
    command.env_remove("XDG_CONFIG_HOME").env_remove("HOME");
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("name a file with -o"), "{errors}");

    let mut command = profile(&format!("{} --time 200ms", path.display()));
    let output = command.env("XDG_CONFIG_HOME", path.join("no-folder")).output().expect("starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("name a file with -o"), "{errors}");
}

#[test]
fn a_profile_elsewhere_is_named_with_the_command_that_takes_it() {
    let folder = folder("elsewhere");
    let (path, toml) = (file(&folder, 20 << 20), folder.join("own.toml"));
    let text = stdout(&format!("{} --time 200ms -o {}", path.display(), toml.display()));
    let toml = toml.display();
    let next = format!("saved   {toml}; `forerun explain --profile {toml} -- PROGRAM` predicts");
    assert!(text.contains(&next), "{text}");
    let access = text.lines().find(|line| line.starts_with("access")).expect("a line");
    assert!(access.contains("s for a lone request") || access.contains("(assumed)"), "{text}");
    assert!(text.contains(" at most, with ") && text.contains(" in flight"), "{text}");
}

#[test]
fn commands_that_write_one_file_at_once_lose_no_table() {
    let folder = folder("at-once");
    let toml = folder.join("devices.toml");
    let devices = ["object", "ssd", "optane", "t7k250"];
    let children = devices.map(|device| {
        let words = format!("--device {device} --time 100ms -o {}", toml.display());
        let mut command = profile(&words);
        command.stdout(Stdio::null()).spawn().expect("it starts")
    });
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    let all = profiles(&fs::read_to_string(&toml).expect("it is written"));
    for device in devices {
        let is_of = |(name, _): &&(String, Table)| name.starts_with(&format!("model {device}, "));
        assert_eq!(all.iter().filter(is_of).count(), 1, "{device}: {all:?}");
    }
    let names: Vec<_> = fs::read_dir(&folder).expect("it is there").collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn what_cannot_be_profiled_is_said_in_one_line() {
    let folder = folder("refused");
    let there = file(&folder, 16 << 20);
    let (small, empty) = (folder.join("small"), folder.join("empty"));
    fs::write(&small, vec![1; (16 << 20) - 1]).expect("it can be written");
    fs::write(&empty, "").expect("it can be written");
    let other = folder.join("other.toml");
    fs::write(&other, "[server]\nport = 1\n").expect("it can be written");
    let (folder, there) = (folder.display(), there.display());
    let (small, empty, other) = (small.display(), empty.display(), other.display());
    #[rustfmt::skip]
    let rows = [ // words                                    status  said
        (String::new(),                                           2, "<PATH>"),
        (format!("{there} --device ssd"),                         2, "cannot be used with"),
        ("--device sdd".to_owned(),                               2, "--device sdd"),
        ("--device ssd:max=100".to_owned(),                       2, "less than a page"),
        ("--device t7k250:capacity=1M,max=4K".to_owned(),         2, "t7k250:capacity=1M"),
        (format!("{there} --time 10"),                            2, "--time"),
        (format!("{there} --time 0s"),                            2, "--time"),
        (format!("{folder}/missing"),                             1, "missing"),
        (format!("{folder}"),                                     1, "a directory"),
        ("/dev/null".to_owned(),                                  1, "/dev/null"),
        (format!("{empty}"),                                      2, "is empty"),
        (format!("{small}"),                                      2, "too small to measure"),
        (format!("{there} -o {there}"),                           2, "named twice"),
        (format!("{there} -o {folder}"),                          1, "it is a folder"),
        (format!("{there} -o {folder}/no/x.toml"),                1, "no such folder"),
        (format!("{there} -o {other}"),                           1, "holds no profiles"),
    ];
    for (words, status, said) in rows {
        let output = output(&words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words}: {errors}");
        assert!(errors.contains(said) && errors.lines().count() == 1, "{words}: {errors}");
        assert!(output.stdout.is_empty(), "{words}");
    }
    assert_eq!(fs::read_to_string(other.to_string()).expect("text"), "[server]\nport = 1\n");
}

#[cfg(feature = "lab")]
#[test]
fn a_profile_is_taken_by_a_bench_of_its_device_and_refused_to_others() {
    let folder = folder("given");
    let toml = folder.join("devices.toml");
    let text = stdout(&format!("--device optane --time 1s --table -o {}", toml.display()));
    assert!(text.starts_with("fact "), "{text}");
    let bench = |device: &str, profile: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
        command.args(["bench", "streams", "--device", device, "--each", "64K", "--json"]);
        command.args(["--profile", profile]).env("XDG_CONFIG_HOME", &folder);
        command.env_remove("HOME").stdin(Stdio::null()).output().expect("it starts")
    };
    let path = toml.to_str().expect("text");
    #[rustfmt::skip]
    let rows = [ // device  profile  status  said
        ("optane",          path,    0,      ""),
        ("ssd",             path,    2,      "it has no profile of model ssd"),
        ("optane",          "auto",  0,      "devices.toml: there is no such file"),
    ];
    for (device, profile, status, said) in rows {
        let output = bench(device, profile);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{device} {profile}: {errors}");
        assert!(errors.contains(said), "{device} {profile}: {errors}");
        // What was assumed is told, and depends on the machine.
        assert!(errors.lines().count() <= 1, "{device} {profile}: {errors}");
    }
    let old = fs::read_to_string(&toml).expect("text").replace("linux ", "linux 0.");
    fs::write(&toml, old).expect("the same file");
    let errors = bench("optane", path).stderr;
    let errors = String::from_utf8_lossy(&errors);
    assert!(errors.contains("is of linux 0."), "{errors}");
}

#[test]
fn sigint_ends_it_and_leaves_nothing() {
    let folder = folder("sigint");
    let words = format!("--device t7k250 --time 600s -o {}/x.toml", folder.display());
    let mut command = profile(&words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let status = format!("/proc/{}/status", child.id());
    let listens = || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & 2 != 0)
    };
    while !listens() {
        assert!(child.try_wait().expect("it is ours").is_none(), "it ended by itself");
        thread::yield_now();
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill is there").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "forerun: interrupted\n");
    assert!(output.stdout.is_empty());
    assert!(fs::read_dir(&folder).expect("it is there").next().is_none(), "no part of a profile");
}
