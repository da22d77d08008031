//! Recorded programs in virtual time: what core's walks bring on traces of real programs.
//!
//! # Invariants
//! - The constants were set by the traces of `tuning` alone; those of `aside` are only checked.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use forerun_core::device;
use forerun_core::units::Nanos;
use forerun_sim::walks::{
    AccessTrace, Ahead, Call, CallKind, Tree, WalkRun, WalkSettings, WalkSetup, names,
    precision_and_recall, run, strace_calls,
};

fn trace(name: &str) -> AccessTrace {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/walks").join(name);
    let file = File::open(path.with_extension("jsonl.zst")).expect("the trace is there");
    AccessTrace::read(file).expect("the trace is whole")
}

fn setup(poll: Option<Nanos>) -> WalkSetup {
    WalkSetup {
        device: device::make("cloud", 1).expect("a model"),
        settings: WalkSettings::default(),
        workers: 64,
        poll,
        tracing: Nanos::from_micros(30),
    }
}

/// The run alone, with walks, and with all known.
fn runs(name: &str, poll: Option<Nanos>) -> [WalkRun; 3] {
    let (trace, setup) = (trace(name), setup(poll));
    [Ahead::Nothing, Ahead::Walks, Ahead::Known].map(|ahead| run(&trace, &setup, ahead))
}

#[test]
fn programs_that_go_over_a_tree_come_near_the_bound() {
    #[rustfmt::skip]
    let rows = [ // trace, at most so many hundredths of the time that all known takes, recall
        ("tuning/cp",                120, 0.95),
        ("tuning/du",                120, 0.95),
        ("tuning/find",              120, 0.95),
        ("tuning/grep",              120, 0.95),
        ("tuning/head",              120, 0.95),
        ("tuning/oswalk",            120, 0.95),
        ("tuning/sha256sum-natural", 120, 0.95),
        ("aside/tar",                120, 0.95),
        ("aside/diff",               120, 0.95),
        ("aside/sha256sum",          120, 0.95),
        ("aside/find-size",          120, 0.95),
    ];
    for (name, hundredths, least) in rows {
        let [alone, walks, known] = runs(name, None);
        assert!(walks.elapsed.0 * 100 <= known.elapsed.0 * hundredths, "{name}: {walks:?}");
        assert!(walks.elapsed.0 * 3 <= alone.elapsed.0 * 2, "{name} gains a third: {alone:?}");
        let (precision, recall) = precision_and_recall(&walks);
        assert!(precision >= 0.95 && recall >= least, "{name}: {precision} {recall}");
    }
}

#[test]
fn programs_without_an_order_are_left_alone() {
    // Packages are imported in any order, and of their modules a part..
    for (name, percent) in [("aside/random", 5), ("aside/import", 60)] {
        for poll in [None, Some(Nanos::from_millis(1))] {
            let [alone, walks, _] = runs(name, poll);
            assert!(walks.elapsed.0 * 100 <= alone.elapsed.0 * 102, "{name}: {walks:?}");
            assert!(walks.unused_bytes * 100 <= alone.data_bytes * percent, "{name}: {walks:?}");
        }
    }
}

#[test]
fn a_poll_each_millisecond_sees_enough() {
    for name in ["tuning/cp", "tuning/grep", "aside/tar", "tuning/oswalk", "aside/find-size"] {
        let [alone, walks, _] = runs(name, Some(Nanos::from_millis(1)));
        assert!(walks.elapsed.0 * 3 <= alone.elapsed.0 * 2, "{name}: {alone:?} {walks:?}");
    }
}

#[test]
fn what_is_only_asked_for_is_not_read() {
    for name in ["tuning/du", "tuning/find", "aside/find-size"] {
        let [alone, walks, _] = runs(name, None);
        assert_eq!((alone.data_bytes, walks.data_bytes), (0, 0), "{name}");
    }
}

