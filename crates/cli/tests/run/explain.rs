//! `forerun explain`: real programs, their explanations, and that they run as they are.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use forerun_steer::abilities::{CachedPages, abilities};
use forerun_testkit::{installed, skip};
use serde_json::Value;

use crate::reading::{C, GO, compile};
use crate::rig::{Data, MAPPED, Reader, explain, folder, holds, shim};

const BYTES: u64 = 64 << 20;

/// What `explain --json` says, which is all that is on stdout.
fn explained(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The part of an explanation about the file `path`.
pub(crate) fn file<'a>(explained: &'a Value, path: &Path) -> &'a Value {
    let files = explained["files"].as_array().expect("a list");
    let found = files.iter().find(|file| file["path"] == path.to_str().unwrap());
    found.unwrap_or_else(|| panic!("{} is not in it: {explained}", path.display()))
}

#[test]
fn a_program_is_run_as_it_is_and_its_status_passed_through() {
    #[rustfmt::skip]
    let rows: [(&str, &[&str], i32); 4] = [
        ("some milliseconds", &["true"],                     0),
        ("it fails",          &["sh", "-c", "exit 77"],      77),
        ("interrupted",       &["sh", "-c", "kill -INT $$"], 130),
        ("killed",            &["sh", "-c", "kill -9 $$"],   137),
    ];
    for (why, words, status) in rows {
        let output = explain("--json").args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{why}");
        let explained = explained(&output);
        assert_eq!(explained["status"], status, "{why}");
        assert_eq!(explained["prediction"]["verdict"], "nothing", "{why}: {explained}");
        assert_eq!(explained["prediction"]["reason"], "reads-nothing", "{why}: {explained}");
    }
    for (program, status) in [("no-such-program-here", 127), ("/", 126)] {
        let output = explain("--json").arg(program).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{program}");
    }
}

#[test]
fn output_is_the_programs_unless_json_is_asked_for() {
    let words = ["sh", "-c", "echo out; echo err >&2"];
    let output = explain("").args(words).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"out\n");
    assert!(errors.starts_with("err\n") && errors.contains("nothing to gain"), "{errors}");
    let output = explain("--json").args(words).output().unwrap();
    assert!(explained(&output)["seconds"].as_f64() > Some(0.0));
    assert_eq!(output.stderr, b"out\nerr\n");
}

#[test]
fn bad_usage_starts_nothing() {
    let folder = folder("explain-usage");
    let made = folder.join("made");
    let wrong = folder.join("wrong.toml");
    fs::write(&wrong, "x = 1\n").unwrap();
    let wrong = format!("--profile {}", wrong.display());
    for (flags, status) in [
        ("--profile /no/x.toml", 2),
        (&wrong[..], 1),
        ("-o /no/x.html", 1),
        ("-o /tmp/x.pdf", 2),
        ("--observe x", 2),
    ] {
        let output = explain(flags).arg("touch").arg(&made).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{flags}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{flags}");
        assert!(!made.exists(), "{flags}");
    }
}

#[test]
fn an_explanation_is_printed_where_its_page_cannot_be_written() {
    let folder = folder("explain-unwritten");
    let gone = folder.join("gone");
    fs::create_dir(&gone).unwrap();
    let flags = format!("-o {}/page.html", gone.display());
    let output = explain(&flags).arg("rmdir").arg(&gone).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("waiting for storage is ") && errors.contains("to gain"), "{errors}");
    assert!(errors.lines().any(|line| line.contains("cannot write ")), "{errors}");
}

#[test]
fn a_reader_of_a_pipe_reads_no_file() {
    let mut child = explain("--json")
        .args(["wc", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&vec![7; 1 << 20]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), (1 << 20).to_string());
    let explained = explained(&output);
    assert_eq!(
        (&explained["bytes_read"], explained["files"].as_array().unwrap().len()),
        (&0.into(), 0)
    );
}

