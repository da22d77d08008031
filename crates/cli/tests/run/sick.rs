//! Servers of files that hang, fail or lie: a program under `run` meets no more of that than alone.
//!
//! # Invariants
//! - What ends does so while the server still hangs: nothing here waits for a time.

use std::fs::File;
use std::process::{Command, Stdio};

use forerun_steer::kernel::{self, Residency};
use forerun_testkit::{installed, skip, until, within};
use fuser::Errno;
use serde_json::Value;

use crate::rig::{Reader, explain, folder, holds, observing, run, shim, stats, waits};
use crate::server::{ILL_FROM, Illness, Operation, Server};

/// Does what each line says.
const PROGRAM: &str = "
import mmap, os, sys, zlib
for line in sys.stdin:
    word, *rest = line.split()
    answer = 'done'
    if word == 'open': fd = os.open(rest[0], os.O_RDONLY)
    if word == 'read':
        data = os.read(fd, int(rest[0]))
        answer = '%d %x' % (len(data), zlib.crc32(data))
    if word == 'map': mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    if word == 'touch': answer = sum(mapped[at] for at in range(0, int(rest[0]), 4096))
    if word == 'random': os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    if word == 'copy':
        at = None if rest[0] == 'position' else int(rest[0])
        copy = os.open(rest[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        answer = os.sendfile(copy, fd, at, 1 << 30)
        answer = '%d %x' % (answer, zlib.crc32(os.pread(copy, 1 << 30, 0)))
    if word == 'close': os.close(fd)
    if word == 'spin':
        for at in range(100000): pass
    print(answer, flush=True)
";

fn start(command: &mut Command) -> Reader {
    Reader::start(command.args(["python3", "-c", PROGRAM]))
}

/// A program that has the file `name` of `server` open.
fn opens(command: &mut Command, server: &Server, name: &str) -> Reader {
    let mut reader = start(command);
    assert_eq!(reader.say(&format!("open {}", server.path(name).display())), "done");
    reader
}

/// Has the program run until a request hangs, or it was polled often.
fn spins(reader: &mut Reader, server: &Server) {
    let observing = observing(reader.child.id());
    let enough = waits(observing) + POLLS;
    while server.held() == 0 && waits(observing) < enough {
        assert_eq!(reader.say("spin"), "done");
    }
}

#[test]
fn a_run_ends_while_a_server_hangs_at_the_attributes_of_a_file_that_the_program_holds() {
    let test = "a_run_ends_while_a_server_hangs_at_the_attributes_of_a_file";
    let Some(server) = Server::mount(test).filter(|_| installed(test, "python3")) else { return };
    within(move || {
        for name in ["small", "large"] {
            let mut reader = opens(&mut run(""), &server, name);
            server.falls_ill(Operation::Attributes, Illness::Hangs);
            spins(&mut reader, &server);
            assert_eq!(reader.end(), Some(0), "{name}");
            server.heals();
        }
    });
}

#[test]
fn the_shim_asks_no_server_for_the_attributes_of_a_file_that_a_program_opens() {
    let test = "the_shim_asks_no_server_for_the_attributes_of_a_file_that_a_program_opens";
    let Some(server) = Server::mount(test).filter(|_| installed(test, "python3")) else { return };
    within(move || {
        let mut command = run("--observe preload");
        let mut reader = start(command.env("FORERUN_PRELOAD", shim()));
        assert_eq!(reader.say("spin"), "done");
        server.falls_ill(Operation::Attributes, Illness::Hangs);
        let opens = format!("open {}", server.path("large").display());
        assert_eq!(reader.say(&opens), "done");
        server.heals();
        assert_eq!(reader.end(), Some(0));
    });
}

#[test]
fn a_run_ends_while_its_own_open_hangs_and_tells_so() {
    let test = "a_run_ends_while_its_own_open_hangs_and_tells_so";
    let Some(server) = Server::mount(test).filter(|_| installed(test, "python3")) else { return };
    let folder = folder("hangs");
    let (record, page) = (folder.join("stats.json"), folder.join("page.html"));
    let json = format!("--stats-json {}", record.display());
    let html = format!("-o {}", page.display());
    within(move || {
        for mut command in [run(""), run(&json), explain(&html)] {
            let mut reader = opens(&mut command, &server, "large");
            server.falls_ill(Operation::Open, Illness::Hangs);
            reader.say("read 65536");
            until(|| server.held() > 0);
            assert_eq!(reader.end(), Some(0));
            assert!(server.held() > 0, "it still hangs");
            server.heals();
        }
        assert_eq!(stats(&record)["calls_given_up"], 1);
        assert!(page.is_file(), "the page is written");
    });
}

#[test]
fn a_run_ends_while_prefetched_reads_hang() {
    let test = "a_run_ends_while_prefetched_reads_hang";
    let Some(server) = Server::mount(test).filter(|_| installed(test, "python3")) else { return };
    within(move || {
        let mut reader = opens(&mut run(""), &server, "large");
        server.falls_ill(Operation::Read, Illness::Hangs);
        // Without the kernel's own readahead what is read beyond the program is prefetched for it.
        assert_eq!(reader.say("random"), "done");
        let observing = observing(reader.child.id());
        for _ in 1..ILL_FROM >> 16 {
            assert!(reader.say("read 65536").starts_with("65536 "));
            let polled = waits(observing) + 2;
            until(|| server.held() > 0 || waits(observing) >= polled);
            if server.held() > 0 {
                break;
            }
        }
        assert_eq!(reader.end(), Some(0));
        assert!(server.held() > 0, "it still hangs");
    });
}

#[test]
fn what_one_call_copies_is_fetched_ahead_of_it_before_the_call_returns() {
    let test = "what_one_call_copies_is_fetched_ahead_of_it_before_the_call_returns";
    if Server::mount(test).is_none() || !installed(test, "python3") {
        return;
    }
    let folder = folder("copies");
    let copy = folder.join("copy");
    within(move || {
        for (flags, from) in [
            ("", "position"),
            ("", "0"),
            ("--observe preload", "position"),
            ("--observe preload", "0"),
        ] {
            // Nothing of its file is cached.
            let server = Server::mount(test).expect("another was mounted");
            let mut command = run(flags);
            let mut reader = opens(command.env("FORERUN_PRELOAD", shim()), &server, "large");
            // Without the kernel's own readahead what comes beyond is prefetched for the program.
            assert_eq!(reader.say("random"), "done");
            spins(&mut reader, &server);
            server.falls_ill(Operation::Read, Illness::Hangs);
            assert!(reader.hears(&format!("copy {from} {}", copy.display())));
            let file = File::open(server.path("large")).expect("it is there");
            let beyond = ILL_FROM + COPIED_AT_ONCE..file.metadata().expect("it answers").len();
            until(|| matches!(kernel::cached(&file, &beyond), Ok(Residency::Pages(1..))));
            assert!(!reader.has_answered(), "the call lasts");
            server.heals();
            let alone = opens(&mut Command::new("env"), &server, "large").say("read 1073741824");
            assert_eq!(reader.answer(), alone, "{flags} {from}");
            assert_eq!(reader.end(), Some(0), "{flags} {from}");
        }
    });
}

#[test]
fn a_run_ends_while_its_own_close_hangs() {
    let test = "a_run_ends_while_its_own_close_hangs";
    let Some(server) = Server::mount(test).filter(|_| installed(test, "python3")) else { return };
    within(move || {
        let mut reader = opens(&mut run(""), &server, "large");
        let path = server.path("large");
        reader.say("read 65536");
        assert!(holds(reader.child.id(), &path), "it is not observed to read");
        reader.say("close");
        server.falls_ill(Operation::Flush, Illness::Hangs);
        // Either it closes its own after that, or it has done so before.
        spins(&mut reader, &server);
        assert_eq!(reader.end(), Some(0));
    });
}

#[test]
fn a_run_ends_while_the_path_of_a_mapped_file_hangs() {
    let test = "a_run_ends_while_the_path_of_a_mapped_file_hangs";
    let Some(server) = Server::mount(test).filter(|_| installed(test, "python3")) else { return };
    within(move || {
        let mut reader = opens(&mut run(""), &server, "large");
        reader.say("map");
        server.falls_ill(Operation::Lookup, Illness::Hangs);
        reader.say("touch 1048576");
        spins(&mut reader, &server);
        assert_eq!(reader.end(), Some(0));
    });
}

#[test]
fn an_explanation_starts_its_program_while_a_server_hangs() {
    let test = "an_explanation_starts_its_program_while_a_server_hangs";
    let Some(server) = Server::mount(test) else { return };
    within(move || {
        server.falls_ill(Operation::Lookup, Illness::Hangs);
        // The argument is no file of the program's.
        let output = explain("").arg("echo").arg(server.path("large")).output().unwrap();
        assert!(output.status.success());
        assert!(server.held() > 0, "it still hangs");
    });
}

#[test]
fn what_a_program_reads_of_a_server_that_fails_or_lies_is_what_it_reads_alone() {
    let test = "what_a_program_reads_of_a_server_that_fails_or_lies";
    let Some(server) = Server::mount(test).filter(|_| installed(test, "python3")) else { return };
    let operations = [Operation::Lookup, Operation::Attributes, Operation::Open, Operation::Read];
    let errors = [Errno::EIO, Errno::ESTALE, Errno::EACCES];
    let fails = operations
        .iter()
        .flat_map(|&operation| errors.iter().map(move |&errno| (operation, Illness::Fails(errno))));
    let sizes = [0, 4097, 1 << 20, (64 << 20) + 1, 1 << 40];
    let lies = sizes.iter().map(|&bytes| (Operation::Attributes, Illness::Lies(bytes)));
    let rows: Vec<_> = fails.chain(lies).collect();
    within(move || {
        for (operation, illness) in rows {
            let why = format!("{operation:?} {illness:?}");
            let session = |mut reader: Reader| {
                let path = server.path("large");
                reader.say(&format!("open {}", path.display()));
                server.falls_ill(operation, illness);
                // The whole range is read: where it fails the program ends with an error.
                let read: Vec<String> =
                    (0..64).map(|_| reader.say_if_it_can("read 65536")).collect();
                let status = reader.end();
                server.heals();
                (read, status)
            };
            let alone = session(start(&mut alone()));
            assert_eq!(session(start(&mut run(""))), alone, "{why}");
        }
    });
}

/// A command that runs what follows.
fn alone() -> Command {
    let mut command = Command::new("env");
    command.stderr(std::process::Stdio::null());
    command
}

/// Polls after which the observers have seen all that there is.
const POLLS: u64 = 60;

#[test]
fn a_wait_for_a_listing_is_explained_and_its_file_system_named() {
    let test = "a_wait_for_a_listing_is_explained_and_its_file_system_named";
    let Some(server) = Server::mount(test) else { return };
    server.falls_ill(Operation::Entries, Illness::Hangs);
    let mut child = explain("--json")
        .arg("ls")
        .arg(&*server.folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    until(|| server.held() > 0);
    let observing = observing(child.id());
    let polled = waits(observing) + 50;
    until(|| waits(observing) >= polled || child.try_wait().expect("it was started").is_some());
    server.heals();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    let explained: Value = serde_json::from_slice(&output.stdout).expect("one object");
    if explained["calls_refused"] != 0 {
        return skip(test, "processes may not be observed here");
    }
    let waited = explained["causes"]["readdir_seconds"].as_f64().expect("a number");
    let all = explained["storage_seconds"].as_f64().expect("a number");
    assert!(waited > 0.0 && waited <= all, "{explained}");
    let directory = &explained["directories"][0];
    assert_eq!(directory["path"], server.folder.to_str().expect("a text"), "{explained}");
    assert_eq!(directory["causes"]["readdir_seconds"], explained["causes"]["readdir_seconds"]);
    let trap = &explained["traps"][0];
    assert_eq!((&trap["kind"], &trap["path"]), (&"fuse".into(), &directory["path"]));
    assert_eq!(explained["walks"].as_array().map(Vec::len), Some(0), "{explained}");
    assert_ne!(explained["prediction"]["reason"], "reads-nothing", "{explained}");
    assert_eq!(explained["prediction"]["gain_seconds"], 0.0, "nothing is fetched on FUSE");
}
/// More than a call reads before it hands on what it has: a pipe of the kernel holds half of that.
const COPIED_AT_ONCE: u64 = 128 << 10;
