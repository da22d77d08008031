//! Learned lists, end to end: what one run uses is fetched at the start of the next; lists are
//! shown, moved and forgotten; hostile lists open nothing.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use forerun_testkit::{Scratch, drop_from_cache, installed, until};
use serde_json::{Value, json};

use home::{BYTES, Home, succeeded};

#[path = "learned/home.rs"]
mod home;

/// The first line of a list that one run has given.
const HEADER: &str = r#"{"format":"forerun-learned","version":1,"runs":1,"program":{}}"#;

fn refused(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_dry_run_says_what_would_be_done_and_runs_nothing() {
    let home = Home::new("dry", 3);
    let files: Vec<_> = (0..3).map(|at| home.file(at)).collect();
    let made = home.0.join("made");
    let plan = |flags: &[&str], program: &[&str]| {
        let words = [&["run", "--dry-run"], flags, &["--"], program].concat();
        let output = home.forerun(&words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = plan(&["--limit", "3M"], &["touch", made.to_str().unwrap()]);
    let firsts: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(firsts, ["program", "observed", "streams", "walks", "learned"], "{text}");
    assert!(
        text.contains("at most 3M ahead of a reader") && text.contains("nothing yet"),
        "{text}"
    );
    assert!(!made.exists(), "it ran");
    assert!(plan(&["--learn", "off"], &["touch"]).contains("learned   off\n"));
    assert!(plan(&["--walks", "off"], &["touch"]).contains("walks     off\n"));
    assert!(plan(&[], &["no-such-program-at-all"]).contains("there is no such program"));

    home.read(&["--learn", "dry"], &files);
    let text = plan(&["--learn", "dry"], &["python3"]);
    let learned = text.lines().last().unwrap();
    assert!(learned.ends_with("iB, of dry") && learned.contains(" paths with "), "{text}");
}

#[test]
fn an_encrypted_folder_that_was_read_can_be_locked() {
    let test = "an_encrypted_folder_that_was_read_can_be_locked";
    if !["python3", "unshare"].iter().all(|program| installed(test, program)) {
        return;
    }
    let home = Home::new("locked", 1);
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/learned/locked.py");
    let script = format!(
        "truncate -s 40M image && mkfs.ext4 -q -O encrypt image && mkdir mount || exit 90
         for how in \"$PWD/reader.py\" watched; do
             mount -o loop image mount || exit 90
             python3 {program} \"$PWD/mount\" || exit 90
             {} run --learn locked -- python3 {program} \"$PWD/mount\" $how || exit
             umount mount
         done",
        env!("CARGO_BIN_EXE_forerun")
    );
    let mut shell = std::process::Command::new("unshare");
    shell.args(["-m", "sh", "-c", &script]).current_dir(&home.0);
    shell.env("XDG_STATE_HOME", home.state()).env_remove("FORERUN_LEARN");
    let output = shell.output().unwrap();
    if matches!(output.status.code(), Some(1 | 90)) && output.stdout.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return forerun_testkit::skip(test, &format!("root, a loop device and fscrypt: {why}"));
    }
    // The first run learns what the second is given.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "locked\nlocked\n", "{output:?}");
}

#[test]
fn what_one_run_uses_is_fetched_at_the_start_of_the_next() {
    let test = "what_one_run_uses_is_fetched_at_the_start_of_the_next";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("next", 12);
    // In no order of a walk, which would have them open before they are read.
    let files: Vec<PathBuf> = (0..12).map(|at| home.file(at * 5 % 12)).collect();
    let first = home.read(&[], &files);
    assert_eq!((&first["entries"], &first["trouble"]), (&0.into(), &"".into()), "{first}");
    let name = first["name"].as_str().unwrap();
    assert!(name.starts_with("reader.py-"), "{name}");
    let shown = succeeded(&home.forerun(&["learned", "show", name, "--json"]).output().unwrap());
    for file in &files {
        let row = shown.lines().find(|row| row.contains(file.to_str().unwrap())).expect(&shown);
        let row: Value = serde_json::from_str(row).unwrap();
        // How much depends on how far the reader was when a poll met it.
        assert_eq!((&row["kind"], &row["bytes"]), (&"read".into(), &BYTES.into()), "{row}");
        assert_eq!(row["ranges"][0][0], 0, "{row}");
    }
    let second = home.read(&[], &files);
    assert!(second["requested"].as_u64() >= Some(12), "{second}");
    assert!(second["used"].as_u64() >= Some(12), "{second}");
    assert_eq!(second["wasted_bytes"], 0, "{second}");
    // What is not used any more leaves after two runs in which its use would have been seen: one
    // that ends before its file was fetched is none, nor one where that was in memory by then.
    until(|| {
        let last = home.read(&[], &files[..2]);
        // Whole pages are fetched.
        let pages = (BYTES as u64).next_multiple_of(4_096);
        assert!(last["wasted_bytes"].as_u64() <= Some(10 * pages), "{last}");
        let shown = succeeded(&home.forerun(&["learned", "show", name]).output().unwrap());
        let row = |file: &Path| shown.lines().find(|row| row.contains(file.to_str().unwrap()));
        assert!(row(&files[0]).unwrap().trim_end().ends_with("yes"), "{shown}");
        row(&files[11]).is_none_or(|row| row.trim_end().ends_with("no"))
    });
}

#[test]
fn a_list_that_was_used_little_of_three_times_is_learned_anew() {
    let test = "a_list_that_was_used_little_of_three_times_is_learned_anew";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("anew", 32);
    // Backwards: on a disk, what is read by place is left to the program.
    let files: Vec<PathBuf> = (0..32).rev().map(|at| home.file(at)).collect();
    let run = |words: &[&str]| succeeded(&home.forerun(words).output().unwrap());
    home.read(&["--learn", "anew"], &files);
    let list = home.0.join("anew.jsonl").to_str().unwrap().to_owned();
    run(&["learned", "export", "anew", "-o", &list]);
    let exported = fs::read_to_string(&list).unwrap();
    let poor = exported.replacen("\"runs\":1,", "\"runs\":1,\"poor\":3,", 1);
    assert_ne!(poor, exported, "the header says how many runs there were");
    fs::write(&list, poor).unwrap();
    // Two runs used little of it. A third says nothing in which too little was fetched before the
    // program came to it.
    until(|| {
        run(&["learned", "forget", "anew"]);
        run(&["learned", "import", &list]);
        home.read(&["--learn", "anew"], &files[..16]);
        let lists: Value = serde_json::from_str(&run(&["learned", "--json"])).unwrap();
        lists["lists"][0]["runs"] == 1
    });
    let shown = run(&["learned", "show", "anew"]);
    let is_listed = |file: &PathBuf| shown.contains(file.to_str().unwrap());
    assert!(files[..16].iter().all(is_listed), "{shown}");
    assert!(!files[16..].iter().any(is_listed), "{shown}");
}

#[test]
fn a_program_is_known_by_the_folder_where_it_starts_and_lists_are_found_there() {
    let test = "a_program_is_known_by_the_folder_where_it_starts_and_lists_are_found_there";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("folders", 2);
    let files = [home.file(0), home.file(1)];
    home.read(&["--learn", "theirs"], &files);
    let names = ["one", "two"].map(|folder| {
        let folder = home.0.join(folder);
        fs::create_dir(&folder).unwrap();
        // It ends once it was observed.
        let reader = fs::read_to_string(home.0.join("reader.py")).unwrap();
        fs::write(folder.join("script.py"), reader + "sys.exit(3)\n").unwrap();
        let file = files[0].to_str().unwrap();
        let script = ["--", "python3", "script.py", file];
        let run = |words: &[&str]| home.forerun(words).current_dir(&folder).output().unwrap();
        succeeded(&run(&["learned", "export", "theirs", "-o", "list.jsonl"]));
        let flags = ["run", "--learned-file", "list.jsonl", "--stats-json", "stats.json"];
        let output = run(&[&flags[..], &script].concat());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let stats = fs::read(folder.join("stats.json")).unwrap();
        let learned = serde_json::from_slice::<Value>(&stats).unwrap()["learned"].clone();
        assert_eq!(learned["trouble"], "", "{learned}");
        assert!(learned["entries"].as_u64() > Some(0), "the list is read: {learned}");
        let flags = ["run", "--dry-run", "--learned-file", "list.jsonl"];
        let plan = succeeded(&run(&[&flags[..], &script].concat()));
        let name = learned["name"].as_str().unwrap().to_owned();
        assert!(plan.contains(&name), "another list than {name} is planned: {plan}");
        name
    });
    assert_ne!(names[0], names[1], "each folder has a list of its own");
}

#[test]
fn off_leaves_no_trace_and_names_are_kept_apart() {
    let test = "off_leaves_no_trace_and_names_are_kept_apart";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("off", 2);
    let files = [home.file(0), home.file(1)];
    home.read(&["--learn", "off"], &files);
    let mut command = home.forerun(&["run", "--", "python3"]);
    let output = command.arg(home.0.join("reader.py")).args(&files).env("FORERUN_LEARN", "off");
    succeeded(&output.output().unwrap());
    assert!(!home.state().exists());
    home.read(&["--learn", "one"], &files[..1]);
    home.read(&["--learn", "two"], &files[1..]);
    assert_eq!(home.names(), ["two", "one"]);
    for bad in ["../x", "a/b", ".x", ""] {
        let output = home.forerun(&["run", "--learn", bad, "--", "true"]).output().unwrap();
        assert!(refused(&output, 2).contains("no name of a list"), "{bad}");
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_told_and_the_program_runs() {
    let test = "a_folder_that_cannot_be_used_is_told_and_the_program_runs";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("folder", 1);
    fs::write(home.state(), "a file").unwrap();
    let trouble = || home.read(&[], &[home.file(0)])["trouble"].as_str().unwrap().to_owned();
    let told = trouble();
    assert!(told.contains("state/forerun/learned"), "{told}");
    let output = home.forerun(&["run", "--", "cat"]).arg(home.file(0)).output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (BYTES, 0), "{output:?}");
    fs::remove_file(home.state()).unwrap();
    fs::create_dir_all(home.state().join("forerun/learned")).unwrap();
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(home.state().join("forerun/learned"), open).unwrap();
    let told = trouble();
    assert!(told.contains("another user could have written it"), "{told}");
}

/// What a run says of its list whose user's home is at `place`, and nothing names another folder.
fn trouble_at(home: &Home, place: &Path) -> String {
    let record = home.0.join("stats.json");
    let mut command = home.forerun(&["run", "--stats-json", record.to_str().unwrap(), "--"]);
    command.arg("python3").arg(home.0.join("reader.py")).arg(home.file(0));
    succeeded(&command.env_remove("XDG_STATE_HOME").env("HOME", place).output().unwrap());
    let stats: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    stats["learned"]["trouble"].as_str().unwrap().to_owned()
}

#[test]
fn nothing_is_made_in_the_home_of_another_user() {
    let test = "nothing_is_made_in_the_home_of_another_user";
    if !installed(test, "python3") {
        return;
    }
    let (home, other) = (Home::new("others", 1), Scratch::new("home-of-others"));
    if chown(&*other, Some(65_534), Some(65_534)).is_err() {
        return forerun_testkit::skip(test, "root");
    }
    let trouble = trouble_at(&home, &other);
    assert!(trouble.contains("another user could have written it"), "{trouble}");
    assert_eq!(fs::read_dir(&*other).unwrap().count(), 0);
}

#[test]
fn a_home_that_is_not_there_is_not_made() {
    let test = "a_home_that_is_not_there_is_not_made";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("no-home", 1);
    let absent = home.0.join("absent");
    let trouble = trouble_at(&home, &absent);
    assert!(trouble.contains("absent: No such file or directory"), "{trouble}");
    assert!(!absent.exists());
}

#[test]
fn lists_are_moved_joined_and_forgotten() {
    let test = "lists_are_moved_joined_and_forgotten";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("moved", 3);
    home.read(&["--learn", "one"], &[home.file(0)]);
    home.read(&["--learn", "two"], &[home.file(1)]);
    let file = |name: &str| home.0.join(name).to_str().unwrap().to_owned();
    let files = file("files");
    let run = |words: &[&str]| succeeded(&home.forerun(words).output().unwrap());
    run(&["learned", "export", "one", "-o", &file("1.jsonl")]);
    let root = format!("/elsewhere={files}");
    run(&["learned", "export", "two", "-o", &file("2.jsonl"), "--root", &root]);
    run(&["learned", "merge", &file("all.jsonl"), &file("1.jsonl"), &file("2.jsonl")]);
    run(&["learned", "import", &file("all.jsonl")]);
    let shown = run(&["learned", "show", "all"]);
    assert!(shown.contains(&format!("{files}/000")) && shown.contains("/elsewhere/001"), "{shown}");
    // Each form by the name of its file, whatever stdout has.
    assert_eq!(run(&["learned", "show", "all", "-o", &file("rows.csv")]), shown);
    let rows = fs::read_to_string(file("rows.csv")).unwrap();
    assert!(rows.starts_with("path,use,first_seconds,bytes,next_time\n"), "{rows}");
    assert_eq!(rows.lines().count(), shown.lines().count());
    let rows = run(&["learned", "list", "--csv", "-o", &file("lists.json")]);
    assert!(rows.starts_with("name,bytes,saved,runs,entries,executable\nall,"), "{rows}");
    assert_eq!(run(&["learned", "--ndjson"]).lines().count(), rows.lines().count() - 1);
    let lists: Value = serde_json::from_slice(&fs::read(file("lists.json")).unwrap()).unwrap();
    assert!(lists["lists"].as_array().unwrap().iter().any(|list| list["name"] == "all"), "{lists}");
    let refused_name = home.forerun(&["learned", "show", "all", "-o", &file("rows")]).output();
    assert!(refused(&refused_name.unwrap(), 2).contains(".csv"));
    let missing = home.forerun(&["learned", "show", "al"]).output().unwrap();
    assert!(refused(&missing, 1).contains("the nearest is `all`"));
    let other = home.forerun(&["learned", "import", &home.file(0).to_string_lossy()]).output();
    assert!(refused(&other.unwrap(), 1).contains("no learned list"));
    let full = home.forerun(&["learned", "export", "one", "-o", "/dev/full"]).output().unwrap();
    assert!(refused(&full, 1).contains("/dev/full"));
    run(&["learned", "forget", "one"]);
    assert_eq!(home.names(), ["all", "two"]);
    run(&["learned", "forget", "--all"]);
    assert!(home.names().is_empty());
    assert!(run(&["learned"]).contains("nothing is learned yet"));
}

#[test]
fn a_new_machine_is_warmed_by_what_matters() {
    let test = "a_new_machine_is_warmed_by_what_matters";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("warm", 4);
    let files = [home.file(0), home.file(1)];
    home.read(&["--learn", "app"], &files);
    let list = home.0.join("app.jsonl").to_str().unwrap().to_owned();
    succeeded(&home.forerun(&["learned", "export", "app", "-o", &list]).output().unwrap());
    // The interpreter's own files are other programs' too, and may leave the cache at any time.
    let exported = fs::read_to_string(&list).unwrap();
    let own = |line: &&str| !line.starts_with("{\"path\"") || line.contains("/files/");
    let lines: Vec<_> = exported.lines().filter(own).collect();
    assert_eq!(lines.len(), 3, "a header and two files: {exported}");
    fs::write(&list, lines.join("\n") + "\n").unwrap();
    fs::rename(home.0.join("files"), home.0.join("copy")).unwrap();
    fs::create_dir(home.0.join("files")).unwrap();
    for name in ["000", "001"] {
        drop_from_cache(&File::open(home.0.join("copy").join(name)).unwrap());
    }
    let root = format!("{}={}", home.0.join("copy").display(), home.0.join("files").display());
    let words = ["warm", "--learned-file", &list, "--root", &root, "--json"];
    let reports = [(); 2].map(|()| -> Value {
        let report = succeeded(&home.forerun(&words).output().unwrap());
        serde_json::from_str(&report).unwrap()
    });
    let counts = reports.each_ref().map(|report| (&report["fetched"], &report["cached"]));
    assert_eq!(counts, [(&json!(2), &json!(0)), (&json!(0), &json!(2))], "{reports:?}");
    let nowhere = format!("/nowhere={}", home.0.join("files").display());
    let words = ["warm", "--learned-file", &list, "--root", &nowhere];
    let told = refused(&home.forerun(&words).output().unwrap(), 1);
    assert!(told.contains("nothing of the list is there"), "{told}");
    let words = ["warm", "--learned", "app", "--json"];
    let report = succeeded(&home.forerun(&words).output().unwrap());
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(report["gone"].as_u64() >= Some(2), "{report}");
}

#[test]
fn what_a_program_sees_of_preallocated_files_is_not_changed() {
    let test = "what_a_program_sees_of_preallocated_files_is_not_changed";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("preallocated", 2);
    let file = File::options().write(true).open(home.file(0)).unwrap();
    file.set_len(4096).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    if rustix::fs::fallocate(&file, flags, 0, BYTES as u64).is_err() {
        return forerun_testkit::skip(test, "a file system with fallocate");
    }
    file.sync_all().unwrap();
    drop_from_cache(&file);
    let file = File::open(home.file(0)).unwrap();
    let end_of_data = || rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    let before = end_of_data();
    fs::read(home.file(0)).unwrap();
    if end_of_data() == before {
        return forerun_testkit::skip(test, "a file system whose data depend on the page cache");
    }
    let rows = [0, 1].map(|at| {
        json!({
            "path": home.file(at), "kind": "read", "first_us": 0, "history": 1, "bytes": BYTES,
            "ranges": [[0, BYTES]],
        })
    });
    let list = home.0.join("list.jsonl").to_str().unwrap().to_owned();
    fs::write(&list, format!("{HEADER}\n{}\n{}\n", rows[0], rows[1])).unwrap();
    // A short run may end before the list is fetched.
    until(|| {
        let flags = ["--learn", "off", "--learned-file", &list];
        home.read(&flags, &[home.file(1)])["requested"] == 2
    });
    assert_eq!(end_of_data(), before);
}

/// Reads the files that it is given, and says how many bytes of them came from the device.
const COUNTER: &str = "
import sys
def read_bytes():
    with open('/proc/self/io') as counts:
        return int(counts.read().split('read_bytes:')[1].split()[0])
def read(path):
    with open(path, 'rb') as file:
        while file.read(65536): pass
# What it runs for that is there.
read('/proc/self/exe')
before = read_bytes()
for path in sys.argv[1:]: read(path)
print(read_bytes() - before)
";

#[test]
fn after_a_list_was_warmed_its_program_reads_nothing_from_the_device() {
    let test = "after_a_list_was_warmed_its_program_reads_nothing_from_the_device";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("warmed", 8);
    let files: Vec<PathBuf> = (0..8).map(|at| home.file(at)).collect();
    let mut lines = HEADER.to_owned();
    for file in &files {
        let found = fs::metadata(file).unwrap();
        let modified = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        let row = json!({
            "path": file, "kind": "read", "first_us": 0, "history": 1, "inode": found.ino(),
            "bytes": BYTES, "modified": i64::try_from(modified).unwrap(),
            "ranges": [[0, 65_536], [65_536, BYTES]],
        });
        lines = format!("{lines}\n{row}");
    }
    let list = home.0.join("app.jsonl").to_str().unwrap().to_owned();
    fs::write(&list, lines).unwrap();
    let cold = || {
        for file in &files {
            drop_from_cache(&File::open(file).unwrap());
        }
    };
    let from_device = || -> u64 {
        let mut command = std::process::Command::new("python3");
        let output = command.args(["-c", COUNTER]).args(&files).output().unwrap();
        succeeded(&output).trim().parse().unwrap()
    };
    cold();
    if from_device() < files.len() as u64 * BYTES as u64 {
        return forerun_testkit::skip(test, "a disk whose reads are counted");
    }
    cold();
    let words = ["warm", "--learned-file", &list, "--json"];
    let output = home.forerun(&words).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let least = files.len() as u64 * BYTES as u64;
    assert!(report["bytes_fetched"].as_u64() >= Some(least), "{report}");
    assert_eq!(from_device(), 0, "{report}");
}

#[test]
fn a_list_of_a_later_version_is_told_and_left_as_it_is() {
    let test = "a_list_of_a_later_version_is_told_and_left_as_it_is";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("later", 1);
    let folder = home.state().join("forerun/learned");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let later = r#"{"format":"forerun-learned","version":7,"what":"is new"}"#;
    fs::write(folder.join("one.jsonl"), later).unwrap();
    fs::set_permissions(folder.join("one.jsonl"), fs::Permissions::from_mode(0o600)).unwrap();
    let stats = home.read(&["--learn", "one"], &[home.file(0)]);
    let told = stats["trouble"].as_str().unwrap();
    assert!(told.contains("left as it is") && told.contains("version 7"), "{stats}");
    assert_eq!(fs::read_to_string(folder.join("one.jsonl")).unwrap(), later);
}

#[test]
fn hostile_lists_open_nothing_but_files() {
    let home = Home::new("hostile", 1);
    let fifo = home.0.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    symlink(&fifo, home.0.join("link")).unwrap();
    symlink("loop", home.0.join("loop")).unwrap();
    let mut text = HEADER.to_owned();
    let here = |name: &str| home.0.join(name).to_str().unwrap().to_owned();
    let paths = [here("fifo"), here("link"), here("loop"), here("none"), here("files/000/x")];
    let others = ["/dev/zero", "/dev/tty", "/proc/kmsg", "/proc/self/mem", "/sys/kernel/tracing"];
    for path in paths.iter().map(String::as_str).chain(others) {
        for kind in ["read", "stat", "absent", "directory"] {
            let below = if kind == "read" { "" } else { "/." };
            let row = serde_json::json!({
                "path": format!("{path}{below}"), "kind": kind, "first_us": 0, "history": 7,
                "bytes": 9, "ranges": [[0, i64::MAX], [4096, 8192]],
            });
            text = format!("{text}\n{row}");
        }
    }
    fs::write(here("list.jsonl"), text).unwrap();
    let words =
        ["run", "--learn", "off", "--learned-file", &here("list.jsonl"), "--", "sleep", "0.2"];
    // An open of the pipe would wait for a writer, or be seen by one that does not wait.
    let mut running = home.forerun(&words).spawn().unwrap();
    while running.try_wait().unwrap().is_none() {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        let writer = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty());
        assert_eq!(writer.err(), Some(rustix::io::Errno::NXIO), "nothing has it open to read");
    }
    let words = ["warm", "--learned-file", &here("list.jsonl"), "--json"];
    let output = home.forerun(&words).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["fetched"], 0, "{report}");
    fs::write(here("broken.jsonl"), "{").unwrap();
    let words = ["run", "--learned-file", &here("broken.jsonl"), "--", "true"];
    assert!(refused(&home.forerun(&words).output().unwrap(), 1).contains("no learned list"));
    let words = ["run", "--learned-file", fifo.to_str().unwrap(), "--", "true"];
    assert!(refused(&home.forerun(&words).output().unwrap(), 2).contains("a pipe"));
}