/// So the dynamic loader reads a library, before it maps it.
#[test]
fn a_file_is_read_once_more_than_its_header_was() {
    let test = "a_file_is_read_once_more_than_its_header_was";
    let folders = ["explain-header", "explain-beside"].map(folder);
    let files = folders.each_ref().map(|folder| Data::new(test, folder, 4 << 20));
    let [Some(library), Some(beside)] = files else { return };
    if !installed(test, "python3") {
        return;
    }
    let program = "
import os, sys
files = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
os.read(files[0], 832)
for line in sys.stdin:
    print(len(os.read(files[int(line)], 1 << 20)), file=sys.stderr, flush=True)
";
    let mut command = explain("--json");
    command.args(["python3", "-c", program]).args([&library.path, &beside.path]);
    let (mut reader, output) = Reader::start_with_errors(&mut command);
    assert_eq!(reader.say("1"), (1 << 20).to_string());
    assert!(holds(reader.child.id(), &beside.path), "it is not observed to read");
    let links = fs::read_dir(format!("/proc/{}/fd", reader.child.id())).unwrap();
    let mut links = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    assert!(links.all(|path| path != library.path), "a header is followed");
    assert_eq!(reader.say("0"), (1 << 20).to_string());
    assert!(holds(reader.child.id(), &library.path), "it is not observed to read");
    assert_eq!(reader.end(), Some(0));
    let explained: Value = serde_json::from_str(&output.join().unwrap()).unwrap();
    for (data, bytes) in [(&library, 832 + (1 << 20)), (&beside, 1 << 20)] {
        assert_eq!(file(&explained, &data.path)["bytes_read"], bytes, "{explained}");
    }
}

#[test]
fn gzip_is_seen_to_read_in_order_and_the_page_shows_it() {
    let test = "gzip_is_seen_to_read_in_order_and_the_page_shows_it";
    let folder = folder("explain-gzip");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "gzip")) else {
        return;
    };
    let page = folder.join("page.html");
    let flags = format!("-o {}", page.display());
    let mut child = explain(&flags)
        .args(["gzip", "-1", "-c"])
        .arg(&data.path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It cannot end before its output is taken.
    assert!(holds(child.id(), &data.path), "it is not observed to read");
    let mut packed = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut packed).unwrap();
    assert_eq!(packed[..2], [0x1f, 0x8b], "the output is the program's alone");
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("sequential") && errors.contains("100 %"), "{errors}");
    assert!(errors.contains("waiting for storage is "), "{errors}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("id=\"file-0\""));
}

#[test]
fn what_is_in_memory_gains_nothing_and_residency_is_reported() {
    let test = "what_is_in_memory_gains_nothing_and_residency_is_reported";
    let folder = folder("explain-md5sum");
    if !["md5sum", "python3"].iter().all(|program| installed(test, program)) {
        return;
    }
    let Some(data) = Data::new(test, &folder, 4 * BYTES) else { return };
    for (start, is_warm) in [("cold", false), ("warm", true)] {
        // The kernel may reclaim cached pages at any time, but for those that a process has mapped.
        let holder = is_warm.then(|| {
            fs::read(&data.path).unwrap();
            let mut command = Command::new("python3");
            let mut holder = Reader::start(command.args(["-c", MAPPED]).arg(&data.path));
            holder.read(data.bytes);
            holder
        });
        let output = explain("--json").arg("md5sum").arg(&data.path).output().unwrap();
        let explained = explained(&output);
        let file = file(&explained, &data.path);
        assert_eq!((&file["start"], &file["start_basis"]), (&start.into(), &"before".into()));
        assert_eq!((&file["pattern"], &file["mapped"]), (&"sequential".into(), &false.into()));
        assert_eq!(file["sequential_share"], 1.0, "{explained}");
        let device_bytes = explained["device_bytes"].as_u64().unwrap();
        if is_warm {
            assert_eq!(explained["prediction"]["reason"], "in-memory", "{explained}");
            assert_eq!(explained["prediction"]["gain_seconds"], 0.0, "{explained}");
        } else {
            assert!(device_bytes >= data.bytes, "{explained}");
        }
        assert!(holder.is_none_or(|holder| holder.end() == Some(0)));
    }
}