#[test]
fn the_same_setup_gives_the_same_run() {
    let (trace, setup) = (trace("tuning/git-grep"), setup(Some(Nanos::from_millis(1))));
    assert_eq!(run(&trace, &setup, Ahead::Walks), run(&trace, &setup, Ahead::Walks));
}

#[test]
fn a_trace_is_written_as_it_was_read() {
    let trace = trace("tuning/find");
    let mut bytes = Vec::new();
    trace.write(&mut bytes).expect("in memory");
    let again = AccessTrace::read(std::io::Cursor::new(bytes)).expect("what was written");
    assert!(again.calls == trace.calls, "the calls");
    let nodes = |trace: &AccessTrace| {
        let tree = &trace.tree;
        let shown = |node: usize| {
            let it = tree.node(node);
            let names: Vec<String> = it.entries.iter().map(|&entry| tree.path(entry)).collect();
            (tree.path(node), it.inode, it.bytes, names)
        };
        (0..tree.count()).map(shown).collect::<BTreeSet<_>>()
    };
    assert!(nodes(&again) == nodes(&trace), "the tree");
    assert_eq!(again.program, trace.program);
}

#[test]
fn broken_traces_are_errors_that_name_the_line() {
    const HEAD: &str = r#"{"forerun_accesses":2,"program":""}"#;
    const LATE: &str = r#"{"t":5,"thread":1,"call":"stat","path":"a","took":1}"#;
    const EARLY: &str = r#"{"t":4,"thread":1,"call":"stat","path":"a","took":1}"#;
    const TWICE: &str = r#"{"directory":"","entries":[["a","f",1,2],["a","f",1,2]]}"#;
    #[rustfmt::skip]
    let rows: [(&[&str], &str); 14] = [ // lines, what the error says
        (&[],                                               "line 1: no head"),
        (&[r#"{"forerun_accesses":3,"program":""}"#],       "version 3"),
        (&[r#"{"forerun_accesses":0,"program":""}"#],       "version 0"),
        (&[HEAD, "\u{1f}\u{8b}"],                           "line 2: no directory"),
        (&[HEAD, r#"{"directory":"","entries":[["..","f",1,2]]}"#],   "one more entry"),
        (&[HEAD, r#"{"directory":"","entries":[["a/b","f",1,2]]}"#],  "one more entry"),
        (&[HEAD, r#"{"directory":"","entries":[["a\\n","f",1,2]]}"#], "no name"),
        (&[HEAD, r#"{"directory":"","entries":[["a","f",1,9e18]]}"#], "line 2"),
        (&[HEAD, r#"{"directory":"","entries":[["a","f",1,18446744073709551615]]}"#], "bytes of"),
        (&[HEAD, r#"{"t":1,"thread":1,"call":"stat","path":"a","took":18446744073709551615}"#],
         "longer than a month"),
        (&[HEAD, "{}"],                                     "line 2: no directory"),
        (&[HEAD, r#"{"directory":"x","entries":[]}"#],      "line 2: no directory `x`"),
        (&[HEAD, TWICE],                                    "one more entry"),
        (&[HEAD, LATE, EARLY],                              "line 3: a call before"),
    ];
    for (lines, expected) in rows {
        let text = lines.join("\n").into_bytes();
        let error = AccessTrace::read(std::io::Cursor::new(text)).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn names_of_any_bytes_are_kept() {
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("walks-names");
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir_all(&scratch).expect("there is room");
    for name in [&b"plain"[..], b"back\\slash", b"no \xff utf-8", "\u{e4}".as_bytes()] {
        std::fs::write(scratch.join(OsStr::from_bytes(name)), "x").expect("there is room");
    }
    let tree = Tree::read(&scratch).expect("it is there");
    let path = names::encoded(b"no \xff utf-8");
    let took = 5;
    let call = Call {
        begin: 0,
        thread: 1,
        call: CallKind::Stat,
        path,
        offset: 0,
        bytes: 0,
        error: None,
        took,
    };
    let trace = AccessTrace { program: "\\".into(), tree, calls: vec![call] };
    let mut bytes = Vec::new();
    trace.write(&mut bytes).expect("in memory");
    let again = AccessTrace::read(std::io::Cursor::new(bytes.clone())).expect("what was written");
    let mut twice = Vec::new();
    again.write(&mut twice).expect("in memory");
    assert!(twice == bytes, "it is the same trace");
    assert_eq!(again.calls, trace.calls);
    assert!(again.tree.find(&again.calls[0].path).is_some(), "the call is on an entry");
    let ran = run(&again, &setup(None), Ahead::Walks);
    assert_eq!(ran.entries, 1);
    // In version 1 a backslash was one.
    let old = "{\"forerun_accesses\":1,\"program\":\"\"}\n\
               {\"directory\":\"\",\"entries\":[[\"a\\\\n\",\"f\",1,2]]}\n";
    let old = AccessTrace::read(std::io::Cursor::new(old)).expect("it is read as well");
    assert!(old.tree.find(&names::encoded(b"a\\n")).is_some());
}

#[test]
fn a_hostile_trace_is_run_within_bounds() {
    let huge = u64::MAX;
    let read = |thread: u32, offset: u64| {
        let what = format!(r#""call":"read","path":"a","offset":{offset},"bytes":{huge}"#);
        format!(r#"{{"t":0,"thread":{thread},{what},"took":1}}"#)
    };
    let entries = format!(r#"["a","f",1,1000000000000000000],["b","d",{huge},9000000000000000]"#);
    let lines = [
        r#"{"forerun_accesses":2,"program":""}"#.to_owned(),
        format!(r#"{{"directory":"","entries":[{entries}]}}"#),
        read(1, 0),
        read(u32::MAX, huge),
        r#"{"t":0,"thread":2,"call":"list","path":"a","took":1}"#.to_owned(),
        r#"{"t":9,"thread":2,"call":"list","path":"b/../../x","took":2600000000000000}"#.to_owned(),
        r#"{"t":2600000000000000,"thread":1,"call":"exec","path":"b","took":0}"#.to_owned(),
    ];
    let trace = AccessTrace::read(std::io::Cursor::new(lines.join("\n"))).expect("it is whole");
    for device in ["cloud", "hdd", "object"] {
        let setup = WalkSetup { device: device::make(device, 1).expect("a model"), ..setup(None) };
        for ahead in [Ahead::Nothing, Ahead::Walks, Ahead::Known] {
            let ran = run(&trace, &setup, ahead);
            assert!(ran.data_bytes <= 2 << 30, "{device}: {ran:?}");
        }
    }
}

#[test]
fn the_calls_of_strace_are_read() {
    const TOP: &str = "/t";
    #[rustfmt::skip]
    let rows = [ // a line, its call
        (r#"newfstatat(3</t>, "a", {st_mode=S_IFREG, ...}, AT_SYMLINK_NOFOLLOW) = 0 <0.000011>"#,
         "Stat a"),
        (r#"newfstatat(5</t/a/x>, "", {st_mode=S_IFREG, ...}, AT_EMPTY_PATH) = 0 <0.000010>"#, ""),
        (r#"openat(AT_FDCWD</t/d>, "../b", O_RDONLY|O_CLOEXEC) = 4</t/b> <0.000012>"#, "Open b"),
        (r#"openat(AT_FDCWD</t/d>, "e", O_RDONLY) = -1 ENOENT (No such file) <0.000009>"#,
         "Open d/e ENOENT"),
        ("getdents64(3</t>, 0x5610bbb9beb0 /* 3 entries */, 32768) = 72 <0.000026>", "List "),
        (r#"read(4</t/b>, ""..., 4096) = 4096 <0.000010>"#, "Read b 0+4096"),
        (r#"read(4</t/b>, ""..., 4096) = 100 <0.000010>"#, "Read b 4096+100"),
        (r#"pread64(4</t/b>, ""..., 512, 8192) = 512"#, "Read b 8192+512"),
        ("copy_file_range(4</t/b>, NULL, 5</o/b>, NULL, 922337203, 0) = 700 <0.000110>",
         "Read b 4196+700"),
        ("mmap(NULL, 5000, PROT_READ, MAP_PRIVATE, 4</t/b>, 0x1000) = 0x7f52e0a5d000 <0.000015>",
         "Map b 4096+5000"),
        ("mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f <0.000015>", ""),
        (r#"execve("/t/run", ["run", "a, b"], 0x7ffd /* 3 vars */) = 0 <0.000400>"#, "Exec run"),
        (r#"readlink("/t/\303\244 \"x\"", "y", 4096) = 1"#, "Stat \u{e4} \"x\""),
        (r#"openat(AT_FDCWD</o>, "/tt/x", O_RDONLY) = 3</tt/x> <0.000012>"#, ""),
        ("close(4</t/b>) = 0 <0.000009>", ""),
        ("+++ exited with 0 +++", ""),
        ("--- SIGCHLD {si_signo=SIGCHLD} ---", ""),
    ];
    let line = |(at, (line, _)): (u32, &(&str, &str))| format!("71  1795417476.{at:06} {line}");
    let text: Vec<String> = (0..).zip(&rows).map(line).collect();
    let shown = |call: &Call| {
        let range = match call.bytes {
            0 => String::new(),
            bytes => format!(" {}+{bytes}", call.offset),
        };
        let error = call.error.as_ref().map_or(String::new(), |error| format!(" {error}"));
        format!("{:?} {}{range}{error}", call.call, call.path)
    };
    let calls: Vec<String> = strace_calls(&text.join("\n"), TOP, "/").iter().map(shown).collect();
    let expected: Vec<&str> =
        rows.iter().map(|&(_, call)| call).filter(|call| !call.is_empty()).collect();
    assert_eq!(calls, expected);
}

#[test]
fn a_call_that_strace_interrupts_is_one_call() {
    let text = "72 10.000001 openat(3</t>, \"b\", O_RDONLY <unfinished ...>\n\
                71 10.000002 read(5</t/a>,  <unfinished ...>\n\
                72 10.000009 <... openat resumed>) = 6</t/b> <0.000008>\n\
                71 10.000010 <... read resumed>\"\"..., 9) = 9 <0.000008>\n";
    let calls = strace_calls(text, "/t", "/");
    let shown: Vec<_> =
        calls.iter().map(|call| (call.thread, call.path.as_str(), call.begin, call.took)).collect();
    assert_eq!(shown, [(72, "b", 0, 8_000), (71, "a", 1_000, 8_000)]);
}

#[test]
fn strace_without_paths_of_descriptors_is_followed() {
    let text = r#"
71 10.01 openat(AT_FDCWD, "a", O_RDONLY|O_CLOEXEC) = 3
71 10.02 fstat(3, {st_mode=S_IFDIR|0755, ...}) = 0
71 10.03 getdents64(3, 0x55 /* 4 entries */, 32768) = 96
71 10.04 newfstatat(3, "x", {st_mode=S_IFREG, ...}, AT_SYMLINK_NOFOLLOW) = 0
71 10.05 openat(3, "x", O_RDONLY) = 4
71 10.06 read(4, ""..., 10) = 10
71 10.07 lseek(4, 5, SEEK_SET) = 5
71 10.08 dup2(4, 9) = 9
71 10.09 read(9, ""..., 10) = 7
71 10.10 close(4) = 0
71 10.11 read(4, ""..., 10) = -1 EBADF (Bad file descriptor)
71 10.12 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>
72 10.13 chdir("a") = 0
72 10.14 stat("y", {st_mode=S_IFREG, ...}) = 0
71 10.15 <... clone resumed>, child_tidptr=0x7f) = 72
71 10.16 stat("z", 0x7ffd) = -1 ENOENT (No such file or directory)
71 10.17 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, exit_signal=0}, 88) = 73
73 10.18 fchdir(3) = 0
71 10.19 open("x", O_RDONLY) = 5
72 10.20 read(9, ""..., 10) = 2
72 10.21 +++ exited with 0 +++
"#;
    let shown = |call: &Call| {
        (call.thread, format!("{:?} {} {}+{}", call.call, call.path, call.offset, call.bytes))
    };
    let calls: Vec<_> = strace_calls(text, "/t", "/t").iter().map(shown).collect();
    let expected = [
        (71, "Open a 0+0"),
        (71, "List a 0+0"),
        (71, "Stat a/x 0+0"),
        (71, "Open a/x 0+0"),
        (71, "Read a/x 0+10"),
        (71, "Read a/x 5+7"),
        (72, "Stat a/y 0+0"),
        (71, "Stat z 0+0"),
        (71, "Open a/x 0+0"),
        // A copy of the descriptor has its own position here.
        (72, "Read a/x 12+2"),
    ];
    assert_eq!(calls, expected.map(|(thread, text)| (thread, text.to_owned())));
}

#[test]
fn heads_of_lines_are_read_in_each_form_that_strace_has() {
    let text = "10.000001 stat(\"/t/a\", 0x7f) = 0\n\
                [pid    72] 10.000002 stat(\"/t/b\", 0x7f) = 0 <0.000003>\n\
                73  10.000003 stat(\"/t/c\", 0x7f) = ? <unavailable>\n\
                strace: Process 74 attached\n\
                [pid 72 10.000004 stat(\"/t/d\", 0x7f) = 0\n";
    let calls = strace_calls(text, "/t", "/");
    let shown: Vec<_> =
        calls.iter().map(|call| (call.thread, call.path.as_str(), call.took)).collect();
    assert_eq!(shown, [(0, "a", 0), (72, "b", 3_000), (73, "c", 0)]);
}

#[test]
fn any_text_is_read_as_straces_in_bounded_time_and_memory() {
    // Each part of a line, broken, repeated and beyond its bounds.
    let long = "x/".repeat(20_000);
    let mut text = String::new();
    for number in 0..3_000_u32 {
        let lines = [
            format!("{number} 1.1 clone(flags=CLONE_VM <unfinished ...>"),
            format!(
                "{number} 1.2 openat(3, \"{}\", O_RDONLY) = {number}",
                &long[..number as usize]
            ),
            format!("{number} 1.3 chdir(\"{}\") = 0", "deeper/".repeat(20)),
            format!("{} 1.4 fork() = {}", number / 2, number + 1),
            format!("{number} 1.5 read({number}, ) = 18446744073709551615"),
            format!("{number} 1.5 read({number}, ) = 18446744073709551615"),
            format!("{number} 1.6 <... clone resumed>"),
            format!("{number} 1.7 dup2({number}, 4294967295) = 4294967296"),
            format!("{number} 1.8 openat(AT_FDCWD<, \"\\777\\"),
            format!("[pid {number}] 99999999999999999999.9 read("),
            format!("{number} 1.9 mmap({{[<, , , , <\", ) = 5</t"),
            format!("{number} 2.0 +++ "),
        ];
        for line in lines {
            text.push_str(&line);
            text.push('\n');
        }
    }
    for (top, directory) in [("/t", "/t"), ("/", ""), ("", "t\\xff")] {
        let calls = strace_calls(&text, top, directory);
        assert!(calls.windows(2).all(|two| two[0].begin <= two[1].begin), "in the order of time");
        assert!(calls.iter().all(|call| call.path.len() < 100_000), "paths have a bound");
    }
    let long = format!("7 1.1 openat(AT_FDCWD, \"/t/{long}\", O_RDONLY) = 3\n7 1.2 read(3, ) = 1");
    assert_eq!(
        strace_calls(&long, "/t", "/").len(),
        1,
        "the descriptor of a long path is not kept"
    );
}
