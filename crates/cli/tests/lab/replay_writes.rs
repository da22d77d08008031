//! `forerun replay` and the bytes of its target: nothing is written without `--write`, nothing that
//! is in use with it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use forerun_testkit::{Scratch, skip};
use serde_json::Value;

fn replay(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.arg("replay").args(words).stdin(Stdio::null()).output().expect("the command runs")
}

fn row(words: &[&str]) -> Value {
    let Output { status, stdout, stderr } = replay(&[words, &["--json"]].concat());
    assert!(status.success(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
    let printed: Value = serde_json::from_slice(&stdout).expect("one object");
    printed["runs"][0].clone()
}

/// Fails unless `words` are refused with `status`, for the reason `says`.
fn refused(words: &[&str], status: i32, says: &str) {
    let Output { status: found, stdout, stderr } = replay(words);
    let errors = String::from_utf8_lossy(&stderr);
    assert_eq!(found.code(), Some(status), "{words:?}: {errors}");
    assert!(errors.contains(says), "{words:?}: {errors}");
    assert!(stdout.is_empty(), "{words:?}");
}

/// A trace of 300 requests for pages of the first mebibyte, each third a write: of 100 pages.
fn trace(folder: &Scratch) -> String {
    let mut text = String::from("time,offset,size,op\n");
    for at in 0..300 {
        let op = if at % 3 == 2 { "W" } else { "R" };
        let page = at * 37 % 256;
        let line = format!("{}.{:03},{},4096,{op}\n", at / 1_000, at % 1_000, page * 4_096);
        text.push_str(&line);
    }
    let path = folder.join("trace.csv");
    fs::write(&path, text).expect("a file");
    text_of(&path)
}

fn text_of(path: &Path) -> String {
    path.to_str().expect("a text").to_owned()
}

/// What a test compares: the bytes, and when they changed last.
fn state(path: &Path) -> (Vec<u8>, (i64, i64)) {
    let bytes = fs::read(path).expect("it can be read");
    let found = fs::metadata(path).expect("it is there");
    (bytes, (found.mtime(), found.mtime_nsec()))
}

/// A loop device, perhaps mounted; gone at the end.
struct Loop {
    device: String,
    mounted: Option<PathBuf>,
}

impl Loop {
    /// The device of `file`; none where the machine has none, and `test` is skipped.
    fn of(file: &Path, test: &str) -> Option<Self> {
        let made = Command::new("losetup").args(["-f", "--show"]).arg(file).output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            skip(test, "no loop device can be made");
            return None;
        };
        let device = String::from_utf8(made.stdout).expect("a path").trim().to_owned();
        Some(Self { device, mounted: None })
    }

    /// Whether it is mounted on `folder` now.
    fn mount(&mut self, folder: &Path) -> bool {
        let mounted = Command::new("mount").arg(&self.device).arg(folder).output();
        let done = mounted.is_ok_and(|mounted| mounted.status.success());
        self.mounted = done.then(|| folder.to_owned());
        done
    }

    fn unmount(&mut self) {
        if let Some(folder) = self.mounted.take() {
            let _ = Command::new("umount").arg(folder).output();
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.unmount();
        let _ = Command::new("losetup").args(["-d", &self.device]).output();
    }
}

#[test]
fn a_made_file_is_written_and_holds_what_it_held() {
    let folder = Scratch::on_disk("replay-made");
    let trace = trace(&folder);
    let path = folder.join("disk.img");
    let disk = text_of(&path);
    let words = [trace.as_str(), "--on", &disk, "--depth", "4", "--cache", "2M"];
    let only_read = row(&[&words[..], &["--make"]].concat());
    assert_eq!((&only_read["requests"], &only_read["bytes_written"]), (&200.into(), &0.into()));
    let (bytes, modified) = state(&path);
    // Made again, it is the same file; in open loop too, all is written once.
    for words in [&words[..], &[&trace, "--on", &disk, "--cache", "2M", "--speed", "1000"]] {
        let written = row(&[words, &["--make", "--write"]].concat());
        assert_eq!(written["requests"], 300);
        assert_eq!(written["bytes_written"], 100 * 4_096, "each page is written once, at the end");
        assert!(written["flush_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    }
    let (after, modified_after) = state(&path);
    assert!(after == bytes, "the pattern over the pattern is the pattern");
    assert!(modified_after > modified, "it was written");
}

#[test]
fn a_file_with_other_bytes_is_written_only_where_they_may_be_lost() {
    let folder = Scratch::on_disk("replay-destroys");
    let trace = trace(&folder);
    let path = folder.join("disk.img");
    fs::write(&path, vec![7; 1 << 20]).expect("a file");
    let disk = text_of(&path);
    let before = state(&path);
    let words = [trace.as_str(), "--on", &disk, "--depth", "4"];
    row(&words);
    refused(&[&words[..], &["--write"]].concat(), 2, "--destroy-data");
    refused(&[&words[..], &["--write", "--make"]].concat(), 2, "name another file");
    refused(&[&words[..], &["--destroy-data"]].concat(), 2, "--write");
    assert!(state(&path) == before, "nothing of that writes");
    row(&[&words[..], &["--write", "--destroy-data"]].concat());
    let after = fs::read(&path).expect("it is there");
    let is_kept = |page: &[u8]| page.iter().all(|&byte| byte == 7);
    let kept = after.chunks(4_096).filter(|page| is_kept(page)).count();
    assert_eq!((after.len(), kept), (1 << 20, 156), "100 pages of 256 are written");
}

#[test]
fn what_is_in_use_is_not_written_by_any_flag() {
    let folder = Scratch::on_disk("replay-in-use");
    let trace = trace(&folder);
    let path = folder.join("disk.img");
    fs::write(&path, vec![7; 1 << 20]).expect("a file");
    let (disk, missing) = (text_of(&path), text_of(&folder.join("missing")));
    let before = state(&path);
    let all = ["--depth", "4", "--write", "--destroy-data"];
    let other = File::open(&path).expect("it is there");
    refused(&[&[trace.as_str(), "--on", &disk], &all[..]].concat(), 1, "in use");
    drop(other);
    refused(&[&[trace.as_str(), "--on", &trace], &all[..]].concat(), 2, "twice");
    refused(&[&[trace.as_str(), "--on", &text_of(&folder)], &all[..]].concat(), 1, "neither");
    refused(&[&[trace.as_str(), "--on", &missing], &all[..]].concat(), 1, "missing");
    refused(&[trace.as_str(), "--on", "/dev/null", "--write"], 1, "neither");
    assert!(state(&path) == before, "it stays as it was");
}

/// A file that is the pattern but for a mark where some file systems have theirs.
#[test]
fn a_file_that_is_the_pattern_in_part_is_no_file_of_the_pattern() {
    let folder = Scratch::on_disk("replay-marked");
    let trace = trace(&folder);
    let path = folder.join("disk.img");
    let disk = text_of(&path);
    row(&[&trace, "--on", &disk, "--depth", "4", "--make"]);
    let file = File::options().write(true).open(&path).expect("it is there");
    file.write_all_at(b"_BHRfS_M", (64 << 10) + 64).expect("it takes bytes");
    drop(file);
    refused(&[&trace, "--on", &disk, "--depth", "4", "--write"], 2, "--destroy-data");
}

#[test]
fn a_model_in_real_time_takes_writes() {
    let folder = Scratch::new("replay-model-writes");
    let trace = trace(&folder);
    let words = [trace.as_str(), "--device", "ssd", "--real-time", "--depth", "4"];
    let read = row(&words);
    assert_eq!((&read["requests"], &read["bytes_written"]), (&200.into(), &0.into()));
    let written = row(&[&words[..], &["--write", "--cache", "2M"]].concat());
    assert_eq!((&written["requests"], &written["bytes_written"]), (&300.into(), &409_600.into()));
}

#[test]
fn a_mounted_file_system_and_its_device_stay_as_they_are() {
    let test = "a_mounted_file_system_and_its_device_stay_as_they_are";
    let folder = Scratch::on_disk("replay-mounted");
    let (trace, image, tree) = (trace(&folder), folder.join("image"), folder.join("tree"));
    fs::write(&image, vec![0; 4 << 20]).expect("a file");
    fs::create_dir(&tree).expect("a folder");
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).output();
    if !made.is_ok_and(|made| made.status.success()) {
        return skip(test, "no mkfs.ext4");
    }
    let Some(mut device) = Loop::of(&image, test) else { return };
    if !device.mount(&tree) {
        return skip(test, "nothing can be mounted");
    }
    fs::write(tree.join("kept"), "kept").expect("the file system takes files");
    rustix::fs::sync();
    let (disk, file) = (device.device.clone(), text_of(&image));
    let before = fs::read(&image).expect("an image");
    let all = ["--depth", "4", "--write", "--destroy-data"];
    for target in [&disk, &file] {
        let read = row(&[&trace, "--on", target, "--depth", "4"]);
        assert_eq!(read["requests"], 200, "{target}");
        refused(&[&[trace.as_str(), "--on", target], &all[..]].concat(), 1, "in use");
    }
    assert!(fs::read(&image).expect("an image") == before, "no byte changes");
    assert_eq!(fs::read_to_string(tree.join("kept")).expect("a file"), "kept");
    device.unmount();
    // The device alone is not in use; its file is, as long as it has the device.
    refused(&[&trace, "--on", &disk, "--depth", "4", "--write"], 2, "--destroy-data");
    refused(&[&[trace.as_str(), "--on", &file], &all[..]].concat(), 1, &disk);
    let second = Loop::of(&image, test).expect("a second one");
    refused(&[&[trace.as_str(), "--on", &disk], &all[..]].concat(), 1, &second.device);
    drop(second);
    let before = fs::read(&image).expect("an image");
    row(&[&[trace.as_str(), "--on", &disk], &all[..]].concat());
    rustix::fs::sync();
    assert!(fs::read(&image).expect("an image") != before, "it may be written now");
}