#[test]
fn a_mapped_file_is_reported_as_such() {
    let test = "a_mapped_file_is_reported_as_such";
    let folder = folder("explain-mapped");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    let program = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
os.close(fd)
done = 0
for line in sys.stdin:
    for at in range(done, min(done + int(line), len(m)), 4096): m[at]
    done += int(line)
    print(done, file=sys.stderr, flush=True)
";
    let mut command = explain("--json");
    command.args(["python3", "-c", program]).arg(&data.path);
    let (mut reader, output) = Reader::start_with_errors(&mut command);
    for _ in 0..8 {
        reader.read(1 << 20);
        assert!(holds(reader.child.id(), &data.path), "it is not observed to read");
    }
    assert_eq!(reader.end(), Some(0));
    let explained: Value = serde_json::from_str(&output.join().unwrap()).unwrap();
    let file = file(&explained, &data.path);
    assert_eq!(
        (&file["mapped"], &file["pattern"]),
        (&true.into(), &"sequential".into()),
        "{explained}"
    );
}

/// Each is touched when its mapping is new, and then the program sleeps: all that can be seen of it
/// is what is there when the mapping is found.
#[test]
fn files_that_are_mapped_one_after_another_are_all_seen() {
    let test = "files_that_are_mapped_one_after_another_are_all_seen";
    let program = "
import mmap, os, sys
held = {}
for line in sys.stdin:
    place, path = line.split()
    fd = os.open(path, os.O_RDONLY)
    if place in held: held[place].close()
    held[place] = m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    os.close(fd)
    for at in range(0, 1 << 20, 4096): m[at]
    print(path, file=sys.stderr, flush=True)
";
    if !installed(test, "python3") {
        return;
    }
    for (why, in_place) in [("beside each other", false), ("each in the place of another", true)] {
        let folders: Vec<_> = (0..16).map(|at| folder(&format!("explain-maps-{at}"))).collect();
        let files: Option<Vec<_>> =
            folders.iter().map(|folder| Data::new(test, folder, 4 << 20)).collect();
        let Some(files) = files else { return };
        let mut command = explain("--json");
        let (mut reader, output) =
            Reader::start_with_errors(command.args(["python3", "-c", program]));
        for (at, data) in files.iter().enumerate() {
            let place = if in_place { 0 } else { at };
            let path = data.path.to_str().unwrap();
            assert_eq!(reader.say(&format!("{place} {path}")), path);
            assert!(holds(reader.child.id(), &data.path), "{why}: {at} is not seen to be read");
        }
        assert_eq!(reader.end(), Some(0));
        let explained: Value = serde_json::from_str(&output.join().unwrap()).unwrap();
        assert!(
            files.iter().all(|data| file(&explained, &data.path)["mapped"] == true),
            "{explained}"
        );
    }
}

#[test]
fn static_programs_are_seen_too() {
    let test = "static_programs_are_seen_too";
    let folder = folder("explain-static");
    for (compiler, source) in [("cc", C), ("go", GO)] {
        if !installed(test, compiler) {
            continue;
        }
        let Some(program) = compile(test, &folder, compiler, source) else { continue };
        let Some(data) = Data::new(test, &folder, BYTES) else { return };
        let mut command = explain("");
        command.arg(&program).arg(&data.path).stderr(Stdio::piped());
        let mut reader = Reader::start(&mut command);
        reader.read(BYTES);
        assert!(holds(reader.child.id(), &data.path), "{compiler}: it is not observed to read");
        let mut errors = reader.child.stderr.take().unwrap();
        assert_eq!(reader.end(), Some(0), "{compiler}");
        let mut explained = String::new();
        errors.read_to_string(&mut explained).unwrap();
        assert!(explained.contains("sequential"), "{compiler}: {explained}");
    }
}

