//! The learner by itself: what it takes for a use, and how much it remembers of files.
//!
//! # Invariants
//! - No program runs under it: what observers would report is reported by the tests.

use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix;
use std::process::{self, Command, Stdio};

use forerun_testkit::{Scratch, installed, skip};

use super::*;
use crate::kernel;
use crate::learn::store::Store;
use crate::learn::watches::Notes;
use forerun_core::learned::Version;
use forerun_core::planner::CursorId as Cursor;

/// A learner that keeps its list in `scratch`, with reports of the process `pid`.
fn learner(scratch: &Scratch, pid: u32) -> Learner {
    let store = Store::at(&scratch.join("lists")).unwrap();
    let program = format::Program::default();
    let target = Some(Target { store, name: "x".into(), program });
    let (list, stats) = (LearnedList::default(), LearnedStats::default());
    let mut learner = Learner::new(target, &list, stats, Arc::default(), ThreadRoom::here());
    learner.process(i32::try_from(pid).unwrap());
    learner
}

/// `learner` is told that `file` was opened, as the number `id`.
fn open(learner: &mut Learner, file: &File, id: u32) {
    let path = crate::open::path_of(file).unwrap();
    let stat = kernel::stat(file).unwrap();
    learner.opened(Nanos(0), Cursor(id), path, &stat, (Some(FileId(id)), Some(file)));
}

#[test]
fn reads_of_the_programs_processes_teach_and_those_of_others_do_not() {
    let scratch = Scratch::on_disk("learn-told");
    let own = i32::try_from(process::id()).unwrap();
    let mut learner = learner(&scratch, process::id());
    #[rustfmt::skip]
    let rows = [ // the process that has read, whether that is learned
        (Some(own),                                   true),
        // No poll has met it as one of the program's.
        (Some(1),                                     false),
        // The system does not tell.
        (None,                                        false),
    ];
    for (at, (process, is_learned)) in rows.into_iter().enumerate() {
        let path = scratch.file(&format!("{at}"), "text").into_os_string().into_encoded_bytes();
        let notes = Notes { paths: vec![(path.clone(), process)], left: Vec::new() };
        learner.take_notes(Nanos(0), notes);
        assert_eq!(learner.seen.has(&path), is_learned, "{process:?}");
    }
}

#[test]
fn what_lies_in_memory_in_any_case_is_not_learned() {
    let test = "what_lies_in_memory_in_any_case_is_not_learned";
    let (disk, memory) = (Scratch::on_disk("learn-disk"), Scratch::in_memory("learn-memory"));
    let file = |scratch: &Scratch| {
        fs::write(scratch.join("file"), [1; 10]).unwrap();
        File::open(scratch.join("file")).unwrap()
    };
    let (on_disk, in_memory) = (file(&disk), file(&memory));
    let keeps_it = |file: &File| is_in_memory(file, &kernel::stat(file).unwrap());
    if keeps_it(&on_disk) || !keeps_it(&in_memory) {
        return skip(test, "a disk, and a file system in memory");
    }
    let mut learner = learner(&disk, process::id());
    open(&mut learner, &in_memory, 1);
    assert_eq!((learner.seen.count(), learner.cursors.len(), learner.files.len()), (0, 0, 0));
    open(&mut learner, &on_disk, 2);
    assert_eq!((learner.seen.count(), learner.cursors.len(), learner.files.len()), (1, 1, 1));
    // What is looked up by a worker tells the same.
    let look = |scratch: &Scratch| {
        let path = scratch.join("file").into_os_string().into_encoded_bytes();
        let tools = Arc::clone(&learner.tools);
        work(Job { tools, what: What::Look(path.into()) }).found.unwrap().is_in_memory
    };
    assert_eq!([look(&disk), look(&memory)], [false, true]);
}

#[test]
fn what_a_link_leads_to_in_memory_is_not_learned() {
    let test = "what_a_link_leads_to_in_memory_is_not_learned";
    let (disk, memory) = (Scratch::on_disk("learn-link"), Scratch::in_memory("learn-linked"));
    fs::write(disk.join("file"), [1; 10]).unwrap();
    fs::write(memory.join("file"), [1; 10]).unwrap();
    let keeps_it = |scratch: &Scratch| {
        let file = File::open(scratch.join("file")).unwrap();
        is_in_memory(&file, &kernel::stat(&file).unwrap())
    };
    if keeps_it(&disk) || !keeps_it(&memory) {
        return skip(test, "a disk, and a file system in memory");
    }
    let mut learner = learner(&disk, process::id());
    for (scratch, is_learned) in [(&disk, true), (&memory, false)] {
        let real = fs::canonicalize(scratch.join("file")).unwrap();
        let link = disk.join(format!("link-{is_learned}"));
        unix::fs::symlink(&real, &link).unwrap();
        let [real, link] = [real, link].map(|it| it.into_os_string().into_encoded_bytes());
        learner.sighted(Nanos(0), &link, LearnedKind::Read);
        // It is of a list, and was fetched.
        learner.seen.found(&link, Version::default());
        let tools = Arc::clone(&learner.tools);
        let done = work(Job { tools, what: What::Look(link.into()) });
        learner.take_in(Nanos(0), done);
        let run = learner.run();
        let has = |path: &[u8]| run.iter().any(|it| *it.entry.path == *path);
        assert_eq!(has(&real), is_learned, "{real:?}");
    }
}

