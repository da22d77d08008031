//! Programs that read a tree as it is.

use std::fs;
use std::process::Command;

use forerun_testkit::within;
use serde_json::Value;

use crate::device::Device;
use crate::tree;

/// Shell commands in the tree; `$O` is an empty folder. What they are a test of comes first.
#[rustfmt::skip]
const READS: &[(&str, &str)] = &[ // the program that has to be there, the command
    ("tar",     "tar cf - . | cksum"),
    ("tar",     "tar cf - --sort=name d* | cksum"),
    ("tar",     "tar chf - d* in | cksum"),
    ("tar",     "tar cf $O/a.tar . && tar df $O/a.tar && tar xf $O/a.tar -C $O &&
                 cksum $O/d*/*"),
    ("cat",     "cat d*/* | cksum"),
    ("cat",     "cat d*/* nothing in/* up/d00/f001.c loop | cksum"),
    ("grep",    "grep -r word7 ."),
    ("grep",    "grep -rc word1 d0*"),
    ("grep",    "grep -R -l word1 d00 in loop"),
    ("grep",    "grep -rL 'line 100' . | sort"),
    ("find",    "find ."),
    ("find",    "find . -type f -size +6 -printf '%p %s %m %n %y\\n'"),
    ("find",    "find -L . -maxdepth 3 -name '*.c' | sort"),
    ("find",    "find . -type f -print0 | xargs -0 cksum"),
    ("find",    "find . -type f -exec head -n 1 '{}' ';'"),
    ("find",    "find . -type f -print0 | xargs -0 -n 9 -P 4 cksum | sort"),
    ("find",    "find . -empty; find . -links +2; find . -type l -printf '%l\\n'"),
    ("du",      "du -a --apparent-size ."),
    ("du",      "du -s d* && du -sL in"),
    ("ls",      "ls -lR --time-style=+%s"),
    ("ls",      "ls -laU d00; ls -i; ls -lL 2>&1"),
    ("cp",      "cp -r d* $O && cd $O && cksum d*/*"),
    ("cp",      "cp -a . $O && diff -r --no-dereference . $O && cksum $O/d*/*"),
    ("rsync",   "rsync -a ./ $O/ && rsync -anc --itemize-changes ./ $O/ && cksum $O/d*/*"),
    ("diff",    "diff -r d00 d01"),
    ("sort",    "sort d*/*.c | cksum; sort -u d00/*"),
    ("wc",      "wc d*/*"),
    ("sha256sum", "sha256sum */* | tee $O/sums; sha256sum -c $O/sums"),
    ("md5sum",  "md5sum d0[1-4]/*"),
    ("head",    "head -c 100 d*/* | cksum; tail -n 1 d*/*"),
    ("stat",    "stat -c '%n %s %i %h %a' d*/*"),
    ("file",    "file d00/* d01/*"),
    ("awk",     "awk '{ s += $1 } END { print s }' d*/*; awk 'FNR == 3' d*/*"),
    ("sed",     "sed -n 2p d*/* ; sed -s -n '$p' d*/*"),
    ("gzip",    "gzip -nc d*/* | cksum"),
    ("cmp",     "for f in d00/*; do cmp $f d01/${f#*/}; done"),
    ("od",      "od -An -tx1 d02/* | cksum"),
    ("dd",      "for f in d03/*; do dd if=$f bs=512 skip=1 2> /dev/null; done | cksum"),
    ("bash",    "bash -c 'shopt -s globstar nullglob
                 for f in **/*.c; do read -r a < $f; echo $a; done'"),
    ("git",     "export GIT_DIR=$O/g; git init -q && git --work-tree=. add -A d* && \
                 git --work-tree=. status -s && git --work-tree=. ls-files -s | cksum"),
    ("git",     "git grep --no-index -c word3 -- d*"),
    ("python3", "python3 -ISc '
import os, zlib
for at, dirs, files in os.walk(b\".\"):
    for path in (os.path.join(at, name) for name in files):
        if os.path.isfile(path): print(path, zlib.crc32(open(path, \"rb\").read()))'"),
    ("python3", "python3 -ISc '
import os
for at in sorted(os.listdir(b\".\")):
    if os.path.isdir(at): print([(it.name, it.stat().st_size) for it in os.scandir(at)])'"),
    ("python3", "python3 -c '
import concurrent.futures, glob
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    of = lambda name: sum(open(name, \"rb\").read())
    print(sum(pool.map(of, glob.glob(\"d*/*\"))))'"),
    ("python3", "python3 -ISc '
import glob, os
for name in sorted(glob.glob(\"d*/*\"), reverse=True):
    fd = os.open(name, os.O_RDONLY)
    print(os.pread(fd, 64, 64))
    os.close(fd)'"),
    ("perl",    "perl -MFile::Find -e '
                 find(sub { print \"$File::Find::name \", -s, \"\\n\" }, \".\")'"),
    ("perl",    "perl -e 'for (glob \"d*/*\") { open F, $_; local $/; $s += unpack \"%32C*\", <F> }
                 print $s'"),
    ("node",    "node -e 'const fs = require(\"fs\")
for (const d of fs.readdirSync(\".\").filter(name => /^d/.test(name)))
    for (const f of fs.readdirSync(d)) console.log(f, fs.readFileSync(d + \"/\" + f).length)'"),
    ("chroot",  "top=$PWD; unshare -m sh -c 'mount --rbind / empty && exec chroot empty sh -c \"
                 cd $0 && cat d*/* | cksum; grep -rc word2 d0*; du -s d*\"' \"$top\""),
    ("unshare", "unshare -m sh -c 'mount --bind . empty && cat empty/d*/* | cksum
                 ls -lR empty/d0*'"),
    ("unshare", "unshare -Urm sh -c 'mount --bind d02 empty && cat empty/* d*/* | cksum'"),
    ("sh",      "cd d00 && for f in *; do read -r a < $f && echo $a; done;
                 cd ../up/d01 && pwd -P; ls | cksum"),
    ("sh",      "cd p0 && while cd p* 2> /dev/null; do :; done; cat end"),
    ("sh",      "cat d00/* > $O/0 & cat d01/* > $O/1 & cat d02/*; wait; cat $O/*"),
    ("sh",      "cat d00/f00[0-9].c; exec cat d05/*"),
];

#[test]
fn programs_over_a_cold_tree_give_what_they_give_alone() {
    let test = "programs_over_a_cold_tree_give_what_they_give_alone";
    let Some(device) = Device::new(test) else { return };
    within(move || {
        let (mut differences, mut requested) = (Vec::new(), 0);
        for (nth, (program, command)) in READS.iter().enumerate() {
            if is_there(program) {
                let name = format!("{program} {nth}");
                requested += compare(&device, &name, false, command, &mut differences);
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        assert!(requested > 0, "nothing was fetched ahead: the table is a test of nothing");
    });
}

#[test]
fn with_walks_off_nothing_is_fetched_ahead_of_a_walk() {
    let test = "with_walks_off_nothing_is_fetched_ahead_of_a_walk";
    let Some(device) = Device::new(test) else { return };
    within(move || {
        let requested = |walks: &str| {
            let flags = ["--walks", walks, "--learn", "off"];
            let (ours, stats) = ahead(&device, false, &flags, "cat d*/* | cksum");
            assert_eq!(ours.0, Some(0), "{ours:?}");
            count(&stats, "entries_requested")
        };
        assert!(requested("on") > 0, "there is nothing to switch off");
        assert_eq!(requested("off"), 0);
    });
}

#[test]
fn with_the_shim_programs_give_the_same_and_no_use_counts_twice() {
    let test = "with_the_shim_programs_give_the_same_and_no_use_counts_twice";
    let Some(device) = Device::new(test) else { return };
    within(move || {
        let mut requested = 0;
        for (program, command) in [("tar", "tar cf - . | cksum"), ("grep", "grep -r word7 .")] {
            if !is_there(program) {
                continue;
            }
            let alone = device.run(false, &["sh", "-c", command]);
            for observer in ["proc", "preload"] {
                let flags = ["--observe", observer];
                let (ours, stats) = ahead(&device, false, &flags, command);
                println!("{program} {observer}: {stats}");
                assert_eq!(ours, alone, "{command}");
                let of = |key| count(&stats, key);
                requested += of("entries_requested");
                // The inode of an entry, and then all of it; of the large file each byte once.
                assert!(of("entries_requested") <= 2 * tree::ENTRIES, "{observer}: {stats}");
                assert!(of("entries_used") <= tree::ENTRIES, "{observer}: {stats}");
                assert!(of("bytes_asked") <= tree::LARGE_BYTES_MAX, "{observer}: {stats}");
            }
        }
        assert!(requested > 0, "nothing was fetched ahead: the table is a test of nothing");
    });
}

/// Runs the shell's `command` alone and under `run`; what differs is added to `differences`. How
/// many entries were fetched ahead.
pub(crate) fn compare(
    device: &Device,
    name: &str,
    changes: bool,
    command: &str,
    differences: &mut Vec<String>,
) -> u64 {
    let alone = device.run(changes, &["sh", "-c", command]);
    let (ours, stats) = ahead(device, changes, &[], command);
    let requested = count(&stats, "entries_requested");
    let table = if ours == alone { "equal" } else { "DIFFERS" };
    println!("{name:20} {table}, {requested} entries ahead; status {:?}", alone.0);
    if ours != alone {
        differences.push(format!("{name}: {command}\nalone {alone:?}\nrun   {ours:?}"));
    }
    requested
}

/// Whether `program` can be started; where it cannot, the row is left out by its name.
fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("{program:20} left out: it is not installed");
    }
    found
}

fn count(stats: &Value, key: &str) -> u64 {
    stats[key].as_u64().unwrap_or(0)
}

/// What the shell's `command` gives under `run` with `flags`, and its statistics.
fn ahead(
    device: &Device,
    changes: bool,
    flags: &[&str],
    command: &str,
) -> ((Option<i32>, String, String), Value) {
    let record = device.path("stats.json");
    let json = record.display().to_string();
    let shim = std::env::current_exe().expect("a test has a path");
    let shim = shim.with_file_name("libforerun_preload.so");
    let shim = format!("FORERUN_PRELOAD={}", shim.display());
    let run = ["env", &shim, env!("CARGO_BIN_EXE_forerun"), "run", "--stats-json", &json];
    let ours = device.run(changes, &[&run, flags, &["--", "sh", "-c", command]].concat());
    let stats: Value = fs::read(&record)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let _ = fs::remove_file(&record);
    (ours, stats)
}