#[test]
fn the_shim_sees_what_moves_no_position() {
    let test = "the_shim_sees_what_moves_no_position";
    let folder = folder("explain-shim");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    // Backward through one half, in steps through the other.
    let program = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
back, step = 32 << 20, 32 << 20
for line in sys.stdin:
    for _ in range(16):
        back -= 65536
        os.pread(fd, 65536, back)
        os.pread(fd, 4096, step)
        step += 1 << 20
    print(0, file=sys.stderr, flush=True)
";
    let mut command = explain("--json --observe preload");
    command.args(["python3", "-c", program]).arg(&data.path).env("FORERUN_PRELOAD", shim());
    let (mut reader, output) = Reader::start_with_errors(&mut command);
    for _ in 0..2 {
        reader.say("");
        assert!(holds(reader.child.id(), &data.path), "it is not observed to read");
    }
    assert_eq!(reader.end(), Some(0));
    let explained: Value = serde_json::from_str(&output.join().unwrap()).unwrap();
    let file = file(&explained, &data.path);
    assert_eq!((&explained["observer"], &file["pattern"]), (&"preload".into(), &"backward".into()));
    let streams = file["streams"].as_array().unwrap();
    assert!(streams.iter().any(|stream| stream["pattern"] == "stride"), "{explained}");
    assert_eq!(file["bytes_read"], 32 * (65536 + 4096), "{explained}");
}

#[test]
fn what_one_call_copies_is_explained_as_read_in_order() {
    let test = "what_one_call_copies_is_explained_as_read_in_order";
    let folder = folder("explain-copy");
    let Some(data) = Data::new(test, &folder, BYTES) else { return };
    let copy = folder.join("copy");
    let mut command = explain("--json --observe preload");
    command.args(["cp", "--reflink=never"]).args([&data.path, &copy]);
    let output = command.env("FORERUN_PRELOAD", shim()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = file(&explained, &data.path);
    assert_eq!((&file["bytes_read"], &file["pattern"]), (&BYTES.into(), &"sequential".into()));
    assert_ne!(explained["prediction"]["reason"], "not-seen", "{explained}");
    assert!(fs::read(&copy).unwrap() == fs::read(&data.path).unwrap(), "{test}: other bytes");
}

#[test]
fn what_a_program_overwrites_is_explained_as_read_by_none() {
    // By a descriptor that could read, too, of a program that reads as much elsewhere.
    let script = format!(r#"exec 3<>"$0"; head -c {BYTES} /dev/zero >&3"#);
    overwritten("what_a_program_overwrites_is_explained_as_read_by_none", &script);
}

#[test]
fn what_is_overwritten_while_others_that_have_it_read_is_explained_as_read_by_none() {
    let test = "what_is_overwritten_while_others_that_have_it_read_is_explained_as_read_by_none";
    if abilities().cached != CachedPages::Counted {
        return skip(test, "cachestat");
    }
    let script = format!(
        r#"exec 3<>"$0"; head -c 1G /dev/zero | cat | md5sum > /dev/null &
           for _ in $(seq 64); do head -c $(({BYTES} / 64)) /dev/zero >&3; done; kill $!; wait"#
    );
    overwritten(test, &script);
}

/// Explains `script`, which overwrites the file of its argument with zeros.
fn overwritten(test: &str, script: &str) {
    let folder = folder(test);
    let Some(data) = Data::new(test, &folder, BYTES) else { return };
    for observers in ["proc", "preload"] {
        let mut command = explain(&format!("--json --observe {observers}"));
        command.args(["bash", "-c", script]).arg(&data.path).env("FORERUN_PRELOAD", shim());
        let explained = explained(&command.output().expect("it starts"));
        let files = explained["files"].as_array().expect("a list");
        let path = data.path.to_str().unwrap();
        assert!(files.iter().all(|file| file["path"] != path), "{observers}: {explained}");
        assert!(fs::read(&data.path).unwrap().iter().all(|&byte| byte == 0), "{test}: other bytes");
    }
}

#[test]
fn an_interrupt_ends_the_program_and_it_is_explained_all_the_same() {
    // A terminal sends it to both.
    let script = r"trap 'exit 9' INT; kill -INT $PPID; kill -INT $$";
    let output = explain("--json").args(["bash", "-c", script]).output().unwrap();
    assert_eq!((output.status.code(), &explained(&output)["status"]), (Some(9), &9.into()));
    let program = Command::new(env!("CARGO_BIN_EXE_forerun")).arg("explain").output().unwrap();
    assert_eq!(program.status.code(), Some(2));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = explain("--json").arg("true").stdout(writer).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.as_ref()), (Some(0), ""), "a closed pipe ends it");
}
