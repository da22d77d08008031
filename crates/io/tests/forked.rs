//! A program that forks while it has files open: the child has a copy of all that the parent has,
//! but for its threads and its rings, and must do the parent no harm.
//!
//! The process is copied, so this is a test program of its own with one test.

use std::{path::Path, sync::Arc};

use forerun_io::{
    files::{Backend, Files, FilesSettings},
    frames::Frame,
    store::{Op, OpKind, Queue, QueueKind, Store, Wait, file::Access, pattern},
};
use forerun_testkit::ScratchFile;

const BYTES: usize = 100_001;
const OPS: u64 = 25;

fn submit_all(queue: &dyn Queue) {
    for token in 0..OPS {
        let frames = vec![Frame::new(4096).unwrap()];
        let offset = token * 4096;
        queue.submit(Op { token, kind: OpKind::Read, offset, bytes: 4096, frames });
    }
}

/// How many of the operations came back well, with the right bytes.
fn reap_all(queue: &Arc<dyn Queue>) -> u64 {
    let (mut out, mut well) = (Vec::new(), 0);
    let reaper = queue.reaper().unwrap_or_else(|| Arc::clone(queue));
    while out.len() < usize::try_from(OPS).unwrap() {
        let before = out.len();
        reaper.reap(Wait::One, &mut out);
        assert!(out.len() > before, "what was submitted comes back");
    }
    for done in out {
        if let Ok(moved) = done.result {
            assert_eq!(pattern::verify(done.op.offset, &done.op.frames[0][..moved]), Ok(()));
            well += 1;
        }
    }
    well
}

/// What a child does with what it inherited; the exit status.
type Child = fn(&Arc<dyn Queue>, &Arc<dyn Queue>) -> i32;

/// Waits until every other thread of this process sleeps: none holds a lock then, as no lock is
/// held over a call that waits. Nothing is in flight that could wake one.
fn until_others_sleep() {
    let here = rustix::thread::gettid().as_raw_pid().to_string();
    let sleeps = |task: &Path| {
        // `pid (name) state ...`; a thread that has ended sleeps for good.
        let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('S'))
    };
    let all_sleep = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let mut others = tasks.map(|task| task.unwrap()).filter(|task| *task.file_name() != *here);
        others.all(|task| sleeps(&task.path()))
    };
    while !all_sleep() {
        std::thread::yield_now();
    }
}

/// Runs `child` in a child of this process that is given up after 20 seconds; its exit status.
fn in_child(child: impl FnOnce() -> i32) -> Option<i32> {
    until_others_sleep();
    // SAFETY: no other thread of ours is in an allocator or holds a lock: all of them sleep. The
    // child ends without going back to the test harness.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: a plain system call.
        unsafe { libc::alarm(20) };
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(100);
        // SAFETY: ends this process at once, which runs nothing of its parent's.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the status is written to a variable that outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

#[test]
fn a_child_reads_for_itself_and_leaves_the_rings_of_its_parent_alone() {
    let mut contents = vec![0; BYTES];
    pattern::fill(0, &mut contents);
    let path = ScratchFile::holding("forked", contents);
    let children: [(&str, Child); 3] = [
        ("leaves what it submitted", |_, background| {
            submit_all(&**background);
            0
        }),
        ("waits for what it submitted", |_, background| {
            submit_all(&**background);
            i32::from(reap_all(background) > OPS)
        }),
        ("reads by itself", |caller, _| {
            submit_all(&**caller);
            i32::from(reap_all(caller) != OPS)
        }),
    ];
    for backend in [Backend::Uring, Backend::Threads] {
        let settings = FilesSettings { backend, ..FilesSettings::default() };
        let Ok(files) = Files::new(settings) else { continue };
        let store: Arc<dyn Store> = files.open(&path, Access::Read).unwrap();
        let caller = store.queue(QueueKind::Caller);
        let background = store.queue(QueueKind::Background { depth: 4 });
        for queue in [&caller, &background] {
            submit_all(&**queue);
            assert_eq!(reap_all(queue), OPS);
        }
        for (what, child) in children {
            assert_eq!(in_child(|| child(&caller, &background)), Some(0), "{backend:?} {what}");
            for queue in [&caller, &background] {
                submit_all(&**queue);
                assert_eq!(reap_all(queue), OPS, "{backend:?} {what}");
            }
        }
        let mut all = Some((files, store, caller, background));
        let drop_all = || {
            drop(all.take());
            0
        };
        assert_eq!(in_child(drop_all), Some(0), "{backend:?}: lets go of all");
        let (.., background) = all.as_ref().expect("what a child takes, its parent keeps");
        submit_all(&**background);
        assert_eq!(reap_all(background), OPS, "{backend:?}");
    }
}