#[test]
fn what_another_users_link_leads_to_is_learned_by_its_own_path_alone() {
    let test = "what_another_users_link_leads_to_is_learned_by_its_own_path_alone";
    let scratch = Scratch::on_disk("learn-foreign");
    let real = scratch.file("file", "text");
    for (name, owner, is_learned) in [("own", None, true), ("foreign", Some(1234), false)] {
        let link = scratch.join(name);
        unix::fs::symlink(&real, &link).unwrap();
        if owner.is_some() && unix::fs::lchown(&link, owner, None).is_err() {
            return skip(test, "root");
        }
        let mut learner = learner(&scratch, process::id());
        let link = link.into_os_string().into_encoded_bytes();
        learner.sighted(Nanos(0), &link, LearnedKind::Read);
        // As the file that it was when it was fetched.
        learner.seen.found(&link, Version::default());
        let tools = Arc::clone(&learner.tools);
        let done = work(Job { tools, what: What::Look(link.into()) });
        learner.take_in(Nanos(0), done);
        let real = fs::canonicalize(&real).unwrap().into_os_string().into_encoded_bytes();
        assert_eq!(learner.seen.has(&real), is_learned, "{name}");
    }
}

#[test]
fn a_process_in_another_mount_namespace_or_with_fewer_rights_teaches_nothing() {
    let test = "a_process_in_another_mount_namespace_or_with_fewer_rights_teaches_nothing";
    for words in [["unshare", "-m"], ["setpriv", "--reuid=1234"]] {
        if !installed(test, words[0]) {
            continue;
        }
        let scratch = Scratch::on_disk("learn-elsewhere");
        let file = File::open(scratch.file("file", "text")).unwrap();
        let mut command = Command::new(words[0]);
        command.args([words[1], "sh", "-c", "echo there && exec cat"]).stderr(Stdio::null());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 6];
        if child.stdout.as_mut().unwrap().read_exact(&mut said).is_err() {
            child.wait().unwrap();
            skip(test, "a mount namespace, and root");
            continue;
        }
        let mut learner = learner(&scratch, child.id());
        reports(&mut learner, &file, child.id());
        assert_eq!((learner.seen.count(), learner.cursors.len()), (0, 0), "{words:?}");
        learner.end(Nanos(0));
        assert_eq!(learner.stats.trouble, OF_OTHERS, "{words:?}");
        learner.process(i32::try_from(process::id()).unwrap());
        reports(&mut learner, &file, process::id());
        assert_eq!((learner.seen.count(), learner.cursors.len()), (3, 1), "{words:?}");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

/// What observers and watches report of a process: a file that it has open, another that it waits
/// for, and one that it has read.
fn reports(learner: &mut Learner, file: &File, pid: u32) {
    open(learner, file, 1);
    let folder = File::open(format!("/proc/{pid}")).unwrap();
    let pid = i32::try_from(pid).unwrap();
    let (process, path) = (folder.as_fd(), b"/other".as_slice());
    let call = EntryCall::Open;
    let access = EntryAccess { pid, thread: pid, process, path, call, read: None };
    learner.entry(Nanos(0), &access);
    let notes = Notes { paths: vec![(b"/third".to_vec(), Some(pid))], left: Vec::new() };
    learner.take_notes(Nanos(0), notes);
}

#[test]
fn requests_of_the_files_that_were_met_last_are_followed() {
    let scratch = Scratch::on_disk("learn-files");
    fs::write(scratch.join("file"), [1; 10]).unwrap();
    let file = File::open(scratch.join("file")).unwrap();
    let mut learner = learner(&scratch, process::id());
    let count = u32::try_from(FILES_MAX).unwrap() + 10;
    (0..count).for_each(|id| open(&mut learner, &file, id));
    assert_eq!(learner.files.len(), FILES_MAX);
    let known = |id: u32| learner.files.contains_key(&FileId(id));
    assert!(known(count - 1) && !known(0), "the first are forgotten");
}
